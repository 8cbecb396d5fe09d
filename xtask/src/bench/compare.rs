//! `cargo xtask bench --compare REV`: what Kiln's own workloads take now, and what they took at a commit, in instructions and
//! allocations. Both are counted by valgrind, so that a busy machine does not matter.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{git, root};

/// Programs with workloads: the bench that they belong to, their directory below `benches`, and their name.
const PROGRAMS: [(&str, &str, &str); 5] = [
    ("yaml", "libraries", "yaml"),
    ("patch", "libraries", "patch"),
    ("jmespath", "libraries", "jmespath"),
    ("cel", "cel", "kiln-bench-cel"),
    ("kubemod", "modrules", "kiln-bench-modrules"),
];

/// The bench of whole processes.
const BUILD: &str = "build";

/// How often a workload runs in the shorter and in the longer count; the difference is free of what comes before it.
const CALLS: [u64; 2] = [1, 21];

/// What something took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Cost {
    instructions: f64,
    /// None of programs with an allocator of their own, which valgrind does not see.
    allocations: Option<f64>,
}

/// A line of the table.
struct Line {
    workload: String,
    then: Cost,
    now: Cost,
}

/// Counts and prints; a name limits it to one bench.
pub(super) fn run(revision: &str, name: Option<&str>) -> Result<()> {
    let commit =
        git::output(&root(), &["rev-parse", "--verify", &format!("{revision}^{{commit}}")])?;
    let directory = root().join("target/bench-compare");
    let earlier = directory.join(&commit);
    if !earlier.is_dir() {
        git::unpack(&root(), &commit, &earlier)?;
    }
    // The counting is that of this tree, whatever the commit had.
    let clock = "benches/libraries/src/lib.rs";
    fs::copy(root().join(clock), earlier.join(clock)).context(clock)?;
    let is_meant = |bench: &str| name.is_none_or(|name| name == bench);
    let mut lines = Vec::new();
    for (bench, place, program) in PROGRAMS.into_iter().filter(|(bench, ..)| is_meant(bench)) {
        eprintln!("== {bench}");
        let then = build(&earlier.join("benches").join(place), program, &directory.join("then"))?;
        let now = build(&root().join("benches").join(place), program, &directory.join("now"))?;
        for workload in workloads(&now)? {
            let Ok(then) = cost_of(&then, &workload) else {
                eprintln!("   {workload}: {revision} does not have it");
                continue;
            };
            let now = cost_of(&now, &workload)?;
            lines.push(Line { workload, then, now });
        }
    }
    if is_meant(BUILD) {
        let then = build(&earlier, "kiln", &directory.join("then"))?;
        let now = build(&root(), "kiln", &directory.join("now"))?;
        let tree = super::kustomize::write_one_service(&directory.join("one-service"))?;
        let cost = |program: &Path| -> Result<Cost> {
            let mut command = Command::new(program);
            command.arg("build").arg(&tree);
            Ok(Cost { instructions: instructions(&command)?.0, allocations: None })
        };
        let workload = "kiln build of one Service, whole process".to_owned();
        lines.push(Line { workload, then: cost(&then)?, now: cost(&now)? });
    }
    if lines.is_empty() {
        let names: Vec<_> = PROGRAMS.iter().map(|(bench, ..)| *bench).chain([BUILD]).collect();
        bail!("there is nothing to compare of that name; there are {}", names.join(", "));
    }
    eprintln!("\n{}", table(revision, &lines));
    Ok(())
}

fn build(directory: &Path, program: &str, target: &Path) -> Result<PathBuf> {
    let status = Command::new("cargo")
        .args(["build", "--release", "--quiet", "--bin", program])
        .current_dir(directory)
        .env("CARGO_TARGET_DIR", target)
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("{program} cannot be built in {}: see above", directory.display());
    }
    Ok(target.join("release").join(program))
}

/// Kiln's own workloads of a program.
fn workloads(program: &Path) -> Result<Vec<String>> {
    let listed = checked(Command::new(program).arg("--list"))?;
    let listed = String::from_utf8(listed.stdout)?;
    let entries = listed.lines().map(serde_json::from_str::<Value>);
    let entries: Vec<Value> = entries.collect::<Result<_, _>>()?;
    let own = entries.iter().filter(|entry| entry["who"] == "kiln");
    Ok(own.filter_map(|entry| entry["workload"].as_str().map(str::to_owned)).collect())
}

/// What one call of a workload takes.
fn cost_of(program: &Path, workload: &str) -> Result<Cost> {
    let command = |calls: u64| {
        let mut command = Command::new(program);
        command.args([workload, "kiln"]).env("KILN_BENCH_COUNTING", calls.to_string());
        command
    };
    let (few, printed) = instructions(&command(CALLS[0]))?;
    let few = Cost { instructions: few, allocations: Some(allocations(&command(CALLS[0]))?) };
    // A workload with a clock of its own runs once, whatever was asked for.
    if printed["seconds"].is_number() {
        return Ok(few);
    }
    let many = Cost {
        instructions: instructions(&command(CALLS[1]))?.0,
        allocations: Some(allocations(&command(CALLS[1]))?),
    };
    Ok(each(few, many, (CALLS[1] - CALLS[0]) as f64))
}

fn each(few: Cost, many: Cost, calls: f64) -> Cost {
    let allocations = many.allocations.zip(few.allocations);
    Cost {
        instructions: (many.instructions - few.instructions) / calls,
        allocations: allocations.map(|(many, few)| (many - few) / calls),
    }
}

/// The instructions of a command, and what it prints.
fn instructions(command: &Command) -> Result<(f64, Value)> {
    let output = under("callgrind", "--callgrind-out-file=/dev/null", command)?;
    let count = number_behind(&output, "Collected : ")?;
    Ok((count, serde_json::from_slice(&output.stdout).unwrap_or_default()))
}

fn allocations(command: &Command) -> Result<f64> {
    // `Total:     1,024 bytes in 3 blocks`
    number_behind(&under("dhat", "--dhat-out-file=/dev/null", command)?, " bytes in ")
}

fn under(tool: &str, file: &str, command: &Command) -> Result<Output> {
    let mut valgrind = Command::new("valgrind");
    valgrind.arg(format!("--tool={tool}")).arg(file);
    valgrind.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        valgrind.env(name, value.unwrap_or_default());
    }
    checked(&mut valgrind)
}

fn checked(command: &mut Command) -> Result<Output> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(output)
}

/// The number behind the first of these words that valgrind prints.
fn number_behind(output: &Output, words: &str) -> Result<f64> {
    let text = String::from_utf8_lossy(&output.stderr);
    let behind = text.split_once(words).map(|(_, rest)| rest.trim_start());
    let digits: String = behind
        .unwrap_or_default()
        .chars()
        .take_while(|c| c.is_ascii_digit() || *c == ',')
        .filter(|c| *c != ',')
        .collect();
    digits.parse().with_context(|| format!("valgrind does not say {words:?}:\n{text}"))
}

fn table(revision: &str, lines: &[Line]) -> String {
    let mut text = format!(
        "| workload | instructions at {revision} | now | then ÷ now | allocations at {revision} | now |\n|---|--:|--:|--:|--:|--:|\n"
    );
    for Line { workload, then, now } in lines {
        let shown = |count: Option<f64>| count.map_or(String::new(), |count| format!("{count:.0}"));
        let ratio = then.instructions / now.instructions.max(1.0);
        text.push_str(&format!(
            "| {} | {:.0} | {:.0} | {ratio:.2} | {} | {} |\n",
            workload.replace('|', "\\|"),
            then.instructions,
            now.instructions,
            shown(then.allocations),
            shown(now.allocations),
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    fn said(text: &str) -> Output {
        let status = std::process::ExitStatus::from_raw(0);
        Output { status, stdout: Vec::new(), stderr: text.into() }
    }

    #[test]
    fn counts_are_read_from_what_valgrind_says() {
        let callgrind = said("==7== Events    : Ir\n==7== Collected : 15132554\n");
        assert_eq!(number_behind(&callgrind, "Collected : ").unwrap(), 15_132_554.0);
        let dhat = said("==7== Total:     1,234,567 bytes in 8,901 blocks\n");
        assert_eq!(number_behind(&dhat, " bytes in ").unwrap(), 8901.0);
        assert!(number_behind(&said("nothing"), "Collected : ").is_err());
    }

    #[test]
    fn what_comes_before_the_calls_does_not_count() {
        let cost =
            |instructions, allocations| Cost { instructions, allocations: Some(allocations) };
        assert_eq!(each(cost(1100.0, 12.0), cost(3100.0, 52.0), 20.0), cost(100.0, 2.0));
        let lines =
            [Line { workload: "a || b".into(), then: cost(200.0, 4.0), now: cost(100.0, 2.0) }];
        assert!(table("v1", &lines).contains("| a \\|\\| b | 200 | 100 | 2.00 | 4 | 2 |"));
    }
}
