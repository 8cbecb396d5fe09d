//! What `{{@}}` means: the same place in another object.

use kiln_value::{Path, Segment, json};

/// The expression that finds, below `root`, the place that `path` names.
///
/// Kyverno: everything up to the first `foreach` is dropped, then two more steps (such as
/// `mutate.patchStrategicMerge`); what is left is the place. Anchors in keys stay. In a whole policy, the
/// steps down to the rule do not count.
pub(crate) fn expression(root: &str, path: &Path) -> String {
    let steps = path.segments();
    let loops = |step: &Segment| matches!(step, Segment::Key(key) if key == "foreach");
    let after = steps.iter().position(loops).map_or_else(|| steps_to_rule(steps), |at| at + 1);
    let place = steps[after..].iter().filter(|step| !is_empty(step)).skip(2);
    let mut text = root.to_owned();
    for step in place {
        match step {
            Segment::Index(index) => text.push_str(&format!("[{index}]")),
            // Kyverno: a key that is a number is taken for an index.
            Segment::Key(key) if key.parse::<u64>().is_ok() && !key.starts_with('+') => {
                text.push_str(&format!("[{key}]"));
            }
            Segment::Key(key) if is_identifier(key) => text.push_str(&format!(".{key}")),
            Segment::Key(key) => {
                text.push('.');
                text.push_str(&json::to_string(&key.into()));
            }
        }
    }
    text
}

/// How many steps lead from the root of a policy to its rule: those of `spec.rules[n]`.
fn steps_to_rule(steps: &[Segment]) -> usize {
    let key = |step: &Segment, wanted: &str| matches!(step, Segment::Key(key) if key == wanted);
    match steps {
        [spec, rules, Segment::Index(_), ..] if key(spec, "spec") && key(rules, "rules") => 3,
        _ => 0,
    }
}

fn is_empty(step: &Segment) -> bool {
    matches!(step, Segment::Key(key) if key.is_empty())
}

fn is_identifier(key: &str) -> bool {
    !key.starts_with(|c: char| c.is_ascii_digit())
        && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_begins_after_the_kind_of_the_patch() {
        let place = |steps: &[&str]| expression("request.object", &steps.iter().copied().collect());
        assert_eq!(place(&[]), "request.object");
        assert_eq!(place(&["mutate", "patchStrategicMerge"]), "request.object");
        assert_eq!(place(&["mutate", "overlay", "spec", "kind"]), "request.object.spec.kind");
        assert_eq!(
            place(&["mutate", "foreach", "0", "patchStrategicMerge", "spec", "n", "1"]),
            "request.object.spec.n[1]"
        );
        let mut in_policy: Path = ["spec", "rules"].into_iter().collect();
        in_policy.push(0);
        for step in ["mutate", "patchStrategicMerge", "data", "k"] {
            in_policy.push(step);
        }
        assert_eq!(expression("target", &in_policy), "target.data.k");
        assert_eq!(
            place(&["validate", "pattern", "(metadata)", "a.b/c"]),
            r#"request.object."(metadata)"."a.b/c""#
        );
    }
}
