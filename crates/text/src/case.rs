//! Upper and lower case as Go's `strings` package has them: one character becomes one character.

/// The text in upper case.
pub fn to_upper(text: &str) -> String {
    text.chars().map(upper).collect()
}

/// The text in lower case.
pub fn to_lower(text: &str) -> String {
    text.chars().map(lower).collect()
}

/// Whether two texts are equal when case does not matter. Not a question of length: `ß` is not `SS`.
pub fn equal_fold(a: &str, b: &str) -> bool {
    let (mut a, mut b) = (a.chars(), b.chars());
    loop {
        match (a.next(), b.next()) {
            (None, None) => return true,
            (Some(x), Some(y)) if x == y || fold(x) == fold(y) => {}
            _ => return false,
        }
    }
}

fn upper(c: char) -> char {
    single(c.to_uppercase()).unwrap_or(match c {
        // Letters with an iota below have a capital of their own beside the two-letter one.
        '\u{1F80}'..='\u{1F87}' | '\u{1F90}'..='\u{1F97}' | '\u{1FA0}'..='\u{1FA7}' => shift(c, 8),
        '\u{1FB3}' | '\u{1FC3}' | '\u{1FF3}' => shift(c, 9),
        _ => c,
    })
}

fn lower(c: char) -> char {
    // The one letter whose full lower case has two characters.
    single(c.to_lowercase()).unwrap_or(if c == '\u{130}' { 'i' } else { c })
}

/// The representative of all characters that are equal but for their case.
fn fold(c: char) -> char {
    match c {
        // The dotted and the dotless I of Turkish fold to nothing else.
        '\u{130}' | '\u{131}' => c,
        _ => lower(upper(c)),
    }
}

fn single(mut mapped: impl ExactSizeIterator<Item = char>) -> Option<char> {
    if mapped.len() == 1 { mapped.next() } else { None }
}

fn shift(c: char, by: u32) -> char {
    char::from_u32(c as u32 + by).unwrap_or(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_character_becomes_one_character() {
        for (text, upper, lower) in [
            ("straße", "STRAßE", "straße"),
            ("ÀÉİ", "ÀÉİ", "àéi"),
            ("ǆ ǅ Ǆ", "Ǆ Ǆ Ǆ", "ǆ ǆ ǆ"),
            ("ᾳ ᾼ ŉ", "ᾼ ᾼ ŉ", "ᾳ ᾳ ŉ"),
            ("ς Σ", "Σ Σ", "ς σ"),
        ] {
            assert_eq!((to_upper(text).as_str(), to_lower(text).as_str()), (upper, lower));
        }
    }

    #[test]
    fn folding_joins_all_forms_of_a_letter() {
        for (a, b, equal) in [
            ("Go", "gO", true),
            ("É", "é", true),
            ("K", "\u{212A}", true),
            ("ſ", "S", true),
            ("ϴ", "ϑ", true),
            ("ß", "ẞ", true),
            ("ß", "SS", false),
            ("İ", "i", false),
            ("ı", "I", false),
            ("a", "ab", false),
            ("", "", true),
        ] {
            assert_eq!(equal_fold(a, b), equal, "{a} {b}");
            assert_eq!(equal_fold(b, a), equal, "{b} {a}");
        }
    }
}
