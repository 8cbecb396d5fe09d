//! `kiln up` beside a real control plane: start, memory, and requests of one client at a time.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use kiln_testkit::control_plane::ControlPlane;

use super::client::Client;
use super::kustomize;
use super::report::Report;

const PEER: &str = "kube-apiserver";
const OBJECTS: usize = 1000;
const GETS: usize = 2000;
const LISTS: usize = 20;
const WATCHERS: usize = 50;
const WRITES: usize = 50;

pub(super) fn measure(report: &mut Report, runs: usize) -> Result<()> {
    let kiln = kustomize::kiln()?;
    report.contender("kiln", env!("CARGO_PKG_VERSION"));
    report.contender(PEER, "1.36.4 with etcd and kube-controller-manager");
    for _ in 0..runs {
        for who in ["kiln", PEER] {
            let began = Instant::now();
            let cluster =
                if who == "kiln" { ControlPlane::sandbox(&kiln) } else { ControlPlane::start() };
            let cluster = cluster.context("cannot start")?;
            report.figure("start, until kubectl gets an answer", WALL, who, seconds(began));
            report.figure("fresh", MEMORY, who, memory(cluster.directory())?);
            requests(report, who, &cluster)?;
            report.figure("after the requests below", MEMORY, who, memory(cluster.directory())?);
        }
    }
    report.goal("start, until kubectl gets an answer", WALL, 20.0);
    report.goal("fresh", MEMORY, 8.0);
    for workload in [CREATES, GETS_OF_ALL, LISTS_OF_ALL, FAN_OUT] {
        report.goal(workload, WALL, 3.0);
    }
    report.note_load();
    Ok(())
}

const WALL: &str = "wall time";
const MEMORY: &str = "memory of all processes";
const CREATES: &str = "1,000 creates";
const GETS_OF_ALL: &str = "2,000 gets";
const LISTS_OF_ALL: &str = "20 lists of 1,000";
const FAN_OUT: &str = "50 writes until all of 50 watches heard them";

fn seconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64()
}

/// The memory of all servers that run in a directory, in bytes.
fn memory(directory: &Path) -> Result<f64> {
    let mut bytes = 0.0;
    for entry in fs::read_dir("/proc")?.flatten() {
        let runs_there = fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == directory);
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let name = field("Name:").unwrap_or_default().trim();
        // Each server has a shell beside it that ends it.
        if runs_there && !["sh", "cat", "rm"].contains(&name) {
            let kilobytes = field("VmRSS:").and_then(|line| line.split_whitespace().next());
            bytes += kilobytes.and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0) * 1024.0;
        }
    }
    Ok(bytes)
}

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn config_map(name: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"key":"value"}}}}"#
    )
}

fn requests(report: &mut Report, who: &str, cluster: &ControlPlane) -> Result<()> {
    let client = Client::of(cluster)?;
    let mut timed = |workload: &str, work: &mut dyn FnMut() -> Result<()>| -> Result<()> {
        let began = Instant::now();
        work()?;
        report.figure(workload, WALL, who, seconds(began));
        Ok(())
    };
    timed(CREATES, &mut || {
        (0..OBJECTS).try_for_each(|i| client.post(CONFIG_MAPS, &config_map(&format!("a{i}"))))
    })?;
    timed(GETS_OF_ALL, &mut || {
        (0..GETS).try_for_each(|i| {
            client.get(&format!("{CONFIG_MAPS}/a{}", i % OBJECTS))?.body_mut().read_to_vec()?;
            Ok(())
        })
    })?;
    timed(LISTS_OF_ALL, &mut || {
        (0..LISTS).try_for_each(|_| {
            let list = client.text(CONFIG_MAPS)?;
            anyhow::ensure!(list.matches("\"uid\"").count() >= OBJECTS, "a list is not complete");
            Ok(())
        })
    })?;
    let took = fan_out(&client)?;
    report.figure(FAN_OUT, WALL, who, took);
    Ok(())
}

/// Writes that all watches must receive; how long it took from the first of them on.
fn fan_out(client: &Client) -> Result<f64> {
    let path = format!("{CONFIG_MAPS}?watch=true&labelSelector=heard%3Dyes&timeoutSeconds=60");
    std::thread::scope(|scope| {
        let watches: Vec<_> = (0..WATCHERS)
            .map(|_| {
                let lines = client.lines(&path)?;
                Ok(scope.spawn(move || {
                    lines.filter(|line| line.contains("ADDED")).take(WRITES).count()
                }))
            })
            .collect::<Result<_>>()?;
        let began = Instant::now();
        for i in 0..WRITES {
            let object = config_map(&format!("w{i}-{}", std::process::id()));
            let object = object.replacen(r#"{"name""#, r#"{"labels":{"heard":"yes"},"name""#, 1);
            client.post(CONFIG_MAPS, &object)?;
        }
        for watch in watches {
            let heard = watch.join().unwrap_or(0);
            if heard != WRITES {
                bail!("a watch heard {heard} of {WRITES} writes");
            }
        }
        Ok(seconds(began))
    })
}
