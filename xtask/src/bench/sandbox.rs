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
            report.figure("start to ready", "s", who, began.elapsed().as_secs_f64());
            report.figure("memory, fresh", "MB", who, memory(cluster.folder())?);
            requests(report, who, &cluster)?;
        }
    }
    Ok(())
}

/// The memory of all processes that run in a folder, in megabytes.
fn memory(folder: &Path) -> Result<f64> {
    let mut kilobytes = 0.0;
    for entry in fs::read_dir("/proc")?.flatten() {
        if fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == folder) {
            let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            kilobytes += line
                .and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok())
                .unwrap_or(0.0);
        }
    }
    Ok(kilobytes / 1024.0)
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
        report.figure(workload, "s", who, began.elapsed().as_secs_f64());
        Ok(())
    };
    timed("1,000 creates", &mut || {
        (0..OBJECTS).try_for_each(|i| client.post(CONFIG_MAPS, &config_map(&format!("a{i}"))))
    })?;
    timed("2,000 gets", &mut || {
        (0..GETS).try_for_each(|i| {
            client.get(&format!("{CONFIG_MAPS}/a{}", i % OBJECTS))?.body_mut().read_to_vec()?;
            Ok(())
        })
    })?;
    timed("20 lists of 1,000", &mut || {
        (0..LISTS).try_for_each(|_| {
            client.get(CONFIG_MAPS)?.body_mut().read_to_vec()?;
            Ok(())
        })
    })?;
    timed("50 writes heard by 50 watches", &mut || fan_out(&client))
}

/// Writes that everybody must hear of.
fn fan_out(client: &Client) -> Result<()> {
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
        Ok(())
    })
}
