//! Templates: first line the data, the rest the template.

use kiln_gotemplate::{Environment, FunctionSet, Limits, Options, Template};
use kiln_value::{Value, json};

pub(crate) fn check(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let (data, source) = text.split_once('\n').unwrap_or(("{}", text));
    let data = json::parse(data).unwrap_or_else(|_| Value::map());
    let options = Options { functions: FunctionSet::Sprig, ..Options::default() };
    let limits = Limits { steps: 100_000, bytes: 1 << 20, ..Limits::default() };
    let result = Template::parse("fuzz", source, &options)
        .and_then(|t| t.render(&data, &Environment { limits, ..Environment::default() }));
    if let Err(error) = result {
        assert!(source.get(error.span()).is_some(), "the place is in the text");
    }
}
