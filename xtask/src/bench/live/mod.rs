//! `kiln run` beside Kyverno's admission and background controllers, on one real control plane.
//!
//! Every contender gets a fresh control plane of the same programs and settings for each scene, and is alone on it.
//! Kyverno's controllers run as plain processes with the accounts, rights and flags of the manifest in their own
//! module; only addresses and ports differ. Writes are counted by the API server.

mod admission;
mod checks;
mod contender;
mod generation;
mod pods;
mod scan;
mod server;
mod watch;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use kiln_testkit::control_plane::kyverno::Kyverno;

use super::report::Report;
use super::{kustomize, kyverno};
use contender::Who;
use pods::PodSecurity;

/// Where the policies of both contenders are stored.
const POLICIES: &str = "/apis/kyverno.io/v1/clusterpolicies";

/// How large the scenes are.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run the live benches in their full sizes, which takes long
    #[arg(long)]
    full: bool,
    /// How many Namespaces the live benches have [default: 200, or 2,000 and 10,000]
    #[arg(long)]
    namespaces: Option<usize>,
    /// How many Pods are scanned [default: 100, or 5,000]
    #[arg(long)]
    pods: Option<usize>,
    /// Leave the live benches' peers out
    #[arg(long)]
    alone: bool,
}

impl Options {
    /// The size that was asked for, or one of two.
    fn size<T>(&self, small: T, full: T) -> T {
        if self.full { full } else { small }
    }
}

/// The programs of all contenders.
struct Programs {
    kiln: PathBuf,
    kyverno: Option<Kyverno>,
}

impl Programs {
    /// Builds what is not there, and says which peer is missing.
    fn build(report: &mut Report, options: &Options) -> Result<Self> {
        report.set_runs(1);
        report.note_load();
        say_how(report);
        let kiln = kustomize::kiln()?;
        report.contender("kiln", env!("CARGO_PKG_VERSION"));
        let kyverno = match options.alone {
            true => None,
            false => match Kyverno::find() {
                Ok(programs) => Some(programs),
                Err(error) => {
                    report.note(&format!("Kyverno's controllers are missing: {error:#}"));
                    None
                }
            },
        };
        if kyverno.is_some() {
            report.contender(kyverno::PEER, &kyverno::version()?);
        }
        Ok(Programs { kiln, kyverno })
    }

    /// Those who take part in a scene.
    fn contenders(&self, all: &[Who]) -> Vec<Who> {
        let there = |who: &&Who| **who == Who::Kiln || self.kyverno.is_some();
        all.iter().filter(there).copied().collect()
    }
}

/// What rules make: for existing objects, for a source that changes, and for triggers that change in nothing.
pub(super) fn generation(report: &mut Report, options: &Options) -> Result<()> {
    let programs = Programs::build(report, options)?;
    let namespaces = options.namespaces.unwrap_or(options.size(200, 2_000));
    for who in programs.contenders(&[Who::Kiln, Who::Kyverno, Who::KyvernoUnthrottled]) {
        let touched = who != Who::KyvernoUnthrottled;
        generation::existing(report, &programs, who, namespaces, touched)?;
    }
    for who in programs.contenders(&[Who::Kiln, Who::Kyverno]) {
        generation::clones(report, &programs, who, namespaces)?;
    }
    say_how_writes_count(report);
    Ok(())
}

/// What the API server waits for, and memory at rest.
pub(super) fn admission(report: &mut Report, options: &Options) -> Result<()> {
    let programs = Programs::build(report, options)?;
    let load = admission::Load {
        policies: options.size(&[1, 17], &[1, 17, 100, 1_000]),
        streams: options.size(&[1, 16], &[1, 16, 64]),
        lasting: Duration::from_secs(options.size(2, 5)),
        rest: Duration::from_secs(options.size(10, 30)),
    };
    let mut fewest = Vec::new();
    for who in programs.contenders(&[Who::Kiln, Who::Kyverno]) {
        let answers = admission::latency(report, &programs, who, &load)?;
        fewest.push(format!("{answers} ({})", who.name()));
    }
    report.note(&format!(
        "streams sent for {} seconds, each request after the answer to the one before, so that a contender that answers sooner is asked \
         more often before its peak memory is read; the fewest answers behind a figure are {}",
        load.lasting.as_secs(),
        fewest.join(" and ")
    ));
    Ok(())
}

/// The first scene of generation again, with ten thousand Namespaces.
pub(super) fn large(report: &mut Report, options: &Options) -> Result<()> {
    let programs = Programs::build(report, options)?;
    let namespaces = options.namespaces.unwrap_or(options.size(1_000, 10_000));
    for who in programs.contenders(&[Who::Kiln, Who::Kyverno]) {
        generation::existing(report, &programs, who, namespaces, false)?;
    }
    say_how_writes_count(report);
    Ok(())
}

/// Pods that 17 Pod Security policies check, at fixed rates and without a pause.
pub(super) fn checks(report: &mut Report, options: &Options) -> Result<()> {
    let Some(security) = pod_security(report)? else { return Ok(()) };
    let programs = Programs::build(report, options)?;
    let load = checks::Load {
        rates: options.size(&[20], &[50, 200, 800]),
        lasting: Duration::from_secs(options.size(5, 60)),
    };
    for who in programs.contenders(&[Who::Kiln, Who::Kyverno]) {
        checks::open_loop(report, &programs, &security, who, &load)?;
    }
    report.note(&format!(
        "AdmissionReviews for Pods go to the validating webhook over kept TLS connections, for {} seconds at each rate. They are \
         sent when they are due, whether or not others are answered, and each time counts from that moment",
        load.lasting.as_secs()
    ));
    Ok(())
}

/// The scan of Pods that are there, and what reports cost when some change.
pub(super) fn scan(report: &mut Report, options: &Options) -> Result<()> {
    let Some(security) = pod_security(report)? else { return Ok(()) };
    let programs = Programs::build(report, options)?;
    let pods = options.pods.unwrap_or(options.size(100, 5_000));
    for who in programs.contenders(&[Who::Kiln, Who::Kyverno]) {
        scan::scan(report, &programs, &security, who, pods)?;
    }
    report.note(
        "the scan begins with the first policy that is stored; it ends when the report of every Pod has a result of every \
         policy. Kyverno's reports controller runs as well, and counts in its memory and processor time",
    );
    say_how_writes_count(report);
    Ok(())
}

/// The policies of the recorded cases, or that they are missing.
fn pod_security(report: &mut Report) -> Result<Option<PodSecurity>> {
    let found = PodSecurity::find()?;
    if found.is_none() {
        report.note("the policy library is missing: set KILN_CORPUS to a directory that has it");
    }
    Ok(found)
}

fn say_how(report: &mut Report) {
    report.note(
        "every contender had a fresh control plane for each scene (etcd without fsync, kube-apiserver and \
         kube-controller-manager 1.36.4) and two cores together with it and the client that measures",
    );
    report.note(
        "Kyverno ran without its cleanup controller, and without its reports controller where no reports are measured, with the flags of its own manifest and without the \
         memory limits in it; its memory and processor time are those of its controllers together. *Unthrottled*: with \
         `--clientRateLimitQPS=1000 --clientRateLimitBurst=2000` where its default is 100 and 200",
    );
}

fn say_how_writes_count(report: &mut Report) {
    report.note(
        "writes are what the API server answered well, of all resources but Leases, without those of the client; \
         reviews of access are not writes",
    );
}

/// With commas, as people write.
fn thousands(count: usize) -> String {
    match count {
        0..1_000 => count.to_string(),
        _ => format!("{},{:03}", count / 1_000, count % 1_000),
    }
}
