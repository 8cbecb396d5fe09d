//! Whether webhooks are registered, and whether a server answers them.

use kiln_object::Gvk;
use kiln_value::Value;

use super::address::{Address, Unanswered};
use super::services::{Endpoints, endpoints};
use super::{Checks, FindingState, Unread, certificates};
use crate::cluster::competing_engines::CompetingEngine;
use crate::cluster::orphaned_webhooks::{self, OrphanedWebhook};

const ABOUT: &str = "webhooks";

pub(super) fn check(checks: &mut Checks<'_>) {
    let names = checks.settings.names.clone();
    for (kind, name) in names.webhook_configurations() {
        let name = name.as_str();
        let gvk = Gvk::new("admissionregistration.k8s.io/v1", kind);
        let Ok(found) = checks.object(ABOUT, gvk, name) else { continue };
        let Some(found) = found else {
            let message = format!("{name} is not registered");
            let hint = "start `kiln run` without `--only controller`: it registers it, and rules at admission do not act without it";
            checks.doubtful(ABOUT, message, hint);
            continue;
        };
        let webhooks = found.get("webhooks").and_then(Value::as_list).cloned().unwrap_or_default();
        let mut is_well = true;
        for webhook in &webhooks {
            is_well &= one(checks, name, webhook);
        }
        if is_well {
            checks.good(ABOUT, format!("{name} is registered and answers"));
        }
    }
    for kind in orphaned_webhooks::KINDS {
        let gvk = Gvk::new("admissionregistration.k8s.io/v1", kind);
        let Ok(found) = checks.all(ABOUT, &gvk, "") else { continue };
        let namespace = checks.settings.namespace.clone();
        for left in found.iter().filter_map(|found| OrphanedWebhook::of(found, &namespace, &names))
        {
            of_another(checks, &left);
        }
    }
}

/// Looks at a configuration of another engine, which may run.
fn of_another(checks: &mut Checks<'_>, left: &OrphanedWebhook) {
    let (at, service) = &left.service;
    let is_its = |(name, engine): &CompetingEngine| {
        *engine == left.engine && name.split('/').next() == Some(at.as_str())
    };
    // Where Deployments cannot be read, it is unknown.
    let is_gone = checks.answering.as_ref().is_some_and(|all| !all.iter().any(is_its));
    // Kiln may be behind its own Service, and does not answer at such a path.
    let is_unheard = is_gone && left.path.is_some();
    if !is_unheard {
        match endpoints(checks, ABOUT, (at, service)) {
            Ok(Endpoints::Ready) | Err(Unread) => return,
            Ok(Endpoints::NoService | Endpoints::NotReady) => {}
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
    let state = if left.refuses { FindingState::Bad } else { FindingState::Doubtful };
    checks.note(ABOUT, state, message, &hint);
}

/// Whether a webhook is answered.
fn one(checks: &mut Checks<'_>, configuration: &str, webhook: &Value) -> bool {
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
        let is_trusted = certificates::bundle(checks, configuration, bundle, &address.host);
        return is_there(checks, &which, &address, stops) && is_trusted;
    }
    let text = |field| config.str_at(["service", field]).unwrap_or_default();
    let (namespace, service) = (text("namespace"), text("name"));
    let called = format!("{service}.{namespace}.svc");
    let is_trusted = certificates::bundle(checks, configuration, bundle, &called);
    has_endpoints(checks, &which, namespace, service, stops) && is_trusted
}

/// Whether an engine answers at an address.
fn is_there(checks: &mut Checks<'_>, which: &str, address: &Address, stops: &str) -> bool {
    let origin = &address.origin;
    let start = "start `kiln run`, or delete the configuration";
    match checks.said_at(address) {
        Ok(_) => return true,
        Err(Unanswered::NoAnswer(why)) => {
            let message = format!("{which} calls {origin}, which does not answer: {stops}: {why}");
            checks.bad(ABOUT, message, start);
        }
        Err(Unanswered::Distrusted(why)) => {
            let message = format!(
                "{which} calls {origin}, which shows an untrusted certificate: {stops}: {why}"
            );
            checks.bad(ABOUT, message, start);
        }
        Err(Unanswered::Unreachable(why)) => checks.doubtful(
            ABOUT,
            format!("{which} calls {origin}, which cannot be reached from here: {why}"),
            "only the API server has to reach it: ask from where it runs",
        ),
    }
    false
}

/// Whether a Service has ready endpoints.
fn has_endpoints(
    checks: &mut Checks<'_>,
    which: &str,
    namespace: &str,
    service: &str,
    stops: &str,
) -> bool {
    match endpoints(checks, ABOUT, (namespace, service)) {
        Ok(Endpoints::Ready) => return true,
        Ok(Endpoints::NoService) => {
            let message = format!(
                "{which} calls the Service {namespace}/{service}, which does not exist: {stops}"
            );
            checks.bad(ABOUT, message, "start `kiln run`, or delete the configuration");
        }
        Ok(Endpoints::NotReady) => {
            let message = format!(
                "no pod answers behind the Service {namespace}/{service} that {which} calls: {stops}"
            );
            checks.bad(ABOUT, message, "start `kiln run`, or look at why its pods are not ready");
        }
        Err(Unread) => {}
    }
    false
}
