//! Random patterns and resources, through the matcher of validate rules and through Kyverno's.
//!
//! A resource is made first, and a pattern is made of it, so that about as many match as do not. Compared are the result and,
//! of a failure, the path. Where Kyverno has an error because a key with an anchor is nowhere in the resource, or a list of
//! lists is too short, Kiln's pattern fails: docs/reference/differences/kyverno.md says so, and those are counted apart.

use std::path::Path as FilePath;

use anyhow::{Context, Result, anyhow};
use kiln_pattern::{PatternLimits, matches};
use kiln_value::{Map, Path, Segment, Value, json, value};

use super::dice::Dice;
use super::pattern_errors;
use crate::record;

/// So many cases are given to Kyverno at once.
const BATCH: u64 = 1000;
/// How deep resources are.
const DEPTH: usize = 4;

/// What anchors put around a key.
const ANCHOR_SIGNS: [char; 7] = ['(', ')', '=', '^', 'X', '<', '+'];

/// A pattern, and what is held against it.
#[derive(Clone)]
struct Pair {
    pattern: Value,
    resource: Value,
}

/// What a matcher says.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Pass,
    Skip,
    /// With the path.
    Fail(String),
    Error,
}

impl Said {
    /// Whether Kiln says what Kyverno says of a pair, but for errors with a known cause, which are failures here.
    fn agrees(&self, theirs: &Said, pair: &Pair) -> bool {
        self == theirs || self.is_known_to_differ(theirs, pair)
    }

    fn is_known_to_differ(&self, theirs: &Said, pair: &Pair) -> bool {
        matches!((self, theirs), (Said::Fail(_), Said::Error))
            && pattern_errors::cause(&pair.pattern, &pair.resource).is_some()
    }
}

#[expect(clippy::print_stdout, reason = "the differences are this command's output")]
pub(super) fn run(cases: u64, seed: u64, show: usize) -> Result<bool> {
    let program = record::kyverno()?;
    let mut different = Vec::new();
    let mut counts = [0_u64; 4];
    let (mut known, mut labels) = (0, 0);
    let end = seed + cases;
    let mut first = seed;
    while first < end {
        let numbers: Vec<u64> = (first..end.min(first + BATCH)).collect();
        let pairs: Vec<Pair> = numbers.iter().map(|number| pair(*number)).collect();
        let theirs = ask(&program, &pairs)?;
        for ((number, pair), theirs) in numbers.into_iter().zip(pairs).zip(theirs) {
            let ours = ours(&pair);
            let at = match theirs {
                Said::Pass => 0,
                Said::Skip => 1,
                Said::Fail(_) => 2,
                Said::Error => 3,
            };
            counts[at] += 1;
            if ours != theirs && asks_labels_for_more_than_text(&pair.pattern) {
                labels += 1;
                continue;
            }
            known += u64::from(ours.is_known_to_differ(&theirs, &pair));
            if !ours.agrees(&theirs, &pair) {
                if different.len() < show {
                    print(number, &smallest(&program, pair)?, &program)?;
                }
                different.push(number);
            }
        }
        first += BATCH;
    }
    let [pass, skip, fail, error] = counts;
    println!(
        "{cases} pairs from seed {seed}: Kyverno passes {pass}, skips {skip}, fails {fail}, has an error for {error}, of which \
         Kiln fails {known}; {labels} differ because Kyverno leaves out labels that are to be other than text; {} \
         differences{}",
        different.len(),
        if different.is_empty() { String::new() } else { format!(", seeds {different:?}") }
    );
    Ok(different.is_empty())
}

/// Whether a pattern wants a label or an annotation that is not text. Kyverno forgets such keys once the resource has labels;
/// docs/reference/differences/kyverno.md says so.
fn asks_labels_for_more_than_text(pattern: &Value) -> bool {
    let below = |value: &Value, field: &str| -> Vec<Value> {
        let Value::Map(map) = value else { return Vec::new() };
        let named = map.iter().filter(|(key, _)| key.as_str().trim_matches(ANCHOR_SIGNS) == field);
        named.map(|(_, value)| value.clone()).collect()
    };
    let metadata = below(pattern, "metadata");
    let labels = metadata.iter().flat_map(|metadata| below(metadata, "labels"));
    labels.into_iter().any(|labels| match labels {
        Value::Map(labels) => labels.iter().any(|(_, value)| !matches!(value, Value::String(_))),
        _ => false,
    })
}

fn ours(pair: &Pair) -> Said {
    match matches(&pair.pattern, &pair.resource, &PatternLimits::default()) {
        Ok(()) => Said::Pass,
        Err(mismatch) if mismatch.condition => Said::Skip,
        Err(mismatch) => Said::Fail(as_kyverno(&mismatch.path)),
    }
}

/// A path as Kyverno's messages write it.
fn as_kyverno(path: &Path) -> String {
    path.segments().iter().fold("/".to_owned(), |path, segment| match segment {
        Segment::Key(key) => format!("{path}{key}/"),
        Segment::Index(at) => format!("{path}{at}/"),
    })
}

fn ask(program: &FilePath, pairs: &[Pair]) -> Result<Vec<Said>> {
    let cases: Vec<serde_json::Value> = pairs
        .iter()
        .map(|pair| {
            let case = value!({"pattern": pair.pattern, "resource": pair.resource});
            Ok(serde_json::from_str(&json::to_string(&case))?)
        })
        .collect::<Result<_>>()?;
    let (_, results) = record::ask(program, "pattern", &cases)?;
    results
        .iter()
        .map(|result| match result["output"]["result"].as_str() {
            Some("pass") => Ok(Said::Pass),
            Some("skip") => Ok(Said::Skip),
            Some("error") => Ok(Said::Error),
            Some("fail") => {
                let path = result["output"]["path"].as_str().context("a failure has a path")?;
                Ok(Said::Fail(path.to_owned()))
            }
            // An error, or a panic.
            _ if result.get("error").is_some() => Ok(Said::Error),
            _ => Err(anyhow!("unknown result {result}")),
        })
        .collect()
}

/// The smallest pair without one of whose parts both agree.
fn smallest(program: &FilePath, mut pair: Pair) -> Result<Pair> {
    'again: loop {
        let patterns = smaller(&pair.pattern).into_iter();
        let patterns = patterns.map(|pattern| Pair { pattern, ..pair.clone() });
        let resources = smaller(&pair.resource).into_iter();
        let resources = resources.map(|resource| Pair { resource, ..pair.clone() });
        let candidates: Vec<Pair> = patterns.chain(resources).collect();
        let said = ask(program, &candidates)?;
        for (candidate, theirs) in candidates.into_iter().zip(said) {
            if !ours(&candidate).agrees(&theirs, &candidate) {
                pair = candidate;
                continue 'again;
            }
        }
        return Ok(pair);
    }
}

/// A value without one of its parts, for each of them.
pub(super) fn smaller(value: &Value) -> Vec<Value> {
    let mut all = Vec::new();
    match value {
        Value::Map(map) => {
            for (key, inner) in map {
                let mut without = map.clone();
                without.remove(key);
                all.push(Value::Map(without));
                for inner in smaller(inner) {
                    let mut changed = map.clone();
                    changed.insert(key.clone(), inner);
                    all.push(Value::Map(changed));
                }
            }
        }
        Value::List(list) => {
            for at in 0..list.len() {
                let mut without = list.clone();
                without.make_mut().remove(at);
                all.push(Value::List(without));
                for inner in smaller(&list[at]) {
                    let mut changed = list.clone();
                    changed.make_mut()[at] = inner;
                    all.push(Value::List(changed));
                }
            }
        }
        _ => {}
    }
    all
}

#[expect(clippy::print_stdout, reason = "the differences are this command's output")]
fn print(number: u64, pair: &Pair, program: &FilePath) -> Result<()> {
    let theirs = ask(program, std::slice::from_ref(pair))?;
    println!("== seed {number}");
    println!("pattern:  {}", json::to_string(&pair.pattern));
    println!("resource: {}", json::to_string(&pair.resource));
    println!("Kyverno {:?}, Kiln {:?}\n", theirs.first(), ours(pair));
    Ok(())
}

// Cases.

const KEYS: [&str; 6] = ["a", "b", "c", "name", "image", "list"];
const TEXTS: [&str; 14] = [
    "nginx:1.14",
    "nginx",
    "",
    "x",
    "100m",
    "1Gi",
    "512Mi",
    "10s",
    "1h30m",
    "true",
    "5",
    "-3",
    "a-b",
    "1.5",
];
const LABELS: [&str; 3] = ["app", "team.io/owner", "tier"];

fn pair(number: u64) -> Pair {
    let mut dice = Dice::new(number);
    let mut resource = value!({"metadata": {"name": "x"}});
    let labels: Map = LABELS
        .into_iter()
        .filter(|_| dice.once_in(2))
        .collect::<Vec<_>>()
        .into_iter()
        .map(|label| (label, Value::from(dice.one(&TEXTS))))
        .collect();
    // The paths are there.
    if !labels.is_empty() {
        let _ = resource.set(["metadata", "labels"], labels);
    }
    let _ = resource.set(["spec"], tree(&mut dice, DEPTH));
    let pattern = pattern_of(&mut dice, &resource, Anchored::Anywhere);
    Pair { pattern: as_read(&pattern), resource: as_read(&resource) }
}

/// A value as a reader of its JSON has it: 1e9 is written without an exponent, so Kyverno gets a whole number.
fn as_read(value: &Value) -> Value {
    json::parse(&json::to_string(value)).unwrap_or_else(|_| value.clone())
}

/// A value of a resource.
fn tree(dice: &mut Dice, depth: usize) -> Value {
    let below = depth.saturating_sub(1);
    match dice.roll(if depth == 0 { 4 } else { 10 }) {
        0..4 => scalar(dice),
        4..8 => {
            let keys: Vec<&str> = KEYS.into_iter().filter(|_| dice.once_in(2)).collect();
            Value::from(Map::from_iter(keys.into_iter().map(|key| (key, tree(dice, below)))))
        }
        8 => {
            // Elements have much in common.
            let first = tree(dice, below);
            let more = (0..dice.roll(3)).map(|_| changed(dice, &first));
            let more: Vec<Value> = more.collect();
            std::iter::once(first).chain(more).collect()
        }
        _ => (0..dice.roll(4)).map(|_| scalar(dice)).collect(),
    }
}

fn scalar(dice: &mut Dice) -> Value {
    match dice.roll(10) {
        0 => Value::Null,
        1 => dice.once_in(2).into(),
        2 => 5.into(),
        3 => [0, -3, 10, 1_000_000][dice.roll(4)].into(),
        4 => [2.5, 0.1, 1e9][dice.roll(3)].into(),
        _ => dice.one(&TEXTS).into(),
    }
}

/// A value with another scalar somewhere.
fn changed(dice: &mut Dice, value: &Value) -> Value {
    match value {
        Value::Map(map) => map
            .iter()
            .filter(|_| dice.roll(8) > 0)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect::<Vec<_>>()
            .into_iter()
            .map(|(key, value)| {
                let value = if dice.once_in(3) { changed(dice, &value) } else { value };
                (key, value)
            })
            .collect::<Map>()
            .into(),
        Value::List(list) => list.iter().map(|value| changed(dice, value)).collect(),
        _ => scalar(dice),
    }
}

/// Which anchors a pattern may have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchored {
    /// All of them, on any value.
    Anywhere,
    /// As policies may have them: none that adds, and those for lists only on lists.
    AsPolicies,
}

/// A pattern for a value, which the value may meet.
pub(super) fn pattern_of(dice: &mut Dice, value: &Value, anchored: Anchored) -> Value {
    if dice.once_in(25) && anchored == Anchored::Anywhere {
        return tree(dice, 1);
    }
    match value {
        Value::Map(map) => {
            let mut pattern = Map::new();
            let is_labels = map.keys().any(|key| LABELS.contains(&key.as_str()));
            for (key, value) in map {
                if dice.roll(3) > 0 {
                    let (key, wanted) = entry(dice, key.as_str(), Some(value), anchored, is_labels);
                    pattern.insert(key, wanted);
                }
            }
            if dice.once_in(4) && !is_labels {
                let (key, wanted) = entry(dice, "missing", None, anchored, false);
                pattern.insert(key, wanted);
            }
            pattern.into()
        }
        Value::List(list) => match dice.roll(12) {
            0 if anchored == Anchored::Anywhere => Value::list(),
            1 => leaf(dice, list.first().unwrap_or(&Value::Null)),
            2 => list.iter().map(|value| pattern_of(dice, value, anchored)).collect(),
            _ => {
                let first = list.get(dice.roll(list.len().max(1))).cloned();
                let first = pattern_of(dice, &first.unwrap_or(Value::Null), anchored);
                std::iter::once(first).collect()
            }
        },
        scalar => leaf(dice, scalar),
    }
}

/// A key of a pattern, perhaps with an anchor, and what it wants.
fn entry(
    dice: &mut Dice,
    key: &str,
    value: Option<&Value>,
    anchored: Anchored,
    is_label: bool,
) -> (String, Value) {
    let as_policies = anchored == Anchored::AsPolicies;
    let mark = match dice.roll(24) {
        0..3 => Some(""),
        3..6 => Some("="),
        6 | 7 => Some("<"),
        8 => Some("X"),
        9 | 10 => Some("^"),
        11 if !as_policies => Some("+"),
        _ => None,
    };
    let mark = mark.filter(|mark| *mark != "^" || !is_label);
    let missing = Value::Null;
    let value = value.unwrap_or(&missing);
    if mark == Some("^") && (as_policies || dice.roll(6) > 0) {
        // Some of its elements.
        let elements = value.as_list().into_iter().flatten().filter(|v| v.as_map().is_some());
        let wanted: Vec<Value> =
            elements.take(2).map(|element| pattern_of(dice, element, anchored)).collect();
        if wanted.is_empty() {
            return (format!("^({key})"), value!([{"name": "x"}]));
        }
        return (format!("^({key})"), wanted.into_iter().collect());
    }
    let wanted = match is_label {
        // Others are rejected when a policy is stored.
        true => match leaf(dice, value) {
            text @ Value::String(_) => text,
            _ => "?*".into(),
        },
        false => pattern_of(dice, value, anchored),
    };
    // Only one label begins like this.
    let key = if is_label && dice.once_in(4) { format!("{}*", &key[..3]) } else { key.to_owned() };
    let key = match mark {
        Some(mark) => format!("{mark}({key})"),
        None => key,
    };
    (key, wanted)
}

/// A pattern for a scalar.
fn leaf(dice: &mut Dice, value: &Value) -> Value {
    const MEASURES: [&str; 16] = [
        ">5", "<=1Gi", "<10", ">=0", "10-20", "1!-6", "100m-1", "5s-1m", ">1h", "!5", "!1Gi", "0",
        "<=0.5", "-5-5", "!10s", ">abc",
    ];
    let text = match value {
        Value::String(text) => text.to_string(),
        Value::Null => String::new(),
        Value::Map(_) | Value::List(_) => "x".to_owned(),
        other => json::to_string(other),
    };
    let begin: String = text.chars().take(2).collect();
    match dice.roll(16) {
        0..3 if value.as_map().is_none() && value.as_list().is_none() => value.clone(),
        3 => text.into(),
        4 => "*".into(),
        5 => "?*".into(),
        6 => format!("{begin}*").into(),
        7 => format!("!{text}").into(),
        8 => format!("!{begin}*").into(),
        9 => dice.one(&MEASURES).into(),
        10 => format!("{} | {text}", dice.one(&MEASURES)).into(),
        11 => format!("{begin}* & {}", dice.one(&["*1*", "!nginx", "?*", ">1"])).into(),
        12 => format!("{}|{}", dice.one(&TEXTS), dice.one(&TEXTS)).into(),
        13 => Value::Null,
        _ => scalar(dice),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_pair_again() {
        for number in 0..50 {
            let (one, other) = (pair(number), pair(number));
            assert!(one.pattern == other.pattern && one.resource == other.resource, "{number}");
        }
    }

    #[test]
    fn pairs_come_to_every_result() {
        let said: Vec<Said> = (0..1_000).map(|number| ours(&pair(number))).collect();
        let count = |is: fn(&Said) -> bool| said.iter().filter(|said| is(said)).count();
        let counts = [
            count(|said| *said == Said::Pass),
            count(|said| *said == Said::Skip),
            count(|said| matches!(said, Said::Fail(_))),
        ];
        assert!(counts.iter().all(|count| *count > 80), "{counts:?}");
    }

    #[test]
    fn smaller_values_lack_one_part() {
        let value = value!({"a": [1, {"b": 2}]});
        let shown: Vec<String> = smaller(&value).iter().map(json::to_string).collect();
        assert_eq!(shown, ["{}", "{\"a\":[{\"b\":2}]}", "{\"a\":[1]}", "{\"a\":[1,{}]}"]);
    }
}
