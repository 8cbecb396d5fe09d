//! go-yaml's natural order of map keys: `k9` before `k10`, letters after everything else.

use std::cmp::Ordering;

use unicode_general_category::{GeneralCategory, get_general_category};

/// Compares two keys as go-yaml v2 does.
///
/// This is not a total order (`1` < `01` < `0a` < `1`), so only [`sort`] may use it.
fn compare(a: &str, b: &str) -> Ordering {
    let common = a.bytes().zip(b.bytes()).take_while(|(x, y)| x == y).count();
    match (a.as_bytes().get(common), b.as_bytes().get(common)) {
        (None, None) => return Ordering::Equal,
        (None, Some(_)) => return Ordering::Less,
        (Some(_), None) => return Ordering::Greater,
        (Some(x), Some(y)) if x.is_ascii_alphabetic() && y.is_ascii_alphabetic() => {
            return x.cmp(y);
        }
        _ => {}
    }
    // The first difference may lie inside a character.
    let start = a.floor_char_boundary(common).min(b.floor_char_boundary(common));
    compare_from(&a[..start], &a[start..], &b[start..])
}

/// Compares what follows a common beginning, where the first characters differ.
fn compare_from(common: &str, a: &str, b: &str) -> Ordering {
    let (Some(x), Some(y)) = (a.chars().next(), b.chars().next()) else {
        return a.len().cmp(&b.len());
    };
    match (is_letter(x), is_letter(y)) {
        (true, true) => return x.cmp(&y),
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    // A zero that continues a number counts as a digit of it, not as a leading zero.
    let continues_number = (x == '0' || y == '0')
        && common.chars().rev().take_while(|c| is_digit(*c)).any(|c| c != '0');
    let (number_a, digits_a) = leading_number(a, continues_number);
    let (number_b, digits_b) = leading_number(b, continues_number);
    number_a.cmp(&number_b).then(digits_a.cmp(&digits_b)).then(x.cmp(&y))
}

/// The number at the start and how many digits it has; Go lets it overflow.
fn leading_number(text: &str, continues: bool) -> (i64, usize) {
    let digits = text.chars().take_while(|c| is_digit(*c));
    digits.fold((i64::from(continues), 0), |(number, count), digit| {
        let value = i64::from(digit as u32) - i64::from('0' as u32);
        (number.wrapping_mul(10).wrapping_add(value), count + 1)
    })
}

fn is_letter(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_alphabetic();
    }
    use GeneralCategory as G;
    matches!(
        get_general_category(c),
        G::UppercaseLetter
            | G::LowercaseLetter
            | G::TitlecaseLetter
            | G::ModifierLetter
            | G::OtherLetter
    )
}

fn is_digit(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_digit();
    }
    get_general_category(c) == GeneralCategory::DecimalNumber
}

/// Whether the keys are in order as they are.
pub(crate) fn is_sorted<'k>(keys: impl Iterator<Item = &'k str>) -> bool {
    keys.is_sorted_by(|a, b| compare(a, b) != Ordering::Greater)
}

/// Sorts positions by the keys they stand for: a merge sort, because the standard library's may
/// panic over an order that is not total.
pub(crate) fn sort<'k>(positions: &mut [u32], key: impl Fn(u32) -> &'k str + Copy) {
    const FEW: usize = 8;
    if positions.len() <= FEW {
        for end in 1..positions.len() {
            let mut at = end;
            while at > 0 && compare(key(positions[at]), key(positions[at - 1])) == Ordering::Less {
                positions.swap(at, at - 1);
                at -= 1;
            }
        }
        return;
    }
    let (left, right) = positions.split_at_mut(positions.len() / 2);
    sort(left, key);
    sort(right, key);
    let left = left.to_vec();
    let (mut from_left, mut from_right) = (0, left.len());
    for at in 0..positions.len() {
        let take_right = from_left == left.len()
            || from_right < positions.len()
                && compare(key(positions[from_right]), key(left[from_left])) == Ordering::Less;
        if take_right {
            positions[at] = positions[from_right];
            from_right += 1;
        } else {
            positions[at] = left[from_left];
            from_left += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(keys: &[&'static str]) -> Vec<&'static str> {
        let mut positions: Vec<u32> = (0..keys.len() as u32).collect();
        sort(&mut positions, |at| keys[at as usize]);
        positions.into_iter().map(|at| keys[at as usize]).collect()
    }

    #[test]
    fn orders_keys_naturally() {
        let wanted = [
            "", "-", "_x", "~", "1", "2", "10", "B", "Z", "a", "a b", "a-b", "a.b", "a/b", "a2",
            "a02", "a10", "aB", "ab", "k9", "k10", "é",
        ];
        let mut shuffled = wanted;
        shuffled.reverse();
        shuffled.swap(3, 11);
        assert_eq!(sorted(&shuffled), wanted);
    }

    #[test]
    fn a_circle_of_keys_is_no_trap() {
        let circle = ["1", "01", "0a"].repeat(50);
        assert_eq!(sorted(&circle).len(), circle.len());
    }
}
