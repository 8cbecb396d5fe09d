//! What holds for every document.

use kiln_jmespath::JmesPathEnvironment;
use kiln_value::{Map, Value, value};
use kiln_variables::conditions::{ConditionOperator, Effort};
use kiln_variables::{ContextScope, Substitution, Template};
use proptest::prelude::*;

/// Any value whose text is made of these characters.
fn values(text: &'static str) -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |f| f.is_finite()).prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((text, inner), 0..6)
                .prop_map(|entries| Value::Map(entries.into_iter().collect::<Map>())),
        ]
    })
}

const PLAIN: &str = r"[a-c{}()$ \\.é]{0,8}";
const TEMPLATES: &str = r"(\{\{|\}\}|\{|\}|\\|\$\(|\)|/|@|-| |[a-d]|'|\.|é|x)*";

fn fill(document: &Value, context: &Value) -> Option<Value> {
    let scope = ContextScope::new(context, JmesPathEnvironment::default());
    Substitution::new(&scope).run(&Template::compile(document)).ok()
}

fn has_templates(value: &Value) -> bool {
    let suspicious = |text: &str| text.contains("{{") || text.contains("$(");
    match value {
        Value::String(text) => suspicious(text),
        Value::List(list) => list.iter().any(has_templates),
        Value::Map(map) => map.iter().any(|(key, value)| suspicious(key) || has_templates(value)),
        _ => false,
    }
}

proptest! {
    #[test]
    fn a_document_without_variables_comes_back_as_it_is(document in values(PLAIN)) {
        prop_assume!(!has_templates(&document));
        let template = Template::compile(&document);
        prop_assert!(template.is_plain());
        let filled = fill(&document, &Value::map()).unwrap();
        prop_assert!(filled.same(&document));
    }

    #[test]
    fn values_are_inserted_as_they_are(data in values(TEMPLATES)) {
        let mut context = Value::map();
        context.set(["data"], data.clone()).unwrap();
        context.set(["a"], "never").unwrap();
        let filled = fill(&value!({"x": ["{{ data }}"]}), &context).unwrap();
        prop_assert_eq!(filled.get_path(["x"]).and_then(|x| x.index(0)), Some(&data));
    }

    #[test]
    fn text_is_inserted_as_it_is(data in TEMPLATES, before in "[ab}é ]{0,4}", after in "[ab{é ]{0,4}") {
        let context = value!({"data": data, "a": "never", "b": "never", "x": "never"});
        let shallow = fill(&value!(format!("{before}!{{{{- data }}}}!{after}")), &context).unwrap();
        let plain = fill(&value!(format!("{before}!{{{{ data }}}}!{after}")), &context).unwrap();
        let wanted = format!("{before}!{data}!{after}");
        prop_assert_eq!(shallow.as_str(), Some(wanted.as_str()));
        prop_assert_eq!(plain.as_str(), Some(wanted.as_str()));
    }

    #[test]
    fn any_document_is_filled_or_refused(document in values(TEMPLATES), context in values(TEMPLATES)) {
        let template = Template::compile(&document);
        for variable in template.variables() {
            if let Some(span) = variable.span && !variable.in_key {
                let place = variable.path.segments().iter();
                let text = document.get_path(place).and_then(Value::as_str).unwrap();
                prop_assert!(text[span].contains(variable.expression));
            }
        }
        template.lookalikes();
        fill(&document, &context);
    }

    #[test]
    fn any_two_values_compare(key in values("[*?0-9a.hmGi{},\"\\[-]{0,6}"), value in values("[*?0-9a.hmGi{},\"\\[-]{0,6}")) {
        for name in ConditionOperator::names() {
            let operator = ConditionOperator::named(name).unwrap();
            operator.compare(&key, &value, &mut Effort::default()).unwrap();
        }
        let compare = |name: &str| {
            ConditionOperator::named(name).unwrap().compare(&key, &value, &mut Effort::default()).unwrap().holds
        };
        if !key.is_null() {
            prop_assert_ne!(compare("Equals"), compare("NotEquals"));
        }
        prop_assert!(!(compare("GreaterThan") && compare("LessThanOrEquals")));
        prop_assert!(!(compare("AllNotIn") && compare("AnyIn")));
        prop_assert!(!(compare("AllIn") && compare("AnyNotIn")));
    }
}
