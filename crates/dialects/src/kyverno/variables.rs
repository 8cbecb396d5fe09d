//! Which variables a rule may use, checked before it runs.

use std::cell::Cell;

use kiln_diagnostic::did_you_mean;
use kiln_jmespath::Expression;
use kiln_object::Gvk;
use kiln_rules::{
    Callee, ContextEntry, Emission, ForEach, Generate, Load, Mutate, Mutation, PatchBody,
    QueryText, RequestFacts, TargetNamespace, Validate, ValidateCheck as Checked,
};
use kiln_value::{Path, Segment, Value};
use kiln_variables::{
    Conditions, ContextName, RefusalReason, RefusedVariable, Template, VariablePolicy,
};

use crate::document_reader::Report;
use crate::generated_object_fields;
use crate::kyverno::delivery;

/// Names that are there without being declared.
const GIVEN: &[&str] = &[
    "request",
    "images",
    "serviceAccountName",
    "serviceAccountNamespace",
    "element",
    "elementIndex",
];

/// Checks the variables of one rule.
pub(crate) struct VariableCheck<'c, 'd> {
    pub(crate) report: &'c Report<'d>,
    pub(crate) rule: &'c str,
    names: Vec<String>,
    allowed: VariablePolicy,
    /// The policy is the rule.
    of_policy: bool,
    /// The built-in kinds that fire the rule; none where others may, too.
    fired_by: Vec<Gvk>,
    /// What was read of the request so far.
    facts: Cell<RequestFacts>,
}

impl<'c, 'd> VariableCheck<'c, 'd> {
    pub(crate) fn new(report: &'c Report<'d>, rule: &'c str, background: bool) -> Self {
        let allowed = VariablePolicy { background, ..VariablePolicy::default() };
        VariableCheck {
            report,
            rule,
            names: Vec::new(),
            allowed,
            of_policy: false,
            fired_by: Vec::new(),
            facts: Cell::default(),
        }
    }

    /// What all that was checked reads of the request.
    pub(crate) fn facts(&self) -> RequestFacts {
        self.facts.get()
    }

    fn note(&self, facts: RequestFacts) {
        self.facts.set(self.facts.get().and(facts));
    }

    /// Checks a policy that no request makes run.
    pub(crate) fn of_cleanup(report: &'c Report<'d>, policy: &'c str) -> Self {
        let allowed = VariablePolicy { without_request: true, ..VariablePolicy::default() };
        VariableCheck { allowed, of_policy: true, ..VariableCheck::new(report, policy, true) }
    }

    /// From here on, variables see the object that the rule is about as `target`.
    pub(crate) fn target(&mut self) {
        self.allowed.target = true;
    }

    /// Holds what variables read of the trigger to the fields of these kinds.
    pub(crate) fn fired_by(mut self, kinds: Option<Vec<Gvk>>) -> Self {
        self.fired_by = kinds.unwrap_or_default();
        self
    }

    /// Checks entries one after the other; each may use those before it.
    pub(crate) fn context(&mut self, entries: &[ContextEntry]) {
        for entry in entries {
            for template in templates(&entry.load) {
                self.template(template);
            }
            match &entry.load {
                Load::Variable { value: None, query: Some(query), .. } => {
                    self.query(query, &entry.path.join("variable").join("jmesPath"));
                }
                load => {
                    let path = entry.path.join(load.word()).join("jmesPath");
                    self.functions(asked(load), &path);
                }
            }
            self.declare(std::slice::from_ref(entry));
        }
    }

    fn declare(&mut self, entries: &[ContextEntry]) {
        for entry in entries {
            let name = entry.name.to_string();
            self.allowed.entries.push(match entry.load {
                Load::ConfigMap { .. } => ContextName::ConfigMap(name.clone()),
                _ => ContextName::Other(name.clone()),
            });
            self.names.push(name);
        }
    }

    pub(crate) fn guard(&self, guard: Option<&Conditions>) {
        for condition in guard.into_iter().flat_map(Conditions::iter) {
            let message = condition.message.as_ref().map(|message| (message, "message"));
            let parts = [(&condition.key, "key"), (&condition.value, "value")];
            for (template, part) in parts.into_iter().chain(message) {
                self.template_at(template, &condition.path.join(part));
            }
        }
    }

    pub(crate) fn program(&mut self, program: &Generate) {
        for block in &program.blocks {
            self.scoped(|check| {
                if let Some(foreach) = &block.foreach {
                    check.foreach(foreach);
                }
                for emitter in &block.emitters {
                    for template in emitted(&emitter.emission) {
                        check.template(template);
                    }
                }
            });
        }
    }

    /// Checks a mutate program. The fields that locate a target cannot use `target`.
    pub(crate) fn mutate(&mut self, program: &Mutate) {
        for target in program.named_targets() {
            let parts = [&target.api_version, &target.name, &target.namespace, &target.selector];
            for template in parts.into_iter().flatten().chain([&target.kind]) {
                self.template(template);
            }
        }
        self.allowed.target = program.targets.is_some();
        for target in program.named_targets() {
            self.scoped(|check| {
                check.context(&target.context);
                check.guard(target.guard.as_ref());
            });
        }
        // Every target brings its own names.
        self.scoped(|check| {
            for target in program.named_targets() {
                check.declare(&target.context);
            }
            check.change(&program.change);
        });
    }

    /// Checks a validate program.
    pub(crate) fn validate(&mut self, program: &Validate) {
        program.message.iter().for_each(|message| self.template(message));
        self.checked(&program.check);
    }

    fn checked(&mut self, check: &Checked) {
        match check {
            Checked::Pattern(pattern) => self.template(&pattern.template),
            Checked::AnyPattern(patterns) => {
                patterns.iter().for_each(|pattern| self.template(&pattern.template));
            }
            Checked::Deny(deny) => self.guard(deny.conditions.as_ref()),
            Checked::Loops(loops) => {
                for entry in loops {
                    self.scoped(|check| {
                        check.foreach(&entry.foreach);
                        check.checked(&entry.check);
                    });
                }
            }
            // They have no variables of this kind.
            Checked::Expressions(_) | Checked::Answers(_) | Checked::PodSecurity(_) => {}
        }
    }

    fn change(&mut self, change: &Mutation) {
        match change {
            Mutation::Patch(patch) => match &patch.body {
                PatchBody::Strategic(template) | PatchBody::JsonText(template) => {
                    self.template(template);
                }
                PatchBody::Json(_) => {}
            },
            Mutation::Steps(_) => {}
            Mutation::Loops(loops) => {
                for entry in loops {
                    self.scoped(|check| {
                        check.foreach(&entry.foreach);
                        check.change(&entry.change);
                    });
                }
            }
        }
    }

    fn foreach(&mut self, foreach: &ForEach) {
        self.query(&foreach.list, &foreach.path.join("list"));
        self.context(&foreach.context);
        self.guard(foreach.guard.as_ref());
    }

    /// Names that are declared within are forgotten afterwards.
    fn scoped(&mut self, run: impl FnOnce(&mut Self)) {
        let (names, entries) = (self.names.len(), self.allowed.entries.len());
        run(self);
        self.names.truncate(names);
        self.allowed.entries.truncate(entries);
    }

    pub(crate) fn template(&self, template: &Template) {
        self.template_at(template, &Path::root());
    }

    fn template_at(&self, template: &Template, base: &Path) {
        if let Err(error) = template.check_references() {
            self.report.error(&joined(base, &error.path), error.to_string(), error.hint());
        }
        for refusal in self.allowed.check(template) {
            let path = joined(base, refusal.variable.path);
            let in_loop = |step: &Segment| matches!(step, Segment::Key(key) if key == "foreach");
            if refusal.reason == RefusalReason::OutsideLoop && path.segments().iter().any(in_loop) {
                continue;
            }
            self.refuse(&refusal, &path);
        }
        let variables = template.variables();
        self.note(variables.iter().map(delivery::facts_of_variable).collect());
        for variable in variables.iter().filter(|variable| !variable.nested) {
            if let Ok(expression) = Expression::compile(variable.expression) {
                self.functions(Some(&expression), &joined(base, variable.path));
            }
        }
        for lookalike in template.lookalikes() {
            let path = joined(base, lookalike.path);
            let message = format!("{:?} looks like a variable but is not one", lookalike.text);
            self.report.warn(&path, message, Some("close it with }}, or escape it as \\{{".into()));
        }
    }

    /// Warns about calls that fail whatever the data is.
    fn functions(&self, expression: Option<&Expression>, path: &Path) {
        for error in expression.iter().flat_map(|expression| expression.check()) {
            let hint = error.hint_text().map(str::to_owned);
            self.report.warn(path, error.message(), hint);
        }
        for read in expression.iter().flat_map(|expression| expression.paths()) {
            let ["request", "object" | "oldObject", fields @ ..] = &read[..] else { continue };
            for problem in
                generated_object_fields::problems_below(&self.fired_by, fields, &Value::Null)
            {
                self.report.warn(path, problem.message, Some(problem.hint));
            }
        }
    }

    fn refuse(&self, refusal: &RefusedVariable<'_>, path: &Path) {
        let variable = refusal.variable.expression;
        let message = match &refusal.reason {
            RefusalReason::User => format!(
                "only select variables are allowed in background mode. Set spec.background=false to \
                 disable background mode for this policy rule: variable {{{{{variable}}}}} is not allowed"
            ),
            RefusalReason::OutsideLoop => {
                format!("variable '{variable}' present outside of foreach at path {path}")
            }
            reason if self.of_policy => format!(
                "variable substitution failed for policy {}: {{{{ {variable} }}}} at {path}: {reason}",
                self.rule
            ),
            reason => format!(
                "policy contains invalid variables: variable substitution failed for rule {}: \
                 {{{{ {variable} }}}} at {path}: {reason}",
                self.rule
            ),
        };
        let near = Expression::compile(variable).ok().and_then(|expression| {
            let known = self.names.iter().map(String::as_str).chain(GIVEN.iter().copied());
            let known: Vec<_> = known.collect();
            expression
                .roots()
                .iter()
                .find_map(|root| {
                    (!known.contains(root))
                        .then(|| did_you_mean(root, known.iter().copied()))
                        .flatten()
                })
                .map(|meant| format!("did you mean {meant:?}?"))
        });
        let hint = near
            .filter(|_| refusal.reason == RefusalReason::Unknown)
            .or_else(|| refusal.hint().map(str::to_owned));
        self.report.error(path, message, hint);
    }

    /// Warns about names at the top of an expression that nothing gives.
    fn query(&self, query: &QueryText, path: &Path) {
        let expression = match query {
            QueryText::Ready(expression) => expression,
            QueryText::Unfilled(template) => return self.template(template),
        };
        self.functions(Some(expression), path);
        self.note(delivery::facts_of_query(expression));
        for root in expression.roots() {
            let declared = self.names.iter().any(|name| name.split('.').next() == Some(root));
            let given = GIVEN.contains(&root) || (root == "target" && self.allowed.target);
            if !declared && !given && !root.starts_with("element") {
                let known = self.names.iter().map(String::as_str).chain(GIVEN.iter().copied());
                let hint = match did_you_mean(root, known) {
                    Some(meant) => format!("did you mean {meant:?}?"),
                    None => "declare a context entry of this name before it is used".to_owned(),
                };
                let message = format!("nothing of the name {root:?} is there for {expression}");
                self.report.warn(path, message, Some(hint));
            }
        }
    }
}

fn joined(base: &Path, path: &Path) -> Path {
    base.segments().iter().chain(path.segments()).cloned().collect()
}

/// What a context entry looks for in what it loads, where that is known.
fn asked(load: &Load) -> Option<&Expression> {
    let query = match load {
        Load::Variable { query, .. } | Load::Global { query, .. } | Load::Image { query, .. } => {
            query
        }
        Load::Call(call) => &call.query,
        Load::ConfigMap { .. } => &None,
    };
    match query {
        Some(QueryText::Ready(expression)) => Some(expression),
        _ => None,
    }
}

/// Every template of a context entry.
fn templates(load: &Load) -> Vec<&Template> {
    fn of(query: Option<&QueryText>) -> Option<&Template> {
        match query {
            Some(QueryText::Unfilled(template)) => Some(template),
            _ => None,
        }
    }
    match load {
        Load::Variable { value, query, default } => {
            [value.as_ref(), of(query.as_ref()), default.as_ref()].into_iter().flatten().collect()
        }
        Load::ConfigMap { name, namespace } => {
            [Some(name), namespace.as_ref()].into_iter().flatten().collect()
        }
        Load::Global { name: text, query } | Load::Image { reference: text, query } => {
            [Some(text), of(query.as_ref())].into_iter().flatten().collect()
        }
        Load::Call(call) => {
            let callee: Vec<&Template> = match &call.callee {
                Callee::ApiServer(path) => vec![path],
                Callee::Service { url, headers, .. } => {
                    std::iter::once(url).chain(headers.iter().map(|(_, value)| value)).collect()
                }
            };
            let data = call.data.iter().map(|(_, value)| value);
            let rest = [of(call.query.as_ref()), call.default.as_ref()].into_iter().flatten();
            callee.into_iter().chain(data).chain(rest).collect()
        }
    }
}

/// Every template of an emitter.
fn emitted(what: &Emission) -> Vec<&Template> {
    fn names(target: &kiln_rules::Target) -> impl Iterator<Item = &Template> {
        let namespace = match &target.namespace {
            TargetNamespace::Written(namespace) => Some(namespace),
            TargetNamespace::None | TargetNamespace::OfTrigger => None,
        };
        [&target.api_version, &target.kind, &target.name].into_iter().chain(namespace)
    }
    match what {
        Emission::Data { target, body } => names(target).chain(body.as_ref()).collect(),
        Emission::Clone { source, target } => {
            let source = [&source.api_version, &source.kind, &source.name]
                .into_iter()
                .chain(source.namespace.as_ref());
            names(target).chain(source).collect()
        }
        Emission::CloneSelect(select) => {
            let rest = [&select.namespace, &select.selector, &select.target_namespace];
            select.kinds.iter().chain(rest.into_iter().flatten()).collect()
        }
        Emission::FromExpression { .. } | Emission::Documents(_) => Vec::new(),
    }
}
