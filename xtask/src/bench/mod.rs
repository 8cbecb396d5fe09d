//! `cargo xtask bench`: Kiln beside its peers, in one run on one machine, as ratios.
//!
//! A bench is a named set of workloads. Every contender runs each workload several times, in turn, in a
//! process of its own; the medians go into a section of `BENCHMARKS.md`. A peer that is not there is
//! named as missing, never guessed.

mod charts;
mod client;
mod compare;
mod kustomize;
pub(crate) mod kyverno;
mod kyverno_cli;
mod kyverno_validate;
mod libraries;
mod live;
mod plots;
mod plugins;
mod report;
mod sandbox;

use std::process::Command;

use anyhow::{Result, bail};

use crate::measure;
use libraries::Program::{Go, Rust};
use report::Report;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The bench to run, or the first word of several; all of them without a name
    name: Option<String>,
    /// How often each contender runs each workload
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Print the figures, but leave BENCHMARKS.md alone
    #[arg(long)]
    dry_run: bool,
    /// Only draw the plots of docs/performance.md from BENCHMARKS.md
    #[arg(long)]
    plots: bool,
    /// Count the instructions and allocations of Kiln's own workloads now and at this commit; writes nothing
    #[arg(long, value_name = "REV")]
    compare: Option<String>,
    #[command(flatten, next_help_heading = "Benches on a live control plane")]
    live: live::Options,
}

/// One bench: its name, what it shows, and how it is measured.
struct Bench {
    name: &'static str,
    about: &'static str,
    /// Rows, and what limits Kiln in them now.
    limits: &'static [(&'static str, &'static str)],
    measure: fn(&mut Report, &Args) -> Result<()>,
}

impl Bench {
    /// Whether it goes by a name, or by the first word of its name.
    fn is_called(&self, name: &str) -> bool {
        let rest = self.name.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }
}

const BENCHES: &[Bench] = &[
    Bench {
        name: "yaml",
        about: "Reading and printing a file of 10,000 resources, and what the values cost in memory.",
        limits: &[
            (
                "reading",
                "the scanner, which decides at each character what it is (45 % of the instructions), then one allocation for each map, list and long text",
            ),
            (
                "printing",
                "looking at each text for characters that need quotes (half of the instructions)",
            ),
            ("holding", "32 bytes for each entry of a map, and two allocations for each map"),
            ("cloning", "counting one more holder"),
        ],
        measure: |report, args| libraries::measure(&[Rust("libraries", "yaml")], report, args.runs),
    },
    Bench {
        name: "patch",
        about: "Many small patches, and small patches on a large object.",
        limits: &[
            (
                "patches on an object of its own each",
                "copying the maps on the way from the root to the place that changes",
            ),
            (
                "small patches on a large object",
                "the same, so that the size of the object does not matter",
            ),
        ],
        measure: |report, args| {
            libraries::measure(&[Rust("libraries", "patch")], report, args.runs)
        },
    },
    Bench {
        name: "jmespath",
        about: "JMESPath expressions and variable substitution.",
        limits: &[
            (
                "fields",
                "comparing keys one after the other (a fifth of the instructions), and the budget that each step pays",
            ),
            ("projections", "two allocations for each list that an expression makes"),
        ],
        measure: |report, args| {
            libraries::measure(&[Rust("libraries", "jmespath")], report, args.runs)
        },
    },
    Bench {
        name: "cel",
        about: "CEL expressions on a Pod, and what compiling them costs: parsing, type checking and planning, of which \
                `cel` only parses.",
        limits: &[
            (
                "expressions on a Pod",
                "comparing keys of maps, and setting up the evaluation (its variables and its budget)",
            ),
            ("compiling", "allocations for nodes and types (a quarter of the instructions)"),
        ],
        measure: |report, args| {
            libraries::measure(&[Rust("cel", "kiln-bench-cel"), Go("cel-go")], report, args.runs)
        },
    },
    Bench {
        name: "kubemod",
        about: "Many ModRules on one Deployment, of which one in ten patches it, and templates of values beside Go's own \
                text/template with sprig, which renders the same bytes.",
        limits: &[
            (
                "many ModRules on one Deployment",
                "the patches: rules that cannot match are not asked, and each that does copies the maps that it changes and reads its value as YAML",
            ),
            ("loading", "reading YAML, then compiling each rule's own expressions"),
            (
                "templates",
                "allocations for texts and for the record of which parts of a text came from data",
            ),
        ],
        measure: |report, args| {
            report.note(
                "KubeMod's own rule store is missing: Go's module proxy does not serve github.com/kubemod/kubemod",
            );
            let programs = [Rust("modrules", "kiln-bench-modrules"), Go("text-template")];
            libraries::measure(&programs, report, args.runs)
        },
    },
    Bench {
        name: "kustomize",
        about: "`kiln build` beside `kustomize build`, whose outputs were the same bytes for every tree.",
        limits: &[
            (
                "one Service",
                "the loader's relocations and the tables of kustomize's default fields; the command line needs the options of one command only",
            ),
            ("many resources", "the scanner and the printer of YAML, on one thread"),
        ],
        measure: |report, args| kustomize::measure(report, args.runs),
    },
    Bench {
        name: "charts",
        about: "`helmCharts` in `kiln build --enable-helm` beside `kustomize build --enable-helm` with the helm program, whose \
                outputs were the same bytes for every tree.",
        limits: &[("all workloads", "reading the package and rendering templates, on one thread")],
        measure: |report, args| charts::measure(report, args.runs),
    },
    Bench {
        name: "plugins",
        about: "Programs as transformers, in `kiln build` and in `kustomize build`, with the same bytes as the result. Kiln keeps \
                them from files outside of their kustomization; *unconfined* it does not, as kustomize never does.",
        limits: &[(
            "all workloads",
            "starting the programs; keeping them from files adds a third to a half to that",
        )],
        measure: |report, args| plugins::measure(report, args.runs),
    },
    Bench {
        name: "kyverno-cli",
        about: "`kiln apply` beside `kyverno apply`, as whole processes on the same files, with the same verdicts. The large \
                workloads run once.",
        limits: &[
            ("cold start", "see the build of one Service"),
            (
                "10,000 Namespaces",
                "one thread: reading, evaluating and printing follow one another",
            ),
        ],
        measure: |report, args| kyverno_cli::measure(report, args.runs),
    },
    Bench {
        name: "kyverno-validate",
        about: "`kiln apply` beside `kyverno apply` with policies that check, as whole processes on the same files.",
        limits: &[],
        measure: |report, args| kyverno_validate::measure(report, args.runs),
    },
    Bench {
        name: "sandbox",
        about: "`kiln up` beside etcd, kube-apiserver and kube-controller-manager, over TLS, with one client at a time.",
        limits: &[
            ("start", "making certificates and the objects of a fresh cluster"),
            ("creates and gets", "the client, one request at a time"),
            ("lists", "writing each object as JSON for each list"),
            (
                "watches",
                "waking each watch, its TLS record and its system call; the text of an event is written once for all",
            ),
        ],
        measure: |report, args| sandbox::measure(report, args.runs),
    },
    Bench {
        name: "live-generation",
        about: "`kiln run` beside Kyverno's admission and background controllers on a real control plane: objects for \
                Namespaces that are there, a source that changes, and triggers that change in nothing.",
        limits: &[(
            "all workloads",
            "the API server and etcd: Kiln's own processor time is a third of a millisecond for each object",
        )],
        measure: |report, args| live::generation(report, &args.live),
    },
    Bench {
        name: "live-admission",
        about: "`kiln run` beside Kyverno's controllers: how long the webhook itself takes to answer AdmissionReviews \
                for ConfigMaps over kept TLS connections, with mutate rules of which a few apply, and memory.",
        limits: &[
            (
                "one stream",
                "a round trip over TLS; the figures with 1,000 policies are from when each rule was asked, and an index now gives the three that may apply",
            ),
            (
                "many streams",
                "the processors, which are shared with the API server and with the client that measures",
            ),
        ],
        measure: |report, args| live::admission(report, &args.live),
    },
    Bench {
        name: "live-checks",
        about: "`kiln run` beside Kyverno's controllers: how long the webhook takes to answer for Pods that 17 Pod Security \
                policies of the policy library check, in an open loop at fixed rates, and how many it can answer.",
        limits: &[],
        measure: |report, args| live::checks(report, &args.live),
    },
    Bench {
        name: "live-scan",
        about: "`kiln run` beside Kyverno's controllers with its reports controller: the scan of Pods that are there with 17 Pod \
                Security policies, and what reports cost when Pods change.",
        limits: &[],
        measure: |report, args| live::scan(report, &args.live),
    },
    Bench {
        name: "live-large",
        about: "Generation for many Namespaces that are there, as in *live-generation*.",
        limits: &[("all workloads", "the API server and etcd, as in *live-generation*")],
        measure: |report, args| live::large(report, &args.live),
    },
];

/// Runs the benches and writes their sections.
pub(crate) fn run(args: &Args) -> Result<()> {
    if args.plots {
        return plots::draw();
    }
    if let Some(revision) = &args.compare {
        return compare::run(revision, args.name.as_deref());
    }
    let chosen: Vec<&Bench> = BENCHES
        .iter()
        .filter(|bench| args.name.as_ref().is_none_or(|name| bench.is_called(name)))
        .collect();
    if chosen.is_empty() {
        let names: Vec<_> = BENCHES.iter().map(|bench| bench.name).collect();
        bail!("there is no bench of that name; there are {}", names.join(", "));
    }
    for bench in chosen {
        eprintln!("== bench {}", bench.name);
        let mut report = Report::new(bench.name, bench.about, args.runs);
        report.limits(bench.limits);
        (bench.measure)(&mut report, args)?;
        let section = report.to_markdown();
        eprintln!("\n{section}");
        if !args.dry_run {
            report::write_section(bench.name, &section)?;
            plots::draw()?;
        }
    }
    Ok(())
}

/// Counts the instructions of one run with callgrind, where valgrind is installed.
fn instructions(command: &Command) -> Option<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .env("KILN_BENCH_COUNTING", "1")
        .arg(command.get_program())
        .args(command.get_args())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let (_, count) = text.split_once("Collected : ")?;
    count.split_whitespace().next()?.parse().ok()
}

/// Measures a command several times; the usages in the order of the runs.
fn repeat(command: &Command, runs: usize) -> Result<Vec<measure::Usage>> {
    (0..runs.max(1)).map(|_| measure::usage_of(command)).collect()
}
