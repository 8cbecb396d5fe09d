//! What an evaluation is given besides the rule and the event.

use std::fmt;

use kiln_jmespath::{AmbientSources, NoAmbientSources};
use kiln_object::Kinds;
use kiln_value::Str;

use crate::input::external_data::{ExternalData, NoExternalData};
use crate::input::limits::EvaluationLimits;
use crate::input::view::View;

/// What an evaluation is given besides the rule and the event. Nothing else influences it.
#[derive(Clone, Copy)]
pub struct EvalEnv<'w> {
    /// The objects.
    pub view: &'w dyn View,
    /// The kinds that are known: their scopes and plurals.
    pub kinds: &'w Kinds,
    /// The time, chance, and addresses of names.
    pub sources: &'w dyn AmbientSources,
    /// Services and registries.
    pub external_data: &'w dyn ExternalData,
    /// What the evaluation of one rule may cost.
    pub limits: EvaluationLimits,
    /// Wildcards for namespaces that objects cannot choose: rules read and write there where their authors say so.
    pub protected_namespaces: &'w [Str],
    /// The namespace that the engine lives in, whose keys no rule is shown; empty if it lives in none.
    pub home: &'w str,
}

impl<'w> EvalEnv<'w> {
    /// An environment of objects alone: no clock, no randomness, no external data.
    pub fn of(view: &'w dyn View, kinds: &'w Kinds) -> Self {
        EvalEnv {
            view,
            kinds,
            sources: &NoAmbientSources,
            external_data: &NoExternalData,
            limits: EvaluationLimits::default(),
            protected_namespaces: &[],
            home: "",
        }
    }
}

impl fmt::Debug for EvalEnv<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EvalEnv").field("limits", &self.limits).finish_non_exhaustive()
    }
}
