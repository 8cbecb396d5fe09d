//! Kinds that are probably misspelt, or unknown.
//!
//! A kind that is not known may belong to a definition that was not given, so nothing is refused; but one
//! that is a slip away from a known kind is worth a warning. Where everything that there is was given, so is one that
//! is like none.

use std::sync::Arc;

use kiln_diagnostic::{Diagnostic, did_you_mean};
use kiln_object::policy_kinds::{OWN_GROUP, OWN_VERSION, POLICY_KINDS};
use kiln_object::{Gvk, Kinds};
use kiln_rules::{Policy, Program, Rule};
use kiln_value::{Path, Str};
use kiln_yaml::Document;

/// An error about a document of a group of policies that has no such kind: the kind is misspelt, or of another group. It
/// would not be seen as a policy at all, and nothing would say so.
pub fn misplaced_kind(document: &Document) -> Option<Diagnostic> {
    const MOD_RULES: (&str, &str, &str) = ("api.kubemod.io", "api.kubemod.io/v1beta1", "ModRule");
    let Gvk { group, kind, .. } = Gvk::of(document.value())?;
    let rows = || {
        let of_kyverno =
            POLICY_KINDS.iter().map(|row| (row.kyverno_group(), row.kyverno, row.kind));
        let own = POLICY_KINDS.iter().filter(|row| row.own);
        let own = own.map(|row| (OWN_GROUP, OWN_VERSION, row.kind));
        of_kyverno.chain(own).chain([MOD_RULES])
    };
    let of_group = || rows().filter(|(known, ..)| *known == group.as_str()).map(|(.., kind)| kind);
    if of_group().next().is_none() || of_group().any(|known| known == kind.as_str()) {
        return None;
    }
    let elsewhere = rows().find(|(.., known)| *known == kind.as_str());
    let (path, hint) = match elsewhere {
        Some((_, version, _)) => ("apiVersion", format!("use apiVersion: {version}")),
        None => {
            // Kyverno has had other kinds of requests.
            let candidates = of_group().filter(|kind| !kind.ends_with("Request"));
            ("kind", format!("did you mean {:?}?", did_you_mean(&kind, candidates)?))
        }
    };
    let message = format!("{group} has no kind {kind}");
    let place = document.locate(&Path::from_iter([path]));
    Some(Diagnostic::error(message).at(place).hint(hint))
}

/// Warnings about kinds that rules are for, without their group, and that are neither known nor like a known one.
pub fn unknown_kinds(
    policies: &[Arc<Policy>],
    kinds: &Kinds,
    is_given: impl Fn(&str) -> bool,
) -> Vec<Diagnostic> {
    let mut warnings = Vec::new();
    for rule in policies.iter().flat_map(|policy| &policy.rules) {
        let matched = rule.trigger.include.filters().iter().flat_map(|filter| &filter.kinds);
        let mut named: Vec<&str> = matched
            .filter(|pattern| pattern.names_one_kind() && pattern.group.contains('*'))
            .map(|pattern| pattern.kind.as_str())
            .filter(|kind| kinds.by_kind(kind).is_empty() && nearest(kind, kinds).is_none())
            .filter(|kind| !is_given(kind))
            .collect();
        named.sort_unstable();
        named.dedup();
        warnings.extend(named.into_iter().map(|kind| {
            Diagnostic::warning(format!("rule {}: no kind {kind:?} is known", rule.id.rule))
                .at(rule.origin.place())
                .hint("give its CustomResourceDefinition along, or write its group: group/version/Kind")
        }));
    }
    warnings
}

fn nearest<'k>(kind: &str, kinds: &'k Kinds) -> Option<&'k str> {
    did_you_mean(kind, kinds.iter().map(kiln_object::Kind::kind))
}

/// Warnings about kinds that rules of a policy name.
pub(crate) fn misspelt_kinds(policy: &Policy, kinds: &Kinds) -> Vec<Diagnostic> {
    let mut warnings = Vec::new();
    for rule in &policy.rules {
        let matched = rule.trigger.include.filters().iter().flat_map(|filter| &filter.kinds);
        let mut named: Vec<Str> =
            matched.filter(|kind| kind.names_one_kind()).map(|kind| kind.kind.clone()).collect();
        if let Program::Generate(generate) = &rule.program {
            let emitters = generate.blocks.iter().flat_map(|block| &block.emitters);
            named.extend(emitters.flat_map(kiln_rules::Emitter::target_kinds).map(|gvk| gvk.kind));
        }
        named.sort();
        named.dedup();
        for kind in named.iter().filter(|kind| kinds.by_kind(kind).is_empty()) {
            if let Some(meant) = nearest(kind, kinds) {
                warnings.push(
                    Diagnostic::warning(format!(
                        "rule {}: no kind {kind:?} is known",
                        rule.id.rule
                    ))
                    .at(rule.origin.place())
                    .hint(format!("did you mean {meant:?}? if not, give its definition along")),
                );
            }
        }
    }
    warnings
}

/// Warnings about kinds of Kubernetes under a version that no cluster of today serves.
pub(crate) fn retired_versions(policy: &Policy, kinds: &Kinds) -> Vec<Diagnostic> {
    let mut warnings = Vec::new();
    for rule in &policy.rules {
        let mut told: Vec<Gvk> = Vec::new();
        for (gvk, path) in named_versions(rule) {
            let Some(served) = served_instead(&gvk, kinds).filter(|_| !told.contains(&gvk)) else {
                continue;
            };
            let place =
                path.map_or_else(|| rule.origin.place(), |path| rule.origin.place_of(&path));
            let message = format!(
                "rule {}: {} is not served as {}",
                rule.id.rule,
                gvk.kind,
                gvk.api_version()
            );
            warnings.push(Diagnostic::warning(message).at(place).hint(format!("write {served}")));
            told.push(gvk);
        }
    }
    warnings
}

/// The kinds that a rule names with their versions, and where; triggers only if none of them can be known.
fn named_versions(rule: &Rule) -> Vec<(Gvk, Option<kiln_value::Path>)> {
    let mut named = Vec::new();
    let patterns = rule.trigger.include.filters().iter().flat_map(|filter| &filter.kinds);
    for pattern in patterns.filter(|pattern| pattern.names_one_kind()) {
        let is_written = |text: &str| !kiln_text::wildcard::contains_wildcard(text);
        if is_written(&pattern.group) && is_written(&pattern.version) {
            let (group, version) = (pattern.group.clone(), pattern.version.clone());
            named.push((Gvk { group, version, kind: pattern.kind.clone() }, None));
        }
    }
    match &rule.program {
        Program::Generate(generate) => {
            for (_, _, emitter) in generate.emitters() {
                let kinds = emitter.target_kinds().into_iter();
                named.extend(kinds.map(|gvk| (gvk, Some(emitter.path.clone()))));
            }
        }
        Program::Mutate(mutate) => {
            for target in mutate.named_targets() {
                let plain = |template: &kiln_variables::Template| {
                    let text = template.is_plain().then(|| template.document().as_str())??;
                    (!kiln_text::wildcard::contains_wildcard(text)).then(|| text.to_owned())
                };
                let version = target.api_version.as_ref().and_then(plain);
                if let (Some(version), Some(kind)) = (version, plain(&target.kind)) {
                    let kind = kind.split('/').next().unwrap_or_default();
                    named.push((Gvk::new(&version, kind), Some(target.path.clone())));
                }
            }
        }
        Program::Modify(_) | Program::Validate(_) | Program::Delete(_) => {}
    }
    named
}

/// The apiVersion under which a kind of Kubernetes is served, if the one that was written is none.
fn served_instead(gvk: &Gvk, kinds: &Kinds) -> Option<String> {
    // Others may have kinds of the same name.
    let of_kubernetes = !gvk.group.contains('.') || gvk.group.ends_with(".k8s.io");
    if !of_kubernetes || kinds.get(gvk).is_some() {
        return None;
    }
    let served = kinds.preferred(&gvk.group, &gvk.kind).or_else(|| {
        let known = kinds.by_kind(&gvk.kind);
        known
            .into_iter()
            .find(|kind| !kind.group().contains('.') || kind.group().ends_with(".k8s.io"))
    })?;
    Some(format!("`apiVersion: {}`", served.group_version()))
}
