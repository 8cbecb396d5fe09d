//! The answer to an object with the TTL label that is to be stored.

use kiln_admission::Response;
use kiln_cleanup::{TTL_LABEL, Ttl};
use kiln_object::metadata;
use kiln_value::Value;

/// The answer about an object with the TTL label: one that cannot be read is warned of, in Kyverno's words.
pub fn ttl_response(object: Option<&Value>) -> Response {
    let value = object.and_then(|object| metadata::label(object, TTL_LABEL));
    let wrong = value.and_then(|value| Ttl::parse(value).err());
    let warning = wrong.map(|why| {
        format!("{TTL_LABEL} label value cannot be parsed as any recognizable format ({why})")
    });
    let warnings = warning.into_iter().collect();
    Response { warnings, ..Response::allowed() }
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    #[test]
    fn a_ttl_that_cannot_be_read_is_warned_of_and_never_denied() {
        let answer = |ttl: &str| {
            let object = value!({"metadata": {"labels": {TTL_LABEL: ttl}}});
            let response = ttl_response(Some(&object));
            assert!(response.is_allowed(), "{ttl}");
            response.warnings
        };
        for good in ["30s", "2weeks", "2030-01-02", "2030-01-02T150405Z"] {
            assert_eq!(answer(good), Vec::<String>::new(), "{good}");
        }
        let [warning] = &answer("soon")[..] else { panic!("one warning") };
        let begin = "cleanup.kyverno.io/ttl label value cannot be parsed as any recognizable format (\"soon\" is neither";
        assert!(warning.starts_with(begin), "{warning}");
        assert_eq!(ttl_response(None).warnings, Vec::<String>::new());
    }
}
