//! Whether an object fires a rule.

mod roles;

use std::cell::OnceCell;

use kiln_object::selector::WildcardSelector;
use kiln_object::{Gvk, metadata};
use kiln_rules::{Actions, FailureActions, Filter, Filters, Rule, UserFilter, any_pair_matches};
use kiln_text::wildcard;
use kiln_value::{Map, Str, Value};

use crate::input::event::{Event, namespace_of};
use crate::input::view::{ReadError, View};
use crate::output::trace::{TraceAnswer, TraceStep, Tracer};

/// Whether operations are compared. They limit what makes an object a trigger, not whether it stays one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    Operations,
    NoOperations,
}

/// Matches the objects of one event.
pub(crate) struct Matcher<'m> {
    pub(crate) event: &'m Event,
    pub(crate) view: &'m dyn View,
    pub(crate) tracer: &'m Tracer,
    namespace_labels: OnceCell<Map>,
}

impl<'m> Matcher<'m> {
    pub(crate) fn new(event: &'m Event, view: &'m dyn View, tracer: &'m Tracer) -> Self {
        Matcher { event, view, tracer, namespace_labels: OnceCell::new() }
    }

    /// Whether the rule's filters take the object.
    pub(crate) fn matches(
        &self,
        rule: &Rule,
        object: &Value,
        compare: Compare,
    ) -> Result<bool, ReadError> {
        let subject = Subject::of(self.event, object);
        let itself = Some(subject.name).filter(|_| subject.is_namespace);
        // Before the filters: a namespaced policy does not see objects elsewhere, whatever it matches.
        if !rule.may_be_fired_from(subject.namespace.as_deref(), itself) {
            self.answer("namespace of the policy", false, || {
                let own = rule.scope.namespace().unwrap_or_default();
                format!("the policy of namespace {own:?} matches no other")
            });
            return Ok(false);
        }
        let included = self.block("match", &rule.trigger.include, &subject, compare, true)?;
        if !included {
            return Ok(false);
        }
        let trigger = &rule.trigger;
        if let Some(narrow_include) = &trigger.narrow_include
            && !self.block("binding", narrow_include, &subject, compare, true)?
        {
            return Ok(false);
        }
        for (name, exclude) in
            [("exclude", &trigger.exclude), ("exclude of the binding", &trigger.narrow_exclude)]
        {
            if !exclude.filters().is_empty()
                && self.block(name, exclude, &subject, compare, false)?
            {
                return Ok(false);
            }
        }
        self.tracer.matched();
        Ok(true)
    }

    /// Whether filters take an object, whatever is done to it.
    pub(crate) fn would_take(
        &self,
        name: &str,
        filters: &Filters,
        object: &Value,
    ) -> Result<bool, ReadError> {
        let subject = Subject::of(self.event, object);
        self.block(name, filters, &subject, Compare::NoOperations, true)
    }

    /// Whether filters that stand by themselves take an object.
    pub(crate) fn takes(
        &self,
        name: &str,
        filters: &Filters,
        object: &Value,
    ) -> Result<bool, ReadError> {
        let subject = Subject::of(self.event, object);
        self.block(name, filters, &subject, Compare::Operations, true)
    }

    /// What becomes of an object that fails, in its namespace.
    pub(crate) fn actions(&self, on_failure: &FailureActions) -> Result<Actions, ReadError> {
        for entry in &on_failure.overrides {
            let namespace = self.event.namespace.as_deref();
            let named = match namespace {
                _ if entry.namespaces.is_empty() => true,
                Some(namespace) => entry.namespaces.iter().any(|p| wildcard::matches(p, namespace)),
                None => false,
            };
            let selected = match (&entry.selector, namespace) {
                (None, _) => true,
                (Some(selector), Some(namespace)) => {
                    selector.matches(Some(self.labels_of(namespace)?)).unwrap_or(false)
                }
                (Some(_), None) => false,
            };
            if named && selected {
                return Ok(entry.actions);
            }
        }
        Ok(on_failure.usual)
    }

    fn block(
        &self,
        name: &str,
        filters: &Filters,
        subject: &Subject<'_>,
        compare: Compare,
        including: bool,
    ) -> Result<bool, ReadError> {
        let word = filters.word();
        let run = || {
            let mut held = false;
            for (at, filter) in filters.filters().iter().enumerate() {
                held = self.tracer.within(
                    || format!("{word}[{at}]"),
                    || self.filter(filter, subject, compare, including),
                    |held| (held.as_ref().map_or(TraceAnswer::Failed, |held| (*held).into()), None),
                )?;
                // `any` is decided by the first filter that holds, `all` by the first that does not; an empty block holds for nothing.
                if held == matches!(filters, Filters::Any(_)) {
                    return Ok(held);
                }
            }
            Ok(held)
        };
        self.tracer.within(
            || name.to_owned(),
            run,
            |held| (held.as_ref().map_or(TraceAnswer::Failed, |held| (*held).into()), None),
        )
    }

    fn filter(
        &self,
        filter: &Filter,
        subject: &Subject<'_>,
        compare: Compare,
        including: bool,
    ) -> Result<bool, ReadError> {
        // Kyverno: without a request, filters that include no longer ask for the user; those that
        // exclude still do, and so never hold.
        let ask = !including || self.event.user.is_some();
        let asks_user = ask && !filter.user.is_empty();
        if filter.describes_no_object() && !asks_user {
            return Ok(self.answer("filter", false, || "it is empty".into()));
        }
        if compare == Compare::Operations && !filter.operations.is_empty() {
            let operation = self.event.matched_as;
            let held = filter.operations.contains(operation);
            if !self.answer("operations", held, || {
                format!("{operation} {} {}", one_of(held), filter.operations)
            }) {
                return Ok(false);
            }
        }
        // In the order of cost: the kind settles most of them, and labels of a namespace may have to be read.
        Ok(self.kinds(filter, subject)
            && self.scope(filter, subject)
            && self.names(filter, subject)
            && self.annotations(filter, subject)
            && self.labels(filter, subject)?
            && (!asks_user || self.user(&filter.user)))
    }

    fn kinds(&self, filter: &Filter, subject: &Subject<'_>) -> bool {
        let Gvk { group, version, kind } = &self.event.kind;
        let held = filter.kinds.is_empty()
            || filter
                .kinds
                .iter()
                .any(|k| k.matches(group, version, kind, &self.event.subresource));
        filter.kinds.is_empty()
            || self.answer("kinds", held, || {
                let wanted: Vec<_> = filter.kinds.iter().map(ToString::to_string).collect();
                let found = subject.kind_shown(self.event);
                format!("{found} {} {}", one_of(held), wanted.join(", "))
            })
    }

    fn scope(&self, filter: &Filter, subject: &Subject<'_>) -> bool {
        let Some(wanted) = filter.namespaced else { return true };
        let namespaced = subject.namespace.is_some();
        self.answer("scope", namespaced == wanted, || match namespaced {
            true => "it is in a namespace".into(),
            false => "it is in no namespace".into(),
        })
    }

    fn names(&self, filter: &Filter, subject: &Subject<'_>) -> bool {
        let patterns = |list: &[Str]| list.join(", ");
        let takes = |list: &[Str], text: &str| list.iter().any(|p| wildcard::matches(p, text));
        if !filter.names.is_empty() {
            let held = match subject.has_name || !filter.reading.names_begin_generated {
                true => takes(&filter.names, subject.name),
                false => filter.names.iter().any(|name| subject.name.starts_with(name.as_str())),
            };
            if !self.answer("names", held, || {
                format!("{:?} {} {}", subject.name, one_of(held), patterns(&filter.names))
            }) {
                return false;
            }
        }
        if filter.namespaces.is_empty() {
            return true;
        }
        let namespace = if subject.is_namespace {
            subject.name
        } else {
            subject.namespace.as_deref().unwrap_or("")
        };
        let held = takes(&filter.namespaces, namespace);
        self.answer("namespaces", held, || {
            format!("{namespace:?} {} {}", one_of(held), patterns(&filter.namespaces))
        })
    }

    fn annotations(&self, filter: &Filter, subject: &Subject<'_>) -> bool {
        let missing =
            filter.annotations.iter().find(|(k, v)| !any_pair_matches(subject.annotations, k, v));
        filter.annotations.is_empty()
            || self.answer("annotations", missing.is_none(), || match missing {
                Some((key, value)) => format!("no annotation is {key}: {value}"),
                None => "all are there".into(),
            })
    }

    fn labels(&self, filter: &Filter, subject: &Subject<'_>) -> Result<bool, ReadError> {
        let show = |labels: Option<&Map>| match labels {
            Some(labels) if !labels.is_empty() => {
                format!("the labels are {}", kiln_value::json::to_string(&labels.clone().into()))
            }
            _ => "there are no labels".to_owned(),
        };
        // A pattern that no label meets and that is not a label itself selects nothing.
        let selects =
            |selector: &WildcardSelector, labels| selector.matches(labels).unwrap_or(false);
        if let Some(selector) = &filter.selector {
            let old = self.event.old_object.as_ref().filter(|_| filter.reading.old_labels);
            let old = old.is_some_and(|old| selects(selector, metadata::labels(old)));
            let held = old || selects(selector, subject.labels);
            if !self.answer("selector", held, || show(subject.labels)) {
                return Ok(false);
            }
        }
        let Some(selector) = &filter.namespace_selector else { return Ok(true) };
        if filter.reading.own_labels_of_namespaces && subject.namespace.is_none() {
            // Kubernetes: a Namespace has its own labels, and nothing is asked of other objects that are
            // in no namespace.
            let mut labels = subject.labels.cloned().unwrap_or_default();
            labels.get_or_insert_with("kubernetes.io/metadata.name", || subject.name.into());
            let held = !subject.is_namespace || selects(selector, Some(&labels));
            return Ok(self.answer("namespaceSelector", held, || show(Some(&labels))));
        }
        // Kyverno: a Namespace is in no namespace, so nothing is known about one.
        if subject.is_namespace {
            return Ok(self.answer("namespaceSelector", false, || "a Namespace is in none".into()));
        }
        let labels = match &subject.namespace {
            Some(namespace) => self.labels_of(namespace)?.clone(),
            None => Map::new(),
        };
        let held = selects(selector, Some(&labels));
        Ok(self.answer("namespaceSelector", held, || show(Some(&labels))))
    }

    /// The labels of a namespace. One that is unknown has the label that every namespace has.
    fn labels_of(&self, namespace: &str) -> Result<&Map, ReadError> {
        // One cell is enough: a matcher serves one event, and all that it looks at is in the namespace of that event.
        if let Some(labels) = self.namespace_labels.get() {
            return Ok(labels);
        }
        let kind = Gvk { group: Str::default(), version: "v1".into(), kind: "Namespace".into() };
        let found = self.view.get(&kind, None, namespace)?;
        let labels = found.as_ref().and_then(|n| n.get_path(["metadata", "labels"]));
        let mut labels = labels.and_then(Value::as_map).cloned().unwrap_or_default();
        labels.get_or_insert_with("kubernetes.io/metadata.name", || namespace.into());
        Ok(self.namespace_labels.get_or_init(|| labels))
    }

    fn user(&self, wanted: &UserFilter) -> bool {
        let Some(user) = &self.event.user else {
            return self.answer("user", false, || "there is no admission request".into());
        };
        let has = |wanted: &[Str], held: &[Str]| {
            wanted.is_empty() || wanted.iter().any(|role| held.contains(role))
        };
        let subjects = wanted.subjects.is_empty()
            || wanted.subjects.iter().any(|s| s.matches(&user.username, &user.groups));
        let roles = [
            ("roles", &wanted.roles, &user.roles),
            ("clusterRoles", &wanted.cluster_roles, &user.cluster_roles),
        ];
        // Only what is asked for is worth a line.
        (wanted.subjects.is_empty()
            || self.answer("subjects", subjects, || {
                let wanted: Vec<_> = wanted.subjects.iter().map(ToString::to_string).collect();
                format!("{} {} {}", user.username, one_of(subjects), wanted.join(", "))
            }))
            && roles.into_iter().all(|(what, wanted, held)| {
                wanted.is_empty() || self.answer(what, has(wanted, held), || held.join(", "))
            })
    }

    fn answer(&self, what: &str, held: bool, why: impl FnOnce() -> String) -> bool {
        self.tracer.note(|| TraceStep {
            what: what.to_owned(),
            answer: held.into(),
            why: Some(why()),
            steps: Vec::new(),
        });
        held
    }
}

fn one_of(held: bool) -> &'static str {
    if held { "is one of" } else { "is none of" }
}

/// What filters look at in an object.
struct Subject<'s> {
    name: &'s str,
    /// The name is its own, and not what a server would make one of.
    has_name: bool,
    namespace: Option<Str>,
    is_namespace: bool,
    labels: Option<&'s Map>,
    annotations: Option<&'s Map>,
}

impl<'s> Subject<'s> {
    fn of(event: &Event, object: &'s Value) -> Self {
        let text = |key: &str| object.str_at(["metadata", key]).filter(|text| !text.is_empty());
        let map = |key: &str| object.get_path(["metadata", key]).and_then(Value::as_map);
        let is_namespace = event.kind.group.is_empty() && event.kind.kind == "Namespace";
        Subject {
            has_name: text("name").is_some(),
            name: text("name").or_else(|| text("generateName")).unwrap_or_default(),
            // What is sent to a subresource often has no namespace of its own.
            namespace: namespace_of(object)
                .or_else(|| event.namespace.clone())
                .filter(|_| !is_namespace),
            is_namespace,
            labels: map("labels"),
            annotations: map("annotations"),
        }
    }

    fn kind_shown(&self, event: &Event) -> String {
        match event.subresource.as_str() {
            "" => event.kind.to_string(),
            subresource => format!("{}/{subresource}", event.kind),
        }
    }
}
