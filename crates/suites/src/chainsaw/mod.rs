//! Tests with live steps, in the format of chainsaw: objects are applied to a cluster, and asserted on it.
//!
//! The host gives a cluster for every test, and tells when nothing more is to happen on it. So tests wait no longer than
//! the rules take: a step that is not fulfilled fails when nothing is to be done before its time is over.
//!
//! | module | holds |
//! |---|---|
//! | `format` | the fields of a test, its steps and their operations |
//! | `expression` | what stands in parentheses |
//! | `assertion` | a value against what is asserted of it |
//! | `operation` | what each operation does on a cluster |
//! | `not_run` | what is waited for in vain, because Kiln does not run the rule |

mod assertion;
mod error;
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
    /// The revision of the newest write, if there was one; none when nothing is written in time.
    pub revision: Option<u64>,
    /// How long it took, by the clock of the cluster.
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

    /// Waits for a write after `revision`, for so long at most; at once when nothing is to be done before then.
    fn wait(&self, revision: u64, at_most: Duration) -> Waited;

    /// Lets so much time pass.
    fn sleep(&self, time: Duration);

    /// Runs a program of the machine against the cluster; none where nothing outside of it is run.
    fn run_program(&self, program: &TestProgram) -> Option<ProgramOutput> {
        let _ = program;
        None
    }
}

/// A program of the machine that a step runs.
#[derive(Clone, Debug, Default)]
pub struct TestProgram {
    /// The text of a shell script; none for a command.
    pub script: Option<String>,
    /// The program of a command, and its arguments.
    pub command: Vec<String>,
    /// Variables of its environment.
    pub environment: Vec<(String, String)>,
    /// The directory of the test.
    pub directory: String,
    /// How long it may take.
    pub timeout: Duration,
}

/// What came of a program.
#[derive(Clone, Debug, Default)]
pub struct ProgramOutput {
    pub stdout: String,
    pub stderr: String,
    /// Why it failed; none when it ended well.
    pub error: Option<String>,
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

/// Whether a test in the file at this path runs programs of the machine.
pub fn has_programs(path: &str, files: &dyn Files, read: ReadOptions) -> bool {
    let mut directory = Directory::of(path, files, Reader::new(read));
    let Ok(documents) = directory.read_suite(path) else { return false };
    let mut tests = documents.iter().filter(|document| format::is_test(document.value()));
    tests.any(|document| {
        let (test, _) = format::read(document, &mut directory, true);
        let mut operations = test.steps.iter().flat_map(|step| &step.operations);
        !test.skip && operations.any(|operation| operation.verb.is_program())
    })
}

/// Runs the tests in the file at this path, each on a cluster of its own. The clusters run programs of the machine, if
/// `programs` says so.
pub fn run(
    path: &str,
    files: &dyn Files,
    read: ReadOptions,
    programs: bool,
    clusters: &dyn TestClusters,
) -> Suite {
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
        let (test, problems) = format::read(document, &mut directory, programs);
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
    let mut operator = OperationRunner::new(cluster, test, directory_of(&suite.path));
    let begun = operator.begin();
    let outer = Bindings::default()
        .with("namespace", Value::from(test.namespace.as_str()))
        .with("test", value!({"metadata": {"name": test.name.as_str()}}));
    let outer = begun.and_then(|()| Ok(outer.extended(&test.bindings)?));
    let outer = match outer {
        Ok(outer) => outer,
        Err(why) => {
            suite.problems.push(Diagnostic::error(why.to_string()).at(test.place.clone()));
            return;
        }
    };
    for step in &test.steps {
        let mut bindings = outer.extended(&step.bindings);
        for operation in &step.operations {
            let outcome = match &bindings {
                Ok(known) => {
                    let outcome = operator.run(operation, known);
                    // What programs print may have names for later operations of the step.
                    let more = known.extended(&outcome.outputs);
                    bindings = more;
                    outcome
                }
                Err(why) => OperationOutcome::failed("", why.clone()),
            };
            let (verdict, got, reason) = match outcome.failure {
                None => (Verdict::Passed, Some("pass"), "ok".to_owned()),
                Some(OperationFailure::Failed(why)) => {
                    (Verdict::Failed, Some("fail"), why.to_string())
                }
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

/// The directory that a file is in.
fn directory_of(path: &str) -> &str {
    path.rsplit_once('/').map_or(".", |(directory, _)| directory)
}
