//! How requests reach Kyverno's rules, and what a variable reads that only a request tells.

use kiln_cel::{Env, PolicyScope, Type};
use kiln_jmespath::Expression;
use kiln_rules::{Delivery, MatchConditions, RequestFacts, WebhookFamily};
use kiln_value::Value;
use kiln_variables::Variable;

use crate::delivery;

/// Stands for a variable inside a variable.
const INNER: &str = "_inner_";

/// How requests reach a policy.
pub(crate) fn of(document: &Value) -> Delivery {
    let list = document.get_path(["spec", "webhookConfiguration", "matchConditions"]);
    let list = list.and_then(Value::as_list).map(|list| list.to_vec()).unwrap_or_default();
    let written_at = Some("spec.webhookConfiguration.matchConditions");
    Delivery {
        match_conditions: MatchConditions { list, written_at },
        ..delivery::common(document, WebhookFamily::Rules)
    }
}

/// What conditions on requests read. An API server evaluates them; a request that meets them is not like others, so every
/// mention of the request counts, and so does a condition that cannot be read here.
pub(crate) fn facts_of_conditions(conditions: &Value) -> RequestFacts {
    let env = Env::policies(PolicyScope::Cluster);
    let list = conditions.as_list().into_iter().flat_map(|list| list.iter());
    let expressions = list.filter_map(|condition| condition.str_at(["expression"]));
    expressions
        .map(|text| match env.compile_as(text, &[Type::Bool]) {
            Err(_) => RequestFacts::ALL,
            Ok(program) => {
                let request = program.uses("request");
                let old = request.may_read("oldObject") || program.uses("oldObject").is_any();
                let user = request.is_any() || program.uses("authorizer").is_any();
                RequestFacts { user, roles: false, old_object: old }
            }
        })
        .collect()
}

/// What a variable reads.
pub(crate) fn facts_of_variable(variable: &Variable<'_>) -> RequestFacts {
    match variable.expression {
        // What stands at the same place of the object.
        "@" => RequestFacts::default(),
        _ if variable.nested => facts_of_text(&without_inner(variable.expression)),
        text => facts_of_text(text),
    }
}

fn facts_of_text(text: &str) -> RequestFacts {
    match Expression::compile(text) {
        Ok(expression) => facts_of_query(&expression),
        // It fails when it runs, or is another one by then.
        Err(_) => RequestFacts::ALL,
    }
}

/// What an expression over the whole context reads.
pub(crate) fn facts_of_query(expression: &Expression) -> RequestFacts {
    if expression.uses_whole_root() {
        return RequestFacts::ALL;
    }
    let paths = expression.paths();
    // A root that no path begins with is read in a way that is not plain.
    let unclear = expression
        .roots()
        .into_iter()
        .filter(|root| *root == "request" && !paths.iter().any(|path| path.first() == Some(root)))
        .map(|_| RequestFacts::ALL);
    let plain = paths.iter().map(|path| match path.as_slice() {
        ["serviceAccountName" | "serviceAccountNamespace", ..] => {
            RequestFacts { user: true, ..RequestFacts::default() }
        }
        ["request"] => RequestFacts::ALL,
        ["request", field, ..] if field.contains(INNER) => RequestFacts::ALL,
        ["request", field, ..] => RequestFacts::of_field(Some(field)),
        [root, ..] if root.contains(INNER) => RequestFacts::ALL,
        _ => RequestFacts::default(),
    });
    plain.chain(unclear).collect()
}

/// An expression with a word in the place of each variable inside it.
fn without_inner(expression: &str) -> String {
    let mut written = String::new();
    let mut rest = expression;
    let mut depth = 0_usize;
    while !rest.is_empty() {
        if let Some(inside) = rest.strip_prefix("{{") {
            if depth == 0 {
                written.push_str(INNER);
            }
            (depth, rest) = (depth + 1, inside);
        } else if let Some(behind) = rest.strip_prefix("}}").filter(|_| depth > 0) {
            (depth, rest) = (depth - 1, behind);
        } else {
            let mut letters = rest.chars();
            let letter = letters.next().unwrap_or_default();
            if depth == 0 {
                written.push(letter);
            }
            rest = letters.as_str();
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use kiln_value::value;
    use kiln_variables::Template;

    use super::*;

    fn facts(text: &str) -> String {
        let template = Template::compile(&Value::from(text));
        let facts: RequestFacts = template.variables().iter().map(facts_of_variable).collect();
        words(facts)
    }

    fn words(facts: RequestFacts) -> String {
        let RequestFacts { user, roles, old_object } = facts;
        let words = [(user, "user"), (roles, "roles"), (old_object, "old")];
        let words: Vec<&str> = words.iter().filter(|(is, _)| *is).map(|(_, word)| *word).collect();
        words.join(" ")
    }

    #[test]
    fn variables_say_what_they_read_of_a_request() {
        for (text, wanted) in [
            ("plain, and request.userInfo", ""),
            ("{{ request.object.metadata.name }}", ""),
            ("{{ request.operation }}-{{ request.namespace }}", ""),
            ("{{ request.object.spec.serviceAccountName }}", ""),
            ("{{ request.userInfo.username }}", "user"),
            ("{{ request.\"userInfo\".groups[0] }}", "user"),
            ("{{ serviceAccountName }}", "user"),
            ("{{ to_upper(serviceAccountNamespace) }}", "user"),
            ("{{ request.roles }}", "user roles"),
            ("{{ length(request.clusterRoles) }}", "user roles"),
            ("{{ request.oldObject.metadata.labels.a }}", "old"),
            ("{{ request.oldObject || request.object }}", "old"),
            ("{{ request }}", "user roles old"),
            ("{{ request | userInfo.username }}", "user roles old"),
            ("{{ request.* }}", "user roles old"),
            ("{{ keys(request) }}", "user roles old"),
            ("{{ request.[userInfo.username] }}", "user roles old"),
            ("{{ @ }}", ""),
            ("{{ request.object.metadata.labels.{{ key }} }}", ""),
            ("{{ request.object.metadata.labels.\"{{ request.oldObject.a }}\" }}", "old"),
            ("{{ request.{{ part }}.metadata.name }}", "user roles old"),
            ("{{ {{ whole }} }}", "user roles old"),
            ("{{ element.userInfo }}", ""),
        ] {
            assert_eq!(facts(text), wanted, "{text}");
        }
    }

    #[test]
    fn conditions_on_requests_say_what_they_read() {
        for (expression, wanted) in [
            ("object.metadata.name == 'a'", ""),
            ("request.operation == 'DELETE'", "user"),
            ("oldObject == null || oldObject.metadata.name == 'a'", "old"),
            ("authorizer.group('').resource('pods').check('get').allowed()", "user"),
            ("not an expression", "user roles old"),
        ] {
            let conditions = value!([{"name": "a", "expression": expression}]);
            assert_eq!(words(facts_of_conditions(&conditions)), wanted, "{expression}");
        }
    }
}
