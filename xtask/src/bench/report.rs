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
    notes: Vec<String>,
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
            notes: Vec::new(),
        }
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
        let _ = writeln!(
            text,
            "Medians of {} runs of each contender, in one go: {}. {}.\n",
            self.runs,
            versions.join(", "),
            machine()
        );
        text.push_str("| workload | measure | Kiln | peer | peer's figure | peer ÷ Kiln |\n");
        text.push_str("|---|---|--:|---|--:|--:|\n");
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
                    "| {workload} | {} | {shown} | {} | {} | {:.2} |",
                    ours.measure,
                    theirs.who,
                    print(&theirs.measure, figure),
                    figure / own
                );
            }
            if alone {
                let _ = writeln!(text, "| {workload} | {} | {shown} | | | |", ours.measure);
            }
        }
        for note in &self.notes {
            let _ = writeln!(text, "\nNote: {note}.");
        }
        text
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

fn print(measure: &str, figure: f64) -> String {
    match measure {
        _ if measure.contains("exponent") => format!("{figure:.3}"),
        _ if measure.contains("per output byte") => format!("{figure:.1}"),
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
        let text = report.to_markdown();
        assert!(text.contains("| read | time | 2.00 ms | other | 20.00 ms | 10.00 |"), "{text}");
    }
}
