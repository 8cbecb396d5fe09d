//! `#0`, `#1` … in the path of a patch: the keys that a selection captured.

use kiln_value::Str;

/// The path asks for a key that the selection did not capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoSuchKey {
    /// The number that was asked for.
    pub number: String,
    /// How many keys there are.
    pub captured: usize,
}

impl std::fmt::Display for NoSuchKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "#{} is asked for, and the selection captures {} keys",
            self.number, self.captured
        )
    }
}

impl std::error::Error for NoSuchKey {}

/// Puts captured keys into the places that ask for them. A `#` without a number stays.
///
/// Keys are escaped as JSON Pointer wants it, so that a key with a slash stays one key.
///
/// # Errors
/// When a number is too high.
pub fn fill_placeholders(path: &str, keys: &[Str]) -> Result<String, NoSuchKey> {
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(hash) = rest.find('#') {
        out.push_str(&rest[..hash]);
        let digits = &rest[hash + 1..];
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        rest = &digits[end..];
        let number = &digits[..end];
        if number.is_empty() {
            out.push('#');
            continue;
        }
        let key = number.parse::<usize>().ok().and_then(|number| keys.get(number));
        let key =
            key.ok_or_else(|| NoSuchKey { number: number.to_owned(), captured: keys.len() })?;
        out.push_str(&key.replace('~', "~0").replace('/', "~1"));
    }
    out.push_str(rest);
    Ok(out)
}
