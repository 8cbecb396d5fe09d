//! The recorded cases: Go's output or error for a thousand templates.

use std::time::{Duration, SystemTime};

use kiln_gotemplate::{
    AmbientSources, ErrorKind, FunctionSet, MissingKey, Template, TemplateEnvironment,
    TemplateLimits, TemplateOptions,
};
use kiln_testkit::{Tally, corpus_json};
use kiln_value::Value;

/// Cases that fail, and why. The list only shrinks.
const KNOWN: &[(&str, &str)] = &[];

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
fn templates_render_as_in_go() {
    let Some(corpus) = corpus_json("gotemplate/cases.json") else { return };
    let mut tally = Tally::new("gotemplate");
    for (case, reason) in KNOWN {
        tally.known_failure(*case, *reason);
    }
    for case in corpus.get("cases").and_then(Value::as_list).unwrap() {
        // Go's output is not text here.
        if case.get("invalidUtf8").is_some() {
            tally.leave_out();
            continue;
        }
        tally.case(case.str_at(["name"]).unwrap(), || run(&corpus, case));
    }
    tally.finish();
}

fn run(corpus: &Value, case: &Value) -> Result<(), String> {
    let source = case.str_at(["template"]).unwrap();
    let data = corpus.get_path(["datasets", case.str_at(["data"]).unwrap()]).unwrap();
    let functions = match case.str_at(["functions"]) {
        Some("sprig") => FunctionSet::Sprig,
        _ => FunctionSet::Builtin,
    };
    let missing_key = match case.str_at(["option"]) {
        Some("missingkey=error") => MissingKey::Error,
        Some("missingkey=zero") => MissingKey::Zero,
        _ => MissingKey::Default,
    };
    let options = TemplateOptions { functions, missing_key, ..TemplateOptions::default() };
    let sources = Fixed(std::cell::Cell::new(1));
    let environment = TemplateEnvironment { sources: &sources, limits: TemplateLimits::default() };
    let result = Template::parse("main", source, &options)
        .and_then(|template| template.render(data, &environment));
    match (result, case.str_at(["output"]), case.str_at(["error"])) {
        (Ok(got), Some(wanted), _) if got == wanted => Ok(()),
        (Err(error), None, Some(kind)) => {
            let got = if error.kind() == ErrorKind::Parse { "parse" } else { "exec" };
            if got != kind {
                return Err(format!("{source}: a {got} error instead of {kind}: {error}"));
            }
            if error.partial() != case.str_at(["partial"]).unwrap_or_default() {
                return Err(format!("{source}: wrote {:?} before {error}", error.partial()));
            }
            let (go, ours) = (case.str_at(["goError"]).unwrap_or_default(), error.go_text());
            if go != ours {
                return Err(format!("{source}:\n  go   {go}\n  kiln {ours}"));
            }
            Ok(())
        }
        (Ok(got), wanted, _) => Err(format!("{source}: {got:?} instead of {wanted:?}")),
        (Err(error), wanted, _) => {
            Err(format!("{source}: {} instead of {wanted:?}", error.go_text()))
        }
    }
}
