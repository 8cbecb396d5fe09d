//! What the API server has counted.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::bench::client::Client;

/// Nothing written for so long is quiet.
const QUIET: Duration = Duration::from_secs(8);
/// How long it may take to become quiet.
const PATIENCE: Duration = Duration::from_secs(1800);

/// How many writes of each resource were answered well.
#[derive(Clone, Default)]
pub(super) struct Writes(BTreeMap<String, f64>);

impl Writes {
    pub(super) fn read(client: &Client) -> Result<Self> {
        Ok(Self::of(&client.text("/metrics")?))
    }

    fn of(metrics: &str) -> Self {
        let mut writes = BTreeMap::new();
        let lines =
            metrics.lines().filter_map(|line| line.strip_prefix("apiserver_request_total{"));
        for line in lines {
            let Some((labels, count)) = line.rsplit_once("} ") else { continue };
            let label = |name: &str| {
                let (_, rest) = labels.split_once(&format!("{name}=\""))?;
                rest.split('"').next()
            };
            let (Some(resource), Some(verb), Some(code), Some(dry)) =
                (label("resource"), label("verb"), label("code"), label("dry_run"))
            else {
                continue;
            };
            let writes_it = ["POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"];
            let kept = resource != "leases" && !resource.ends_with("reviews");
            if writes_it.contains(&verb) && code.starts_with('2') && dry.is_empty() && kept {
                *writes.entry(resource.to_owned()).or_insert(0.0) += count.parse().unwrap_or(0.0);
            }
        }
        Writes(writes)
    }

    /// Those that came after others.
    pub(super) fn since(&self, before: &Writes) -> Writes {
        let count = |resource: &String| before.0.get(resource).copied().unwrap_or_default();
        Writes(self.0.iter().map(|(name, n)| (name.clone(), n - count(name))).collect())
    }

    pub(super) fn of_resource(&self, resource: &str) -> f64 {
        self.0.get(resource).copied().unwrap_or_default()
    }

    pub(super) fn all(&self) -> f64 {
        self.0.values().sum()
    }

    /// In words, without what there is none of.
    pub(super) fn told(&self) -> String {
        let some = self.0.iter().filter(|(_, count)| **count > 0.0);
        some.map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
    }
}

/// Waits until writes stop, and gives all writes and when the last one was seen.
pub(super) fn quiet(client: &Client) -> Result<(Writes, Instant)> {
    let began = Instant::now();
    let mut last = (Writes::read(client)?, Instant::now());
    while last.1.elapsed() < QUIET && began.elapsed() < PATIENCE {
        sleep(Duration::from_millis(500));
        let now = Instant::now();
        let writes = Writes::read(client)?;
        if writes.0 != last.0.0 {
            last = (writes, now);
        }
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_writes_that_were_answered_well() {
        let line = |verb: &str, resource: &str, code: &str, dry: &str, count: &str| {
            format!(
                "apiserver_request_total{{code=\"{code}\",component=\"apiserver\",dry_run=\"{dry}\",group=\"\",\
                 resource=\"{resource}\",scope=\"resource\",subresource=\"\",verb=\"{verb}\",version=\"v1\"}} {count}\n"
            )
        };
        let metrics = [
            line("POST", "configmaps", "201", "", "3"),
            line("PATCH", "configmaps", "200", "", "2"),
            line("POST", "configmaps", "409", "", "9"),
            line("POST", "configmaps", "201", "All", "9"),
            line("GET", "configmaps", "200", "", "9"),
            line("PUT", "leases", "200", "", "9"),
            line("POST", "subjectaccessreviews", "201", "", "9"),
            line("DELETE", "secrets", "200", "", "1e+02"),
        ]
        .concat();
        let writes = Writes::of(&metrics);
        assert_eq!(writes.told(), "configmaps 5, secrets 100");
        assert_eq!(writes.all(), 105.0);
        let later = Writes::of(&line("POST", "configmaps", "201", "", "7")).since(&writes);
        assert_eq!(later.of_resource("configmaps"), 2.0);
    }
}
