//! Numbers about the process itself, which are looked up when they are scraped.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::metrics::Metrics;
use crate::state::AppState;
use crate::supervisor;

/// Linux counts processor time in hundredths of a second, whatever the kernel's own clock does.
const TICKS_PER_SECOND: f64 = 100.0;

/// What does not change while the process runs.
pub(crate) fn begin(metrics: &Metrics) {
    metrics.set("kiln_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    metrics.set("process_start_time_seconds", &[], since.as_secs_f64());
    // The first one is a change only if there was a number before it.
    for part in supervisor::COUNTED {
        metrics.set("kiln_panics_total", &[("part", part)], 0.0);
    }
}

/// Whether this process generates and synchronizes. One that stands by knows nothing of the work to do.
pub(crate) fn acts(metrics: &Metrics, acts: bool) {
    metrics.set("kiln_leader", &[], if acts { 1.0 } else { 0.0 });
    if !acts {
        metrics.clear("kiln_conditions");
        metrics.clear("kiln_keys");
        metrics.clear("kiln_scan_objects");
    }
}

/// What is only known at the moment.
pub(crate) fn refresh(shared: &AppState) {
    let metrics = &shared.metrics;
    metrics.clear("kiln_problems");
    for (part, _) in shared.health.unwell() {
        metrics.set("kiln_problems", &[("part", &part)], 1.0);
    }
    let measured = [
        ("process_resident_memory_bytes", memory()),
        ("process_cpu_seconds_total", processor()),
        ("process_open_fds", files()),
    ];
    for (name, value) in measured {
        if let Some(value) = value {
            metrics.set(name, &[], value);
        }
    }
}

fn memory() -> Option<f64> {
    resident(&std::fs::read_to_string("/proc/self/status").ok()?)
}

fn resident(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024.0)
}

fn processor() -> Option<f64> {
    processor_seconds(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

fn processor_seconds(stat: &str) -> Option<f64> {
    // The name of the program stands in parentheses and may hold anything, blanks and parentheses too.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS_PER_SECOND)
}

#[allow(clippy::cast_precision_loss, reason = "a count for people")]
fn files() -> Option<f64> {
    Some(std::fs::read_dir("/proc/self/fd").ok()?.count() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_linux_tells_of_a_process_is_read() {
        assert_eq!(resident("Name:\tkiln\nVmRSS:\t   2048 kB\n"), Some(2_097_152.0));
        assert_eq!(resident("Name:\tkiln\n"), None);
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 1 0 5 0 0";
        assert_eq!(processor_seconds(stat), Some(3.0));
        assert_eq!(processor_seconds("7 (a"), None);
    }

    #[test]
    fn who_stands_by_shows_no_work() {
        let metrics = Metrics::default();
        acts(&metrics, true);
        metrics.set("kiln_keys", &[], 5.0);
        metrics.set("kiln_conditions", &[("reason", "Failed")], 2.0);
        assert!(metrics.text().contains("\nkiln_leader 1\n"));
        acts(&metrics, false);
        let text = metrics.text();
        assert!(text.contains("\nkiln_leader 0\n"), "{text}");
        assert!(!text.contains("\nkiln_keys ") && !text.contains("Failed"), "{text}");
    }
}
