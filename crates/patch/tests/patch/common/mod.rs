//! The recorded cases of the API server.

use kiln_testkit::{corpus_json, difference};
use kiln_value::{Value, json};

/// One patch of one object.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) object: Value,
    recorded: Value,
}

/// What a patch engine must give.
pub(crate) enum Wanted {
    /// One of these objects.
    Objects(Vec<Value>),
    /// A refusal.
    Refusal,
}

/// The cases of a file.
pub(crate) fn cases(file: &str) -> Option<Vec<Case>> {
    let recorded = corpus_json(file)?;
    let cases = recorded.get("cases").and_then(Value::as_list).expect("a list of cases");
    let case = |recorded: &Value| Case {
        name: recorded.get("name").and_then(Value::as_str).expect("a name").to_owned(),
        object: recorded.get("object").expect("an object").clone(),
        recorded: recorded.clone(),
    };
    Some(cases.iter().map(case).collect())
}

impl Case {
    /// The patch, read from its text where there is one.
    pub(crate) fn patch(&self) -> Result<Value, String> {
        match self.recorded.get("patchText") {
            Some(text) => json::parse(text.as_str().unwrap_or_default()).map_err(|e| e.to_string()),
            None => Ok(self.recorded.get("patch").expect("a patch").clone()),
        }
    }
}

impl Wanted {
    /// `None` where only an API server can know.
    pub(crate) fn of(case: &Case) -> Option<Wanted> {
        let recorded = &case.recorded;
        if recorded.get("usesServerFields").and_then(Value::as_bool) == Some(true) {
            return None;
        }
        if let Some(Value::List(outcomes)) = recorded.get("outcomes") {
            let object = |outcome: &Value| outcome.get("result").unwrap_or(outcome).clone();
            return Some(Wanted::Objects(outcomes.iter().map(object).collect()));
        }
        match recorded.get("patched").or_else(|| recorded.get("result")) {
            Some(object) => Some(Wanted::Objects(vec![object.clone()])),
            None => Some(Wanted::Refusal),
        }
    }
}

/// Compares the outcome with what was wanted; numbers as Go writes them.
pub(crate) fn check(
    wanted: &Wanted,
    run: impl FnOnce() -> Result<Value, String>,
) -> Result<(), String> {
    match (wanted, run()) {
        (Wanted::Refusal, Err(_)) => Ok(()),
        (Wanted::Refusal, Ok(got)) => Err(format!("not refused: {got:?}")),
        (Wanted::Objects(_), Err(problem)) => Err(format!("refused: {problem}")),
        (Wanted::Objects(objects), Ok(got)) => {
            let pretty = |value: &Value| {
                let sorted = json::parse(&json::to_canonical_string(value)).expect("JSON");
                // The server reads the integer -0 as 0.
                json::to_string_pretty(&sorted).replace(" -0\n", " 0\n")
            };
            let got = pretty(&got);
            let differences: Vec<String> =
                objects.iter().map_while(|wanted| difference(&pretty(wanted), &got)).collect();
            if differences.len() < objects.len() {
                return Ok(());
            }
            Err(format!("\n{}", differences.join("\nor\n")))
        }
    }
}
