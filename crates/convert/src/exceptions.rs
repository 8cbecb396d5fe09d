//! PolicyExceptions that go with converted policies: they name policies instead of rules, and say in CEL what they except.

use kiln_value::{Map, Path, Value, value};
use kiln_yaml::Document;

use crate::Conversion;
use crate::cel::Cel;
use crate::cel_printer::print;
use crate::conditions_to_cel::conditions;
use crate::documents::{self, ConvertedDocument};
use crate::matching::excepted;
use crate::scope::rule_scope;
use crate::shape::Shape;
use crate::to_cel::API_VERSION;
use crate::verdict::Obstacle;

/// Converts an exception from rules of converted policies.
///
/// # Errors
/// When it means a rule that was not converted, or says something that CEL cannot.
pub fn convert_exception(
    document: &Document,
    conversions: &[&Conversion],
) -> Result<ConvertedDocument, Obstacle> {
    let exception = document.value();
    let path = Path::root().join("spec");
    let spec = exception.get("spec").unwrap_or(&Value::Null);
    if spec.get("podSecurity").is_some() {
        return Err(Obstacle::new(
            "podSecurity of an exception",
            "write a matchCondition for the containers",
        )
        .at(&path.join("podSecurity")));
    }
    let mut refs: Vec<Value> = Vec::new();
    for (at, entry) in spec
        .get("exceptions")
        .and_then(Value::as_list)
        .into_iter()
        .flat_map(|list| list.iter())
        .enumerate()
    {
        let path = path.join("exceptions").join(at);
        let policy = entry.str_at(["policyName"]).unwrap_or_default();
        let policy = policy.rsplit('/').next().unwrap_or(policy);
        let names = entry.get("ruleNames").and_then(Value::as_list);
        let names: Vec<&str> =
            names.into_iter().flat_map(|list| list.iter()).filter_map(Value::as_str).collect();
        let means = |rule: &str| {
            names.iter().any(|name| {
                let plain = name
                    .strip_prefix("autogen-cronjob-")
                    .or_else(|| name.strip_prefix("autogen-"))
                    .unwrap_or(name);
                kiln_text::wildcard::matches(plain, rule)
            })
        };
        let mut found = false;
        for conversion in conversions {
            for rule in
                conversion.rules.iter().filter(|rule| rule.policy == policy && means(&rule.rule))
            {
                for number in &rule.documents {
                    let Some(made) = conversion.documents.get(*number) else { continue };
                    let is_shared = conversion
                        .rules
                        .iter()
                        .any(|other| other.documents.contains(number) && !means(&other.rule));
                    if is_shared {
                        let construct = format!(
                            "an exception from some rules of {policy}, which became one policy"
                        );
                        return Err(Obstacle::new(
                            construct,
                            "except all of its rules, or convert the rules apart",
                        )
                        .at(&path));
                    }
                    found = true;
                    let text =
                        |path: &[&str]| made.value.str_at(path.iter().copied()).unwrap_or_default();
                    let one =
                        value!({"name": text(&["metadata", "name"]), "kind": text(&["kind"])});
                    if !refs.contains(&one) {
                        refs.push(one);
                    }
                }
            }
        }
        if !found {
            let construct =
                format!("an exception from {policy}, none of whose rules it names is converted");
            return Err(Obstacle::new(construct, "convert the policy in the same call").at(&path));
        }
    }
    let object = Cel::name("object");
    let mut parts =
        vec![("match".to_owned(), excepted(spec.get("match"), &object, &path.join("match"))?)];
    if let Some(found) = spec.get("conditions") {
        let scope = rule_scope(&object, &Shape::Unknown);
        parts.push(("conditions".to_owned(), conditions(found, &scope, &path.join("conditions"))?));
    }
    let name = exception.str_at(["metadata", "name"]).unwrap_or_default();
    let mut made = documents::envelope(exception, API_VERSION, "PolicyException", name);
    let mut own = Map::new();
    own.insert("policyRefs", Value::List(refs.into()));
    let list: Vec<Value> = parts
        .iter()
        .map(|(name, cel)| value!({"name": name.as_str(), "expression": print(cel)}))
        .collect();
    own.insert("matchConditions", Value::List(list.into()));
    made.insert("spec", own);
    let mut converted = ConvertedDocument::of(Value::Map(made));
    converted.head = documents::comments(document).head;
    Ok(converted)
}
