//! Which old element of a list became which new one.

use kiln_value::Value;

/// What became of a list: for each new element the old one it was, in order.
///
/// Equal elements stay. Between them, elements with the same name belong together, and if as many are
/// left as there are new ones, they belong together one by one.
pub(super) fn pair(old: &[Value], new: &[Value]) -> Vec<Option<usize>> {
    let mut paired = vec![None; new.len()];
    let start = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let end = old[start..]
        .iter()
        .rev()
        .zip(new[start..].iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    for (at, was) in paired.iter_mut().enumerate().take(start) {
        *was = Some(at);
    }
    for at in 0..end {
        paired[new.len() - 1 - at] = Some(old.len() - 1 - at);
    }
    let (old_end, new_end) = (old.len() - end, new.len() - end);
    let mut gap_old = start;
    let mut gap_new = start;
    for (at_old, at_new) in common(&old[start..old_end], &new[start..new_end]) {
        let (at_old, at_new) = (start + at_old, start + at_new);
        fill(old, gap_old..at_old, new, gap_new..at_new, &mut paired);
        paired[at_new] = Some(at_old);
        (gap_old, gap_new) = (at_old + 1, at_new + 1);
    }
    fill(old, gap_old..old_end, new, gap_new..new_end, &mut paired);
    paired
}

/// Longer lists are not compared element by element.
const MOST_COMPARED: usize = 1 << 18;

/// A longest common subsequence, as positions in both.
fn common(old: &[Value], new: &[Value]) -> Vec<(usize, usize)> {
    if old.is_empty() || new.is_empty() || old.len() * new.len() > MOST_COMPARED {
        return Vec::new();
    }
    let width = new.len() + 1;
    let mut longest = vec![0_u32; (old.len() + 1) * width];
    for (i, a) in old.iter().enumerate().rev() {
        for (j, b) in new.iter().enumerate().rev() {
            longest[i * width + j] = if a == b {
                longest[(i + 1) * width + j + 1] + 1
            } else {
                longest[(i + 1) * width + j].max(longest[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut pairs = Vec::new();
    while i < old.len() && j < new.len() {
        if old[i] == new[j] {
            pairs.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if longest[(i + 1) * width + j] >= longest[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs
}

fn fill(
    old: &[Value],
    from: std::ops::Range<usize>,
    new: &[Value],
    to: std::ops::Range<usize>,
    paired: &mut [Option<usize>],
) {
    if from.len() == to.len() {
        for (a, b) in from.zip(to) {
            paired[b] = Some(a);
        }
        return;
    }
    let mut next = from.start;
    for at in to {
        let same = (next..from.end).find(|&candidate| {
            ["name", "path"].iter().any(|key| {
                let name = new[at].get(key);
                name.is_some() && old[candidate].get(key) == name
            })
        });
        if let Some(found) = same {
            paired[at] = Some(found);
            next = found + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    #[test]
    fn elements_find_what_they_were() {
        let cases = [
            (value!(["a", "b"]), value!(["a", "b", "c"]), vec![Some(0), Some(1), None]),
            (value!(["a", "b", "c"]), value!(["a", "c"]), vec![Some(0), Some(2)]),
            (value!(["a", "b", "c"]), value!(["a", "x", "c"]), vec![Some(0), Some(1), Some(2)]),
            (value!(["a", "b"]), value!(["b", "a"]), vec![Some(1), None]),
            (
                value!([{"name": "x", "t": 1}, {"name": "y"}]),
                value!([{"name": "w"}, {"name": "x", "t": 2}, {"name": "y"}]),
                vec![None, Some(0), Some(1)],
            ),
        ];
        for (old, new, wanted) in cases {
            let (old, new) = (old.as_list().unwrap(), new.as_list().unwrap());
            assert_eq!(pair(old, new), wanted, "{old:?} {new:?}");
        }
    }
}
