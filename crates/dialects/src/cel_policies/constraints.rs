//! `matchConstraints`: Kubernetes' way to say which requests a policy is about.

use kiln_fields::policies as table;
use kiln_object::Kinds;
use kiln_object::selector::WildcardSelector;
use kiln_rules::{Filter, FilterSemantics, Filters, KindPattern, Operation, Operations};
use kiln_value::Str;

use crate::document_reader::{DocumentFields, DocumentNode};

/// What a policy is about.
pub(super) struct Constraints {
    pub(super) include: Filters,
    pub(super) exclude: Filters,
}

/// Whether the labels of the object as it was will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OldLabels {
    Count,
    DoNot,
}

/// What constraints belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConstraintOwner {
    Policy,
    /// Stored objects that a policy changes.
    Targets,
    /// A binding, which narrows a policy.
    Binding,
}

/// Reads `matchConstraints`, or `targetMatchConstraints`, which may have an expression as well.
pub(super) fn read(
    node: &DocumentNode<'_, '_>,
    kinds: &Kinds,
    old: OldLabels,
    of: ConstraintOwner,
) -> Option<Constraints> {
    let fields = node.fields(match of {
        ConstraintOwner::Targets => &table::TARGET_CONSTRAINTS,
        ConstraintOwner::Policy | ConstraintOwner::Binding => &table::MATCH_CONSTRAINTS,
    })?;
    if let Some(policy) = fields.text("matchPolicy")
        && !matches!(policy.as_str(), "Exact" | "Equivalent")
    {
        let message = format!("unknown value {:?} of matchPolicy", policy.as_str());
        node.report.error(
            &fields.path().join("matchPolicy"),
            message,
            Some("use Exact or Equivalent".into()),
        );
    }
    let selectors = Selectors {
        object: selector(fields.get("objectSelector")),
        namespace: selector(fields.get("namespaceSelector")),
        reading: FilterSemantics {
            own_labels_of_namespaces: true,
            old_labels: old == OldLabels::Count,
            names_begin_generated: true,
        },
    };
    let mut include = rules(&fields, "resourceRules", kinds, &selectors);
    if of == ConstraintOwner::Binding && include.filters().is_empty() {
        // Kubernetes: a binding without rules narrows by its selectors alone.
        let filter = Filter {
            kinds: KindPattern::of_resource("*", "*", "*/*", kinds),
            selector: selectors.object.clone(),
            namespace_selector: selectors.namespace.clone(),
            reading: selectors.reading,
            ..Filter::default()
        };
        include = Filters::Any(vec![filter]);
    }
    Some(Constraints {
        include,
        exclude: rules(&fields, "excludeResourceRules", kinds, &Selectors::none(selectors.reading)),
    })
}

struct Selectors {
    object: Option<WildcardSelector>,
    namespace: Option<WildcardSelector>,
    reading: FilterSemantics,
}

impl Selectors {
    fn none(reading: FilterSemantics) -> Self {
        Selectors { object: None, namespace: None, reading }
    }
}

fn rules(
    fields: &DocumentFields<'_, '_>,
    key: &str,
    kinds: &Kinds,
    selectors: &Selectors,
) -> Filters {
    let elements = fields.get(key).map(|node| node.elements()).unwrap_or_default();
    Filters::Any(elements.iter().filter_map(|node| rule(node, kinds, selectors)).collect())
}

fn rule(node: &DocumentNode<'_, '_>, kinds: &Kinds, selectors: &Selectors) -> Option<Filter> {
    let fields = node.fields(&table::RESOURCE_RULE)?;
    let texts = |key: &str| fields.get(key).map(|node| node.texts()).unwrap_or_default();
    let (groups, versions, resources) =
        (texts("apiGroups"), texts("apiVersions"), texts("resources"));
    for (key, list) in
        [("apiGroups", &groups), ("apiVersions", &versions), ("resources", &resources)]
    {
        if list.is_empty() {
            node.error_with(
                format!("{}.{key}: Required value", fields.path()),
                format!("list them, or write {key}: [\"*\"]"),
            );
        }
    }
    let mut patterns: Vec<KindPattern> = Vec::new();
    for group in &groups {
        for version in &versions {
            for resource in &resources {
                patterns.extend(KindPattern::of_resource(group, version, resource, kinds));
            }
        }
    }
    let namespaced = match fields.text("scope").as_deref() {
        None | Some("*") => None,
        Some("Cluster") => Some(false),
        Some("Namespaced") => Some(true),
        Some(other) => {
            let path = fields.path().join("scope");
            let message = format!("unknown scope {other:?}");
            node.report.error(&path, message, Some("use Cluster, Namespaced or *".into()));
            None
        }
    };
    Some(Filter {
        kinds: patterns,
        names: texts("resourceNames"),
        selector: selectors.object.clone(),
        namespace_selector: selectors.namespace.clone(),
        namespaced,
        operations: operations(&fields),
        reading: selectors.reading,
        place: Some(node.report.place(&node.path)),
        ..Filter::default()
    })
}

/// The operations; all of them, which is none by name, for `*`.
fn operations(fields: &DocumentFields<'_, '_>) -> Operations {
    let Some(node) = fields.get("operations") else { return Operations::NONE };
    let elements = node.elements();
    if elements.iter().any(|element| element.value.as_str() == Some("*")) {
        return Operations::NONE;
    }
    let read = |node: &DocumentNode<'_, '_>| {
        let word: Str = node.text()?;
        word.parse::<Operation>().map_err(|error| node.error(error.to_string())).ok()
    };
    elements.iter().filter_map(read).collect()
}

fn selector(node: Option<DocumentNode<'_, '_>>) -> Option<WildcardSelector> {
    let node = node?;
    WildcardSelector::from_value(node.value)
        .map_err(|error| {
            node.error_with(
                format!("bad selector at {}: {error}", node.path),
                "a selector has matchLabels, matchExpressions, or both",
            );
        })
        .ok()
}
