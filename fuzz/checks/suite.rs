//! Any suite runs to its end, whatever it says.

use kiln_diagnostic::Diagnostic;
use kiln_jmespath::NoSources;
use kiln_suites::{Files, Options, Report, Selector, junit, run};
use kiln_yaml::ReadOptions;

struct Given<'g>(&'g [u8]);

impl Files for Given<'_> {
    fn read(&self, path: &str) -> Result<Vec<u8>, Diagnostic> {
        match path {
            "kyverno-test.yaml" => Ok(self.0.to_vec()),
            "gone.yaml" => Err(Diagnostic::error("gone")),
            // The suite is also its own policy, its own resource and what it expects.
            _ => Ok(self.0.to_vec()),
        }
    }

    fn below(&self, folder: &str) -> Option<Vec<String>> {
        (folder == "folder").then(|| vec!["folder/a.yaml".to_owned()])
    }
}

pub(crate) fn check(bytes: &[u8]) {
    let options = Options {
        sources: &NoSources,
        services: &kiln_engine::Offline,
        selector: Selector::default(),
        read: ReadOptions::kubernetes(),
    };
    let suite = run("kyverno-test.yaml", &Given(bytes), &options);
    let report = Report { suites: vec![suite] };
    let _ = (junit(&report), report.as_value());
}
