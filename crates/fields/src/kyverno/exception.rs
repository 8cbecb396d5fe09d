//! PolicyException of `kyverno.io`.

use super::{CONDITIONS, MATCH};
use crate::shared::{OBJECT_METADATA, STATUS, api_version, kind};
use crate::validating::POD_SECURITY_EXCLUSION;
use crate::{FieldTable, boolean, string, strings, table, tables};

/// A PolicyException of `kyverno.io`.
pub static EXCEPTION: FieldTable = FieldTable::new(
    "PolicyException (kyverno.io)",
    "Rules of ClusterPolicies and Policies do not apply to what the exception matches. Where exceptions count: the key `kiln.exceptionNamespaces`.",
    &[
        api_version("kyverno.io/v2"),
        kind("PolicyException"),
        OBJECT_METADATA,
        table("spec", &EXCEPTION_SPEC, "The exception.").required(),
        STATUS.only_kiln(),
    ],
);

/// `spec` of a PolicyException.
pub static EXCEPTION_SPEC: FieldTable = FieldTable::new(
    "Exception spec",
    "Which rules, and for which objects.",
    &[
        boolean("background", "Whether the exception also holds without an admission request. `false` lets it match users.")
            .default("true")
            .example("false"),
        table("conditions", &CONDITIONS, "What must hold beside `match`."),
        tables("exceptions", &EXCEPTED_RULES, "Rules that do not apply.").required(),
        table("match", &MATCH, "Objects and requests, with `any` or `all`.").required(),
        tables(
            "podSecurity",
            &POD_SECURITY_EXCLUSION,
            "Controls that `podSecurity` rules do not check; other rules do not apply at all.",
        )
        .example("[{controlName: Capabilities, images: ['*']}]"),
    ],
);

/// An element of `spec.exceptions`.
pub static EXCEPTED_RULES: FieldTable = FieldTable::new(
    "Excepted rules",
    "An entry of `exceptions`.",
    &[
        string("policyName", "Name of the policy; of a Policy, `namespace/name`. Wildcards.")
            .required()
            .example("shop/defaults"),
        strings("ruleNames", "Names of its rules. Wildcards.").required().example("['*']"),
    ],
);
