//! Whether webhooks are registered, and whether a server answers them.

use kiln_admission::webhooks::CONFIGURATIONS;
use kiln_object::Gvk;
use kiln_value::Value;

use super::address::{Address, Unanswered};
use super::services::{Behind, behind};
use super::{Examination, State, Unread, certificates};
use crate::cluster::competing_engines::CompetingEngine;
use crate::cluster::orphaned_webhooks::{self, OrphanedWebhook};

const ABOUT: &str = "webhooks";

pub(super) fn look(look: &mut Examination<'_>) {
    for (kind, name) in CONFIGURATIONS {
        let gvk = Gvk::new("admissionregistration.k8s.io/v1", kind);
        let Ok(found) = look.object(ABOUT, gvk, name) else { continue };
        let Some(found) = found else {
            let message = format!("{name} is not registered");
            let hint = "start `kiln run` without `--only controller`: it registers it, and rules at admission do not act without it";
            look.doubtful(ABOUT, message, hint);
            continue;
        };
        let webhooks = found.get("webhooks").and_then(Value::as_list).cloned().unwrap_or_default();
        let mut is_well = true;
        for webhook in &webhooks {
            is_well &= one(look, name, webhook);
        }
        if is_well {
            look.good(ABOUT, format!("{name} is registered and answers"));
        }
    }
    for kind in orphaned_webhooks::KINDS {
        let gvk = Gvk::new("admissionregistration.k8s.io/v1", kind);
        let Ok(found) = look.all(ABOUT, &gvk, "") else { continue };
        let namespace = look.settings.namespace.clone();
        for left in found.iter().filter_map(|found| OrphanedWebhook::of(found, &namespace)) {
            of_another(look, &left);
        }
    }
}

/// Looks at a configuration of another engine, which may run.
fn of_another(look: &mut Examination<'_>, left: &OrphanedWebhook) {
    let (at, service) = &left.service;
    let is_its = |(name, engine): &CompetingEngine| {
        *engine == left.engine && name.split('/').next() == Some(at.as_str())
    };
    // Where Deployments cannot be read, it is unknown.
    let is_gone = look.answering.as_ref().is_some_and(|all| !all.iter().any(is_its));
    // Kiln may be behind its own Service, and does not answer at such a path.
    let is_unheard = is_gone && left.path.is_some();
    if !is_unheard {
        match behind(look, ABOUT, (at, service)) {
            Ok(Behind::Somebody) | Err(Unread) => return,
            Ok(Behind::NoService | Behind::Nobody) => {}
        }
    }
    let (which, effect) = (left.describe(), left.effect());
    let (message, hint) = if is_gone {
        let message = format!("{which} is of an engine that is gone, and {effect}");
        (message, format!("`{}`", left.removal()))
    } else {
        let engine = left.engine;
        let message = format!("{which} is of {engine}, which has no ready pod, and {effect}");
        let hint = format!("look at the pods of {engine}, or stop it and `{}`", left.removal());
        (message, hint)
    };
    let state = if left.refuses { State::Bad } else { State::Doubtful };
    look.note(ABOUT, state, message, &hint);
}

/// Whether a webhook is answered.
fn one(look: &mut Examination<'_>, configuration: &str, webhook: &Value) -> bool {
    let name = webhook.str_at(["name"]).unwrap_or_default();
    let which = format!("{name} in {configuration}");
    let stops = if webhook.str_at(["failurePolicy"]) == Some("Ignore") {
        "rules do not act"
    } else {
        "matching requests are denied"
    };
    let config = webhook.get("clientConfig").cloned().unwrap_or_default();
    let bundle = config.str_at(["caBundle"]).unwrap_or_default();
    if let Some(address) = Address::of(&config) {
        let is_trusted = certificates::bundle(look, configuration, bundle, &address.host);
        return is_there(look, &which, &address, stops) && is_trusted;
    }
    let text = |field| config.str_at(["service", field]).unwrap_or_default();
    let (namespace, service) = (text("namespace"), text("name"));
    let called = format!("{service}.{namespace}.svc");
    let is_trusted = certificates::bundle(look, configuration, bundle, &called);
    has_endpoints(look, &which, namespace, service, stops) && is_trusted
}

/// Whether an engine answers at an address.
fn is_there(look: &mut Examination<'_>, which: &str, address: &Address, stops: &str) -> bool {
    let origin = &address.origin;
    let start = "start `kiln run`, or delete the configuration";
    match look.said_at(address) {
        Ok(_) => return true,
        Err(Unanswered::Nobody(why)) => {
            let message = format!("{which} calls {origin}, which does not answer: {stops}: {why}");
            look.bad(ABOUT, message, start);
        }
        Err(Unanswered::Distrusted(why)) => {
            let message = format!(
                "{which} calls {origin}, which shows an untrusted certificate: {stops}: {why}"
            );
            look.bad(ABOUT, message, start);
        }
        Err(Unanswered::Unreachable(why)) => look.doubtful(
            ABOUT,
            format!("{which} calls {origin}, which cannot be reached from here: {why}"),
            "only the API server has to reach it: ask from where it runs",
        ),
    }
    false
}

/// Whether a Service has ready endpoints.
fn has_endpoints(
    look: &mut Examination<'_>,
    which: &str,
    namespace: &str,
    service: &str,
    stops: &str,
) -> bool {
    match behind(look, ABOUT, (namespace, service)) {
        Ok(Behind::Somebody) => return true,
        Ok(Behind::NoService) => {
            let message = format!(
                "{which} calls the Service {namespace}/{service}, which does not exist: {stops}"
            );
            look.bad(ABOUT, message, "start `kiln run`, or delete the configuration");
        }
        Ok(Behind::Nobody) => {
            let message = format!(
                "no pod answers behind the Service {namespace}/{service} that {which} calls: {stops}"
            );
            look.bad(ABOUT, message, "start `kiln run`, or look at why its pods are not ready");
        }
        Err(Unread) => {}
    }
    false
}
