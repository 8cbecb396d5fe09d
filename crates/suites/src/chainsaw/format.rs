//! The fields of a test, its steps and their operations.

use std::time::Duration;

use kiln_diagnostic::{Diagnostic, SourceLocation, did_you_mean};
use kiln_fields::{FieldTable, chainsaw as table};
use kiln_value::{Path, Value, value};
use kiln_yaml::Document;

use crate::files::Directory;

/// The namespace of a test that says nothing about it.
const NAMESPACE: &str = "chainsaw-test";
/// How long something may take to become true, if neither the test nor its configuration says.
const PATIENCE: Duration = Duration::from_secs(90);
/// What all tests of a directory have in common.
const CONFIGURATION: &str = ".chainsaw.yaml";

pub(super) struct ChainsawTest {
    pub(super) name: String,
    pub(super) skip: bool,
    pub(super) namespace: String,
    pub(super) patience: Duration,
    pub(super) bindings: Vec<(String, Value)>,
    pub(super) steps: Vec<ChainsawStep>,
    pub(super) place: SourceLocation,
}

pub(super) struct ChainsawStep {
    pub(super) name: String,
    pub(super) bindings: Vec<(String, Value)>,
    pub(super) operations: Vec<TestOperation>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Apply,
    Create,
    Update,
    Patch,
    Delete,
    Assert,
    Error,
    Sleep,
    Wait,
    /// What runs programs of the machine, where the user allows it.
    Script,
    Command,
}

/// What only shows something to the user.
const SHOWS: [&str; 4] = ["describe", "events", "get", "podLogs"];
/// What may stand beside an operation.
const BESIDE: [&str; 2] = ["description", "continueOnError"];

impl Verb {
    const ALL: [Verb; 11] = [
        Verb::Apply,
        Verb::Create,
        Verb::Update,
        Verb::Patch,
        Verb::Delete,
        Verb::Assert,
        Verb::Error,
        Verb::Sleep,
        Verb::Wait,
        Verb::Script,
        Verb::Command,
    ];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Verb::Apply => "apply",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::Assert => "assert",
            Verb::Error => "error",
            Verb::Sleep => "sleep",
            Verb::Wait => "wait",
            Verb::Script => "script",
            Verb::Command => "command",
        }
    }

    /// Whether it runs programs.
    pub(super) fn is_program(self) -> bool {
        matches!(self, Verb::Script | Verb::Command)
    }
}

pub(super) struct TestOperation {
    pub(super) verb: Verb,
    pub(super) bindings: Vec<(String, Value)>,
    /// What it is about: objects, or what is asserted of some.
    pub(super) objects: Vec<Value>,
    /// The name of their file, which bindings may be part of.
    pub(super) file: Option<String>,
    /// Whether objects have expressions in them.
    pub(super) template: bool,
    /// What is expected of the answer, instead of success.
    pub(super) expect: Vec<(Option<Value>, Value)>,
    pub(super) sleep: Duration,
    /// What a script or a command runs, and what of its output has names.
    pub(super) program: ProgramFields,
    pub(super) place: SourceLocation,
}

/// What a script or a command runs.
#[derive(Clone, Debug, Default)]
pub(super) struct ProgramFields {
    pub(super) script: Option<String>,
    pub(super) command: Vec<String>,
    pub(super) environment: Vec<(String, Value)>,
    pub(super) timeout: Option<Duration>,
    /// What must hold of `$stdout`, `$stderr` and `$error`, instead of success.
    pub(super) check: Option<Value>,
    /// Names for what it prints.
    pub(super) outputs: Vec<(String, Value)>,
}

/// Whether a document is a test.
pub(super) fn is_test(value: &Value) -> bool {
    value.str_at(["apiVersion"]).is_some_and(|version| version.starts_with("chainsaw.kyverno.io/"))
        && value.str_at(["kind"]) == Some("Test")
}

/// Reads a test, and tells what is wrong with it.
pub(super) fn read(
    document: &Document,
    directory: &mut Directory<'_>,
    programs: bool,
) -> (ChainsawTest, Vec<Diagnostic>) {
    let value = document.value();
    let configuration = directory.nearest(CONFIGURATION).map(Document::into_value);
    let configured = |path: &[&str]| {
        let spec = configuration.as_ref()?.get("spec")?;
        spec.get_path(path.iter().copied())
    };
    let templating = configured(&["templating", "enabled"]).and_then(Value::as_bool);
    let template = template(value.get("spec")).or(templating).unwrap_or(true);
    let mut reading = Reading { document, directory, template, problems: Vec::new() };
    let spec = Path::root().join("spec");
    let text = |path: &[&str]| value.str_at(path.iter().copied());
    reading.known(value.get("spec").unwrap_or(&Value::Null), &spec, &table::SPEC);
    let mut test = ChainsawTest {
        name: text(&["metadata", "name"]).unwrap_or_default().to_owned(),
        skip: value.get_path(["spec", "skip"]).and_then(Value::as_bool) == Some(true),
        namespace: text(&["spec", "namespace"]).unwrap_or(NAMESPACE).to_owned(),
        patience: text(&["spec", "timeouts", "assert"])
            .or_else(|| configured(&["timeouts", "assert"])?.as_str())
            .and_then(duration)
            .unwrap_or(PATIENCE),
        bindings: bindings(value.get_path(["spec", "bindings"])),
        steps: Vec::new(),
        place: document.place(),
    };
    let steps = value.get_path(["spec", "steps"]).and_then(Value::as_list);
    for (i, step) in steps.into_iter().flat_map(|steps| steps.iter()).enumerate() {
        let path = spec.join("steps").join(i);
        test.steps.extend(reading.step(step, i, &path));
    }
    let mut operations = test.steps.iter().flat_map(|step| &step.operations);
    if let Some(program) = operations.find(|operation| operation.verb.is_program() && !programs) {
        let message = format!(
            "{} is not run here, because nothing outside the sandbox is: the test ends there",
            program.verb.as_str()
        );
        let problem = Diagnostic::warning(message).at(program.place.clone());
        reading.problems.push(problem.hint(instead()));
    }
    (test, reading.problems)
}

struct Reading<'r, 'f> {
    document: &'r Document,
    directory: &'r mut Directory<'f>,
    /// Whether objects have expressions in them, where neither step nor operation says otherwise.
    template: bool,
    problems: Vec<Diagnostic>,
}

impl Reading<'_, '_> {
    fn problem(&mut self, path: &Path, message: String) {
        let place = self.document.locate(path);
        self.problems.push(Diagnostic::error(message).at(place));
    }

    /// Names the fields that are not run here.
    fn known(&mut self, value: &Value, path: &Path, table: &FieldTable) {
        let Some(map) = value.as_map() else { return };
        for key in map.keys() {
            let key = key.as_str();
            if table.field(key).is_some() || table::WITHOUT_EFFECT.field(key).is_some() {
                continue;
            }
            let close = did_you_mean(key, table.names());
            let problem = Diagnostic::error(format!("{key} is not run here"))
                .at(self.document.locate_key(&path.join(key)));
            self.problems
                .push(problem.maybe_hint(close.map(|close| format!("did you mean {close}?"))));
        }
    }

    fn step(&mut self, step: &Value, number: usize, path: &Path) -> Option<ChainsawStep> {
        self.known(step, path, &table::STEP);
        if step.get("skip").and_then(Value::as_bool) == Some(true) {
            return None;
        }
        let usual = || format!("step {}", number + 1);
        let mut read = ChainsawStep {
            name: step.str_at(["name"]).map_or_else(usual, str::to_owned),
            bindings: bindings(step.get("bindings")),
            operations: Vec::new(),
        };
        if let Some(used) = step.get("use") {
            let at = path.join("use");
            read.bindings.extend(bindings(used.get_path(["with", "bindings"])));
            self.template(used, &at, &mut read);
        }
        let templates = template(Some(step)).unwrap_or(self.template);
        for part in ["try", "finally"] {
            let list = step.get(part).and_then(Value::as_list);
            for (i, value) in list.into_iter().flat_map(|list| list.iter()).enumerate() {
                let at = path.join(part).join(i);
                let place = self.document.locate(&at);
                match operation(value, templates, place) {
                    // What is put in order at the end goes with the sandbox.
                    Ok(Some(operation)) if part == "finally" && operation.verb.is_program() => {}
                    Ok(Some(mut operation)) => {
                        self.load(&mut operation, &at);
                        read.operations.push(operation);
                    }
                    Ok(None) => {}
                    Err(problem) => self.problems.push(problem),
                }
            }
        }
        Some(read)
    }

    /// Takes the operations of a template, which stands in a file.
    fn template(&mut self, used: &Value, path: &Path, step: &mut ChainsawStep) {
        let Some(file) = used.str_at(["template"]) else {
            return self.problem(path, "use names no template".to_owned());
        };
        let place = self.document.locate(path);
        let documents = match self.directory.read(file, &place) {
            Ok(documents) => documents,
            Err(problem) => return self.problems.push(problem),
        };
        for document in &documents {
            let own = bindings(document.value().get_path(["spec", "bindings"]));
            // What the step gives comes before what the template gives by itself.
            let given: Vec<_> = std::mem::take(&mut step.bindings);
            let is_given = |name: &String| given.iter().any(|(given, _)| given == name);
            step.bindings = own.into_iter().filter(|(name, _)| !is_given(name)).collect();
            step.bindings.extend(given);
            let list = document.value().get_path(["spec", "try"]).and_then(Value::as_list);
            for value in list.into_iter().flat_map(|list| list.iter()) {
                match operation(value, self.template, place.clone()) {
                    Ok(Some(mut operation)) => {
                        self.load(&mut operation, path);
                        step.operations.push(operation);
                    }
                    Ok(None) => {}
                    Err(problem) => self.problems.push(problem),
                }
            }
        }
        // Names of files are known before anything runs.
        let bindings = step.bindings.clone();
        for operation in &mut step.operations {
            let Some(file) = operation.file.clone() else { continue };
            if let Some(name) = file.strip_prefix("($").and_then(|file| file.strip_suffix(')')) {
                let bound = bindings.iter().find(|(bound, _)| bound == name);
                match bound.and_then(|(_, value)| value.as_str()) {
                    Some(file) => operation.file = Some(file.to_owned()),
                    None => {
                        let message = format!("there is no binding ${name} for the file");
                        return self.problem(path, message);
                    }
                }
                self.load(operation, path);
            }
        }
    }

    /// Reads the file of an operation, unless its name is not known yet.
    fn load(&mut self, operation: &mut TestOperation, path: &Path) {
        let Some(file) = operation.file.as_deref().filter(|file| !file.starts_with('(')) else {
            return;
        };
        let place = self.document.locate(path);
        match self.directory.read(file, &place) {
            Ok(documents) => {
                let values = documents.into_iter().map(Document::into_value);
                let values = values.filter(|value| !value.is_null());
                operation.objects.extend(values.flat_map(items));
            }
            Err(problem) => self.problems.push(problem),
        }
    }
}

/// chainsaw: a list is what it lists.
fn items(value: Value) -> Vec<Value> {
    match value.get("items").and_then(Value::as_list) {
        Some(items) if value.get("metadata").is_none_or(|about| about.get("name").is_none()) => {
            items.to_vec()
        }
        _ => vec![value],
    }
}

fn bindings(value: Option<&Value>) -> Vec<(String, Value)> {
    let list = value.and_then(Value::as_list);
    list.into_iter()
        .flat_map(|list| list.iter())
        .filter_map(|binding| {
            let name = binding.str_at(["name"])?;
            Some((name.to_owned(), binding.get("value").cloned().unwrap_or_default()))
        })
        .collect()
}

/// Whether something says that objects have expressions in them, or have none.
fn template(value: Option<&Value>) -> Option<bool> {
    value?.get("template")?.as_bool()
}

/// Reads an operation; none of one that only shows something.
fn operation(
    value: &Value,
    templates: bool,
    place: SourceLocation,
) -> Result<Option<TestOperation>, Diagnostic> {
    let wrong = |message: String| Diagnostic::error(message).at(place.clone());
    let found =
        value.as_map().and_then(|map| map.iter().find(|(key, _)| !BESIDE.contains(&key.as_str())));
    let Some((name, fields)) = found else {
        return Err(wrong("an operation is a map with one field".to_owned()));
    };
    if SHOWS.contains(&name.as_str()) {
        return Ok(None);
    }
    let Some(mut verb) = Verb::ALL.into_iter().find(|verb| verb.as_str() == name.as_str()) else {
        return Err(wrong(format!("{name} is not run here")).hint(instead()));
    };
    let list = |field: &str| {
        let list = fields.get(field).and_then(Value::as_list);
        list.into_iter().flat_map(|list| list.iter())
    };
    let mut objects: Vec<Value> = fields.get("resource").into_iter().cloned().collect();
    if verb == Verb::Delete {
        objects.extend(fields.get("ref").map(referred));
    }
    if verb == Verb::Wait {
        let object;
        (verb, object) = awaited(fields).map_err(|error| wrong(error.to_string()))?;
        objects.push(object);
    }
    let sleep = match (verb, fields.str_at(["duration"])) {
        (Verb::Sleep, Some(text)) => {
            duration(text).ok_or_else(|| wrong(format!("{text:?} is not a duration such as 3s")))?
        }
        _ => Duration::ZERO,
    };
    let file = fields.str_at(["file"]).map(str::to_owned);
    if objects.is_empty() && file.is_none() && verb != Verb::Sleep && !verb.is_program() {
        return Err(wrong(format!("{name} names neither a file nor a resource")));
    }
    Ok(Some(TestOperation {
        verb,
        bindings: bindings(fields.get("bindings")),
        objects,
        file,
        template: template(Some(fields)).unwrap_or(templates),
        expect: list("expect")
            .filter_map(|one| Some((one.get("match").cloned(), one.get("check")?.clone())))
            .collect(),
        sleep,
        program: program(fields, verb),
        place,
    }))
}

/// What a script or a command runs.
fn program(fields: &Value, verb: Verb) -> ProgramFields {
    if !verb.is_program() {
        return ProgramFields::default();
    }
    let words = fields.get("args").and_then(Value::as_list);
    let words = words.into_iter().flat_map(|words| words.iter()).filter_map(Value::as_str);
    ProgramFields {
        script: fields.str_at(["content"]).map(str::to_owned),
        command: fields
            .str_at(["entrypoint"])
            .into_iter()
            .chain(words)
            .map(str::to_owned)
            .collect(),
        environment: bindings(fields.get("env")),
        timeout: fields.str_at(["timeout"]).and_then(duration),
        check: fields.get("check").cloned(),
        outputs: bindings(fields.get("outputs")),
    }
}

/// How else to say what is not run.
fn instead() -> String {
    let known = Verb::ALL.iter().filter(|verb| !verb.is_program());
    let known: Vec<&str> = known.map(|verb| verb.as_str()).collect();
    format!("run it with --allow-scripts, or say it with {}", known.join(", "))
}

/// An object as far as a reference tells.
fn referred(reference: &Value) -> Value {
    let mut object = Value::map();
    for (field, path) in [
        ("apiVersion", ["apiVersion"].as_slice()),
        ("kind", &["kind"]),
        ("name", &["metadata", "name"]),
        ("namespace", &["metadata", "namespace"]),
        ("labels", &["metadata", "labels"]),
    ] {
        if let Some(value) = reference.get(field) {
            let _ = object.set(path.iter().copied(), value.clone());
        }
    }
    object
}

/// Why it is not clear what `wait` waits for.
#[derive(Clone, Copy, Debug, thiserror::Error)]
enum WaitError {
    #[error("wait has no `for`")]
    NothingAwaited,
    #[error("wait for a jsonPath needs a value")]
    NoValue,
    #[error("wait is understood for deletion, a condition, or a jsonPath of fields")]
    NotUnderstood,
}

/// What `wait` waits for, as something that is asserted.
fn awaited(fields: &Value) -> Result<(Verb, Value), WaitError> {
    let mut object = referred(fields);
    let Some(wanted) = fields.get("for") else {
        return Err(WaitError::NothingAwaited);
    };
    if wanted.get("deletion").is_some() {
        return Ok((Verb::Error, object));
    }
    let text = |path: &[&str]| wanted.str_at(path.iter().copied());
    if let Some(name) = text(&["condition", "name"]) {
        // kubectl: without a value, the condition is true; letter case is not looked at.
        let value = text(&["condition", "value"]).unwrap_or("true").to_lowercase();
        let named = format!("(conditions[?type == '{name}'].to_lower(status))");
        let _ = object.set(["status", named.as_str()], value!([value]));
        return Ok((Verb::Wait, object));
    }
    // Of kubectl's paths, those that only name fields.
    let path = text(&["jsonPath", "path"]).map(|path| path.trim_matches(['{', '}']));
    let is_plain = |path: &&str| {
        path.starts_with('.') && path.chars().all(|c| c.is_ascii_alphanumeric() || c == '.')
    };
    if let Some(path) = path.filter(is_plain) {
        let path: Vec<&str> = path.split('.').skip(1).collect();
        let value = wanted.get_path(["jsonPath", "value"]);
        let value = value.cloned().ok_or(WaitError::NoValue)?;
        let _ = object.set(path, value);
        return Ok((Verb::Wait, object));
    }
    Err(WaitError::NotUnderstood)
}

/// `1m30s` and the like.
fn duration(text: &str) -> Option<Duration> {
    kiln_text::Duration::parse(text)
        .ok()
        .and_then(|duration| u64::try_from(duration.as_nanos()).ok().map(Duration::from_nanos))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_table_has_the_operations_that_are_run_or_passed_over() {
        let known = Verb::ALL.map(Verb::as_str).into_iter().chain(SHOWS).chain(BESIDE);
        let known: BTreeSet<&str> = known.collect();
        assert_eq!(table::OPERATION.names().collect::<BTreeSet<_>>(), known);
    }
}
