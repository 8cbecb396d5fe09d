//! Which expectations to look at.

use std::fmt;

use kiln_diagnostic::did_you_mean;
use kiln_text::wildcard;

/// Which expectations to look at: by policy, rule and resource, with wildcards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    policy: Option<String>,
    rule: Option<String>,
    resource: Option<String>,
}

/// A text that selects nothing sensible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSelector {
    part: String,
    meant: Option<&'static str>,
}

impl fmt::Display for BadSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} selects nothing", self.part)?;
        match self.meant {
            Some(meant) => write!(f, ": did you mean {meant}=NAME?"),
            None => f.write_str(": write policy=NAME, rule=NAME or resource=NAME"),
        }
    }
}

impl std::error::Error for BadSelector {}

impl Selector {
    /// Reads `policy=P,rule=R,resource=N`, in any order; what is not named may be anything.
    ///
    /// # Errors
    /// When a part is none of these.
    pub fn parse(text: &str) -> Result<Self, BadSelector> {
        let mut selector = Selector::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, pattern) = part.split_once('=').unwrap_or((part, ""));
            let bad = |meant| BadSelector { part: part.to_owned(), meant };
            let field = match name.trim() {
                _ if pattern.trim().is_empty() => return Err(bad(None)),
                "policy" => &mut selector.policy,
                "rule" => &mut selector.rule,
                "resource" => &mut selector.resource,
                other => return Err(bad(did_you_mean(other, ["policy", "rule", "resource"]))),
            };
            *field = Some(pattern.trim().to_owned());
        }
        Ok(selector)
    }

    /// Whether everything is selected.
    pub(crate) fn is_everything(&self) -> bool {
        *self == Selector::default()
    }

    pub(crate) fn takes(&self, policy: &str, rule: &str) -> bool {
        takes(self.policy.as_deref(), policy) && takes(self.rule.as_deref(), rule)
    }

    pub(crate) fn takes_resource(&self, name: &str) -> bool {
        takes(self.resource.as_deref(), name)
    }
}

fn takes(pattern: Option<&str>, text: &str) -> bool {
    let own_name = text.rsplit('/').next().unwrap_or(text);
    pattern.is_none_or(|pattern| {
        wildcard::matches(pattern, text) || wildcard::matches(pattern, own_name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_patterns() {
        let selector = Selector::parse("policy=add-*, resource=web").unwrap();
        assert!(selector.takes("team/add-label", "any") && !selector.takes("drop", "any"));
        assert!(selector.takes_resource("shop/web") && !selector.takes_resource("shop/db"));
        assert!(Selector::parse("").unwrap().is_everything());
    }

    #[test]
    fn slips_are_named() {
        let said = |text| Selector::parse(text).unwrap_err().to_string();
        assert_eq!(said("polcy=a"), "\"polcy=a\" selects nothing: did you mean policy=NAME?");
        assert!(said("web").contains("write policy=NAME"));
        assert!(said("rule=").contains("write policy=NAME"));
    }
}
