//! Documents with variables and conditions: first line the context, the rest the document.

use kiln_jmespath::JmesPathEnvironment;
use kiln_value::{Value, json};
use kiln_variables::conditions::{Conditions, Effort};
use kiln_variables::{ContextScope, Substitution, Template};

pub(crate) fn check(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let (context, document) = text.split_once('\n').unwrap_or(("{}", text));
    let context = json::parse(context).unwrap_or_else(|_| Value::map());
    let document = json::parse(document).unwrap_or_else(|_| Value::from(document));
    let scope = ContextScope::new(&context, JmesPathEnvironment::default());
    let template = Template::compile(&document);
    template.variables();
    template.lookalikes();
    if let Err(error) = Substitution::new(&scope).run(&template) {
        let _ = (error.to_string(), error.hint());
    }
    if let Ok(conditions) = Conditions::parse(&document) {
        let _ = conditions.evaluate(&mut Substitution::new(&scope), &mut Effort::default());
    }
}
