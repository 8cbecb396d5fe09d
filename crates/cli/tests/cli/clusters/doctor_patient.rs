//! A cluster for `kiln doctor` to look at.

use std::time::{Duration, Instant};

use kiln_testkit::control_plane::ControlPlane;
use kiln_value::{Value, json};

use crate::harness::{Folder, Run, install};

/// How long something may take that happens by itself.
const PATIENCE: Duration = Duration::from_secs(60);

/// Tries until something holds, which may take a while on a busy machine; otherwise shows what was last found.
#[track_caller]
pub(crate) fn patiently<T: std::fmt::Debug>(
    mut find: impl FnMut() -> T,
    is_good: impl Fn(&T) -> bool,
) -> T {
    let begin = Instant::now();
    loop {
        let found = find();
        if is_good(&found) {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "it does not come to hold: {found:#?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A real control plane without an engine.
pub(crate) struct Patient {
    pub(crate) cluster: ControlPlane,
    pub(crate) folder: Folder,
}

impl Patient {
    /// One with what `kiln install` prints.
    pub(crate) fn new() -> Option<Self> {
        let patient = Self::bare()?;
        patient.install();
        Some(patient)
    }

    /// One that has not heard of Kiln.
    pub(crate) fn bare() -> Option<Self> {
        Some(Patient { cluster: ControlPlane::for_test()?, folder: Folder::with(&[]) })
    }

    /// Applies what `kiln install` prints, and waits until the API server serves it.
    pub(crate) fn install(&self) {
        install(&self.cluster, &self.folder, &[]);
        // What is established is found a moment later.
        patiently(|| self.doctor(&[]).stdout, |said| said.contains("ok       definitions: "));
    }

    pub(crate) fn kubeconfig(&self) -> String {
        self.cluster.kubeconfig().display().to_string()
    }

    pub(crate) fn doctor(&self, args: &[&str]) -> Run {
        self.folder.kiln(&[&["doctor", "--kubeconfig", &self.kubeconfig()], args].concat())
    }

    /// What doctor says has these lines, or lines that begin so.
    #[track_caller]
    pub(crate) fn says(&self, wanted: &[&str]) -> String {
        let run = self.doctor(&[]);
        for wanted in wanted {
            let mut lines = run.stdout.lines();
            assert!(
                lines.any(|line| line.starts_with(wanted)),
                "{wanted:?} is missing in\n{}{}",
                run.stdout,
                run.stderr
            );
        }
        run.stdout
    }

    /// What doctor finds about something, each as `state`, `message` and `hint`.
    pub(crate) fn finds(&self, about: &str) -> Vec<[String; 3]> {
        let run = self.doctor(&["--format=json"]);
        let all = json::parse(&run.stdout).unwrap_or_else(|_| panic!("{}", run.stderr));
        let text = |found: &Value, key: &str| found.str_at([key]).unwrap_or_default().to_owned();
        let found = all.as_list().unwrap().iter();
        found
            .filter(|found| found.str_at(["about"]) == Some(about))
            .map(|found| ["state", "message", "hint"].map(|key| text(found, key)))
            .collect()
    }
}
