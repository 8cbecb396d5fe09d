//! The tables in `tests/cases`: what Go's text/template with sprig makes of each template.

use std::time::{Duration, SystemTime};

use kiln_gotemplate::{
    AmbientSources, FunctionSet, MissingKey, Template, TemplateEnvironment, TemplateLimits,
    TemplateOptions,
};
use kiln_testkit::{Case, Expected};
use kiln_value::Value;

/// Cases that fail, and why. The list only shrinks.
const KNOWN: &[(&str, &str)] = &[
    ("builtin-functions.yaml: slice beyond the end", "a list has no room behind its end"),
    (
        "sprig-dates.yaml: month of a time is a number",
        "months and days of the week are texts, not numbers that have a name",
    ),
    (
        "sprig-json.yaml: fromJson of half a surrogate pair",
        "our reader of JSON refuses it, Go's puts U+FFFD in its place",
    ),
    (
        "sprig-encoding-and-crypto.yaml: decryptAES of a text that is too short",
        "Go tells how it crashed, we tell what is wrong with the text",
    ),
    (
        "sprig-lists.yaml: chunk of size zero",
        "Go tells how it crashed, we tell what is wrong with the size",
    ),
];

/// A clock that stands still, and numbers that look random.
struct Fixed(std::cell::Cell<u64>);

impl AmbientSources for Fixed {
    fn now(&self) -> Option<SystemTime> {
        Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000))
    }

    fn random(&self) -> Option<u64> {
        let next = self.0.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.0.set(next);
        Some(next)
    }
}

#[test]
fn cases_render_as_in_go() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases");
    kiln_testkit::cases("gotemplate", folder, KNOWN, run);
}

fn run(case: &Case) -> Result<(), String> {
    let got = render(case.text("template"), case.get("data").unwrap_or(&Value::Null), case);
    match (got, case.expected()) {
        (Ok(got), Expected::Output(wanted)) if Some(got.as_str()) == wanted.as_str() => Ok(()),
        (Err(got), Expected::Error(wanted)) if got == wanted => Ok(()),
        (got, wanted) => {
            Err(format!("{}\n  wanted {wanted:?}\n  got    {got:?}", case.text("template")))
        }
    }
}

fn render(source: &str, data: &Value, case: &Case) -> Result<String, String> {
    let word = |field: &str| case.get(field).and_then(Value::as_str);
    let functions = match word("functions") {
        None | Some("sprig") => FunctionSet::Sprig,
        Some("builtin") => FunctionSet::Builtin,
        Some(other) => panic!("{}: no functions are called {other}", case.place()),
    };
    let missing_key = match word("option") {
        None => MissingKey::Default,
        Some("missingkey=error") => MissingKey::Error,
        Some("missingkey=zero") => MissingKey::Zero,
        Some(other) => panic!("{}: no option is called {other}", case.place()),
    };
    let options = TemplateOptions { functions, missing_key, ..TemplateOptions::default() };
    let sources = Fixed(std::cell::Cell::new(1));
    let environment = TemplateEnvironment { sources: &sources, limits: TemplateLimits::default() };
    Template::parse("main", source, &options)
        .and_then(|template| template.render(data, &environment))
        .map_err(|error| error.go_text())
}
