//! The nearest name to one that is unknown.

/// The candidate that the word was most likely meant to be, if one is near enough.
///
/// Case alone never counts as a difference; otherwise about one slip per three characters does.
/// Ties go to the earlier candidate.
pub fn did_you_mean<'c>(
    word: &str,
    candidates: impl IntoIterator<Item = &'c str>,
) -> Option<&'c str> {
    // Names this long are not mistyped, and hostile input must not cost quadratic time.
    const LONGEST: usize = 64;
    let typed: Vec<char> = word.chars().take(LONGEST + 1).flat_map(char::to_lowercase).collect();
    if typed.is_empty() || typed.len() > LONGEST {
        return None;
    }
    let allowed = (typed.len() / 3).max(1);
    candidates
        .into_iter()
        .filter_map(|candidate| {
            let wanted: Vec<char> = candidate.chars().flat_map(char::to_lowercase).collect();
            if wanted.len().abs_diff(typed.len()) > allowed {
                return None;
            }
            let slips = distance(&typed, &wanted);
            (slips <= allowed && slips < wanted.len()).then_some((slips, candidate))
        })
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions, replacements and swaps of neighbours between two words.
fn distance(from: &[char], to: &[char]) -> usize {
    let mut before_last = vec![0; to.len() + 1];
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (i, &a) in from.iter().enumerate() {
        let mut row = vec![i + 1; to.len() + 1];
        for (j, &b) in to.iter().enumerate() {
            let mut best = (last[j] + usize::from(a != b)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a == to[j - 1] && from[i - 1] == b {
                best = best.min(before_last[j - 1] + 1);
            }
            row[j + 1] = best;
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[to.len()]
}

#[cfg(test)]
mod tests {
    use super::did_you_mean;

    #[test]
    fn finds_the_nearest_name() {
        let fields = ["resources", "replicas", "namePrefix", "images", "vars"];
        for (typed, meant) in [
            ("resource", Some("resources")),
            ("Resuorces", Some("resources")),
            ("nameprefix", Some("namePrefix")),
            ("image", Some("images")),
            ("replcias", Some("replicas")),
            ("something", None),
            ("", None),
        ] {
            assert_eq!(did_you_mean(typed, fields), meant, "{typed}");
        }
    }

    #[test]
    fn a_hostile_word_costs_nothing() {
        assert_eq!(did_you_mean(&"a".repeat(10_000_000), ["a"]), None);
    }
}
