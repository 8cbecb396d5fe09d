//! `generate` blocks, compiled: every written form becomes blocks of emitters.

mod target;

use kiln_object::{Gvk, Kinds, Selector};
use kiln_rules::{
    Block, CloneSelect, Emission, Emitter, ForEach, Generate, Scope, Source, Target,
    TargetNamespace,
};
use kiln_text::wildcard;
use kiln_value::{Map, Str, Value};
use kiln_variables::Template;

use crate::document_reader::DocumentNode;
use crate::generated_object_fields;
use crate::kyverno::check;
use crate::kyverno::filters::holds_variables;
use crate::kyverno::parse::{
    CloneDoc, ClonePairDoc, CloneSelectDoc, GenerateDoc, PatternDoc, TargetDoc,
};

/// What a `generate` block is compiled with.
pub(crate) struct Compiler<'k> {
    pub(crate) scope: &'k Scope,
    pub(crate) kinds: &'k Kinds,
    pub(crate) synchronize: bool,
}

/// A target that was looked at: its templates, and its kind if that is known already.
struct Named {
    target: Target,
    known: Option<Gvk>,
}

impl Compiler<'_> {
    pub(crate) fn program(&self, doc: &GenerateDoc<'_, '_>) -> Generate {
        let mut ways = doc.pattern.ways();
        if doc.has_foreach {
            ways.push("foreach");
        }
        if ways.len() > 1 {
            one_way(&doc.node, &ways);
            return Generate { blocks: Vec::new(), stop_at_failure: false };
        }
        if !doc.has_foreach {
            return Generate {
                blocks: vec![Block { foreach: None, emitters: self.pattern(&doc.pattern) }],
                stop_at_failure: false,
            };
        }
        unused(&doc.pattern.target, "foreach", true);
        let blocks = doc.foreach.iter().map(|foreach| {
            let ways = foreach.pattern.ways();
            if ways.len() > 1 {
                one_way(&doc.node, &ways);
            }
            Block {
                emitters: self.pattern(&foreach.pattern),
                foreach: Some(ForEach {
                    list: foreach.list.clone(),
                    context: foreach.context.clone(),
                    guard: foreach.guard.clone(),
                    path: foreach.path.clone(),
                }),
            }
        });
        Generate { blocks: blocks.collect(), stop_at_failure: false }
    }

    fn pattern(&self, doc: &PatternDoc<'_, '_>) -> Vec<Emitter> {
        let report = doc.fields.report();
        if doc.data_list.is_some() || doc.clone_pairs.is_some() {
            let word = if doc.data_list.is_some() { "dataList" } else { "cloneList.list" };
            let path = doc.fields.path().join(word.split('.').next().unwrap_or(word));
            report.warn(&path, format!("{word} is understood by Kiln only, not by Kyverno"), None);
            unused(&doc.target, word, true);
        }
        if let Some(list) = &doc.data_list {
            let entry = |(target, data): &(TargetDoc<'_, '_>, Option<DocumentNode<'_, '_>>)| {
                self.data_entry(target, data.as_ref())
            };
            return list.iter().filter_map(entry).collect();
        }
        if let Some(pairs) = &doc.clone_pairs {
            return pairs.iter().filter_map(|pair| self.clone_pair(pair)).collect();
        }
        if let Some(select) = &doc.clone_select {
            unused(&doc.target, "cloneList", false);
            return self.clone_select(select, &doc.target).into_iter().collect();
        }
        let made = match &doc.clone {
            Some(clone) => self.clone(clone, &doc.target),
            None => self.data(doc),
        };
        made.into_iter().collect()
    }

    /// One target with `data`, or with nothing but its name.
    fn data(&self, doc: &PatternDoc<'_, '_>) -> Option<Emitter> {
        let named = self.target(&doc.target, Lenient::No)?;
        if let Some(data) = &doc.data {
            check::content(data);
            if let Some(kind) = &named.known {
                generated_object_fields::warn(
                    data.report,
                    &data.path,
                    generated_object_fields::problems(kind, data.value),
                );
            }
            if !matches!(data.value, Value::Map(_)) && !holds_variables(data.value) {
                data.error_with(
                    format!("data must be a map, and this is a {}", data.value.type_name()),
                    "write the fields of the object below it",
                );
            }
        }
        Some(Emitter {
            name: None,
            emission: Emission::Data { target: Box::new(named.target), body: doc.body() },
            path: doc.fields.path().clone(),
        })
    }

    fn clone(&self, clone: &CloneDoc<'_, '_>, target: &TargetDoc<'_, '_>) -> Option<Emitter> {
        let named = self.target(target, Lenient::No)?;
        let Some(name) = TargetDoc::filled(clone.name.as_ref()) else {
            clone.node.error_with("clone.name can not be empty", "add \"name\" here");
            return None;
        };
        self.warn_variables(&[clone.name.as_ref(), clone.namespace.as_ref()]);
        let namespaced = named.known.as_ref().and_then(|kind| self.kinds.is_namespaced(kind));
        match (namespaced, &clone.namespace) {
            (Some(true), None) => clone.node.error_with(
                "clone.namespace must be set for a namespaced resource",
                "add \"namespace\" here",
            ),
            (Some(false), Some(namespace)) => namespace.error_with(
                "clone.namespace must not be set for a cluster-wide resource",
                "remove it",
            ),
            _ => {}
        }
        self.own_namespace(clone.namespace.as_ref(), &clone.node, |own, found| {
            format!(
                "target resource scope mismatched: a namespaced policy cannot clone resources from \
                 other namespaces, expected: {own}, received: {found}"
            )
        });
        let source = Source {
            api_version: named.target.api_version.clone(),
            kind: named.target.kind.clone(),
            name,
            namespace: TargetDoc::filled(clone.namespace.as_ref()),
        };
        onto_itself(&clone.node, &source, &named.target);
        Some(Emitter {
            name: None,
            emission: Emission::Clone { source: Box::new(source), target: Box::new(named.target) },
            path: clone.node.path.clone(),
        })
    }

    fn clone_select(
        &self,
        select: &CloneSelectDoc<'_, '_>,
        target: &TargetDoc<'_, '_>,
    ) -> Option<Emitter> {
        let report = select.node.report;
        if select.kinds.is_empty() {
            select.node.error_with("cloneList has no kinds", "add \"kinds\", such as v1/Secret");
            return None;
        }
        let mut kinds = Vec::new();
        let mut scopes = Vec::new();
        for node in &select.kinds {
            let text = node.text()?;
            kinds.push(TargetDoc::filled(Some(node))?);
            if text.contains("{{") {
                self.warn_variables(&[Some(node)]);
                continue;
            }
            let Some(kind) = Gvk::parse(&text) else {
                node.error_with(
                    format!("{text:?} is not a valid kind"),
                    "write version/Kind or group/version/Kind",
                );
                continue;
            };
            let namespaced = self.kinds.is_namespaced(&kind);
            scopes.push((namespaced.unwrap_or(true), node, text.clone()));
            if let (Scope::Namespace(_), Some(false)) = (self.scope, namespaced) {
                node.error_with(
                    format!("the source in cloneList must be a namespaced resource: {text}"),
                    "use a ClusterPolicy",
                );
            }
        }
        let namespaced = scopes.first().is_none_or(|(namespaced, ..)| *namespaced);
        if let Some((_, node, _)) = scopes.iter().find(|(other, ..)| *other != namespaced) {
            node.error_with(
                "mixed scope of target resources is forbidden",
                "write one rule for kinds in namespaces and one for kinds of the cluster",
            );
            return None;
        }
        match (&select.namespace, namespaced) {
            (None, true) => select.node.error_with(
                "namespace is required for namespaced target resources",
                "add \"namespace\" here",
            ),
            (Some(namespace), false) => namespace.error_with(
                "namespace is forbidden for cluster-wide target resources",
                "remove it",
            ),
            _ => {}
        }
        match (&target.namespace, namespaced) {
            (None, true) => report.error(
                target.fields.path(),
                "target namespace must be set for a namespaced resource",
                Some("add \"namespace\" here".into()),
            ),
            // Kyverno takes it, and copies nothing: what is in no namespace has one place.
            (namespace, false) => report.warn(
                namespace.as_ref().map_or(&select.node.path, |namespace| &namespace.path),
                "cluster-wide objects are copied into no namespace, so that nothing is made",
                Some("name kinds that live in namespaces".into()),
            ),
            (Some(_), true) => {}
        }
        self.own_namespace(select.namespace.as_ref(), &select.node, |own, found| {
            format!(
                "a namespaced policy cannot clone resources from other namespace, expected: {own}, \
                 received: {found}"
            )
        });
        self.own_target_namespace(target);
        let from = select.namespace.as_ref().and_then(|node| node.value.as_str());
        let to = target.namespace.as_ref().and_then(|node| node.value.as_str());
        if from.is_some() && from == to {
            report.warn(
                &select.node.path,
                "the copies go to where their sources are, so nothing is ever made",
                Some("clone into another namespace".into()),
            );
        }
        self.warn_variables(&[select.namespace.as_ref(), select.selector.as_ref()]);
        Some(Emitter {
            name: None,
            emission: Emission::CloneSelect(Box::new(CloneSelect {
                kinds,
                namespace: TargetDoc::filled(select.namespace.as_ref()),
                selector: select.selector.as_ref().map(selector),
                target_namespace: TargetDoc::filled(
                    target.namespace.as_ref().filter(|_| namespaced),
                ),
            })),
            path: select.node.path.clone(),
        })
    }

    /// An entry of `dataList`, whose mistakes are corrected where the intent is clear.
    fn data_entry(
        &self,
        target: &TargetDoc<'_, '_>,
        data: Option<&DocumentNode<'_, '_>>,
    ) -> Option<Emitter> {
        let named = self.target(target, Lenient::Yes)?;
        let body = data.map(|data| {
            check::content(data);
            let kind = named.known.as_ref().filter(|kind| kind.group.is_empty());
            match kind.and_then(|kind| wrapped(&kind.kind, data)) {
                Some(whole) => Template::compile_part(&whole, &data.path),
                None => {
                    let problems = named
                        .known
                        .as_ref()
                        .map(|kind| generated_object_fields::problems(kind, data.value));
                    generated_object_fields::warn(
                        data.report,
                        &data.path,
                        problems.unwrap_or_default(),
                    );
                    Template::compile_part(data.value, &data.path)
                }
            }
        });
        Some(Emitter {
            name: None,
            emission: Emission::Data { target: Box::new(named.target), body },
            path: target.fields.path().clone(),
        })
    }

    /// An entry of `cloneList.list`.
    fn clone_pair(&self, pair: &ClonePairDoc<'_, '_>) -> Option<Emitter> {
        let source = self.unswapped(&pair.source);
        let from = self.target(&source, Lenient::Source)?;
        // What the target does not say is as in the source.
        let to = TargetDoc {
            api_version: pair.target.api_version.clone().or(source.api_version),
            kind: pair.target.kind.clone().or(source.kind),
            name: pair.target.name.clone().or(source.name),
            ..pair.target.clone()
        };
        let to = self.target(&to, Lenient::Yes)?;
        self.own_namespace(pair.source.namespace.as_ref(), &pair.node, |own, found| {
            format!(
                "a namespaced policy cannot clone resources from other namespace, expected: {own}, \
                 received: {found}"
            )
        });
        let namespace = match from.target.namespace {
            TargetNamespace::Written(namespace) => Some(namespace),
            TargetNamespace::None | TargetNamespace::OfTrigger => None,
        };
        let source = Source {
            api_version: from.target.api_version,
            kind: from.target.kind,
            name: from.target.name,
            namespace,
        };
        onto_itself(&pair.node, &source, &to.target);
        Some(Emitter {
            name: None,
            emission: Emission::Clone { source: Box::new(source), target: Box::new(to.target) },
            path: pair.node.path.clone(),
        })
    }

    fn warn_variables(&self, nodes: &[Option<&DocumentNode<'_, '_>>]) {
        for node in nodes.iter().flatten().filter(|_| self.synchronize) {
            if holds_variables(node.value) {
                let message = format!(
                    "variables in {} would lead to incorrect synchronization behavior",
                    node.path
                );
                node.report.warn(&node.path, message, None);
            }
        }
    }
}

/// Whether mistakes are corrected where the intent is clear.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lenient {
    No,
    Yes,
    /// In the same way, for something that is read rather than written.
    Source,
}

fn one_way(node: &DocumentNode<'_, '_>, ways: &[&str]) {
    node.error_with(
        "only one of generate patterns(data, clone, cloneList and foreach) can be specified, nor \
         dataList with one of them",
        format!("write one rule each for {}", ways.join(" and ")),
    );
}

/// Warns about a copy that is its own source. Equal text with variables gives equal names, too.
fn onto_itself(node: &DocumentNode<'_, '_>, source: &Source, target: &Target) {
    let namespace = match &target.namespace {
        TargetNamespace::Written(namespace) => Some(namespace),
        TargetNamespace::None => None,
        TargetNamespace::OfTrigger => return,
    };
    let same = |a: &Template, b: &Template| a.document() == b.document();
    let same_namespace = match (&source.namespace, namespace) {
        (Some(source), Some(target)) => same(source, target),
        (None, None) => true,
        _ => false,
    };
    let parts = [
        (&source.api_version, &target.api_version),
        (&source.kind, &target.kind),
        (&source.name, &target.name),
    ];
    if same_namespace && parts.into_iter().all(|(a, b)| same(a, b)) {
        node.report.warn(
            &node.path,
            "the source is cloned onto itself, so nothing is ever made",
            Some("give the copy another name or namespace".into()),
        );
    }
}

/// Warns about fields of a target that mean nothing beside something else.
fn unused(target: &TargetDoc<'_, '_>, beside: &str, also_namespace: bool) {
    let namespace = target.namespace.as_ref().filter(|_| also_namespace);
    for node in
        [&target.api_version, &target.kind, &target.name].into_iter().flatten().chain(namespace)
    {
        node.report.warn(&node.path, format!("{} means nothing beside {beside}", node.path), None);
    }
}

fn selector(node: &DocumentNode<'_, '_>) -> Template {
    let mut wild = false;
    if let Some(Value::Map(labels)) = node.value.get("matchLabels") {
        for (key, value) in labels {
            let text = value.as_str().unwrap_or_default();
            let literal = !text.contains("{{") && !key.contains("{{");
            if literal && (wildcard::contains_wildcard(key) || wildcard::contains_wildcard(text)) {
                wild = true;
                node.report.error(
                    &node.path.join("matchLabels").join(key),
                    "selector: wildcard not supported",
                    Some("write the label out, or use matchExpressions with Exists".into()),
                );
            }
        }
    }
    if !wild
        && !holds_variables(node.value)
        && let Err(error) = Selector::from_value(node.value)
    {
        node.error_with(
            format!("bad selector at {}: {error}", node.path),
            "a selector has matchLabels, matchExpressions, or both",
        );
    }
    Template::compile_part(node.value, &node.path)
}

/// The whole object that a ConfigMap or Secret is when only its data were written.
fn wrapped(kind: &Str, data: &DocumentNode<'_, '_>) -> Option<Value> {
    let (known, field): (&[&str], &str) = match kind.as_str() {
        "ConfigMap" => {
            (&["apiVersion", "kind", "metadata", "data", "binaryData", "immutable"], "data")
        }
        "Secret" => (
            &["apiVersion", "kind", "metadata", "data", "stringData", "type", "immutable"],
            "stringData",
        ),
        _ => return None,
    };
    let Value::Map(body) = data.value else { return None };
    if body.is_empty() || body.keys().any(|key| known.contains(&key.as_str())) {
        return None;
    }
    data.report.warn(
        &data.path,
        format!("the data of this {kind} has none of its fields; it is taken for its {field}"),
        Some(format!("write `data: {{{field}: {{…}}}}`")),
    );
    Some(Value::Map(Map::from_iter([(field, data.value.clone())])))
}
