//! Templates: first line the data, the rest the template.

use kiln_gotemplate::{
    FunctionSet, Template, TemplateEnvironment, TemplateLimits, TemplateOptions,
};
use kiln_value::{Value, json};

pub(crate) fn check(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let (data, source) = text.split_once('\n').unwrap_or(("{}", text));
    let data = json::parse(data).unwrap_or_else(|_| Value::map());
    let options = TemplateOptions { functions: FunctionSet::Sprig, ..TemplateOptions::default() };
    let limits = TemplateLimits { steps: 100_000, bytes: 1 << 20, ..TemplateLimits::default() };
    let result = Template::parse("fuzz", source, &options).and_then(|t| {
        t.render(&data, &TemplateEnvironment { limits, ..TemplateEnvironment::default() })
    });
    if let Err(error) = result {
        assert!(source.get(error.span()).is_some(), "the place is in the text");
    }
}
