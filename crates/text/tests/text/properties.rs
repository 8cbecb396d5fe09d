//! Laws that the text types obey for any input.

use kiln_text::quantity::QuantityFormat;
use kiln_text::time::{Zone, named};
use kiln_text::{Duration, Quantity, Regex, Time, float, quote, regex, semver, wildcard};
use proptest::prelude::*;

fn format() -> impl Strategy<Value = QuantityFormat> {
    prop_oneof![
        Just(QuantityFormat::BinarySI),
        Just(QuantityFormat::DecimalSI),
        Just(QuantityFormat::DecimalExponent)
    ]
}

/// Amounts that print and read back in every format: whole nanos in the range of `i64`.
fn quantity() -> impl Strategy<Value = Quantity> {
    (-i64::MAX..=i64::MAX, -9_i32..=0, format()).prop_map(|(digits, exponent, format)| {
        Quantity::from_parts(digits.into(), exponent, format)
    })
}

fn time() -> impl Strategy<Value = Time> {
    let offset = prop_oneof![Just(0), (-23_i32 * 60..=23 * 60).prop_map(|minutes| minutes * 60)];
    // Years 1 to 9998, so that no zone leads out of the four digits.
    (-62_135_000_000_i64..253_300_000_000, 0_u32..1_000_000_000, offset).prop_map(
        |(seconds, nanos, offset)| {
            let time = Time::from_unix(seconds, nanos).expect("within range");
            if offset == 0 { time } else { time.in_zone(Zone::fixed("", offset)) }
        },
    )
}

/// Matching by definition, in exponential time.
fn matches_by_definition(pattern: &[char], text: &[char]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, rest) => rest.is_none(),
        (Some(('*', after)), None) => matches_by_definition(after, text),
        (Some(('*', after)), Some((_, rest))) => {
            matches_by_definition(after, text) || matches_by_definition(pattern, rest)
        }
        (Some((one, after)), Some((c, rest))) if *one == '?' || one == c => {
            matches_by_definition(after, rest)
        }
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn quantities_survive_printing(quantity in quantity()) {
        let printed = quantity.to_string();
        let read = Quantity::parse(&printed).unwrap();
        prop_assert_eq!(&read, &quantity, "{}", printed);
        // Binary amounts without a suffix are read as decimal ones, which print otherwise.
        if read.format() == quantity.format() {
            prop_assert_eq!(read.to_string(), printed);
        }
    }

    #[test]
    fn quantities_add_as_numbers_do(a in quantity(), b in quantity(), c in quantity()) {
        let sum = a.checked_add(&b).unwrap();
        prop_assert_eq!(&sum, &b.checked_add(&a).unwrap());
        prop_assert_eq!(&sum.checked_sub(&b).unwrap(), &a);
        let left = sum.checked_add(&c).unwrap();
        prop_assert_eq!(left, a.checked_add(&b.checked_add(&c).unwrap()).unwrap());
        prop_assert_eq!(a.cmp(&b), a.checked_sub(&b).unwrap().sign().cmp(&0));
        prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
        if !a.is_zero() {
            prop_assert_eq!(sum.format(), a.format());
        }
    }

    #[test]
    fn quotients_are_within_one_unit(a in quantity(), b in quantity()) {
        if let Some(Ok(quotient)) = a.checked_div(&b)
            && let Ok(product) = quotient.checked_mul(&b)
        {
            let magnitude = |q: &Quantity| if q.sign() < 0 { q.checked_neg().unwrap() } else { q.clone() };
            prop_assert!(magnitude(&product) <= magnitude(&a));
        }
    }

    #[test]
    fn anything_is_a_quantity_or_refused(text in "[+-]?[0-9.]{0,60}[eEinumkKMGTP]{0,2}[-+]?[0-9]{0,12}") {
        if let Ok(quantity) = Quantity::parse(&text) {
            prop_assert!(quantity.to_string().len() < 1000);
            let _ = (quantity.value(), quantity.as_i64(), quantity.as_approximate_f64());
            let _ = quantity.checked_mul(&quantity).map(|q| q.to_string());
            let _ = quantity.checked_add(&Quantity::new(1, QuantityFormat::BinarySI)).map(|q| q.to_string());
            let _ = quantity.checked_div(&quantity);
        }
    }

    #[test]
    fn durations_survive_printing(nanos: i64) {
        let duration = Duration::from_nanos(nanos);
        prop_assert_eq!(Duration::parse(&duration.to_string()), Ok(duration));
    }

    #[test]
    fn durations_add_or_overflow(a: i64, b: i64) {
        let sum = Duration::from_nanos(a).checked_add(Duration::from_nanos(b));
        prop_assert_eq!(sum.map(Duration::as_nanos), a.checked_add(b));
        let unit = Duration::from_nanos(b);
        let truncated = Duration::from_nanos(a).truncate(unit);
        if b > 0 {
            prop_assert_eq!(truncated.as_nanos() % b, 0);
        }
    }

    #[test]
    fn wildcards_match_by_definition(pattern in "[ab*?é]{0,8}", text in "[abé]{0,8}") {
        let (p, t): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
        prop_assert_eq!(wildcard::matches(&pattern, &text), matches_by_definition(&p, &t));
    }

    #[test]
    fn times_survive_printing(time in time()) {
        let printed = time.rfc3339_nano();
        let read = Time::parse_rfc3339(&printed).unwrap();
        prop_assert_eq!(&read, &time);
        prop_assert_eq!(read.rfc3339_nano(), printed);
        for layout in [
            named::RFC3339_NANO,
            "Monday, January 2 2006 03:04:05.000000000 PM -07:00:00",
            "2006 __2 15:4:5,999999999 Z0700",
            "002/2006 pm 3:04:05.999999999 -070000",
        ] {
            let text = time.format(layout);
            let read = Time::parse(layout, &text);
            prop_assert_eq!(read.as_ref(), Ok(&time), "{} as {}", text, layout);
        }
    }

    #[test]
    fn times_add_as_numbers_do(time in time(), nanos: i64) {
        let duration = Duration::from_nanos(nanos);
        let later = time.checked_add(duration).unwrap();
        prop_assert_eq!(later.since(&time), duration);
        let truncated = time.truncate(duration);
        prop_assert!(truncated <= time);
    }

    #[test]
    fn any_layout_prints_and_reads_without_harm(layout in ".{0,30}", text in ".{0,30}", time in time()) {
        let _ = time.format(&layout);
        let _ = Time::parse(&layout, &text);
    }

    #[test]
    fn quoted_texts_survive(text in any::<String>()) {
        let quoted = quote::unquote(&quote::quote(&text));
        prop_assert_eq!(quoted.as_deref(), Ok(text.as_str()));
        let ascii = quote::quote_to_ascii(&text);
        prop_assert!(ascii.is_ascii());
        prop_assert_eq!(quote::unquote(&ascii), Ok(text));
    }

    #[test]
    fn floats_survive_printing(value in any::<f64>()) {
        for style in [float::Style::Exponent, float::Style::Fixed, float::Style::General] {
            let read = float::parse(&float::format(value, style, None));
            prop_assert_eq!(read, Some(value));
        }
    }

    #[test]
    fn versions_survive_printing(text in "[0-9]{1,2}\\.[0-9]{1,2}\\.[0-9]{1,2}(-[a-z0-9.]{1,6})?") {
        if let Ok(version) = semver::Version::parse(&text) {
            prop_assert_eq!(version.to_string(), text);
            let range = semver::Range::parse(&format!("={version}"));
            // A pre-release with an `x` is taken for a wildcard.
            if !version.to_string().contains('x') {
                prop_assert!(range.unwrap().contains(&version));
            }
        }
    }

    #[test]
    fn any_expression_compiles_or_is_refused(pattern in "[a-c\\\\()\\[\\]{}*+?|^$.:<>PQEdwspL0-9,ims&~#é-]{0,24}", text in "[a-cé0-9 ]{0,12}") {
        if let Ok(regex) = Regex::new(&pattern) {
            let found = regex.find_all(&text, None);
            prop_assert_eq!(regex.is_match(&text), !found.is_empty());
            prop_assert_eq!(regex.replace_all(&text, "$0").unwrap(), text.clone());
            prop_assert_eq!(regex.captures_iter(&text).count(), found.len());
            let _ = regex.split(&text, Some(3));
        }
    }

    #[test]
    fn escaped_texts_match_themselves(text in any::<String>()) {
        let regex = Regex::new(&format!("^(?:{})$", regex::escape(&text))).unwrap();
        prop_assert!(regex.is_match(&text));
    }
}
