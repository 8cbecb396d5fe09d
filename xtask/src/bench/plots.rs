//! The plots of `docs/performance.md`, drawn from the tables of `BENCHMARKS.md`: nothing in them was measured elsewhere.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result, bail};

use crate::root;

/// A plot: a line for Kiln and one for a peer, over numbers in the names of workloads.
struct Plot {
    /// Its file below `docs/performance`.
    name: &'static str,
    title: &'static str,
    section: &'static str,
    measure: &'static str,
    peer: &'static str,
    /// What is counted along the bottom.
    across: &'static str,
    /// The number that a workload stands for, if it belongs to the plot.
    size: fn(&str) -> Option<f64>,
}

const PLOTS: [Plot; 3] = [
    Plot {
        name: "admission",
        title: "Admission: median of the webhook's answer, one stream",
        section: "live-admission",
        measure: "p50",
        peer: "kyverno",
        across: "policies",
        size: |workload| {
            let rest = workload.strip_prefix("admission, ")?.strip_suffix(", 1 stream")?;
            leading_number(rest)
        },
    },
    Plot {
        name: "generation",
        title: "Generation on files: one policy, whole process",
        section: "kyverno-cli",
        measure: "whole process, wall time",
        peer: "kyverno",
        across: "Namespaces",
        size: |workload| match workload {
            "cold start: one policy, one Namespace" => Some(1.0),
            _ => leading_number(workload.strip_prefix("data: one policy, ")?),
        },
    },
    Plot {
        name: "build",
        title: "Build: plain resources, whole process",
        section: "kustomize",
        measure: "whole process, wall time",
        peer: "kustomize",
        across: "resources",
        size: |workload| match workload {
            "one Service" => Some(1.0),
            _ => leading_number(workload.strip_suffix(" resources, plain")?),
        },
    },
];

/// A place in a plot: how large the workload is, and how many seconds it took.
type Point = (f64, f64);

/// Draws all plots.
pub(super) fn draw() -> Result<()> {
    for (name, svg) in drawn(&read("BENCHMARKS.md")?)? {
        let path = root().join("docs/performance").join(name);
        fs::write(&path, svg).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn read(name: &str) -> Result<String> {
    fs::read_to_string(root().join(name)).with_context(|| name.to_owned())
}

/// The files of all plots.
fn drawn(benchmarks: &str) -> Result<Vec<(String, String)>> {
    let draw = |plot: &Plot| {
        let (kiln, peer) = points(plot, benchmarks);
        if kiln.len() < 2 || peer.len() < 2 {
            bail!("BENCHMARKS.md has too few figures for the plot {}", plot.name);
        }
        Ok((format!("{}.svg", plot.name), svg(plot, &kiln, &peer)))
    };
    PLOTS.iter().map(draw).collect()
}

/// What a section of the file says of Kiln and of the peer.
fn points(plot: &Plot, benchmarks: &str) -> (Vec<Point>, Vec<Point>) {
    let (mut kiln, mut peer) = (Vec::new(), Vec::new());
    let heading = format!("## {}", plot.section);
    let section = benchmarks.lines().skip_while(|line| *line != heading).skip(1);
    for line in section.take_while(|line| !line.starts_with("## ")) {
        let cells: Vec<&str> =
            line.split(" | ").map(|cell| cell.trim_matches(['|', ' '])).collect();
        let [workload, measure, own, who, theirs, ..] = cells[..] else { continue };
        let Some(size) = (plot.size)(workload).filter(|_| measure == plot.measure) else {
            continue;
        };
        kiln.extend(seconds(own).map(|own| (size, own)));
        peer.extend(seconds(theirs).filter(|_| who == plot.peer).map(|theirs| (size, theirs)));
    }
    (kiln, peer)
}

/// The number that a text begins with; its thousands may have commas.
fn leading_number(text: &str) -> Option<f64> {
    let digits: String = text
        .chars()
        .take_while(|c| c.is_ascii_digit() || *c == ',')
        .filter(|c| *c != ',')
        .collect();
    digits.parse().ok()
}

/// A time as tables have it.
fn seconds(text: &str) -> Option<f64> {
    let (number, unit) = text.split_once(' ')?;
    let factor = match unit {
        "s" => 1.0,
        "ms" => 1e-3,
        "µs" => 1e-6,
        "ns" => 1e-9,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * factor)
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
/// Where the lines are: left, right, top and bottom.
const FRAME: [f64; 4] = [70.0, 540.0, 50.0, 310.0];

/// Powers of ten that hold all values, one more where they are alike.
fn decades(values: impl Iterator<Item = f64>) -> (i32, i32) {
    let (mut low, mut high) = (i32::MAX, i32::MIN);
    for value in values {
        low = low.min(value.log10().floor() as i32);
        high = high.max(value.log10().ceil() as i32);
    }
    (low, high.max(low + 1))
}

fn svg(plot: &Plot, kiln: &[Point], peer: &[Point]) -> String {
    let all = || kiln.iter().chain(peer);
    let (x_low, x_high) = decades(all().map(|point| point.0));
    let (y_low, y_high) = decades(all().map(|point| point.1));
    let [left, right, top, bottom] = FRAME;
    let part =
        |value: f64, low: i32, high: i32| (value.log10() - f64::from(low)) / f64::from(high - low);
    let x = |value: f64| left + part(value, x_low, x_high) * (right - left);
    let y = |value: f64| bottom - part(value, y_low, y_high) * (bottom - top);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<title>{}</title>\n<style>\n  text {{ fill: #57606a }} .grid {{ stroke: #d0d7de; stroke-width: 1 }}\n  \
         .kiln {{ stroke: #c2410c; fill: #c2410c }} .peer {{ stroke: #2563eb; fill: #2563eb }}\n  polyline {{ fill: none !important; \
         stroke-width: 2.5 }}\n</style>\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n\
         <text x=\"{left}\" y=\"28\" font-size=\"15\">{}</text>\n",
        plot.title, plot.title
    );
    for power in x_low..=x_high {
        let at = x(10f64.powi(power));
        let _ = writeln!(
            out,
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>\
             <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            bottom + 18.0,
            count(power)
        );
    }
    for power in y_low..=y_high {
        let at = y(10f64.powi(power));
        let _ = writeln!(
            out,
            "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left - 8.0,
            at + 4.0,
            time(power)
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
        f64::midpoint(left, right),
        bottom + 38.0,
        plot.across
    );
    for (class, name, points) in [("kiln", "Kiln", kiln), ("peer", plot.peer, peer)] {
        let places: Vec<String> =
            points.iter().map(|point| format!("{:.1},{:.1}", x(point.0), y(point.1))).collect();
        let _ = writeln!(out, "<polyline class=\"{class}\" points=\"{}\"/>", places.join(" "));
        for point in points {
            let (x, y) = (x(point.0), y(point.1));
            let _ =
                writeln!(out, "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>");
        }
        if let Some(last) = points.last() {
            let (x, y) = (x(last.0) + 10.0, y(last.1) + 4.0);
            let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\">{name}</text>");
        }
    }
    out.push_str("</svg>\n");
    out
}

fn count(power: i32) -> String {
    match power {
        ..3 => format!("{:.0}", 10f64.powi(power)),
        3..6 => format!("{},000", 10f64.powi(power - 3)),
        _ => format!("10^{power}"),
    }
}

fn time(power: i32) -> String {
    let (unit, below) = match power {
        0.. => ("s", 0),
        -3..0 => ("ms", -3),
        -6..-3 => ("µs", -6),
        _ => ("ns", -9),
    };
    format!("{} {unit}", 10f64.powi(power - below))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plots_show_what_the_tables_say() {
        for (name, svg) in drawn(&read("BENCHMARKS.md").unwrap()).unwrap() {
            let stored = read(&format!("docs/performance/{name}")).unwrap();
            assert!(stored == svg, "{name} is not up to date: run cargo xtask bench --plots");
        }
    }

    #[test]
    fn figures_are_read_from_their_section() {
        let table = "## other\n\n| one Service | whole process, wall time | 9 s | kustomize | 9 s | 1 |\n\n## kustomize\n\n\
                     | one Service | whole process, wall time | 6.17 ms | kustomize | 13.78 ms | 2.24 |\n\
                     | one Service | whole process, peak memory | 17.2 MB | kustomize | 19.3 MB | 1.12 |\n\
                     | 5,000 resources, plain | whole process, wall time | 39.90 ms | kustomize | 45.35 s | 1136.75 |\n\
                     | 1,000 resources, mixed overlay | whole process, wall time | 1 s | kustomize | 1 s | 1 |\n";
        let (kiln, peer) = points(&PLOTS[2], table);
        assert_eq!(kiln, [(1.0, 6.17 * 1e-3), (5000.0, 39.90 * 1e-3)]);
        assert_eq!(peer, [(1.0, 13.78 * 1e-3), (5000.0, 45.35)]);
        assert!(drawn(table).is_err());
    }
}
