//! What all policies in CEL have in common: name, reach, conditions and named values.

use std::sync::Arc;

use kiln_cel::{Env, EnvBuilder, PolicyScope, Type};
use kiln_fields::{FieldTable, policies as table};
use kiln_object::Kinds;
use kiln_rules::{
    ApplyRules, Delivery, Dialect, Expression, Lifecycle, NamedExpression, Origin, Policy,
    PolicyId, Program, Rule, RuleId, Scope, Script, Trigger, Unmet, WebhookFamily,
};
use kiln_value::{Path, Str};
use kiln_yaml::Document;

use super::constraints::{self, ConstraintOwner, Constraints, OldLabels};
use super::expressions::{self, ExpectedType};
use super::{request_facts, tokens};
use crate::Compiled;
use crate::delivery::{background, report_words};
use crate::document_reader::{DocumentFields, DocumentNode, Report};

/// The beginning of a policy.
pub(super) struct Head<'d, 'r> {
    pub(super) api_version: Str,
    pub(super) kind: Str,
    pub(super) name: Str,
    pub(super) scope: Scope,
    pub(super) spec: DocumentFields<'d, 'r>,
}

/// What a kind of policy allows.
pub(super) struct PolicyKindRules {
    /// The fields of the document, and of its `spec`.
    pub(super) document: &'static FieldTable,
    pub(super) spec: &'static FieldTable,
    /// The versions of a policy for the cluster.
    pub(super) versions: &'static [&'static str],
    /// The versions of a policy in a namespace.
    pub(super) namespaced_versions: &'static [&'static str],
}

/// What a policy of one rule does.
pub(super) struct PolicyBody {
    pub(super) dialect: Dialect,
    pub(super) trigger: Trigger,
    pub(super) script: Script,
    pub(super) program: Program,
    pub(super) lifecycle: Lifecycle,
}

/// Compiles a policy. One with an error is left out as a whole, as Kyverno refuses it.
pub(super) fn compile(
    document: &Document,
    compiled: &mut Compiled,
    rules: &PolicyKindRules,
    policy: impl FnOnce(&Head<'_, '_>, &Report<'_>) -> Option<Policy>,
) {
    let report = Report::new(document);
    let policy = read(&report, rules).and_then(|head| policy(&head, &report));
    if !report.has_errors() {
        compiled.policies.extend(policy.map(Arc::new));
    }
    compiled.diagnostics.extend(report.finish());
}

/// Reads the beginning of a policy; `None` when not even its name can be read.
fn read<'d, 'r>(report: &'r Report<'d>, rules: &PolicyKindRules) -> Option<Head<'d, 'r>> {
    let root = report.root().fields(rules.document)?;
    let (api_version, kind) = (root.required_text("apiVersion")?, root.required_text("kind")?);
    let metadata = match root.get("metadata") {
        Some(metadata) => metadata.any_fields()?,
        None => {
            root.error("the policy has no metadata", Some("add metadata.name".into()));
            return None;
        }
    };
    let name = metadata.required_text("name")?;
    let namespace = metadata.text("namespace").filter(|namespace| !namespace.is_empty());
    let in_namespace = kind.starts_with("Namespaced");
    let scope = match (in_namespace, namespace) {
        (true, namespace) => Scope::Namespace(namespace.unwrap_or_else(|| "default".into())),
        (false, None) => Scope::Cluster,
        (false, Some(_)) => {
            // An API server drops the namespace of objects without one.
            report.warn(
                &metadata.path().join("namespace"),
                format!("a {kind} has no namespace"),
                Some(format!("remove it, or write `kind: Namespaced{kind}`")),
            );
            Scope::Cluster
        }
    };
    let known = if in_namespace { rules.namespaced_versions } else { rules.versions };
    let version = api_version.rsplit('/').next().unwrap_or_default();
    if !known.contains(&version) {
        report.error(
            &Path::from_iter(["apiVersion"]),
            format!("{api_version} {kind} is not known"),
            Some(format!("its versions are {}", known.join(", "))),
        );
    }
    let Some(spec) = root.get("spec") else {
        root.error("spec: Required value: spec must not be nil", Some("add spec".into()));
        return None;
    };
    let spec = spec.fields(rules.spec)?;
    Some(Head { api_version, kind, name, scope, spec })
}

impl Head<'_, '_> {
    /// A policy of one rule, which has its name.
    pub(super) fn policy(&self, report: &Report<'_>, body: PolicyBody) -> Policy {
        let PolicyBody { dialect, trigger, script, program, lifecycle } = body;
        let namespace = self.scope.namespace().map(Into::into);
        let id = PolicyId { dialect, namespace, name: self.name.clone() };
        let origin = Origin::new(report.document().clone(), Path::root());
        let rule = Rule {
            id: RuleId { policy: id.clone(), rule: self.name.clone() },
            trigger,
            scope: self.scope.clone(),
            context: Vec::new(),
            guard: None,
            request_facts: request_facts::of_rule(Some(&script), &program),
            script: Some(Arc::new(script)),
            program,
            lifecycle,
            report_properties: Vec::new(),
            origin: origin.clone(),
        };
        Policy {
            id,
            api_version: self.api_version.to_string(),
            kind: self.kind.to_string(),
            rules: vec![Arc::new(rule)],
            apply: ApplyRules::All,
            // What the whole document says about it is added when its variants are known.
            delivery: Delivery::usual(WebhookFamily::Rules),
            background: background(report.document().value()),
            report: report_words(report.document().value()),
            origin,
        }
    }

    /// Where the policy lives, which decides how its expressions call libraries.
    pub(super) fn policy_scope(&self) -> PolicyScope {
        match &self.scope {
            Scope::Cluster => PolicyScope::Cluster,
            Scope::Namespace(own) => PolicyScope::Namespace(own.clone()),
        }
    }

    /// `matchConstraints`, which must say something.
    pub(super) fn constraints(&self, kinds: &Kinds, old: OldLabels) -> Option<Constraints> {
        let node = self.spec.get("matchConstraints");
        let found = node
            .as_ref()
            .and_then(|node| constraints::read(node, kinds, old, ConstraintOwner::Policy));
        if found.as_ref().is_none_or(|found| found.include.filters().is_empty()) {
            // Kyverno's words.
            let message = "spec.matchConstraints: Required value: a matchConstraints with at least \
                           one resource rule is required";
            let path = node.map_or_else(|| self.spec.path().clone(), |node| node.path);
            self.spec.report().error(&path, message, Some("add resourceRules".into()));
            return None;
        }
        found
    }

    /// Compiles the named values, and gives what expressions may mention with them.
    pub(super) fn variables(&self, base: &Env) -> (Vec<NamedExpression>, Env) {
        variables(self.spec.get("variables"), base)
    }

    /// `auditAnnotations`.
    pub(super) fn annotations(&self, env: &Env) -> Vec<NamedExpression> {
        annotations(self.spec.get("auditAnnotations"), env)
    }

    /// Refuses calls of services in namespaced policies.
    pub(super) fn refuse_http<'s>(&self, mut sources: impl Iterator<Item = &'s str>) {
        if self.scope != Scope::Cluster && sources.any(|source| tokens::calls(source, "http")) {
            // Kyverno's words, without its flag: nothing allows it here.
            let message = "spec: Forbidden: http.* is not allowed in namespaced policies";
            let hint = "use a policy for the cluster; --allow-service, or kiln.services in a \
                        cluster, lists the hosts that it may ask";
            self.spec.error(message, Some(hint.into()));
        }
    }
}

/// Compiles a list of named values, and gives what expressions may mention with them.
pub(super) fn variables(
    list: Option<DocumentNode<'_, '_>>,
    base: &Env,
) -> (Vec<NamedExpression>, Env) {
    let mut env = base.clone();
    let mut found: Vec<NamedExpression> = Vec::new();
    for element in list.map(|node| node.elements()).unwrap_or_default() {
        let Some(fields) = element.fields(&table::POLICY_VARIABLE) else { continue };
        let (Some(name), Some(_)) =
            (fields.required_text("name"), fields.required_text("expression"))
        else {
            continue;
        };
        if found.iter().any(|known| known.name == name) {
            element.error_with(
                format!("Duplicate value: {:?}", name.as_str()),
                "give each one a name of its own",
            );
        }
        let expression = fields
            .get("expression")
            .and_then(|node| expressions::node(&env, &node, ExpectedType::Any));
        let builder: EnvBuilder = env.extend();
        env = match &expression {
            Some(expression) => {
                builder.policy_variable(&name, expressions::type_of(&expression.program)).build()
            }
            // It has been reported already; its uses add no second error.
            None => builder.policy_variable(&name, Type::Dyn).build(),
        };
        found.extend(expression.map(|expression| NamedExpression { name, expression }));
    }
    (found, env)
}

/// Compiles a list of `auditAnnotations`.
pub(super) fn annotations(list: Option<DocumentNode<'_, '_>>, env: &Env) -> Vec<NamedExpression> {
    let list = list.map(|node| node.elements()).unwrap_or_default();
    let read = |element: &DocumentNode<'_, '_>| {
        let fields = element.fields(&table::AUDIT_ANNOTATION)?;
        let name = fields.required_text("key")?;
        fields.required_text("valueExpression")?;
        let node = fields.get("valueExpression")?;
        let expression = expressions::node(env, &node, ExpectedType::Text)?;
        Some(NamedExpression { name, expression })
    };
    list.iter().filter_map(read).collect()
}

/// A switch of `evaluation`: `{enabled: true}`, or plainly `true` as first proposed.
pub(super) fn switch(fields: Option<&DocumentFields<'_, '_>>, key: &str) -> Option<bool> {
    let node = fields?.get(key)?;
    match node.value.as_bool() {
        Some(flag) => Some(flag),
        None => node.fields(&table::SWITCH)?.flag("enabled"),
    }
}

/// Joins the parts of a script.
pub(super) fn script(
    env: Env,
    variables: Vec<NamedExpression>,
    conditions: Vec<NamedExpression>,
    annotations: Vec<NamedExpression>,
    unmet: Unmet,
) -> Script {
    let mut script = Script {
        env,
        variables,
        conditions,
        unmet,
        annotations,
        asks_for_namespace: false,
        asks_for_user: false,
        params: None,
        renew_for_each_patch: false,
        expression_cost: None,
        supposes_namespace: false,
        has_no_request: false,
        namespaces_are_their_own: false,
    };
    let asks_for_namespace = all_expressions(&script).any(asks_for_namespace);
    let conditions = script.conditions.iter().map(|condition| &condition.expression);
    let asks_for_user = conditions.map(request_facts::of_expression).any(|facts| facts.user);
    (script.asks_for_namespace, script.asks_for_user) = (asks_for_namespace, asks_for_user);
    script
}

/// Conditions on requests that an API server checks; none when there are none.
pub(crate) fn request_conditions(node: &DocumentNode<'_, '_>) -> Option<Arc<Script>> {
    let env = Env::policies(PolicyScope::Cluster);
    let read = |element: &DocumentNode<'_, '_>| {
        let fields = element.any_fields()?;
        let (name, source) = (fields.text("name")?, fields.text("expression")?);
        // A slip is admission's to refuse, and what asks the authorizer the API server's to decide.
        let program = env.compile_as(&source, &[Type::Bool]).ok()?;
        let path = element.path.join("expression");
        Some(NamedExpression { name, expression: Expression { program, path, offset: 0 } })
    };
    let conditions: Vec<NamedExpression> = node.elements().iter().filter_map(read).collect();
    let made = || Arc::new(script(env, Vec::new(), conditions.clone(), Vec::new(), Unmet::NoMatch));
    (!conditions.is_empty()).then(made)
}

/// Whether an expression looks at the namespace of the trigger.
pub(super) fn asks_for_namespace(expression: &Expression) -> bool {
    expression.program.uses("namespaceObject").is_any()
}

/// All expressions of a script.
fn all_expressions(script: &Script) -> impl Iterator<Item = &Expression> {
    let named = script.variables.iter().chain(&script.conditions).chain(&script.annotations);
    named.map(|named| &named.expression)
}

/// The texts of all expressions of a script.
pub(super) fn sources(script: &Script) -> impl Iterator<Item = &str> {
    all_expressions(script).map(|expression| expression.program.source())
}
