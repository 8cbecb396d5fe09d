//! Inputs made small: whatever can go without the difference going with it, goes.

use kiln_value::{Path, Segment, Value};

use crate::inputs::Input;
use crate::outcome::PolicyOutcome;
use crate::required_fields::is_required;

/// So many attempts are made for one input.
const ATTEMPTS: usize = 200;

/// The smallest input that `still` accepts, with what it says of it; none if it does not accept the input itself.
pub(crate) fn minimised(
    input: &Input,
    still: impl Fn(&Input) -> Option<(PolicyOutcome, PolicyOutcome)>,
) -> Option<(Input, PolicyOutcome, PolicyOutcome)> {
    let (old, new) = still(input)?;
    let mut best = (input.clone(), old, new);
    let mut left = ATTEMPTS;
    let mut attempt =
        |candidate: Input, best: &mut (Input, PolicyOutcome, PolicyOutcome)| -> bool {
            if left == 0 {
                return false;
            }
            left -= 1;
            match still(&candidate) {
                Some((old, new)) => {
                    *best = (candidate, old, new);
                    true
                }
                None => false,
            }
        };
    attempt(Input { others: Vec::new(), ..best.0.clone() }, &mut best);
    attempt(Input { user: None, ..best.0.clone() }, &mut best);
    let mut at = 0;
    while at < best.0.others.len() {
        let mut candidate = best.0.clone();
        candidate.others.remove(at);
        if !attempt(candidate, &mut best) {
            at += 1;
        }
    }
    if let Some(old) = &best.0.old_object
        && *old != best.0.object
    {
        attempt(Input { old_object: Some(best.0.object.clone()), ..best.0.clone() }, &mut best);
    }
    loop {
        let mut shrunk = false;
        let paths = removable(&best.0.object);
        for path in paths {
            let mut candidate = best.0.clone();
            let same_old = candidate.old_object.as_ref() == Some(&candidate.object);
            if !remove(&mut candidate.object, &path) {
                continue;
            }
            if same_old {
                candidate.old_object = Some(candidate.object.clone());
            }
            shrunk |= attempt(candidate, &mut best);
        }
        if let Some(old) = best.0.old_object.clone() {
            for path in removable(&old) {
                let mut candidate = best.0.clone();
                let removed = candidate.old_object.as_mut().is_some_and(|old| remove(old, &path));
                shrunk |= removed && attempt(candidate, &mut best);
            }
        }
        if !shrunk {
            break;
        }
    }
    Some(best)
}

/// Whatever may go from an object, outer parts first.
fn removable(object: &Value) -> Vec<Path> {
    fn walk(value: &Value, path: &Path, found: &mut Vec<Path>) {
        match value {
            Value::Map(map) => {
                for (key, value) in map {
                    let path = path.join(key);
                    found.push(path.clone());
                    walk(value, &path, found);
                }
            }
            Value::List(list) => {
                for (at, value) in list.iter().enumerate().rev() {
                    let path = path.join(at);
                    found.push(path.clone());
                    walk(value, &path, found);
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(object, &Path::root(), &mut found);
    // No object of an API server lacks them; whether its kind has namespaces, it says itself.
    let kept = [
        &["apiVersion"][..],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "uid"],
    ];
    found.retain(|path| {
        let steps: Vec<String> = path
            .segments()
            .iter()
            .map(|segment| match segment {
                Segment::Key(key) => key.to_string(),
                Segment::Index(at) => at.to_string(),
            })
            .collect();
        !kept.iter().any(|kept| kept.iter().copied().eq(steps.iter().map(String::as_str)))
    });
    found.retain(|path| !is_required(object, path));
    found.sort_by_key(|path| path.segments().len());
    found
}

fn remove(object: &mut Value, path: &Path) -> bool {
    let Some((last, above)) = path.segments().split_last() else { return false };
    let Some(holder) = object.get_path_mut(above.iter()) else { return false };
    match (holder, last) {
        (Value::Map(map), Segment::Key(key)) => map.remove(key).is_some(),
        (Value::List(list), Segment::Index(at)) if *at < list.len() => {
            list.make_mut().remove(*at);
            true
        }
        _ => false,
    }
}
