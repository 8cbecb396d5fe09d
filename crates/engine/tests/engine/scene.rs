//! Policies and objects as documents, and what the engine says of an event as text.

use kiln_dialects::compile;
use kiln_engine::{
    AccessRequest, Effect, EvalEnv, EvaluationLimits, Event, ListPage, ListQuery, PatchTarget,
    ReadError, RecordedRead, RuleOutcome, RuleSet, User, View,
};
use kiln_object::{Gvk, Kinds, ObjectId};
use kiln_testkit::difference;
use kiln_value::{Str, Value};
use kiln_yaml::{Document, ReadOptions, emit, read_bytes};

/// The objects before an event.
pub(crate) struct Scene {
    rules: RuleSet,
    objects: Objects,
    protected_namespaces: Vec<Str>,
    user: Option<User>,
    pub(crate) limits: EvaluationLimits,
}

/// Objects that can be read, unless a test says otherwise.
#[derive(Default)]
struct Objects {
    there: Vec<Value>,
    /// Verb and kind of what the author of a policy may not do.
    denied: Option<(&'static str, &'static str)>,
    /// A kind that cannot be read at the moment.
    unavailable: Option<&'static str>,
}

impl Scene {
    /// Policies and exceptions, which must compile without an error.
    pub(crate) fn of(policies: &str) -> Self {
        let compiled = compile(&documents(policies), &Kinds::builtin());
        assert!(!compiled.has_errors(), "{:#?}", compiled.diagnostics);
        Scene {
            rules: RuleSet::new(compiled.policies).with_exceptions(compiled.exceptions),
            objects: Objects::default(),
            protected_namespaces: Vec::new(),
            user: None,
            limits: EvaluationLimits::default(),
        }
    }

    /// Objects that are there.
    pub(crate) fn with(mut self, objects: &str) -> Self {
        self.objects.there.extend(documents(objects).into_iter().map(Document::into_value));
        self
    }

    /// Namespaces that objects cannot choose.
    pub(crate) fn protecting(mut self, namespaces: &[&str]) -> Self {
        self.protected_namespaces = namespaces.iter().copied().map(Str::from).collect();
        self
    }

    /// The author of every policy may not do this with this kind.
    pub(crate) fn denying(mut self, verb: &'static str, kind: &'static str) -> Self {
        self.objects.denied = Some((verb, kind));
        self
    }

    /// Objects of this kind cannot be read at the moment.
    pub(crate) fn without_access_to(mut self, kind: &'static str) -> Self {
        self.objects.unavailable = Some(kind);
        self
    }

    /// Who sends the request.
    pub(crate) fn sent_by(mut self, user: &str) -> Self {
        self.user = Some(User { username: user.into(), ..User::default() });
        self
    }

    /// With a trace of every rule.
    pub(crate) fn traced(mut self) -> Self {
        self.limits = self.limits.traced();
        self
    }

    /// What comes of an object that is created.
    pub(crate) fn create(&self, object: &str) -> String {
        self.tell(&Event::created(one(object)))
    }

    /// What comes of an object that is changed.
    pub(crate) fn update(&self, old: &str, new: &str) -> String {
        self.tell(&Event::updated(one(old), one(new)))
    }

    /// What comes of an object that is deleted.
    pub(crate) fn delete(&self, old: &str) -> String {
        self.tell(&Event::deleted(one(old)))
    }

    /// What comes of an event, as text.
    pub(crate) fn tell(&self, event: &Event) -> String {
        self.outcomes(event).iter().map(|outcome| self.show(outcome)).collect()
    }

    /// What comes of an event: first it passes the rules that change its object, then the others, as in a cluster.
    pub(crate) fn outcomes(&self, event: &Event) -> Vec<RuleOutcome> {
        let kinds = Kinds::builtin();
        let eval_env = EvalEnv {
            limits: self.limits,
            protected_namespaces: &self.protected_namespaces,
            ..EvalEnv::of(&self.objects, &kinds)
        };
        let mut event = Event { user: self.user.clone(), ..event.clone() };
        let mutated = self.rules.mutate(&event, &eval_env);
        if event.object.is_some() {
            event.object = Some(mutated.object);
        }
        let mut outcomes = mutated.outcomes;
        outcomes.extend(self.rules.evaluate(&event, &eval_env));
        outcomes
    }

    fn show(&self, outcome: &RuleOutcome) -> String {
        let mut lines = vec![match &outcome.why {
            Some(why) => format!("{}: {}: {why}", outcome.rule, outcome.verdict.as_str()),
            None => format!("{}: {}", outcome.rule, outcome.verdict.as_str()),
        }];
        for read in &outcome.reads {
            lines.push(match read {
                RecordedRead::Object(id) => format!("reads {id}"),
                RecordedRead::List { kind, namespace, .. } => {
                    let namespace = namespace.as_deref().unwrap_or("all namespaces");
                    format!("lists {} in {namespace}", kind.kind)
                }
                RecordedRead::Global(name) => format!("reads the global value {name}"),
            });
        }
        for effect in &outcome.effects {
            match effect {
                Effect::Ensure(ensure) => {
                    lines.push(format!("ensures {} ({:?})", ensure.target, ensure.existing));
                    lines.extend(indented(&emit(&ensure.object)));
                }
                Effect::Patch(patch) => {
                    lines.push(match &patch.target {
                        PatchTarget::Trigger => "changes the object to".to_owned(),
                        PatchTarget::Stored { object, .. } => format!("changes {object} to"),
                    });
                    lines.extend(indented(&emit(&patch.after)));
                }
                Effect::Reject { message, .. } => lines.push(format!("rejects: {message}")),
                Effect::Violation(found) => lines.push(format!("violates: {}", found.message)),
                Effect::Delete(delete) => {
                    let (trigger, why) = (&delete.trigger, delete.reason.as_str());
                    lines.push(format!("deletes what it made of {trigger}: {why}"));
                }
                Effect::DeleteObject(delete) => lines.push(format!("deletes: {}", delete.target)),
                Effect::Warn(warning) => lines.push(format!("warns: {warning}")),
            }
        }
        for failure in &outcome.failures {
            let origin = self.rules.rule(&outcome.rule).map(|rule| rule.origin.clone());
            let shown = origin.map_or_else(
                || failure.to_string(),
                |origin| failure.diagnose(&origin).to_string(),
            );
            lines.push(format!("fails: {shown}"));
        }
        if let Some(uncertain) = &outcome.uncertain {
            lines.push(format!("doubts: {}", uncertain.message));
        }
        if let Some(trace) = &outcome.trace {
            lines.push("because".to_owned());
            lines.extend(indented(&trace.to_string()));
        }
        lines.join("\n") + "\n"
    }
}

fn indented(text: &str) -> impl Iterator<Item = String> {
    text.lines().map(|line| format!("  {line}"))
}

fn documents(text: &str) -> Vec<Document> {
    read_bytes("test.yaml", text.as_bytes(), ReadOptions::kubernetes())
        .unwrap_or_else(|problem| panic!("{problem}"))
}

/// The only object of a text.
pub(crate) fn one(text: &str) -> Value {
    let mut documents = documents(text);
    assert_eq!(documents.len(), 1, "one object, please");
    documents.remove(0).into_value()
}

/// Holds what the engine said against what it should say.
#[track_caller]
pub(crate) fn assert_said(said: &str, wanted: &str) {
    if let Some(difference) = difference(wanted.trim_start_matches('\n'), said) {
        panic!("{difference}");
    }
}

impl View for Objects {
    fn get(
        &self,
        kind: &Gvk,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, ReadError> {
        self.check(kind)?;
        let wanted = ObjectId::new(kind.clone(), namespace.unwrap_or_default(), name);
        let found = self.there.iter().find(|o| ObjectId::of(o).is_ok_and(|id| id == wanted));
        Ok(found.cloned())
    }

    fn list(&self, query: &ListQuery<'_>) -> Result<ListPage, ReadError> {
        self.check(query.kind)?;
        let objects = self.there.iter().filter(|object| {
            Gvk::of(object).as_ref() == Some(query.kind)
                && query.namespace.is_none_or(|namespace| {
                    object.str_at(["metadata", "namespace"]) == Some(namespace)
                })
                && query
                    .selector
                    .matches(object.get_path(["metadata", "labels"]).and_then(Value::as_map))
        });
        Ok(ListPage { objects: objects.cloned().collect(), resume: None })
    }

    fn permits(&self, access: &AccessRequest<'_>) -> Result<(), ReadError> {
        match self.denied {
            Some((verb, kind)) if access.verb == verb && access.kind.kind == kind => {
                let message = format!("the author of the policy may not {verb} {kind}");
                Err(ReadError::Denied(message))
            }
            _ => Ok(()),
        }
    }
}

impl Objects {
    fn check(&self, kind: &Gvk) -> Result<(), ReadError> {
        match self.unavailable {
            Some(name) if kind.kind == name => {
                Err(ReadError::Unavailable("the server is starting".to_owned()))
            }
            _ => Ok(()),
        }
    }
}
