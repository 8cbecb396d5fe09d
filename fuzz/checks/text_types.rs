//! Every text type reads the same input; what is read must print and compare without harm.
//! Regular expressions and layouts take the first line, the text to match the rest.

use kiln_object::Selector;
use kiln_text::image::{Image, Reference};
use kiln_text::{Duration, Quantity, Regex, Time, float, names, quote, semver, wildcard};

pub(crate) fn check(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Ok(quantity) = Quantity::parse(text) {
        let printed = quantity.to_string();
        assert!(printed.len() < 1000 + text.len());
        let _ = (quantity.value(), quantity.as_i64(), quantity.as_approximate_f64());
        let _ = quantity.checked_mul(&quantity).map(|product| product.to_string());
        let _ = quantity.checked_div(&quantity);
    }
    if let Ok(duration) = Duration::parse(text) {
        assert_eq!(Duration::parse(&duration.to_string()), Ok(duration));
    }
    if let Ok(selector) = Selector::parse(text) {
        assert_eq!(Selector::parse(&selector.to_string()), Ok(selector));
    }
    assert_eq!(quote::unquote(&quote::quote(text)).as_deref(), Ok(text));
    let _ = (quote::unquote(text), float::parse(text).map(float::print));
    let _ = (semver::Version::parse(text), semver::Range::parse(text));
    let _ = (Image::parse(text), Reference::parse(text), names::qualified_name(text));

    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let _ = wildcard::matches(first, rest);
    if let Ok(time) = Time::parse(first, rest) {
        let _ = time.format(first);
    }
    if let Ok(regex) = Regex::new(first) {
        assert_eq!(regex.is_match(rest), regex.captures(rest).is_some());
        let _ = (regex.replace_all(rest, first), regex.split(rest, None));
    }
}
