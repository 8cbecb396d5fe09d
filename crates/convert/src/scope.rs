//! The names that Kyverno's rules read, and what they are in CEL.

use kiln_value::Value;

use crate::cel::Cel;
use crate::jmespath_to_cel::Scope;
use crate::shape::Shape;
use crate::term::{Place, Term};

/// The context of a rule about objects of a shape; `object` is where they are found.
pub(crate) fn rule_scope(object: &Cel, shape: &Shape) -> Scope {
    let mut scope = Scope::default();
    let place = |base: Cel| Term::Place(Place::of(base, shape.clone()));
    scope.set("request.object", place(object.clone()));
    scope.set("request.oldObject", place(Cel::name("oldObject")));
    let request = |field: &str| Term::Value(Cel::name("request").select(field), Shape::Text);
    for field in ["operation", "namespace", "name", "uid", "subResource"] {
        scope.set(&format!("request.{field}"), request(field));
    }
    let user = Cel::name("request").select("userInfo");
    scope.set("request.userInfo", Term::Place(Place::of(user.clone(), user_shape())));
    scope.set(
        "request.kind",
        Term::Place(Place::of(
            Cel::name("request").select("kind"),
            Shape::Map(Box::new(Shape::Text)),
        )),
    );
    scope.set("request.dryRun", Term::Value(Cel::name("request").select("dryRun"), Shape::Bool));
    let account = |field: &str| {
        let parsed = Cel::function("parseServiceAccount", vec![user.clone().select("username")]);
        Term::Value(parsed.select(field), Shape::Text)
    };
    scope.set("serviceAccountName", account("Name"));
    scope.set("serviceAccountNamespace", account("Namespace"));
    let containers = |field: &str| {
        let spec = Place::of(object.clone(), shape.clone()).field("spec");
        Term::Place(spec.field(field))
    };
    scope.set(
        "images",
        Term::Fields(
            ["containers", "initContainers", "ephemeralContainers"]
                .into_iter()
                .map(|field| (field.to_owned(), Term::Images(vec![containers(field)])))
                .collect(),
        ),
    );
    scope
}

fn user_shape() -> Shape {
    // The fields of a request's user are known: authentication/v1.UserInfo.
    kiln_schema::types::types()
        .named("authentication/v1.UserInfo")
        .map_or(Shape::Unknown, Shape::Struct)
}

/// Which of these operations a condition on `request.operation` lets through; none if it is about something else.
pub(crate) fn operations_of<'o>(condition: &Value, operations: &[&'o str]) -> Option<Vec<&'o str>> {
    let key = condition.str_at(["key"])?;
    let parts = crate::templates::parts(key);
    let [crate::templates::Part::Variable(expression)] = parts.as_slice() else { return None };
    // `|| 'BACKGROUND'` is for scans, which are matched as CREATE here and there.
    let asked = expression.split_once("||").map_or(expression.as_str(), |(before, _)| before);
    if asked.trim() != "request.operation" {
        return None;
    }
    let is_equality =
        matches!(condition.str_at(["operator"])?, "Equals" | "Equal" | "NotEquals" | "NotEqual");
    let values: Vec<&str> = match condition.get("value")? {
        Value::String(text) => vec![text.as_str()],
        // A text equals no list.
        Value::List(_) if is_equality => return None,
        Value::List(list) => list.iter().filter_map(Value::as_str).collect(),
        _ => return None,
    };
    let is_listed = |operation: &&str| {
        values.iter().any(|value| kiln_text::wildcard::matches(value, operation))
    };
    let wanted = match condition.str_at(["operator"])? {
        "Equals" | "Equal" | "In" | "AnyIn" | "AllIn" => true,
        "NotEquals" | "NotEqual" | "NotIn" | "AnyNotIn" | "AllNotIn" => false,
        _ => return None,
    };
    Some(operations.iter().copied().filter(|operation| is_listed(operation) == wanted).collect())
}
