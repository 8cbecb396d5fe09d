//! What can be said of an expression before it runs: whether it only follows members, and whether what it costs grows
//! with the size of the root and not faster.

use kiln_value::{Str, Value};

use crate::item::Item;
use crate::tree::{JsonPathFunction, JsonPathNode, JsonPathOperator, NodeKind, Path, PathStepKind};

/// The members that a path follows, if it does nothing else.
pub(crate) fn members(node: &JsonPathNode) -> Option<Vec<Str>> {
    let NodeKind::Path(Path { from_root: true, steps }) = &node.kind else { return None };
    let member = |kind: &PathStepKind| {
        let name = match kind {
            PathStepKind::Field(name) => name,
            PathStepKind::Key(JsonPathNode {
                kind: NodeKind::Constant(Item::Value(Value::String(name))),
                ..
            }) => name,
            _ => return None,
        };
        name.starts_with(|c: char| c.is_ascii_alphabetic()).then(|| name.clone())
    };
    steps.iter().map(|step| member(&step.kind)).collect()
}

/// Whether an expression looks at each value of the root at most once for each of its parts.
pub(crate) fn is_linear(node: &JsonPathNode) -> bool {
    let NodeKind::Path(path) = &node.kind else { return is_plain(node, true) };
    let choices = path.steps.iter().filter(|step| step.is_ambiguous());
    choices.count() <= 1
        && path.steps.iter().all(|step| match &step.kind {
            PathStepKind::Field(_) | PathStepKind::Star => true,
            PathStepKind::Key(key) => is_constant(key),
            PathStepKind::Keys(keys) => keys.iter().all(is_constant),
            PathStepKind::Filter(filter) => is_plain(filter, false),
            PathStepKind::Slice(..) | PathStepKind::Descend | PathStepKind::Script(_) => false,
        })
}

/// The same without any choice: inside of a filter for what one element holds, so not for paths from the root.
fn is_plain(node: &JsonPathNode, from_root: bool) -> bool {
    let plain = |node: &JsonPathNode| is_plain(node, from_root);
    match &node.kind {
        NodeKind::Constant(_) => true,
        NodeKind::Path(path) => {
            (from_root || !path.from_root)
                && path.steps.iter().all(|step| match &step.kind {
                    PathStepKind::Field(_) => true,
                    PathStepKind::Key(key) => is_constant(key),
                    _ => false,
                })
        }
        NodeKind::Prefix(_, inner) => plain(inner),
        NodeKind::Infix(operator, left, right) => {
            use JsonPathOperator::{
                And, Equal, Greater, GreaterEqual, Less, LessEqual, NotEqual, Or,
            };
            matches!(
                operator,
                And | Or | Equal | NotEqual | Less | LessEqual | Greater | GreaterEqual
            ) && plain(left)
                && plain(right)
        }
        NodeKind::Match(left, right, regex, _) => {
            regex.is_some() && is_constant(right) && plain(left)
        }
        NodeKind::Call(function, arguments) => {
            *function != JsonPathFunction::Date && arguments.iter().all(plain)
        }
        NodeKind::Name(..) | NodeKind::If(..) | NodeKind::List(_) | NodeKind::Object(_) => false,
    }
}

fn is_constant(node: &JsonPathNode) -> bool {
    matches!(node.kind, NodeKind::Constant(_))
}

#[cfg(test)]
mod tests {
    use crate::Expression;

    #[test]
    fn paths_of_members_are_told_from_others() {
        let members = |source: &str| {
            let members = Expression::compile(source).unwrap().members();
            members.map(|members| members.join("/"))
        };
        assert_eq!(members("$.metadata.labels.app").as_deref(), Some("metadata/labels/app"));
        assert_eq!(
            members(r#"$.metadata.labels["a.b/c"]"#).as_deref(),
            Some("metadata/labels/a.b/c")
        );
        for source in
            ["$.spec.containers[0].image", "$.a[*]", "$..a", "$.a == 1", "$.a['0']", "$.a[@.b]"]
        {
            assert_eq!(members(source), None, "{source}");
        }
    }

    #[test]
    fn what_grows_faster_than_the_object_has_no_cost_for_each_value() {
        let is_linear =
            |source: &str| Expression::compile(source).unwrap().steps_per_value().is_some();
        for source in [
            "$.kind",
            "$.spec.containers[*].image",
            r#"$.spec.containers[? @.name == "main"].ports[0].containerPort"#,
            r#"$.spec.containers[? @.image =~ "^nginx" && !isDefined(@.ports)].name"#,
            "$.spec.replicas > 3",
        ] {
            assert!(is_linear(source), "{source}");
        }
        for source in [
            "$.spec.containers[*].ports[*]",
            "$..image",
            "$.a[? @.b == $.c]",
            "$.a[? @.b[? @.c == 1] != []]",
            "[$.a, $.b]",
        ] {
            assert!(!is_linear(source), "{source}");
        }
    }
}
