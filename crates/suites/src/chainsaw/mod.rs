//! Tests with live steps, in the format of chainsaw: objects are applied to a cluster, and asserted on it.
//!
//! The host gives a cluster for every test, and tells when nothing more happens on it. So tests wait no longer than
//! the rules take: a step that is not fulfilled fails when the cluster is quiet, and a `sleep` ends then.
//!
//! | module | holds |
//! |---|---|
//! | `format` | the fields of a test, its steps and their operations |
//! | `expression` | what stands in parentheses |
//! | `assertion` | a value against what is asserted of it |
//! | `operation` | what each operation does on a cluster |
//! | `not_run` | what is waited for in vain, because Kiln does not run the rule |

mod assertion;
mod expression;
mod format;
mod not_run;
mod operation;
mod unsupported;

use std::time::Duration;

use kiln_diagnostic::{Diagnostic, Severity};
use kiln_value::{Value, value};
use kiln_yaml::{ReadOptions, Reader};

use crate::files::{Directory, Files};
use crate::report::{Row, Suite, Verdict};
use expression::Bindings;
use operation::{OperationFailure, OperationOutcome, OperationRunner};

/// What a server answered.
#[derive(Clone, Debug)]
pub struct ApiResponse {
    /// The status of HTTP.
    pub status: u16,
    /// The object, list or `Status`.
    pub value: Value,
}

/// What came of waiting.
#[derive(Clone, Copy, Debug)]
pub struct Waited {
    /// The revision of the newest write, if there was one; none when everything is quiet.
    pub revision: Option<u64>,
    /// How long it took.
    pub took: Duration,
}

/// A cluster to run one test on.
pub trait TestCluster {
    /// Sends a request as the administrator.
    fn send(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> ApiResponse;

    /// The revision of the newest write.
    fn revision(&self) -> u64;

    /// Waits for a write after `revision`, or until nothing was written and no controller was busy for `quiet`.
    fn wait(&self, revision: u64, quiet: Duration) -> Waited;
}

/// Gives each test a cluster of its own.
pub trait TestClusters {
    /// A new one.
    ///
    /// # Errors
    /// When there is none to be had.
    fn cluster(&self) -> Result<Box<dyn TestCluster + '_>, Diagnostic>;
}

/// Whether the file at this path holds tests with live steps.
pub fn is_chainsaw_test(path: &str, files: &dyn Files, read: ReadOptions) -> bool {
    let Ok(bytes) = files.read(path) else { return false };
    let Ok(documents) = Reader::new(read).read_bytes(path, &bytes) else { return false };
    documents.iter().any(|document| format::is_test(document.value()))
}

/// Runs the tests in the file at this path, each on a cluster of its own.
pub fn run(path: &str, files: &dyn Files, read: ReadOptions, clusters: &dyn TestClusters) -> Suite {
    let mut directory = Directory::of(path, files, Reader::new(read));
    let mut suite =
        Suite { path: path.to_owned(), name: None, problems: Vec::new(), rows: Vec::new() };
    let documents = match directory.read_suite(path) {
        Ok(documents) => documents,
        Err(problem) => {
            suite.problems.push(problem);
            return suite;
        }
    };
    for document in documents.iter().filter(|document| format::is_test(document.value())) {
        let (test, problems) = format::read(document, &mut directory);
        let broken = problems.iter().any(|problem| problem.severity == Severity::Error);
        suite.problems.extend(problems);
        suite.name.get_or_insert_with(|| test.name.clone());
        if broken || test.skip {
            continue;
        }
        match clusters.cluster() {
            Ok(cluster) => run_test(&test, cluster.as_ref(), &mut suite),
            Err(problem) => suite.problems.push(problem.at(document.place())),
        }
    }
    suite
}

fn run_test(test: &format::ChainsawTest, cluster: &dyn TestCluster, suite: &mut Suite) {
    let mut operator = OperationRunner::new(cluster, test);
    let begun = operator.begin();
    let outer = Bindings::default()
        .with("namespace", Value::from(test.namespace.as_str()))
        .with("test", value!({"metadata": {"name": test.name.as_str()}}));
    let outer = begun.and_then(|()| outer.extended(&test.bindings));
    let outer = match outer {
        Ok(outer) => outer,
        Err(why) => {
            suite.problems.push(Diagnostic::error(why).at(test.place.clone()));
            return;
        }
    };
    for step in &test.steps {
        let bindings = outer.extended(&step.bindings);
        for operation in &step.operations {
            let outcome = match &bindings {
                Ok(bindings) => operator.run(operation, bindings),
                Err(why) => OperationOutcome::failed("", why.clone()),
            };
            let (verdict, got, reason) = match outcome.failure {
                None => (Verdict::Passed, Some("pass"), "ok".to_owned()),
                Some(OperationFailure::Failed(why)) => (Verdict::Failed, Some("fail"), why),
                Some(OperationFailure::NotRun(why)) => (Verdict::NotRun, None, why),
            };
            suite.rows.push(Row {
                policy: test.name.clone(),
                rule: step.name.clone(),
                resource: outcome.about,
                wanted: "pass",
                got,
                verdict,
                reason,
                message: operation.verb.as_str().to_owned(),
                differences: Vec::new(),
                compared: outcome.compared,
                place: operation.place.clone(),
            });
            // chainsaw: what follows a failure is not run. Nor is what follows something that was not done: it would be
            // about another cluster than the test means.
            if verdict != Verdict::Passed {
                return;
            }
        }
    }
}
