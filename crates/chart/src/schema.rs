//! `values.schema.json`: whether values are what a chart and its subcharts say they must be.
//!
//! JSON Schema of the drafts 4 to 2020-12 with references inside of the document. Others are never fetched: what they
//! would say is not checked, and a warning is not worth more than the values themselves.

use kiln_diagnostic::Diagnostic;
use kiln_text::regex::Regex;
use kiln_value::{Map, Number, Value, json};

use crate::error::{ChartError, Result};
use crate::load::Chart;

/// How many schemas may be compared with how many values.
const STEPS: usize = 2_000_000;
/// How deep schemas may lead into each other.
const DEPTH: usize = 200;

/// Checks the values of a chart and those of its subcharts.
pub(crate) fn validate(chart: &Chart, values: &Map) -> Result<()> {
    let mut problems = String::new();
    check(chart, values, &mut problems)?;
    if problems.is_empty() {
        return Ok(());
    }
    let helm = format!(
        "values don't meet the specifications of the schema(s) in the following chart(s):\n{problems}"
    );
    Err(ChartError::placed(Diagnostic::error(helm.trim_end()), helm.clone())
        .hint("give these values with --values or --set, or change values.yaml"))
}

/// What is wrong with a value, held against a JSON Schema; nothing if it is valid.
///
/// # Errors
/// When the schema is not one, or comparing takes too long.
pub fn schema_violations(schema: &Value, value: &Value) -> Result<Option<String>> {
    let mut checker = Checker::new(schema);
    let failed = checker.schema(schema, value, "", 0);
    if let Some(message) = checker.refused {
        return Err(ChartError::new(message));
    }
    Ok(failed.map(|failed| {
        let mut shown = String::new();
        failed.print(1, &mut shown);
        shown.trim_start_matches('\n').to_owned()
    }))
}

fn check(chart: &Chart, values: &Map, problems: &mut String) -> Result<()> {
    if let Some(schema) = &chart.schema {
        let name = chart.name();
        let text = String::from_utf8_lossy(schema);
        match json::parse(&text) {
            Err(error) => problems.push_str(&format!("{name}:\n{error}")),
            Ok(schema) => {
                let mut checker = Checker::new(&schema);
                let failed = checker.schema(&schema, &Value::Map(values.clone()), "", 0);
                if let Some(message) = checker.refused {
                    return Err(ChartError::new(format!("{name}: values.schema.json: {message}")));
                }
                if let Some(failed) = failed {
                    let mut shown = String::new();
                    failed.print(1, &mut shown);
                    problems.push_str(&format!("{name}:\n{}\n", shown.trim_start_matches('\n')));
                }
            }
        }
    }
    for subchart in &chart.subcharts {
        match values.get(subchart.name()) {
            Some(Value::Map(values)) => check(subchart, values, problems)?,
            None | Some(Value::Null) => {}
            Some(other) => problems.push_str(&format!(
                "{}:\ninvalid type for values: expected object (map), got {}\n",
                subchart.name(),
                other.type_name()
            )),
        }
    }
    Ok(())
}

/// What a value does not meet, and why.
#[derive(Debug)]
struct SchemaFailure {
    at: String,
    message: String,
    causes: Vec<SchemaFailure>,
    /// Whether it only groups its causes, which a reference with one of them need not show.
    is_reference: bool,
}

impl SchemaFailure {
    fn print(&self, depth: usize, out: &mut String) {
        let shown = !(self.is_reference && self.causes.len() == 1);
        if shown {
            out.push('\n');
            out.extend(std::iter::repeat_n("  ", depth - 1));
            out.push_str(&format!("- at {}: {}", quoted(&self.at), self.message));
        }
        for cause in &self.causes {
            cause.print(depth + usize::from(shown), out);
        }
    }
}

struct Checker<'s> {
    root: &'s Value,
    /// Before draft 2019-09 nothing beside a reference counts.
    reference_alone: bool,
    steps: usize,
    refused: Option<String>,
}

impl<'s> Checker<'s> {
    fn new(root: &'s Value) -> Self {
        let draft = root.get("$schema").and_then(Value::as_str).unwrap_or_default();
        let reference_alone = draft.contains("/draft-0");
        Checker { root, reference_alone, steps: STEPS, refused: None }
    }

    fn refuse(&mut self, message: String) -> Option<SchemaFailure> {
        self.refused.get_or_insert(message);
        None
    }

    fn schema(
        &mut self,
        schema: &'s Value,
        value: &Value,
        at: &str,
        depth: usize,
    ) -> Option<SchemaFailure> {
        if self.refused.is_some() {
            return None;
        }
        if depth > DEPTH {
            return self.refuse(format!("schemas lead deeper than {DEPTH} levels"));
        }
        match self.steps.checked_sub(1) {
            Some(left) => self.steps = left,
            None => {
                return self.refuse(format!("checking the values takes more than {STEPS} steps"));
            }
        }
        let keywords = match schema {
            Value::Bool(true) => return None,
            Value::Bool(false) => return Some(failure(at, "false schema")),
            Value::Map(keywords) => keywords,
            _ => return self.refuse("a schema must be an object or a boolean".to_owned()),
        };
        if let Some(wrong) = wrong_type(keywords, value) {
            return Some(failure(at, &wrong));
        }
        if let Some(wanted) = keywords.get("const")
            && !equal(wanted, value)
        {
            let wanted = match wanted {
                Value::List(_) | Value::Map(_) => "'const' failed".to_owned(),
                wanted => format!("value must be {}", shown(wanted)),
            };
            return Some(failure(at, &wanted));
        }
        if let Some(Value::List(wanted)) = keywords.get("enum")
            && !wanted.iter().any(|wanted| equal(wanted, value))
        {
            let plain = wanted.iter().all(|w| !matches!(w, Value::List(_) | Value::Map(_)));
            let names: Vec<String> = wanted.iter().map(shown).collect();
            let message = match names.as_slice() {
                _ if !plain => "'enum' failed".to_owned(),
                [only] => format!("value must be {only}"),
                names => format!("value must be one of {}", names.join(", ")),
            };
            return Some(failure(at, &message));
        }
        let mut failures = Vec::new();
        if let Some(reference) = keywords.get("$ref").and_then(Value::as_str) {
            let failed = self.reference(reference, value, at, depth);
            if self.reference_alone {
                return failed;
            }
            failures.extend(failed);
        }
        match value {
            Value::Map(map) => self.object(keywords, map, at, depth, &mut failures),
            Value::List(list) => self.array(keywords, list, at, depth, &mut failures),
            Value::String(text) => self.text(keywords, text, at, &mut failures),
            Value::Number(number) => number_checks(keywords, *number, at, &mut failures),
            _ => {}
        }
        self.combined(keywords, value, at, depth, &mut failures);
        grouped(at, failures)
    }

    fn reference(
        &mut self,
        reference: &str,
        value: &Value,
        at: &str,
        depth: usize,
    ) -> Option<SchemaFailure> {
        let Some(pointer) = reference.strip_prefix('#') else {
            // Another document: it is not fetched.
            return None;
        };
        let Some(target) = self.target(pointer) else {
            return self.refuse(format!("there is no {reference:?} in it"));
        };
        let cause = self.schema(target, value, at, depth + 1)?;
        let message = "validation failed".to_owned();
        Some(SchemaFailure { at: at.to_owned(), message, causes: vec![cause], is_reference: true })
    }

    fn target(&self, pointer: &str) -> Option<&'s Value> {
        if !pointer.is_empty() && !pointer.starts_with('/') {
            return anchor(self.root, pointer, 0);
        }
        pointer.split('/').skip(1).try_fold(self.root, |value, part| {
            let part = percent_decoded(part).replace("~1", "/").replace("~0", "~");
            match value {
                Value::List(list) => list.get(part.parse::<usize>().ok()?),
                value => value.get(&part),
            }
        })
    }

    fn object(
        &mut self,
        keywords: &'s Map,
        map: &Map,
        at: &str,
        depth: usize,
        failures: &mut Vec<SchemaFailure>,
    ) {
        bounds(keywords, ["minProperties", "maxProperties"], map.len(), at, failures);
        let missing = |names: &Value| -> Vec<String> {
            let names = names.as_list().into_iter().flat_map(|list| list.iter());
            let names = names.filter_map(Value::as_str).filter(|name| !map.contains_key(name));
            names.map(quoted).collect()
        };
        if let Some(required) = keywords.get("required") {
            match missing(required).as_slice() {
                [] => {}
                [one] => failures.push(failure(at, &format!("missing property {one}"))),
                several => {
                    let several = several.join(", ");
                    failures.push(failure(at, &format!("missing properties {several}")));
                }
            }
        }
        for keyword in ["dependencies", "dependentRequired", "dependentSchemas"] {
            let Some(Value::Map(dependencies)) = keywords.get(keyword) else { continue };
            for (name, wanted) in dependencies.iter().filter(|(name, _)| map.contains_key(name)) {
                if let Value::List(_) = wanted {
                    let missing = missing(wanted).join(", ");
                    if !missing.is_empty() {
                        let name = quoted(name);
                        let message = format!("properties {missing} required, if {name} exists");
                        failures.push(failure(at, &message));
                    }
                } else {
                    failures.extend(self.schema(wanted, &Value::Map(map.clone()), at, depth + 1));
                }
            }
        }
        let patterns = self.patterns(keywords);
        let properties = keywords.get("properties").and_then(Value::as_map);
        let additional = keywords.get("additionalProperties");
        let mut unwanted = Vec::new();
        for (name, value) in map {
            let at = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
            let mut evaluated = false;
            if let Some(schema) = properties.and_then(|properties| properties.get(name)) {
                evaluated = true;
                failures.extend(self.schema(schema, value, &at, depth + 1));
            }
            for (pattern, schema) in &patterns {
                if pattern.is_match(name) {
                    evaluated = true;
                    failures.extend(self.schema(schema, value, &at, depth + 1));
                }
            }
            match additional {
                Some(Value::Bool(false)) if !evaluated => unwanted.push(quoted(name)),
                Some(schema) if !evaluated => {
                    failures.extend(self.schema(schema, value, &at, depth + 1));
                }
                _ => {}
            }
        }
        if !unwanted.is_empty() {
            unwanted.sort();
            let message = format!("additional properties {} not allowed", unwanted.join(", "));
            failures.push(failure(at, &message));
        }
        if let Some(schema) = keywords.get("propertyNames") {
            for name in map.keys() {
                if let Some(failed) = self.schema(schema, &Value::from(name), at, depth + 1) {
                    let message = format!("invalid propertyName {}", quoted(name));
                    failures.push(SchemaFailure { causes: vec![failed], ..failure(at, &message) });
                }
            }
        }
    }

    /// The patterns of properties with their schemas.
    fn patterns(&mut self, keywords: &'s Map) -> Vec<(Regex, &'s Value)> {
        let Some(Value::Map(patterns)) = keywords.get("patternProperties") else {
            return Vec::new();
        };
        let mut compiled = Vec::new();
        for (pattern, schema) in patterns {
            match Regex::new(pattern) {
                Ok(regex) => compiled.push((regex, schema)),
                Err(error) => {
                    drop(self.refuse(format!("{pattern:?} is not a regular expression: {error}")));
                }
            }
        }
        compiled
    }

    fn array(
        &mut self,
        keywords: &'s Map,
        list: &[Value],
        at: &str,
        depth: usize,
        failures: &mut Vec<SchemaFailure>,
    ) {
        bounds(keywords, ["minItems", "maxItems"], list.len(), at, failures);
        if let Some(Value::Bool(true)) = keywords.get("uniqueItems") {
            let pairs = (1..list.len()).flat_map(|j| (0..j).map(move |i| (i, j)));
            self.steps = self.steps.saturating_sub(list.len() * list.len() / 8);
            let pair = pairs.take(STEPS).find(|(i, j)| equal(&list[*i], &list[*j]));
            if let Some((i, j)) = pair {
                failures.push(failure(at, &format!("items at {i} and {j} are equal")));
            }
        }
        // Before 2020-12 a list of `items` was what `prefixItems` is now.
        let (first, rest) = match (keywords.get("prefixItems"), keywords.get("items")) {
            (Some(Value::List(first)), rest) => (Some(first), rest),
            (_, Some(Value::List(first))) => (Some(first), keywords.get("additionalItems")),
            (_, rest) => (None, rest),
        };
        let count = first.map_or(0, |first| first.len().min(list.len()));
        for (index, value) in list.iter().enumerate() {
            let schema = first.and_then(|first| first.get(index)).or(rest);
            if index >= count && rest == Some(&Value::Bool(false)) {
                let message = format!("last {} additionalItem(s) not allowed", list.len() - count);
                failures.push(failure(at, &message));
                break;
            }
            if let Some(schema) = schema {
                failures.extend(self.schema(schema, value, &format!("{at}/{index}"), depth + 1));
            }
        }
        if let Some(schema) = keywords.get("contains") {
            let found = list
                .iter()
                .enumerate()
                .filter(|(index, value)| {
                    self.schema(schema, value, &format!("{at}/{index}"), depth + 1).is_none()
                })
                .count();
            let bound = |keyword: &str| keywords.get(keyword).and_then(Value::as_i64);
            let least = usize::try_from(bound("minContains").unwrap_or(1)).unwrap_or(0);
            let most = bound("maxContains").and_then(|most| usize::try_from(most).ok());
            if found < least {
                failures.push(failure(at, "no items match contains schema"));
            } else if most.is_some_and(|most| found > most) {
                let most = most.unwrap_or_default();
                let message = format!(
                    "max {most} items required to match contains schema, but matched {found} items"
                );
                failures.push(failure(at, &message));
            }
        }
    }

    fn text(&mut self, keywords: &Map, text: &str, at: &str, failures: &mut Vec<SchemaFailure>) {
        bounds(keywords, ["minLength", "maxLength"], text.chars().count(), at, failures);
        if let Some(pattern) = keywords.get("pattern").and_then(Value::as_str) {
            match Regex::new(pattern) {
                Ok(regex) if regex.is_match(text) => {}
                Ok(_) => {
                    let message =
                        format!("{} does not match pattern {}", quoted(text), quoted(pattern));
                    failures.push(failure(at, &message));
                }
                Err(error) => {
                    self.refuse(format!("{pattern:?} is not a regular expression: {error}"));
                }
            }
        }
    }

    fn combined(
        &mut self,
        keywords: &'s Map,
        value: &Value,
        at: &str,
        depth: usize,
        failures: &mut Vec<SchemaFailure>,
    ) {
        if let Some(schema) = keywords.get("not")
            && self.schema(schema, value, at, depth + 1).is_none()
        {
            failures.push(failure(at, "'not' failed"));
        }
        let of = |keyword: &str| match keywords.get(keyword) {
            Some(Value::List(list)) => Some(list),
            _ => None,
        };
        if let Some(all) = of("allOf") {
            let causes: Vec<SchemaFailure> =
                all.iter().filter_map(|schema| self.schema(schema, value, at, depth + 1)).collect();
            if !causes.is_empty() {
                failures.push(SchemaFailure { causes, ..failure(at, "'allOf' failed") });
            }
        }
        if let Some(any) = of("anyOf") {
            let causes: Vec<SchemaFailure> =
                any.iter().map_while(|schema| self.schema(schema, value, at, depth + 1)).collect();
            if causes.len() == any.len() {
                failures.push(SchemaFailure { causes, ..failure(at, "'anyOf' failed") });
            }
        }
        if let Some(one) = of("oneOf") {
            let (mut causes, mut matched) = (Vec::new(), Vec::new());
            for (index, schema) in one.iter().enumerate() {
                match self.schema(schema, value, at, depth + 1) {
                    Some(failed) => causes.push(failed),
                    None => matched.push(index),
                }
            }
            match matched.as_slice() {
                [] => {
                    failures.push(SchemaFailure {
                        causes,
                        ..failure(at, "'oneOf' failed, none matched")
                    });
                }
                [_] => {}
                [first, second, ..] => {
                    let message = format!("'oneOf' failed, subschemas {first}, {second} matched");
                    failures.push(failure(at, &message));
                }
            }
        }
        if let Some(condition) = keywords.get("if") {
            let then = match self.schema(condition, value, at, depth + 1) {
                None => keywords.get("then"),
                Some(_) => keywords.get("else"),
            };
            failures.extend(then.and_then(|schema| self.schema(schema, value, at, depth + 1)));
        }
    }
}

fn failure(at: &str, message: &str) -> SchemaFailure {
    let (at, message) = (at.to_owned(), message.to_owned());
    SchemaFailure { at, message, causes: Vec::new(), is_reference: false }
}

fn grouped(at: &str, mut failures: Vec<SchemaFailure>) -> Option<SchemaFailure> {
    match failures.len() {
        0 | 1 => failures.pop(),
        _ => Some(SchemaFailure { causes: failures, ..failure(at, "validation failed") }),
    }
}

/// What the type of a value should have been.
fn wrong_type(keywords: &Map, value: &Value) -> Option<String> {
    let wanted: Vec<&str> = match keywords.get("type")? {
        Value::String(one) => vec![one.as_str()],
        Value::List(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => return None,
    };
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::List(_) => "array",
        Value::Map(_) => "object",
    };
    let whole = matches!(value, Value::Number(number) if number.as_f64().fract() == 0.0);
    let fits = |wanted: &&str| *wanted == found || *wanted == "integer" && whole;
    if wanted.is_empty() || wanted.iter().any(fits) {
        return None;
    }
    // In the order of the library's set.
    const ORDER: [&str; 7] = ["null", "boolean", "number", "integer", "string", "array", "object"];
    let names: Vec<&str> = ORDER.into_iter().filter(|name| wanted.contains(name)).collect();
    Some(format!("got {found}, want {}", names.join(" or ")))
}

fn bounds(
    keywords: &Map,
    names: [&str; 2],
    found: usize,
    at: &str,
    failures: &mut Vec<SchemaFailure>,
) {
    for (name, is_least) in names.into_iter().zip([true, false]) {
        let Some(bound) = keywords.get(name).and_then(Value::as_f64) else { continue };
        let found_number = found as f64;
        if is_least && found_number < bound || !is_least && found_number > bound {
            failures.push(failure(at, &format!("{name}: got {found}, want {bound}")));
        }
    }
}

fn number_checks(keywords: &Map, number: Number, at: &str, failures: &mut Vec<SchemaFailure>) {
    let found = number.as_f64();
    let bound = |name: &str| keywords.get(name).and_then(Value::as_f64);
    // In draft 4 these were truths beside the bounds.
    let strict = |name: &str| matches!(keywords.get(name), Some(Value::Bool(true)));
    let mut check = |name: &str, bound: Option<f64>, fits: fn(f64, f64) -> bool| {
        if let Some(bound) = bound
            && !fits(found, bound)
        {
            let shown = kiln_text::float::print;
            let message = format!("{name}: got {}, want {}", shown(found), shown(bound));
            failures.push(failure(at, &message));
        }
    };
    check("minimum", bound("minimum"), |found, bound| found >= bound);
    check("maximum", bound("maximum"), |found, bound| found <= bound);
    let least =
        if strict("exclusiveMinimum") { bound("minimum") } else { bound("exclusiveMinimum") };
    let most =
        if strict("exclusiveMaximum") { bound("maximum") } else { bound("exclusiveMaximum") };
    check("exclusiveMinimum", least, |found, bound| found > bound);
    check("exclusiveMaximum", most, |found, bound| found < bound);
    check("multipleOf", bound("multipleOf"), |found, of| {
        of <= 0.0 || ((found / of) - (found / of).round()).abs() < 1e-9
    });
}

/// Whether two values are alike for JSON: 1 is 1.0.
fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::List(a), Value::List(b)) => {
            a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| equal(a, b))
        }
        (Value::Map(a), Value::Map(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| equal(a, b)))
        }
        (a, b) => a == b,
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::List(_) | Value::Map(_) => "value".to_owned(),
        Value::Null => "<nil>".to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Number(number) => number.to_string(),
    }
}

fn quoted(text: &str) -> String {
    let text = kiln_text::quote::quote(text).replace("\\\"", "\"").replace('\'', "\\'");
    format!("'{}'", &text[1..text.len() - 1])
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..2).and_then(|code| str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The schema with this anchor.
fn anchor<'s>(schema: &'s Value, name: &str, depth: usize) -> Option<&'s Value> {
    if depth > DEPTH {
        return None;
    }
    match schema {
        Value::Map(map) => {
            let own = |keyword: &str| map.get(keyword).and_then(Value::as_str);
            let id = own("$id").or(own("id")).and_then(|id| id.strip_prefix('#'));
            if own("$anchor") == Some(name) || id == Some(name) {
                return Some(schema);
            }
            map.values().find_map(|inner| anchor(inner, name, depth + 1))
        }
        Value::List(list) => list.iter().find_map(|inner| anchor(inner, name, depth + 1)),
        _ => None,
    }
}
