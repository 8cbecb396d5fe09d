//! Documents with variables and conditions: first line the context, the rest the document.
#![no_main]

use kiln_jmespath::Environment;
use kiln_value::{Value, json};
use kiln_variables::conditions::{Conditions, Effort};
use kiln_variables::{ContextScope, Substitution, Template};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (context, document) = text.split_once('\n').unwrap_or(("{}", text));
    let context = json::parse(context).unwrap_or_else(|_| Value::map());
    let document = json::parse(document).unwrap_or_else(|_| Value::from(document));
    let scope = ContextScope::new(&context, Environment::default());
    let template = Template::compile(&document);
    template.variables();
    template.lookalikes();
    if let Err(error) = Substitution::new(&scope).run(&template) {
        let _ = (error.to_string(), error.hint());
    }
    if let Ok(conditions) = Conditions::parse(&document) {
        let _ = conditions.evaluate(&mut Substitution::new(&scope), &mut Effort::default());
    }
});
