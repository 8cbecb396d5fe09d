//! What each operation does on a cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use kiln_value::{Map, Value, value};

use super::assertion::mismatches;
use super::error::{ExpressionError, OperationError, ServerMessage};
use super::expression::Bindings;
use super::format::{ChainsawTest, TestOperation, Verb};
use super::not_run;
use super::unsupported;
use super::{ApiResponse, ProgramOutput, TestCluster, TestProgram};

/// How often something is tried at most: writes without end must not hold up a test.
const MOST_ATTEMPTS: usize = 10_000;
/// Before something is said not to be there, what is under way comes to its end.
const SETTLED: Duration = Duration::from_millis(150);
/// How long a program may take that does not say.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(60);

/// What came of an operation.
pub(super) struct OperationOutcome {
    pub(super) about: String,
    /// Why it did not succeed, if it did not.
    pub(super) failure: Option<OperationFailure>,
    /// How many objects were compared with what was asserted of them.
    pub(super) compared: usize,
    /// Names for what a program printed.
    pub(super) outputs: Vec<(String, Value)>,
}

impl OperationOutcome {
    pub(super) fn failed(about: &str, why: impl Into<OperationError>) -> Self {
        OperationOutcome {
            about: about.to_owned(),
            failure: Some(OperationFailure::Failed(why.into())),
            compared: 0,
            outputs: Vec::new(),
        }
    }
}

/// Why an operation did not succeed.
pub(super) enum OperationFailure {
    /// Something else came of it than was expected.
    Failed(OperationError),
    /// What was expected is for rules that Kiln does not run, or takes what no sandbox has.
    NotRun(String),
}

impl From<OperationError> for OperationFailure {
    fn from(why: OperationError) -> Self {
        OperationFailure::Failed(why)
    }
}

/// Where objects of a kind are served.
#[derive(Clone)]
struct ResourcePath {
    prefix: String,
    plural: String,
    namespaced: bool,
}

/// Runs the operations of one test.
pub(super) struct OperationRunner<'o> {
    cluster: &'o dyn TestCluster,
    namespace: &'o str,
    /// The directory of the test.
    directory: String,
    patience: Duration,
    places: BTreeMap<(String, String), ResourcePath>,
}

impl<'o> OperationRunner<'o> {
    pub(super) fn new(
        cluster: &'o dyn TestCluster,
        test: &'o ChainsawTest,
        directory: &str,
    ) -> Self {
        let (namespace, patience) = (test.namespace.as_str(), test.patience);
        let directory = directory.to_owned();
        OperationRunner { cluster, namespace, directory, patience, places: BTreeMap::new() }
    }

    /// Makes the namespace of the test, unless there is one.
    pub(super) fn begin(&self) -> Result<(), OperationError> {
        let namespace = value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": (self.namespace)}});
        let answer =
            self.cluster.send("POST", "/api/v1/namespaces", "application/json", Some(&namespace));
        match answer.status {
            200..300 | 409 => Ok(()),
            _ => Err(OperationError::MakeNamespace {
                namespace: self.namespace.to_owned(),
                answer: ServerMessage::of(&answer),
            }),
        }
    }

    pub(super) fn run(&mut self, operation: &TestOperation, outer: &Bindings) -> OperationOutcome {
        let bindings = match outer.extended(&operation.bindings) {
            Ok(bindings) => bindings,
            Err(why) => return OperationOutcome::failed(operation.verb.as_str(), why),
        };
        let verb = operation.verb;
        if verb.is_program() {
            return self.program(operation, &bindings);
        }
        if verb == Verb::Sleep {
            self.cluster.sleep(operation.sleep);
            let about = format!("sleep {:?}", operation.sleep);
            return OperationOutcome { about, failure: None, compared: 0, outputs: Vec::new() };
        }
        let mut about = Vec::new();
        let mut compared = 0;
        for object in &operation.objects {
            // What is asserted is compared as it stands; its names are filled in.
            let asserts = matches!(verb, Verb::Assert | Verb::Error | Verb::Wait);
            let fills = operation.template && !asserts;
            let object =
                match if fills { bindings.filled(object) } else { named(object, &bindings) } {
                    Ok(object) => object,
                    Err(why) => return OperationOutcome::failed(verb.as_str(), why),
                };
            about.push(describe(&object));
            let done = match verb {
                Verb::Assert | Verb::Error | Verb::Wait => {
                    compared += 1;
                    self.assert(verb, &object, &bindings)
                }
                Verb::Delete => self.delete(&object).map_err(OperationFailure::from),
                _ => self.write(operation, &object, &bindings),
            };
            if let Err(why) = done {
                let about =
                    format!("{} {}", verb.as_str(), about.last().map_or("", String::as_str));
                return OperationOutcome {
                    about,
                    failure: Some(why),
                    compared,
                    outputs: Vec::new(),
                };
            }
        }
        let about = format!("{} {}", verb.as_str(), about.join(", "));
        OperationOutcome { about, failure: None, compared, outputs: Vec::new() }
    }

    /// Runs a script or a command, if the cluster runs programs.
    fn program(&self, operation: &TestOperation, bindings: &Bindings) -> OperationOutcome {
        let fields = &operation.program;
        let about = operation.verb.as_str().to_owned();
        let done = |failure: Option<OperationFailure>, outputs: Vec<(String, Value)>| {
            OperationOutcome { about: about.clone(), failure, compared: 0, outputs }
        };
        let mut environment = Vec::new();
        for (name, value) in &fields.environment {
            match bindings.filled(value) {
                Ok(Value::String(text)) => environment.push((name.clone(), text.to_string())),
                Ok(other) => environment.push((name.clone(), kiln_value::json::to_string(&other))),
                Err(why) => return OperationOutcome::failed(&about, why),
            }
        }
        environment.push(("NAMESPACE".to_owned(), self.namespace.to_owned()));
        let output = self.cluster.run_program(&TestProgram {
            script: fields.script.clone(),
            command: fields.command.clone(),
            environment,
            directory: self.directory.clone(),
            timeout: fields.timeout.unwrap_or(PROGRAM_TIMEOUT),
        });
        let Some(output) = output else {
            let why = "not run by Kiln: nothing outside the sandbox is".to_owned();
            return done(Some(OperationFailure::NotRun(why)), Vec::new());
        };
        let ProgramOutput { stdout, stderr, error } = output;
        let failed = error.clone().map(|error| format!("{error}: {}", stderr.trim()));
        let told = bindings
            .clone()
            .with("stdout", Value::from(stdout.trim_end_matches('\n')))
            .with("stderr", Value::from(stderr.trim_end_matches('\n')))
            .with("error", error.map(Value::from).unwrap_or_default());
        let wrong = match &fields.check {
            None => failed,
            Some(check) => match mismatches(check, &Value::Null, &told) {
                Ok(wrong) if wrong.is_empty() => None,
                Ok(wrong) => Some(format!(
                    "{}{}",
                    wrong.join("; "),
                    failed.map(|why| format!(" ({why})")).unwrap_or_default()
                )),
                Err(why) => Some(why.to_string()),
            },
        };
        if let Some(why) = wrong.map(OperationError::RunProgram) {
            return done(Some(OperationFailure::Failed(why)), Vec::new());
        }
        let mut outputs = Vec::new();
        for (name, value) in &fields.outputs {
            match told.filled(value) {
                Ok(value) => outputs.push((name.clone(), value)),
                Err(why) => return OperationOutcome::failed(&about, why),
            }
        }
        done(None, outputs)
    }

    /// Tries until it succeeds, nothing is to happen any more, or patience ends.
    fn until<T>(
        &self,
        mut attempt: impl FnMut() -> Result<T, OperationError>,
    ) -> Result<T, OperationError> {
        let mut left = self.patience;
        for _ in 0..MOST_ATTEMPTS {
            let revision = self.cluster.revision();
            if let Ok(done) = attempt() {
                return Ok(done);
            }
            let waited = self.cluster.wait(revision, left);
            left = left.saturating_sub(waited.took);
            if waited.revision.is_none() || left.is_zero() {
                break;
            }
        }
        // Something may change without a write; otherwise this says what was seen last.
        attempt()
    }

    /// Where objects of the kind of this one are served; asked once for every kind.
    fn place(&mut self, object: &Value) -> Result<ResourcePath, OperationError> {
        let text = |field: &str| object.str_at([field]).unwrap_or_default().to_owned();
        let key = (text("apiVersion"), text("kind"));
        if key.0.is_empty() || key.1.is_empty() {
            return Err(OperationError::NoKind);
        }
        if let Some(place) = self.places.get(&key) {
            return Ok(place.clone());
        }
        let prefix = if key.0.contains('/') {
            format!("/apis/{}", key.0)
        } else {
            format!("/api/{}", key.0)
        };
        // A definition that was stored a moment ago is served a moment later.
        let place = self.until(|| {
            let list = self.cluster.send("GET", &prefix, "", None).value;
            let resources = list.get("resources").and_then(Value::as_list);
            let found = resources.into_iter().flat_map(|list| list.iter()).find(|one| {
                one.str_at(["kind"]) == Some(key.1.as_str())
                    && !one.str_at(["name"]).unwrap_or_default().contains('/')
            });
            let found = found.ok_or_else(|| OperationError::FindResource {
                api_version: key.0.clone(),
                kind: key.1.clone(),
            })?;
            Ok(ResourcePath {
                prefix: prefix.clone(),
                plural: found.str_at(["name"]).unwrap_or_default().to_owned(),
                namespaced: found.get("namespaced").and_then(Value::as_bool) == Some(true),
            })
        })?;
        self.places.insert(key, place.clone());
        Ok(place)
    }

    /// The path of all objects of the kind of this one, where it is.
    fn collection(&self, place: &ResourcePath, object: &Value) -> String {
        if !place.namespaced {
            return format!("{}/{}", place.prefix, place.plural);
        }
        let namespace = object.str_at(["metadata", "namespace"]).unwrap_or(self.namespace);
        format!("{}/namespaces/{namespace}/{}", place.prefix, place.plural)
    }

    fn write(
        &mut self,
        operation: &TestOperation,
        object: &Value,
        bindings: &Bindings,
    ) -> Result<(), OperationFailure> {
        // Whatever else the test says is about a policy that is not run here.
        if let Some(why) = not_run::of_kind(object) {
            return Err(OperationFailure::NotRun(why));
        }
        let place = self.place(object)?;
        let mut object = object.clone();
        if place.namespaced && object.str_at(["metadata", "namespace"]).is_none() {
            let _ = object.set(["metadata", "namespace"], self.namespace);
        }
        let collection = self.collection(&place, &object);
        let name = object.str_at(["metadata", "name"]).unwrap_or_default();
        let path = format!("{collection}/{name}");
        let answer = match operation.verb {
            Verb::Create => self.cluster.send("POST", &collection, JSON, Some(&object)),
            Verb::Patch => self.cluster.send("PATCH", &path, MERGE, Some(&object)),
            Verb::Update => {
                let old = self.cluster.send("GET", &path, "", None);
                if let Some(version) = old.value.str_at(["metadata", "resourceVersion"]) {
                    let _ = object.set(["metadata", "resourceVersion"], version);
                }
                self.cluster.send("PUT", &path, JSON, Some(&object))
            }
            // chainsaw: the existing object is merged with what is applied.
            _ if !name.is_empty() && self.cluster.send("GET", &path, "", None).status == 200 => {
                self.cluster.send("PATCH", &path, MERGE, Some(&object))
            }
            _ => self.cluster.send("POST", &collection, JSON, Some(&object)),
        };
        let error = (answer.status >= 300).then(|| ServerMessage::of(&answer));
        // What was done and should not have been is for rules that check objects.
        let is_done = error.is_none();
        expected(operation, &object, &answer, error, bindings).map_err(|why| {
            match why.server().and_then(unsupported::registry) {
                Some(why) => OperationFailure::NotRun(why),
                None => self.explained(why, is_done),
            }
        })
    }

    /// Why something is not as expected: rules that check objects would have brought it about, and are not run.
    fn explained(&self, why: OperationError, is_for_checks: bool) -> OperationFailure {
        let checks = if is_for_checks { not_run::checks(self.cluster) } else { None };
        checks.map_or(OperationFailure::Failed(why), OperationFailure::NotRun)
    }

    fn delete(&mut self, object: &Value) -> Result<(), OperationError> {
        let place = self.place(object)?;
        let paths = self.candidates(&place, object)?.into_iter().map(|found| {
            let name = found.str_at(["metadata", "name"]).unwrap_or_default().to_owned();
            format!("{}/{name}", self.collection(&place, &found))
        });
        for path in paths.collect::<Vec<_>>() {
            let options = value!({"propagationPolicy": "Background"});
            let answer = self.cluster.send("DELETE", &path, JSON, Some(&options));
            if answer.status >= 300 && answer.status != 404 {
                return Err(OperationError::Request(ServerMessage::of(&answer)));
            }
            self.until(|| match self.cluster.send("GET", &path, "", None).status {
                404 => Ok(()),
                _ => Err(OperationError::Delete),
            })?;
        }
        Ok(())
    }

    /// The objects that something may be asserted of: the one of a name, or all of a kind with the labels.
    fn candidates(
        &self,
        place: &ResourcePath,
        object: &Value,
    ) -> Result<Vec<Value>, OperationError> {
        let collection = self.collection(place, object);
        if let Some(name) = object.str_at(["metadata", "name"]).filter(|name| !name.is_empty()) {
            let answer = self.cluster.send("GET", &format!("{collection}/{name}"), "", None);
            return match answer.status {
                200 => Ok(vec![answer.value]),
                404 => Ok(Vec::new()),
                _ => Err(OperationError::Request(ServerMessage::of(&answer))),
            };
        }
        let labels = object.get_path(["metadata", "labels"]).and_then(Value::as_map);
        let labels: Vec<String> = labels
            .into_iter()
            .flat_map(Map::iter)
            .filter_map(|(key, value)| Some(format!("{key}%3D{}", value.as_str()?)))
            .collect();
        let path = match labels.is_empty() {
            true => collection,
            false => format!("{collection}?labelSelector={}", labels.join(",")),
        };
        let answer = self.cluster.send("GET", &path, "", None);
        if answer.status != 200 {
            return Err(OperationError::Request(ServerMessage::of(&answer)));
        }
        let items = answer.value.get("items").and_then(Value::as_list).map(|list| list.to_vec());
        let mut items = items.unwrap_or_default();
        for item in &mut items {
            for field in ["apiVersion", "kind"] {
                let _ = item.set([field], object.get(field).cloned().unwrap_or_default());
            }
        }
        Ok(items)
    }

    fn assert(
        &mut self,
        verb: Verb,
        wanted: &Value,
        bindings: &Bindings,
    ) -> Result<(), OperationFailure> {
        let done = self.compare(verb, wanted, bindings);
        done.map_err(|why| {
            if let Some(why) = unsupported::nodes(wanted).filter(|_| verb != Verb::Error) {
                return OperationFailure::NotRun(why);
            }
            let is_for_checks = not_run::is_for_checks(self.cluster, verb, wanted);
            self.explained(why, is_for_checks)
        })
    }

    fn compare(
        &mut self,
        verb: Verb,
        wanted: &Value,
        bindings: &Bindings,
    ) -> Result<(), OperationError> {
        // Without a kind, it is about bindings alone.
        let place = match wanted.get("kind") {
            Some(_) => match (self.place(wanted), verb) {
                (Ok(place), _) => Some(place),
                // Of a kind that is not served, there is nothing.
                (Err(_), Verb::Error) => return Ok(()),
                (Err(why), _) => return Err(why),
            },
            None => None,
        };
        if verb == Verb::Error {
            self.cluster.sleep(SETTLED);
        }
        self.until(|| {
            let candidates = match &place {
                Some(place) => self.candidates(place, wanted)?,
                None => vec![Value::Null],
            };
            let mut closest: Option<Vec<String>> = None;
            for candidate in &candidates {
                let candidate = not_run::without_own_condition(candidate, wanted);
                let told = mismatches(wanted, &candidate, bindings)?;
                // kubectl: what is waited for is to hold of all that are meant.
                let all = verb == Verb::Wait && !told.is_empty();
                if all || closest.as_ref().is_none_or(|closest| told.len() < closest.len()) {
                    closest = Some(told);
                }
                if all {
                    break;
                }
            }
            let fits = closest.as_ref().is_some_and(Vec::is_empty);
            match (verb, fits) {
                (Verb::Error, true) => Err(OperationError::Exists),
                (Verb::Error, false) | (_, true) => Ok(()),
                (_, false) => Err(match closest {
                    Some(differences) => OperationError::Differs { differences, answer: None },
                    None => OperationError::DoesNotExist,
                }),
            }
        })
    }
}

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

/// What is asserted, with the names of objects filled in: they say where to look.
fn named(object: &Value, bindings: &Bindings) -> Result<Value, ExpressionError> {
    let mut object = object.clone();
    for path in [["metadata", "name"], ["metadata", "namespace"]] {
        if let Some(value) = object.get_path(path) {
            let filled = bindings.filled(value)?;
            let _ = object.set(path, filled);
        }
    }
    Ok(object)
}

/// Whether an answer is the expected one: by the first expectation that is about the object, or else success.
fn expected(
    operation: &TestOperation,
    object: &Value,
    answer: &ApiResponse,
    error: Option<ServerMessage>,
    bindings: &Bindings,
) -> Result<(), OperationError> {
    // chainsaw: the message of the server, and nothing else.
    let told = error
        .as_ref()
        .map(|error| Value::from(error.message.clone().unwrap_or_else(|| error.to_string())));
    let told = told.unwrap_or_default();
    let bindings = bindings.clone().with("error", told);
    for (about, check) in &operation.expect {
        if let Some(about) = about
            && !mismatches(about, object, &bindings)?.is_empty()
        {
            continue;
        }
        let told = mismatches(check, &answer.value, &bindings)?;
        return match told.is_empty() {
            true => Ok(()),
            false => Err(OperationError::Differs { differences: told, answer: error }),
        };
    }
    error.map_or(Ok(()), |error| Err(OperationError::Request(error)))
}

fn describe(object: &Value) -> String {
    let text = |path: &[&str]| object.str_at(path.iter().copied()).unwrap_or_default();
    let (kind, name) = (text(&["kind"]), text(&["metadata", "name"]));
    match text(&["metadata", "namespace"]) {
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    }
    .trim()
    .to_owned()
}
