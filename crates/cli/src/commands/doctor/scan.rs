//! How far the background scan has come, and whether its results are written.

use super::Checks;
use super::health::HealthEndpoint;
use crate::ui::counted;

const ABOUT: &str = "scan";
/// Some reports always wait for a moment.
const BACKLOG: usize = 100;

/// What the leader counts of its scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Progress {
    checked: usize,
    waiting: usize,
    /// Reports that wait to be compared and written.
    reports: usize,
}

/// Asks the engines that answer which of them leads, and how far its scan is.
pub(super) fn check(checks: &mut Checks<'_>, engines: &[HealthEndpoint]) {
    let reporting = &checks.settings.reporting;
    if !reporting.scan || !reporting.reports {
        let key = if reporting.reports { "kiln.backgroundScan" } else { "kiln.policyReports" };
        return checks.good(ABOUT, format!("objects are not scanned: {key} is false"));
    }
    let asked = engines.iter().filter_map(|engine| engine.ask(checks, "metrics").ok());
    let found = asked.filter_map(|metrics| progress(&metrics)).max_by_key(|found| found.checked);
    if let Some(found) = found {
        checks.good(ABOUT, words(found));
    }
}

fn words(found: Progress) -> String {
    let Progress { checked, waiting, reports } = found;
    let objects = match waiting {
        0 if checked == 0 => "no policy checks stored objects".to_owned(),
        0 => counted(checked, "object is checked", "objects are checked"),
        _ => format!("{checked} of {} objects are checked", checked + waiting),
    };
    match reports {
        0..=BACKLOG => objects,
        _ => format!("{objects}, and {reports} reports wait to be written"),
    }
}

/// What the metrics of an engine say; none if it does not lead.
fn progress(metrics: &str) -> Option<Progress> {
    let sample = |name: &str| {
        let mut lines = metrics.lines().filter_map(|line| line.strip_prefix(name));
        lines.find_map(|value| value.trim().parse::<usize>().ok())
    };
    sample("kiln_leader ").filter(|leads| *leads == 1)?;
    Some(Progress {
        checked: sample("kiln_scan_objects{state=\"checked\"} ").unwrap_or(0),
        waiting: sample("kiln_scan_objects{state=\"waiting\"} ").unwrap_or(0),
        reports: sample("kiln_reports_waiting ").unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_what_the_leader_counts() {
        let metrics = |leads: u8| {
            format!(
                "# TYPE kiln_leader gauge\nkiln_leader {leads}\n\
                 kiln_scan_objects{{state=\"checked\"}} 200\nkiln_scan_objects{{state=\"waiting\"}} 300\nkiln_reports_waiting 700\n"
            )
        };
        assert_eq!(progress(&metrics(0)), None);
        assert_eq!(progress("404 page not found"), None);
        let found = progress(&metrics(1)).unwrap();
        assert_eq!(found, Progress { checked: 200, waiting: 300, reports: 700 });
        assert_eq!(
            words(found),
            "200 of 500 objects are checked, and 700 reports wait to be written"
        );
        let done = Progress { checked: 1, reports: 3, ..Progress::default() };
        assert_eq!(words(done), "1 object is checked");
        assert_eq!(words(Progress::default()), "no policy checks stored objects");
    }
}
