//! What a request asks for besides its object: dry runs, field validation, managers, deletion.

use kiln_value::Value;

use crate::request::{ApiRequest, Parameters};
use crate::status::{FieldProblem, FieldProblemKind, RequestFailure};

/// What happens with fields that are unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    /// Ignored silently.
    Ignore,
    /// The client is warned.
    #[default]
    Warn,
    /// The request fails.
    Strict,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct WriteOptions {
    pub(crate) dry_run: bool,
    pub(crate) validation: FieldValidation,
    /// Who writes.
    pub(crate) manager: String,
    /// Whether the client said who it is.
    pub(crate) named_manager: bool,
    pub(crate) force: Option<bool>,
}

/// The longest name of a manager.
const LONGEST_MANAGER: usize = 128;

impl WriteOptions {
    /// Reads them; `kind` is the name of their kind in messages.
    pub(crate) fn read(
        request: &ApiRequest,
        parameters: &Parameters,
        kind: &str,
    ) -> Result<Self, RequestFailure> {
        let mut problems = dry_run_problems(parameters);
        let validation = match parameters.get("fieldValidation").unwrap_or_default() {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                let known = ["", "Ignore", "Strict", "Warn"];
                problems.push(FieldProblem::unsupported("fieldValidation", other, &known));
                FieldValidation::Warn
            }
        };
        let named = parameters.get("fieldManager").unwrap_or_default();
        if named.len() > LONGEST_MANAGER {
            problems.push(FieldProblem::new(
                "fieldManager",
                FieldProblemKind::TooLong(LONGEST_MANAGER),
            ));
        }
        if let Some((at, bad)) = named.chars().enumerate().find(|(_, c)| c.is_control()) {
            let why = format!("invalid character {} (at position {at})", unicode(bad));
            problems.push(FieldProblem::new(
                "fieldManager",
                FieldProblemKind::Invalid(Value::from(named), why),
            ));
        }
        let force = parameters.get("force").map(|_| parameters.is_on("force"));
        if !problems.is_empty() {
            return Err(RequestFailure::options(kind, &problems));
        }
        Ok(WriteOptions {
            dry_run: parameters.get("dryRun").is_some_and(|dry_run| !dry_run.is_empty()),
            validation,
            manager: if named.is_empty() { agent(request) } else { named.to_owned() },
            named_manager: !named.is_empty(),
            force,
        })
    }
}

fn unicode(c: char) -> String {
    format!("U+{:04X}", u32::from(c))
}

fn dry_run_problems(parameters: &Parameters) -> Vec<FieldProblem> {
    let given: Vec<&str> = parameters.all("dryRun").filter(|given| !given.is_empty()).collect();
    if given.iter().all(|given| *given == "All") {
        return Vec::new();
    }
    vec![FieldProblem::unsupported("dryRun", Value::from(given), &["All"])]
}

/// The first part of what the client calls itself.
fn agent(request: &ApiRequest) -> String {
    let agent = request.header("User-Agent").unwrap_or_default();
    let name: String = agent
        .split('/')
        .next()
        .unwrap_or_default()
        .chars()
        .filter(|c| !c.is_control())
        .take(LONGEST_MANAGER)
        .collect();
    if name.is_empty() { "unknown".to_owned() } else { name }
}

/// How what depends on an object goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// The garbage collector deletes dependents after the object.
    #[default]
    Background,
    /// Dependents are deleted before the object.
    Foreground,
    /// Dependents stay, without the owner reference.
    Orphan,
}

/// The options of a deletion.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) dry_run: bool,
    /// None when the request does not say: then what an earlier one said stays.
    pub(crate) propagation: Option<Propagation>,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
}

impl DeleteOptions {
    /// Reads them from the body, else from the parameters.
    pub(crate) fn read(parameters: &Parameters, body: &Value) -> Result<Self, RequestFailure> {
        parameters.number("gracePeriodSeconds")?;
        let mut problems = dry_run_problems(parameters);
        let in_body = body.get("dryRun").and_then(Value::as_list);
        if let Some(list) = in_body
            && list.iter().any(|given| given.as_str() != Some("All"))
        {
            problems.push(FieldProblem::unsupported("dryRun", Value::List(list.clone()), &["All"]));
        }
        let policy =
            body.str_at(["propagationPolicy"]).or_else(|| parameters.get("propagationPolicy"));
        let orphans = body.get("orphanDependents").and_then(Value::as_bool);
        let propagation = match policy.unwrap_or_default() {
            "Orphan" => Some(Propagation::Orphan),
            "Foreground" => Some(Propagation::Foreground),
            "Background" => Some(Propagation::Background),
            "" => orphans.map(|orphans| match orphans {
                true => Propagation::Orphan,
                false => Propagation::Background,
            }),
            other => {
                let known = ["Foreground", "Background", "Orphan", "nil"];
                problems.push(FieldProblem::unsupported("propagationPolicy", other, &known));
                None
            }
        };
        if !problems.is_empty() {
            return Err(RequestFailure::options("DeleteOptions", &problems));
        }
        let text = |field: &str| body.str_at(["preconditions", field]).map(str::to_owned);
        Ok(DeleteOptions {
            dry_run: parameters.get("dryRun").is_some_and(|given| !given.is_empty())
                || in_body.is_some_and(|list| !list.is_empty()),
            propagation,
            uid: text("uid"),
            resource_version: text("resourceVersion"),
        })
    }
}
