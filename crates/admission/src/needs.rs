//! Which rights a policy needs: the one list that the review of policies, `kiln doctor` and the roles that both print
//! go by.
//!
//! Only what is known before the rules run is on it: a kind with variables in it is skipped.

use kiln_engine::AccessRequest;
use kiln_object::{Gvk, Kind, Kinds, ObjectId};
use kiln_rules::{
    Emission, Existing, Generate, KindPattern, Lifecycle, Mutate, Policy, Program, Rule,
    TargetNamespace, Targets, Write,
};
use kiln_text::wildcard;
use kiln_value::{Map, Path, Str, Value};
use kiln_variables::Template;

use crate::access::{Account, Need, Without};

/// Objects of a kind are known by listing and watching them everywhere, whatever namespace a rule writes to.
const FOLLOW: [&str; 2] = ["list", "watch"];

/// A kind that the cluster does not serve, perhaps not yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
// Kyverno's words.
#[error("failed to get GVR for kind {0}")]
pub struct UnknownKind(pub Gvk);

/// The rights that a policy needs.
///
/// # Errors
/// When a kind is not known.
pub fn needs(policy: &Policy, kinds: &Kinds) -> Result<Vec<Need>, UnknownKind> {
    let mut needs = Vec::new();
    for rule in &policy.rules {
        match &rule.program {
            Program::Generate(program) => of_generate(policy, rule, program, kinds, &mut needs)?,
            Program::Mutate(program) => of_mutate(rule, program, kinds, &mut needs)?,
            // What is sent is patched or refused at admission; nothing is written.
            Program::Modify(_) | Program::Validate(_) => {}
            Program::Delete(_) => of_delete(rule, kinds, &mut needs),
        }
        if !rule.program.acts_at_admission() && !rule.program.is_scheduled() {
            of_trigger(rule, kinds, &mut needs);
        }
    }
    Ok(once(needs))
}

/// Each need once; what is refused without it comes before what is only told.
fn once(mut needs: Vec<Need>) -> Vec<Need> {
    needs.sort_by_key(|need| need.without != Without::Refused);
    let mut kept: Vec<Need> = Vec::new();
    for need in needs {
        let says_it = |known: &Need| {
            let place = |need: &Need| (need.account, need.namespace.clone(), need.name.clone());
            place(known) == place(&need)
                && known.kind == need.kind
                && known.subresource == need.subresource
                && need.verbs.iter().all(|verb| known.verbs.contains(verb))
        };
        if !need.verbs.is_empty() && !kept.iter().any(says_it) {
            kept.push(need);
        }
    }
    kept
}

/// The rights that an author needs besides those of the engine: to see what fires the rules, or to change it. A user who
/// changes roles and bindings hands rights out.
pub fn needs_of_author(policy: &Policy, kinds: &Kinds) -> Vec<Need> {
    let mut needs = Vec::new();
    for rule in &policy.rules {
        let changes = rule.program.changes_trigger();
        let verbs = match changes {
            true => vec!["get", "update"],
            false if rule.program.is_scheduled() => vec!["delete"],
            false => vec!["get"],
        };
        let namespace = rule.scope.namespace().unwrap_or_default();
        let need = |kind: Gvk, subresource: &str, verbs: Vec<&'static str>| {
            let mut need = Need::new(format!("{}.match.", rule.origin.path()), kind, kinds).ok()?;
            subresource.clone_into(&mut need.subresource);
            namespace.clone_into(&mut need.namespace);
            namespace.clone_into(&mut need.written_namespace);
            Some(Need { verbs, changes: true, ..need })
        };
        let patterns = rule.trigger.include.filters().iter().flat_map(|filter| &filter.kinds);
        for pattern in patterns {
            let parts = [&pattern.group, &pattern.version, &pattern.kind];
            let [group, version, kind] = parts.map(Clone::clone);
            let asked = Gvk { group, version, kind };
            // What rules for any kind, or any part of one, fire on is asked when they fire.
            let any = wildcard::contains_wildcard(&asked.kind) || pattern.plural.is_some();
            let exact = !wildcard::contains_wildcard(&pattern.subresource);
            let subresource = if exact { pattern.subresource.as_str() } else { "" };
            for kind in if any { Vec::new() } else { meant(&asked, kinds) } {
                let changed = ObjectId::new(kind.clone(), namespace, "");
                needs.extend(need(kind, subresource, verbs.clone()));
                let roles =
                    if changes { AccessRequest::for_roles(&changed, None) } else { Vec::new() };
                needs.extend(
                    roles.into_iter().filter_map(|(verb, role)| need(role.gvk, "", vec![verb])),
                );
            }
        }
    }
    needs.dedup();
    needs
}

impl Need {
    /// A need of the side that makes and changes objects, of nothing yet.
    fn new(path: String, kind: Gvk, kinds: &Kinds) -> Result<Self, UnknownKind> {
        Ok(Need {
            path,
            account: Account::Background,
            resource: plural(&kind, kinds)?,
            kind,
            subresource: String::new(),
            namespace: String::new(),
            written_namespace: String::new(),
            name: String::new(),
            verbs: Vec::new(),
            changes: false,
            without: Without::Refused,
            of_engine_alone: false,
            hands_out: None,
        })
    }

    /// The same kind, seen everywhere.
    fn followed(&self) -> Need {
        Need {
            account: Account::Background,
            subresource: String::new(),
            namespace: String::new(),
            written_namespace: String::new(),
            name: String::new(),
            verbs: FOLLOW.to_vec(),
            of_engine_alone: true,
            hands_out: None,
            ..self.clone()
        }
    }
}

/// A kind that is made, and what is known of the objects before the rule runs.
struct Made<'r> {
    kind: Gvk,
    subresource: String,
    namespace: Option<&'r Template>,
    /// The object below its envelope.
    body: Option<&'r Value>,
}

fn of_generate(
    policy: &Policy,
    rule: &Rule,
    program: &Generate,
    kinds: &Kinds,
    needs: &mut Vec<Need>,
) -> Result<(), UnknownKind> {
    for (block, _, emitter) in program.emitters() {
        let path = rule.origin.path().join("generate");
        let inner = if program.blocks[block].foreach.is_some() { "foreach" } else { "" };
        let path = format!("{path}.{inner}.");
        let mut made = Vec::new();
        match &emitter.emission {
            Emission::Data { target, .. } | Emission::Clone { target, .. } => {
                let namespace = match &target.namespace {
                    TargetNamespace::Written(template) => Some(template),
                    _ => None,
                };
                let body = match &emitter.emission {
                    Emission::Data { body: Some(body), .. } => Some(body.document()),
                    _ => None,
                };
                let known = plain(&target.api_version).zip(plain(&target.kind));
                made.extend(known.map(|(version, kind)| {
                    let (kind, subresource) = split(version, kind);
                    Made { kind, subresource, namespace, body }
                }));
            }
            Emission::CloneSelect(select) => {
                let namespace = select.target_namespace.as_ref();
                made.extend(emitter.target_kinds().into_iter().map(|kind| Made {
                    kind,
                    subresource: String::new(),
                    namespace,
                    body: None,
                }));
            }
            Emission::Documents(_) => {
                let there = emitter.target_kinds().into_iter();
                let there = there.filter(|kind| known(kind, kinds).is_some());
                made.extend(there.map(|kind| Made {
                    kind,
                    subresource: String::new(),
                    namespace: None,
                    body: None,
                }));
            }
            // What expressions make is known when they have run; what they name is followed from the start.
            Emission::FromExpression { named, .. } => {
                let named = named.iter().filter(|kind| known(kind, kinds).is_some());
                for kind in named {
                    let need = Need::new(path.clone(), kind.clone(), kinds)?;
                    needs.push(Need { without: Without::Doubtful, ..need.followed() });
                }
            }
        }
        for made in made {
            of_made(policy, rule, &path, &made, kinds, needs)?;
        }
        for kind in emitter.source_kinds().into_iter().filter(|kind| known(kind, kinds).is_some()) {
            needs.push(Need::new(path.clone(), kind, kinds)?.followed());
        }
    }
    Ok(())
}

/// What it takes to make objects of one kind, and to keep them as the rule says.
fn of_made(
    policy: &Policy,
    rule: &Rule,
    path: &str,
    made: &Made<'_>,
    kinds: &Kinds,
    needs: &mut Vec<Need>,
) -> Result<(), UnknownKind> {
    let need = Need {
        subresource: made.subresource.clone(),
        namespace: made.namespace.and_then(plain).unwrap_or_default().to_owned(),
        written_namespace: made.namespace.map(written).unwrap_or_default(),
        verbs: writing(&rule.lifecycle),
        ..Need::new(path.to_owned(), made.kind.clone(), kinds)?
    };
    if rule.lifecycle.synchronize {
        // Kyverno: its admission side looks at what is kept in step.
        let reads = Need {
            account: Account::Admission,
            verbs: vec!["list", "get"],
            of_engine_alone: true,
            ..need.clone()
        };
        needs.extend(reads.by_part());
    }
    needs.extend(need.clone().by_part());
    needs.push(need.followed());
    needs.extend(handing_out(policy, &need, made.body, kinds));
    Ok(())
}

/// The verbs with which a rule makes its objects.
fn writing(lifecycle: &Lifecycle) -> Vec<&'static str> {
    let mut verbs = vec!["get", "create"];
    // What is let go loses its labels by an update, whatever else is written by.
    if lifecycle.synchronize || lifecycle.on_conflict != Existing::Keep {
        verbs.push("update");
    }
    if matches!(lifecycle.write, Write::Apply { .. }) {
        verbs.push("patch");
    }
    if lifecycle.synchronize {
        verbs.push("delete");
    }
    verbs
}

/// What it takes besides to write a role or a binding: no user grants what they do not have, unless they may
/// `escalate` or `bind`.
// Kyverno stores policies without it, so nothing is refused for it.
fn handing_out(policy: &Policy, need: &Need, body: Option<&Value>, kinds: &Kinds) -> Vec<Need> {
    let id = ObjectId::new(need.kind.clone(), &need.namespace, "");
    // A reference with variables in it may be to any role.
    let reference = body.and_then(|body| body.get("roleRef")).filter(|found| is_plain(found));
    let object = reference.map(|reference| {
        let mut object = Map::new();
        object.insert("roleRef", reference.clone());
        Value::Map(object)
    });
    let rules_of_body = || body.and_then(|body| body.get("rules")).filter(|rules| is_plain(rules));
    let wishes = AccessRequest::for_roles(&id, object.as_ref()).into_iter();
    wishes
        .filter_map(|(verb, role)| {
            let hands_out = match verb {
                "escalate" => rules_of_body().cloned(),
                _ => rules_made(policy, &role.gvk.kind, &role.name).cloned(),
            };
            // Kubernetes: a role that is created is not yet known by its name.
            let name = if verb == "bind" { role.name.to_string() } else { String::new() };
            Some(Need {
                resource: plural(&role.gvk, kinds).ok()?,
                kind: role.gvk,
                subresource: String::new(),
                name,
                verbs: vec![verb],
                without: Without::Fails,
                hands_out,
                of_engine_alone: true,
                ..need.clone()
            })
        })
        .collect()
}

/// The rules of a role that the policy makes itself: the cluster has none of this name before it runs.
fn rules_made<'p>(policy: &'p Policy, kind: &str, name: &str) -> Option<&'p Value> {
    let programs = policy.rules.iter().filter_map(|rule| match &rule.program {
        Program::Generate(program) => Some(program),
        _ => None,
    });
    let mut made = programs.flat_map(Generate::emitters).filter_map(|(_, _, emitter)| {
        let Emission::Data { target, body: Some(body) } = &emitter.emission else { return None };
        let is_it = plain(&target.kind) == Some(kind) && plain(&target.name) == Some(name);
        body.document().get("rules").filter(|rules| is_it && is_plain(rules))
    });
    made.next().filter(|_| !name.is_empty())
}

fn of_mutate(
    rule: &Rule,
    program: &Mutate,
    kinds: &Kinds,
    needs: &mut Vec<Need>,
) -> Result<(), UnknownKind> {
    let path: Path = rule.origin.path().join("mutate").join("targets");
    let change = |kind: Gvk| {
        let need = Need::new(format!("{path}."), kind, kinds)?;
        Ok::<_, UnknownKind>(Need { verbs: vec!["get", "update"], changes: true, ..need })
    };
    for target in program.named_targets() {
        let Some(kind) = plain(&target.kind) else { continue };
        let version = match &target.api_version {
            Some(version) => plain(version),
            None => Some("*"),
        };
        let Some(version) = version else { continue };
        let literal = |template: Option<&Template>| {
            let text = template.and_then(plain).unwrap_or_default();
            if wildcard::contains_wildcard(text) { String::new() } else { text.to_owned() }
        };
        let (asked, subresource) = split(version, kind);
        for kind in meant(&asked, kinds) {
            let need = Need {
                subresource: subresource.clone(),
                namespace: literal(target.namespace.as_ref()),
                written_namespace: target.namespace.as_ref().map(written).unwrap_or_default(),
                name: literal(target.name.as_ref()),
                ..change(kind)?
            };
            needs.push(need.clone());
            needs.push(need.followed());
        }
    }
    if let Some(Targets::Filtered(taken)) = &program.targets {
        let patterns = taken.include.filters().iter().flat_map(|filter| &filter.kinds);
        for kind in patterns.flat_map(|pattern| followed_by(pattern, kinds)) {
            let need = Need { without: Without::Fails, ..change(kind)? };
            needs.push(need.clone());
            needs.push(need.followed());
        }
    }
    Ok(())
}

/// What fires a rule is followed.
// Kyverno stores policies without it; the condition TriggersReadable tells.
fn of_trigger(rule: &Rule, kinds: &Kinds, needs: &mut Vec<Need>) {
    let patterns = rule.trigger.include.filters().iter().flat_map(|filter| &filter.kinds);
    for kind in patterns.flat_map(|pattern| followed_by(pattern, kinds)) {
        let path = format!("{}.match.", rule.origin.path());
        let need = Need::new(path, kind, kinds).map(|need| need.followed());
        needs.extend(need.map(|need| Need { without: Without::Fails, ..need }));
    }
}

/// What a rule deletes must be listed and deleted by the account for that; where the rule names objects, those alone.
fn of_delete(rule: &Rule, kinds: &Kinds, needs: &mut Vec<Need>) {
    // Kyverno: a policy with conditions in CEL is stored without the permissions, and does nothing.
    let without = if rule.script.is_some() { Without::Fails } else { Without::Refused };
    let namespace = rule.scope.namespace().unwrap_or_default();
    for filter in rule.trigger.include.filters() {
        let is_plain = |name: &&Str| !wildcard::contains_wildcard(name);
        let plain: Vec<&Str> = filter.names.iter().filter(is_plain).collect();
        let all = [Str::default()];
        let names: Vec<&Str> = match plain.len() == filter.names.len() && !plain.is_empty() {
            true => plain,
            false => all.iter().collect(),
        };
        for kind in filter.kinds.iter().flat_map(|pattern| followed_by(pattern, kinds)) {
            for name in &names {
                let path = format!("{}.match.", rule.origin.path());
                let Ok(need) = Need::new(path, kind.clone(), kinds) else { continue };
                needs.push(Need {
                    account: Account::Cleanup,
                    namespace: namespace.to_owned(),
                    written_namespace: namespace.to_owned(),
                    name: name.to_string(),
                    verbs: vec!["delete", "list"],
                    without,
                    ..need
                });
            }
        }
    }
}

/// The kinds that are followed because of a pattern; of one for any kind, they are too many to be named.
fn followed_by(pattern: &KindPattern, kinds: &Kinds) -> Vec<Gvk> {
    let is_any = !pattern.names_one_kind() && pattern.plural.is_none();
    if is_any || !(pattern.subresource.is_empty() || &*pattern.subresource == "*") {
        return Vec::new();
    }
    let is_meant = |kind: &&Kind| {
        kind.verbs().contains(&"watch")
            && pattern.matches(kind.group(), kind.version(), kind.kind(), "")
    };
    let mut found: Vec<Gvk> = kinds.iter().filter(is_meant).map(Kind::gvk).collect();
    found.sort();
    found.dedup_by(|a, b| a.group == b.group && a.kind == b.kind);
    found
}

/// The kinds behind one that may have wildcards.
fn meant(asked: &Gvk, kinds: &Kinds) -> Vec<Gvk> {
    let parts = [&asked.group, &asked.version, &asked.kind];
    if kinds.get(asked).is_some() || !parts.iter().any(|part| wildcard::contains_wildcard(part)) {
        return vec![asked.clone()];
    }
    // `*` alone as apiVersion stands for every group as well.
    let any_group = asked.group.is_empty();
    let fits = |kind: &&Kind| {
        (any_group || wildcard::matches(&asked.group, kind.group()))
            && wildcard::matches(&asked.version, kind.version())
            && wildcard::matches(&asked.kind, kind.kind())
    };
    let mut found: Vec<Gvk> = kinds.iter().filter(fits).map(Kind::gvk).collect();
    found.dedup_by(|a, b| a.group == b.group && a.kind == b.kind);
    found
}

fn split(api_version: &str, kind: &str) -> (Gvk, String) {
    let (kind, subresource) = kind.split_once('/').unwrap_or((kind, ""));
    (Gvk::new(api_version, kind), subresource.to_owned())
}

fn known<'k>(kind: &Gvk, kinds: &'k Kinds) -> Option<&'k Kind> {
    kinds.get(kind).or_else(|| kinds.preferred(&kind.group, &kind.kind))
}

fn plural(kind: &Gvk, kinds: &Kinds) -> Result<String, UnknownKind> {
    let known = known(kind, kinds).ok_or_else(|| UnknownKind(kind.clone()))?;
    Ok(known.plural().to_owned())
}

/// The text of a template without variables.
fn plain(template: &Template) -> Option<&str> {
    template.is_plain().then(|| template.document().as_str()).flatten()
}

/// Whether a part of a template has no variables in it.
fn is_plain(value: &Value) -> bool {
    Template::compile(value).is_plain()
}

fn written(template: &Template) -> String {
    template.document().as_str().unwrap_or_default().to_owned()
}
