//! Figures, and the Markdown that shows them.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};

use crate::measure::Usage;
use crate::root;

/// The name under which Kiln itself competes.
const KILN: &str = "kiln";

/// The figures of one bench.
pub(crate) struct Report {
    name: String,
    about: String,
    runs: usize,
    contenders: Vec<(String, String)>,
    series: Vec<Series>,
    goals: Vec<Goal>,
    notes: Vec<String>,
    limits: &'static [(&'static str, &'static str)],
}

/// How many times less Kiln is to need.
struct Goal {
    workload: String,
    measure: String,
    at_least: f64,
}

/// All runs of one contender on one workload, for one measure.
struct Series {
    workload: String,
    measure: String,
    who: String,
    figures: Vec<f64>,
}

impl Report {
    pub(crate) fn new(name: &str, about: &str, runs: usize) -> Self {
        Report {
            name: name.to_owned(),
            about: about.to_owned(),
            runs,
            contenders: Vec::new(),
            series: Vec::new(),
            goals: Vec::new(),
            notes: Vec::new(),
            limits: &[],
        }
    }

    /// Says of rows what limits Kiln in them.
    pub(crate) fn limits(&mut self, limits: &'static [(&'static str, &'static str)]) {
        self.limits = limits;
    }

    /// Names a contender and its version.
    pub(crate) fn contender(&mut self, who: &str, version: &str) {
        if !self.contenders.iter().any(|(name, _)| name == who) {
            self.contenders.push((who.to_owned(), version.to_owned()));
        }
    }

    /// Adds the figure of one run.
    pub(crate) fn figure(&mut self, workload: &str, measure: &str, who: &str, figure: f64) {
        let same = |s: &&mut Series| s.workload == workload && s.measure == measure && s.who == who;
        match self.series.iter_mut().find(same) {
            Some(series) => series.figures.push(figure),
            None => self.series.push(Series {
                workload: workload.to_owned(),
                measure: measure.to_owned(),
                who: who.to_owned(),
                figures: vec![figure],
            }),
        }
    }

    /// Adds what one whole process used, set-up included.
    pub(crate) fn process(&mut self, workload: &str, who: &str, usage: Usage) {
        self.figure(workload, "whole process, wall time", who, usage.wall_seconds);
        self.figure(workload, "whole process, processor time", who, usage.cpu_seconds);
        self.figure(workload, "whole process, peak memory", who, usage.peak_bytes as f64);
    }

    /// Says how often each contender really ran.
    pub(crate) fn set_runs(&mut self, runs: usize) {
        self.runs = runs;
    }

    /// Says how many times less Kiln is to need than each peer.
    pub(crate) fn goal(&mut self, workload: &str, measure: &str, at_least: f64) {
        if self.goal_of(workload, measure).is_none() {
            let (workload, measure) = (workload.to_owned(), measure.to_owned());
            self.goals.push(Goal { workload, measure, at_least });
        }
    }

    fn goal_of(&self, workload: &str, measure: &str) -> Option<f64> {
        let same = |goal: &&Goal| goal.workload == workload && goal.measure == measure;
        self.goals.iter().find(same).map(|goal| goal.at_least)
    }

    /// Says so when other work kept the machine busy.
    pub(crate) fn note_load(&mut self) {
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load: f64 = load.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or_default();
        if load > 3.0 {
            self.note(&format!(
                "other work kept the machine busy (load {load:.0}): of wall times, only the ratios mean anything, and \
                 processor times are the steadier measure"
            ));
        }
    }

    /// Adds a remark, once.
    pub(crate) fn note(&mut self, note: &str) {
        if !self.notes.iter().any(|existing| existing == note) {
            self.notes.push(note.to_owned());
        }
    }

    /// The section of `BENCHMARKS.md`.
    pub(crate) fn to_markdown(&self) -> String {
        let mut text = format!("## {}\n\n{}\n\n", self.name, self.about);
        let versions: Vec<_> =
            self.contenders.iter().map(|(who, version)| format!("{who} {version}")).collect();
        let runs = match self.runs {
            1 => "One run".to_owned(),
            runs => format!("Medians of {runs} runs"),
        };
        let _ = writeln!(
            text,
            "{runs} of each contender, in one go: {}. {}.\n",
            versions.join(", "),
            machine()
        );
        let (heading, line) = match self.goals.as_slice() {
            [] => ("", ""),
            _ => (" goal |", "--:|"),
        };
        let _ = writeln!(
            text,
            "| workload | measure | Kiln | peer | peer's figure | peer ÷ Kiln |{heading}"
        );
        let _ = writeln!(text, "|---|---|--:|---|--:|--:|{line}");
        for ours in self.series.iter().filter(|series| series.who == KILN) {
            let own = median(&ours.figures);
            let shown = print(&ours.measure, own);
            // A bar would end the cell.
            let workload = ours.workload.replace('|', "\\|");
            let mut alone = true;
            for theirs in self.series.iter().filter(|series| {
                series.who != KILN
                    && series.workload == ours.workload
                    && series.measure == ours.measure
            }) {
                alone = false;
                let figure = median(&theirs.figures);
                let _ = writeln!(
                    text,
                    "| {workload} | {} | {shown} | {} | {} | {} |{}",
                    ours.measure,
                    theirs.who,
                    print(&theirs.measure, figure),
                    ratio(figure, own),
                    self.verdict(ours, figure / own),
                );
            }
            if alone {
                let rest = if self.goals.is_empty() { "" } else { " |" };
                let _ = writeln!(text, "| {workload} | {} | {shown} | | | |{rest}", ours.measure);
            }
        }
        if !self.limits.is_empty() {
            text.push_str("\nWhat limits Kiln now:\n\n");
        }
        for (rows, limit) in self.limits {
            let _ = writeln!(text, "- {rows}: {limit}.");
        }
        for note in &self.notes {
            let _ = writeln!(text, "\nNote: {note}.");
        }
        text
    }

    /// The cell that says whether a goal was reached; nothing where no goals are set at all.
    fn verdict(&self, ours: &Series, ratio: f64) -> String {
        match self.goal_of(&ours.workload, &ours.measure) {
            _ if self.goals.is_empty() => String::new(),
            None => " |".to_owned(),
            Some(goal) if ratio >= goal => format!(" ≥ {goal}: yes |"),
            Some(goal) => format!(" ≥ {goal}: **no** |"),
        }
    }
}

/// Replaces the section of one bench in `BENCHMARKS.md`; the others stay.
pub(crate) fn write_section(name: &str, section: &str) -> Result<()> {
    let path = root().join("BENCHMARKS.md");
    let old = fs::read_to_string(&path).unwrap_or_else(|_| {
        "# Benchmarks\n\nWritten by `cargo xtask bench [NAME]`. Each section is one run on one machine; only the \
         ratios travel. A ratio above 1 means that Kiln needs less.\n"
            .to_owned()
    });
    let heading = format!("## {name}\n");
    let new = match old.find(&heading) {
        Some(start) => {
            let end = old[start + heading.len()..]
                .find("\n## ")
                .map_or(old.len(), |at| start + heading.len() + at + 1);
            format!(
                "{}{section}{}{}",
                &old[..start],
                if end < old.len() { "\n" } else { "" },
                &old[end..]
            )
        }
        None => format!("{}\n\n{section}", old.trim_end()),
    };
    fs::write(&path, new).with_context(|| path.display().to_string())
}

fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// How many times more a peer needs; endless where Kiln needs nothing.
fn ratio(theirs: f64, own: f64) -> String {
    match (theirs, own) {
        (0.0, 0.0) => "1.00".to_owned(),
        (_, 0.0) => "∞".to_owned(),
        _ => format!("{:.2}", theirs / own),
    }
}

fn print(measure: &str, figure: f64) -> String {
    match measure {
        _ if measure.contains("exponent") => format!("{figure:.3}"),
        _ if measure.contains("per output byte") => format!("{figure:.1}"),
        "writes" => format!("{figure:.0}"),
        _ if measure.contains("writes for each") => format!("{figure:.3}"),
        "instructions" => format!("{:.2} M", figure / 1e6),
        _ if measure.contains("memory") && figure >= 1e5 => format!("{:.1} MB", figure / 1e6),
        _ if measure.contains("memory") => format!("{figure:.0} B"),
        _ if figure >= 1.0 => format!("{figure:.2} s"),
        _ if figure >= 1e-3 => format!("{:.2} ms", figure * 1e3),
        _ if figure >= 1e-6 => format!("{:.2} µs", figure * 1e6),
        _ => format!("{:.1} ns", figure * 1e9),
    }
}

fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or("an unknown processor", |rest| rest.trim_start_matches([' ', '\t', ':']).trim());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{cores} cores of {model}, {} {}", std::env::consts::OS, std::env::consts::ARCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_medians_and_ratios() {
        let mut report = Report::new("sample", "About.", 3);
        report.contender("kiln", "1");
        report.contender("other", "2");
        for figure in [0.002, 0.001, 0.003] {
            report.figure("read", "time", "kiln", figure);
            report.figure("read", "time", "other", figure * 10.0);
        }
        report.limits(&[("reading", "the scanner")]);
        let text = report.to_markdown();
        assert!(text.ends_with("\nWhat limits Kiln now:\n\n- reading: the scanner.\n"), "{text}");
        assert!(text.contains("| read | time | 2.00 ms | other | 20.00 ms | 10.00 |"), "{text}");
    }

    #[test]
    fn says_which_goals_were_reached() {
        let mut report = Report::new("sample", "About.", 1);
        for (workload, own, theirs) in [("a", 2.0, 20.0), ("b", 2.0, 19.0), ("c", 0.0, 3.0)] {
            report.figure(workload, "writes", "kiln", own);
            report.figure(workload, "writes", "other", theirs);
            report.goal(workload, "writes", 10.0);
        }
        report.figure("a", "time", "kiln", 1.0);
        let text = report.to_markdown();
        assert!(text.contains("One run of each contender"), "{text}");
        assert!(text.contains("| a | writes | 2 | other | 20 | 10.00 | ≥ 10: yes |"), "{text}");
        assert!(text.contains("| b | writes | 2 | other | 19 | 9.50 | ≥ 10: **no** |"), "{text}");
        assert!(text.contains("| c | writes | 0 | other | 3 | ∞ | ≥ 10: yes |"), "{text}");
        assert!(text.contains("| a | time | 1.00 s | | | | |"), "{text}");
    }
}
