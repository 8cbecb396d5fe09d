//! What a process gives its controller: settings, and when enough is known to act.

use std::time::Duration;

use kiln_controller::Settings;
use kiln_engine::{Globals, ResourceFilter};
use kiln_object::EngineNames;

use crate::globals::are_read;
use crate::policy_store::Registry;

/// The settings of a controller that lives in a namespace, and is this user, as the API server says.
pub fn settings(namespace: &str, names: &EngineNames, who: Option<String>) -> Settings {
    // Of an account that people use as well, requests say nothing about who made them.
    let user = who.filter(|user| user.starts_with("system:serviceaccount:"));
    let usual = || names.user(namespace, "background-controller");
    let mut settings = Settings {
        namespace: namespace.into(),
        user: user.unwrap_or_else(usual).into(),
        resync: 3_600_000,
        ..Settings::default()
    };
    settings.retry.made_again_after = 700;
    settings.rules.filters = ResourceFilter::usual(namespace);
    settings.requests.kind = names.update_request();
    settings
}

/// How long entries of the global context are waited for that say nothing, and webhooks that cannot be registered.
const SILENCE: Duration = Duration::from_secs(10);

/// Whether enough is known to decide something: exceptions and settings without fail, because what was done against
/// them cannot be undone; the global context as far as it can be had, because rules that need it wait for it anyway; and
/// the webhooks of this process, because without them a trial write lacks what mutating rules add, and an object that has
/// it already would be written again without.
pub fn is_informed(
    stored: &Registry,
    globals: &Globals,
    registered: bool,
    waited: Duration,
) -> bool {
    let known = registered && are_read(stored, globals);
    stored.complete && (known || waited > SILENCE)
}

/// How long a change waits for what requests say of it, where some people are kept out.
const PATIENCE: u64 = 300;

/// What users decide that concerns the controller.
pub fn configure(settings: &mut Settings, config: &kiln_admission::Settings) {
    settings.rules.filters = config.filters.clone();
    settings.rules.limits = config.limits;
    settings.rules.authors = config.authors;
    settings.rules.protected_namespaces.clone_from(&config.protected_namespaces);
    settings.requests.patience = if config.excluded.is_empty() { 0 } else { PATIENCE };
}

#[cfg(test)]
mod tests {
    use kiln_engine::CachedGlobal;
    use kiln_value::value;

    use super::*;

    #[test]
    fn nothing_is_decided_before_exceptions_settings_globals_and_webhooks_are_known() {
        let (now, later) = (Duration::ZERO, SILENCE * 2);
        let mut stored = Registry::default();
        let mut held = Globals::default();
        assert!(!is_informed(&stored, &held, true, later), "exceptions are unknown");
        stored.complete = true;
        assert!(is_informed(&stored, &held, true, now));
        assert!(!is_informed(&stored, &held, false, now), "API servers do not know where to ask");
        assert!(is_informed(&stored, &held, false, later), "webhooks may be out of its reach");
        stored.globals = vec![value!({"metadata": {"name": "regions"}})];
        assert!(!is_informed(&stored, &held, true, now), "the entry was not read");
        held.insert("regions".into(), Err("not loaded yet".to_owned()));
        assert!(!is_informed(&stored, &held, true, now));
        assert!(
            is_informed(&stored, &held, true, later),
            "one that says nothing does not block for ever"
        );
        held.insert("regions".into(), Err("forbidden".to_owned()));
        assert!(is_informed(&stored, &held, true, now), "it is known why it cannot be had");
        held.insert("regions".into(), Ok(CachedGlobal::default()));
        assert!(is_informed(&stored, &held, true, now));
    }
}
