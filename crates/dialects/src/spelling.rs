//! Kinds that are probably misspelt, or unknown.
//!
//! A kind that is not known may belong to a definition that was not given, so nothing is refused; but one
//! that is a slip away from a known kind is worth a warning. Where everything that there is was given, so is one that
//! is like none.

use std::collections::BTreeSet;
use std::sync::Arc;

use kiln_diagnostic::{Diagnostic, SourceLocation, did_you_mean};
use kiln_object::policy_kinds::{OWN_GROUP, OWN_VERSION, POLICY_KINDS};
use kiln_object::{Gvk, Kinds};
use kiln_rules::{Policy, Program, Rule};
use kiln_value::{Path, Segment, Value};
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
        let mut named: Vec<(&str, String)> = matched
            .filter(|pattern| pattern.names_one_kind() && pattern.group.contains('*'))
            .map(|pattern| (pattern.kind.as_str(), pattern.to_string()))
            .filter(|(kind, _)| kinds.by_kind(kind).is_empty() && nearest(kind, kinds).is_none())
            .filter(|(kind, _)| !is_given(kind))
            .collect();
        named.sort_unstable();
        named.dedup_by(|one, other| one.0 == other.0);
        warnings.extend(named.into_iter().map(|(kind, written)| {
            Diagnostic::warning(format!("rule {}: no kind {kind:?} is known", rule.id.rule))
                .at(place_of_word(rule, rule.origin.path(), KINDS, &written))
                .hint("give its CustomResourceDefinition along, or write its group: group/version/Kind")
        }));
    }
    warnings
}

/// The fields in which rules name kinds.
const KINDS: &[&str] = &["kinds", "kind"];

/// Where a part of a rule has a word in one of these fields; the part itself if it has none.
fn path_in_rule(rule: &Rule, part: &Path, fields: &[&str], word: &str) -> Path {
    let written = rule.origin.document().value().get_path(part);
    let inner = written.and_then(|value| path_of_word(value, false, fields, word));
    part.segments().iter().chain(inner.iter().flat_map(Path::segments)).cloned().collect()
}

fn place_of_word(rule: &Rule, part: &Path, fields: &[&str], word: &str) -> SourceLocation {
    rule.origin.place_of(&path_in_rule(rule, part, fields, word))
}

fn path_of_word(value: &Value, in_field: bool, fields: &[&str], word: &str) -> Option<Path> {
    let below = |step: Segment, found: Path| {
        Some(std::iter::once(step).chain(found.segments().iter().cloned()).collect())
    };
    match value {
        Value::String(text) => (in_field && text.as_str() == word).then(Path::root),
        Value::Map(map) => map.iter().find_map(|(key, value)| {
            let found = path_of_word(value, fields.contains(&key.as_str()), fields, word)?;
            below(key.into(), found)
        }),
        Value::List(list) => list.iter().enumerate().find_map(|(index, value)| {
            below(index.into(), path_of_word(value, in_field, fields, word)?)
        }),
        _ => None,
    }
}

fn nearest<'k>(kind: &str, kinds: &'k Kinds) -> Option<&'k str> {
    did_you_mean(kind, kinds.iter().map(kiln_object::Kind::kind))
}

/// Warnings about kinds that rules of a policy name.
pub(crate) fn misspelt_kinds(policy: &Policy, kinds: &Kinds) -> Vec<Diagnostic> {
    let mut warnings = Vec::new();
    // A rule for Pods is one for their controllers, too, which names the same kinds.
    let mut told = BTreeSet::new();
    for rule in &policy.rules {
        let matched = rule.trigger.include.filters().iter().flat_map(|filter| &filter.kinds);
        let mut named: Vec<(String, String)> = matched
            .filter(|kind| kind.names_one_kind())
            .map(|kind| (kind.kind.to_string(), kind.to_string()))
            .collect();
        if let Program::Generate(generate) = &rule.program {
            let emitters = generate.blocks.iter().flat_map(|block| &block.emitters);
            let generated = emitters.flat_map(kiln_rules::Emitter::target_kinds);
            named.extend(generated.map(|gvk| (gvk.kind.to_string(), gvk.kind.to_string())));
        }
        named.sort();
        named.dedup_by(|one, other| one.0 == other.0);
        for (kind, written) in named.iter().filter(|(kind, _)| kinds.by_kind(kind).is_empty()) {
            let path = path_in_rule(rule, rule.origin.path(), KINDS, written);
            if let Some(meant) = nearest(kind, kinds)
                && told.insert((path.clone(), kind.clone()))
            {
                warnings.push(
                    Diagnostic::warning(format!(
                        "rule {}: no kind {kind:?} is known",
                        rule.id.rule
                    ))
                    .at(rule.origin.place_of(&path))
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
        for (gvk, named) in named_versions(rule) {
            let Some(served) = served_instead(&gvk, kinds).filter(|_| !told.contains(&gvk)) else {
                continue;
            };
            let (place, hint) = match named {
                Named::Matched(written) => (
                    place_of_word(rule, rule.origin.path(), &["kinds"], &written),
                    format!("write {served}/{}", gvk.kind),
                ),
                Named::Written(path) => (
                    place_of_word(rule, &path, &["apiVersion"], &gvk.api_version()),
                    format!("write `apiVersion: {served}`"),
                ),
            };
            let message = format!(
                "rule {}: {} is not served as {}",
                rule.id.rule,
                gvk.kind,
                gvk.api_version()
            );
            warnings.push(Diagnostic::warning(message).at(place).hint(hint));
            told.push(gvk);
        }
    }
    warnings
}

/// How a rule names a kind.
enum Named {
    /// As a kind that it is for, in these words.
    Matched(String),
    /// With an apiVersion, in the part at this path.
    Written(Path),
}

/// The kinds that a rule names with their versions, and where; triggers only if none of them can be known.
fn named_versions(rule: &Rule) -> Vec<(Gvk, Named)> {
    let mut named = Vec::new();
    let patterns = rule.trigger.include.filters().iter().flat_map(|filter| &filter.kinds);
    for pattern in patterns.filter(|pattern| pattern.names_one_kind()) {
        let is_written = |text: &str| !kiln_text::wildcard::contains_wildcard(text);
        if is_written(&pattern.group) && is_written(&pattern.version) {
            let (group, version) = (pattern.group.clone(), pattern.version.clone());
            let matched = Named::Matched(pattern.to_string());
            named.push((Gvk { group, version, kind: pattern.kind.clone() }, matched));
        }
    }
    match &rule.program {
        Program::Generate(generate) => {
            for (_, _, emitter) in generate.emitters() {
                let kinds = emitter.target_kinds().into_iter();
                named.extend(kinds.map(|gvk| (gvk, Named::Written(emitter.path.clone()))));
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
                    let written = Named::Written(target.path.clone());
                    named.push((Gvk::new(&version, kind), written));
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
    Some(served.group_version().to_string())
}
