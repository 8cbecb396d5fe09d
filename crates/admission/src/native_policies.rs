//! ValidatingAdmissionPolicies that say the same as a policy, so that the API server checks objects itself.
//!
//! A user asks for one by `autogen.validatingAdmissionPolicy.enabled` of a ValidatingPolicy, or by `validate.cel.generate`
//! of the only rule of a ClusterPolicy. What the API server would judge otherwise than the policy is not turned into one:
//! then the policy says why, and Kiln's webhook goes on to answer for it.

use std::sync::Arc;

use kiln_diagnostic::Severity;
use kiln_dialects::{PolicyHost, compile_for};
use kiln_object::{EngineNames, Kinds, metadata};
use kiln_rules::{AdmissionPart, Exception, Exempts, Filter, Filters, Operation, Policy, Rule};
use kiln_text::wildcard;
use kiln_value::{Map, Str, Value, value};
use kiln_yaml::{Document, ReadOptions};

use crate::named_resources::resources;

/// A policy of Kubernetes and its binding.
#[derive(Clone, Debug, PartialEq)]
pub struct NativePolicy {
    pub policy: Value,
    pub binding: Value,
}

/// What is asked of a policy, and whether it can be done.
#[derive(Clone, Debug, PartialEq)]
pub enum NativeForm {
    /// Nothing is asked for.
    Unasked,
    /// It is asked for, and cannot be.
    Impossible(NativeObstacle),
    Possible(Box<NativePolicy>),
}

/// Why the API server cannot be given a policy. Kyverno's words, where it has any.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NativeObstacle {
    /// Rules for what makes Pods would be missing.
    #[error("pod controllers autogen is enabled.")]
    Autogen,
    #[error("PolicyException {0} allows some values, or ends by itself.")]
    PartialException(Str),
    #[error("PolicyException {0} exempts everything.")]
    WholeException(Str),
    #[error("PolicyException {0} is configured.")]
    RuleException(Str),
    #[error("multiple rules are not applicable.")]
    SeveralRules,
    /// Something of the rule that Kubernetes' policies cannot say.
    #[error("{0} not applicable.")]
    Inexpressible(&'static str),
    #[error("multiple 'all' in the {0} block is not applicable.")]
    SeveralAll(&'static str),
    /// The API server has fewer functions than policies have here.
    #[error("the API server would refuse it: {0}.")]
    Refused(String),
}

const VERSION: &str = "admissionregistration.k8s.io/v1";
/// The label that keeps a policy from reports.
const UNREPORTED: &str = "reports.kyverno.io/disabled";

/// The form of a stored policy that the API server runs itself.
pub fn native_form(
    stored: &Value,
    compiled: &Policy,
    exceptions: &[Arc<Exception>],
    kinds: &Kinds,
    names: &EngineNames,
) -> NativeForm {
    let is_on = |path: &[&str]| {
        stored.get_path(path.iter().copied()).and_then(Value::as_bool) == Some(true)
    };
    let rules = stored.get_path(["spec", "rules"]).and_then(Value::as_list);
    let rules: Vec<&Value> = rules.into_iter().flat_map(|rules| rules.iter()).collect();
    let generates = |rule: &&Value| -> bool {
        rule.get_path(["validate", "cel", "generate"]).and_then(Value::as_bool) == Some(true)
    };
    let meant: Vec<&Arc<Exception>> = exceptions
        .iter()
        .filter(|exception| compiled.rules.iter().any(|rule| exception.means(&rule.id)))
        .collect();
    let built = match compiled.kind.as_str() {
        "ValidatingPolicy"
            if is_on(&["spec", "autogen", "validatingAdmissionPolicy", "enabled"]) =>
        {
            of_validating_policy(stored, compiled, &meant)
        }
        "ClusterPolicy" if rules.iter().any(generates) => of_rule(&rules, compiled, &meant, kinds),
        _ => return NativeForm::Unasked,
    };
    let checked = built.map(|specs| named(stored, compiled, specs, names)).and_then(checked);
    match checked {
        Ok(native) => NativeForm::Possible(Box::new(native)),
        Err(obstacle) => NativeForm::Impossible(obstacle),
    }
}

/// The specs of the policy and its binding.
type Specs = (Map, Map);

fn of_validating_policy(
    stored: &Value,
    compiled: &Policy,
    exceptions: &[&Arc<Exception>],
) -> Result<Specs, NativeObstacle> {
    if compiled.rules.len() > 1 {
        return Err(NativeObstacle::Autogen);
    }
    let spec = stored.get("spec").unwrap_or(&Value::Null);
    let mut policy = Map::new();
    for key in ["failurePolicy", "matchConstraints", "variables", "validations", "auditAnnotations"]
    {
        if let Some(field) = spec.get(key).filter(|field| !field.is_null()) {
            policy.insert(key, field.clone());
        }
    }
    let conditions = spec.get("matchConditions").and_then(Value::as_list);
    let mut conditions: Vec<Value> =
        conditions.into_iter().flat_map(|list| list.iter()).cloned().collect();
    for (number, exception) in exceptions.iter().enumerate() {
        conditions.push(without(exception, number)?);
    }
    if !conditions.is_empty() {
        policy.insert("matchConditions", Value::from(conditions));
    }
    let actions = spec.get("validationActions").and_then(Value::as_list).cloned();
    let actions = actions.map_or_else(|| value!(["Deny"]), Value::List);
    let mut binding = Map::new();
    binding.insert("validationActions", actions);
    Ok((policy, binding))
}

/// The condition that an exception does not mean the object. All of its conditions must hold for that, so it is their
/// conjunction that is negated.
fn without(exception: &Exception, number: usize) -> Result<Value, NativeObstacle> {
    let whole = matches!(exception.exempts, Exempts::All(_));
    if !whole || exception.expires.is_some() || exception.include.is_some() {
        return Err(NativeObstacle::PartialException(exception.name.clone()));
    }
    let all: Vec<String> = exception
        .conditions
        .iter()
        .map(|condition| format!("({})", condition.expression.program.source()))
        .collect();
    if all.is_empty() {
        return Err(NativeObstacle::WholeException(exception.name.clone()));
    }
    Ok(value!({
        "name": format!("exception-{number}"),
        "expression": format!("!({})", all.join(" && ")),
    }))
}

fn of_rule(
    rules: &[&Value],
    compiled: &Policy,
    exceptions: &[&Arc<Exception>],
    kinds: &Kinds,
) -> Result<Specs, NativeObstacle> {
    let [rule] = rules else { return Err(NativeObstacle::SeveralRules) };
    let [meant] = &compiled.rules[..] else { return Err(NativeObstacle::Autogen) };
    if let Some(exception) = exceptions.first() {
        return Err(NativeObstacle::RuleException(exception.name.clone()));
    }
    let overrides = rule.get_path(["validate", "failureActionOverrides"]).and_then(Value::as_list);
    if overrides.is_some_and(|list| !list.is_empty()) {
        return Err(NativeObstacle::Inexpressible("failureActionOverrides are"));
    }
    let constraints = match_constraints(rule, meant, kinds)?;
    let cel = rule.get_path(["validate", "cel"]).unwrap_or(&Value::Null);
    let mut policy = Map::new();
    let failure = compiled.delivery.failure_of(AdmissionPart::Validate);
    policy.insert("failurePolicy", failure.to_string());
    policy.insert("matchConstraints", constraints);
    for (to, field) in [
        ("matchConditions", rule.get("celPreconditions")),
        ("paramKind", cel.get("paramKind")),
        ("variables", cel.get("variables")),
        ("validations", cel.get("expressions")),
        ("auditAnnotations", cel.get("auditAnnotations")),
    ] {
        if let Some(field) = field.filter(|field| !field.is_null()) {
            policy.insert(to, field.clone());
        }
    }
    let mut binding = Map::new();
    let denies = crate::validation::denies(meant);
    let actions = if denies { value!(["Deny"]) } else { value!(["Audit", "Warn"]) };
    binding.insert("validationActions", actions);
    if let Some(reference) = cel.get("paramRef").filter(|reference| !reference.is_null()) {
        binding.insert("paramRef", reference.clone());
    }
    Ok((policy, binding))
}

/// What a rule matches, as `matchConstraints`. Kubernetes has one selector of each kind for all resources, so several
/// blocks with selectors cannot be said.
fn match_constraints(rule: &Value, meant: &Rule, kinds: &Kinds) -> Result<Map, NativeObstacle> {
    let written = |part: &str| -> Vec<Value> {
        let block = rule.get(part).unwrap_or(&Value::Null);
        let lists = ["any", "all"].into_iter().filter_map(|key| block.get(key)?.as_list());
        let mut all: Vec<Value> = lists.flat_map(|list| list.iter()).cloned().collect();
        if block.get("resources").is_some() {
            all.push(block.clone());
        }
        all
    };
    let mut constraints = Map::new();
    let included = matched(&meant.trigger.include, true, kinds)?;
    constraints.insert("resourceRules", Value::from(included));
    let excluded = matched(&meant.trigger.exclude, false, kinds)?;
    if !excluded.is_empty() {
        constraints.insert("excludeResourceRules", Value::from(excluded));
    }
    let matches = written("match");
    let selects = |entry: &Value| {
        ["selector", "namespaceSelector", "namespaces"]
            .iter()
            .any(|key| entry.get_path(["resources", *key]).is_some_and(|value| !value.is_null()))
    };
    if written("exclude").iter().any(selects) {
        let what = "NamespaceSelector / ObjectSelector in the exclude block is";
        return Err(NativeObstacle::Inexpressible(what));
    }
    match &matches[..] {
        [one] => {
            let of = |key: &str| one.get_path(["resources", key]).filter(|value| !value.is_null());
            if let Some(namespaces) = of("namespaces") {
                constraints.insert("namespaceSelector", value!({"matchExpressions": [
                    {"key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces},
                ]}));
            } else if let Some(selector) = of("namespaceSelector") {
                constraints.insert("namespaceSelector", selector.clone());
            }
            if let Some(selector) = of("selector") {
                constraints.insert("objectSelector", selector.clone());
            }
        }
        several if several.iter().any(selects) => {
            return Err(NativeObstacle::Inexpressible(
                "NamespaceSelector / ObjectSelector across multiple resources in the match block are",
            ));
        }
        _ => {}
    }
    Ok(constraints)
}

/// The resources that filters name, as rules of a policy of Kubernetes.
fn matched(filters: &Filters, is_match: bool, kinds: &Kinds) -> Result<Vec<Value>, NativeObstacle> {
    if let Filters::All(all) = filters
        && all.len() > 1
    {
        return Err(NativeObstacle::SeveralAll(if is_match { "match" } else { "exclude" }));
    }
    let mut rules = Vec::new();
    for filter in filters.filters() {
        can_be_said(filter, is_match)?;
        let operations = match filter.operations.is_empty() {
            true => value!(["CREATE", "UPDATE", "CONNECT", "DELETE"]),
            false => filter.operations.iter().map(Operation::as_str).collect(),
        };
        for named in filter.kinds.iter().flat_map(|pattern| resources(pattern, kinds)) {
            let mut rule = Map::new();
            rule.insert("apiGroups", Value::from_iter([named.group]));
            rule.insert("apiVersions", Value::from_iter([named.version]));
            rule.insert("operations", operations.clone());
            rule.insert("resources", Value::from_iter([named.resource]));
            if !filter.names.is_empty() {
                rule.insert(
                    "resourceNames",
                    filter.names.iter().map(Str::as_str).collect::<Value>(),
                );
            }
            rules.push(Value::Map(rule));
        }
    }
    Ok(rules)
}

fn can_be_said(filter: &Filter, is_match: bool) -> Result<(), NativeObstacle> {
    let with_wildcards = |words: &[Str]| words.iter().any(|word| wildcard::contains_wildcard(word));
    let what = if !filter.user.is_empty() {
        "Roles / ClusterRoles / Subjects in `any/all` is"
    } else if !filter.annotations.is_empty() {
        "Annotations in resource description is"
    } else if with_wildcards(&filter.names) {
        "wildcards in resource name is"
    } else if with_wildcards(&filter.namespaces) {
        "wildcards in namespace name is"
    } else if !is_match && !filter.namespaces.is_empty() {
        "excluding a resource within a namespace is"
    } else if filter.kinds.is_empty() {
        "a filter without kinds is"
    } else {
        return Ok(());
    };
    Err(NativeObstacle::Inexpressible(what))
}

/// The objects with their names, labels and owner.
fn named(stored: &Value, compiled: &Policy, specs: Specs, names: &EngineNames) -> NativePolicy {
    let (policy, mut binding) = specs;
    let short = if compiled.kind == "ClusterPolicy" { "cpol" } else { "vpol" };
    // Policies of both API groups may have the same name.
    let prefix = if names.stands_for_kyverno() { "" } else { "kiln-" };
    let name = format!("{prefix}{short}-{}", compiled.id.name);
    binding.insert("policyName", name.as_str());
    let mut labels = Map::new();
    labels.insert("app.kubernetes.io/managed-by", names.name());
    if metadata::label(stored, UNREPORTED).is_some() {
        labels.insert(UNREPORTED, "true");
    }
    let owner = value!({
        "apiVersion": compiled.api_version.as_str(), "kind": compiled.kind.as_str(),
        "name": compiled.id.name.as_str(), "uid": metadata::uid(stored).unwrap_or_default(),
    });
    let object = |kind: &str, name: &str, spec: Map| {
        value!({
            "apiVersion": VERSION, "kind": kind,
            "metadata": {"name": name, "labels": labels.clone(), "ownerReferences": [owner.clone()]},
            "spec": spec,
        })
    };
    NativePolicy {
        policy: object("ValidatingAdmissionPolicy", &name, policy),
        binding: object("ValidatingAdmissionPolicyBinding", &format!("{name}-binding"), binding),
    }
}

/// The policy, if the API server would run it: it has fewer functions than policies have here.
fn checked(native: NativePolicy) -> Result<NativePolicy, NativeObstacle> {
    let read =
        |value: &Value| Document::from_value("native", value.clone(), ReadOptions::kubernetes());
    let documents = [read(&native.policy), read(&native.binding)];
    let compiled = compile_for(PolicyHost::Files, &documents, &Kinds::builtin());
    let wrong = compiled.diagnostics.iter().find(|found| found.severity == Severity::Error);
    match wrong {
        Some(wrong) => Err(NativeObstacle::Refused(wrong.message.clone())),
        None => Ok(native),
    }
}
