//! Stored objects that a rule changes when something else happens.

use kiln_object::{Gvk, Kinds, Selector};
use kiln_rules::{KindPattern, Mutate, MutateTarget, Rule, Scope, usual_plural};
use kiln_text::wildcard;
use kiln_value::{Map, Str, Value};
use kiln_variables::Template;

use super::{Subject, change};
use crate::context::Context;
use crate::input::event::namespace_of;
use crate::output::claim::ObjectRef;
use crate::output::effect::{PatchEffect, PatchTarget};
use crate::output::failure::{Failure, FailureKind};
use crate::output::trace::{TraceAnswer, TraceStep};
use crate::protected_namespaces;

/// The object of an event, changed; `None` when nothing changes.
pub(crate) fn changed_object(
    program: &Mutate,
    object: &Value,
    context: &Context<'_>,
) -> Result<Option<PatchEffect>, Failure> {
    let after = change(&program.change, object, context, Subject::Trigger)?;
    Ok((after != *object).then(|| PatchEffect {
        target: PatchTarget::Trigger,
        before: object.clone(),
        after,
    }))
}

/// Changes the targets of a rule. What fails for one target leaves the others alone.
pub(crate) struct MutateRun<'r> {
    pub(crate) rule: &'r Rule,
    /// The namespace of the trigger; its name, if it is one.
    pub(crate) trigger_namespace: Str,
    pub(crate) patches: Vec<PatchEffect>,
    pub(crate) failures: Vec<Failure>,
}

/// What a target asks for, filled in.
struct TargetQuery {
    kinds: Vec<Gvk>,
    subresource: Option<Str>,
    namespace: Option<Str>,
    name: Option<Str>,
    selector: Selector,
}

impl MutateRun<'_> {
    pub(crate) fn targets(&mut self, program: &Mutate, context: &Context<'_>) {
        for target in program.named_targets() {
            let found = self.wanted(target, context).and_then(|wanted| {
                let objects = self.find(&wanted, context)?;
                Ok((wanted.subresource, objects))
            });
            let (subresource, objects) = match found {
                Ok(found) => found,
                Err(failure) => {
                    let stop = failure.is_final();
                    self.failures.push(failure.at(&target.path));
                    if stop {
                        return;
                    }
                    continue;
                }
            };
            for object in objects {
                if let Err(failure) =
                    self.target(program, target, &object, subresource.as_ref(), context)
                {
                    let stop = failure.is_final();
                    self.failures.push(failure.at(&target.path));
                    if stop {
                        return;
                    }
                }
            }
        }
    }

    fn target(
        &mut self,
        program: &Mutate,
        target: &MutateTarget,
        object: &Value,
        subresource: Option<&Str>,
        context: &Context<'_>,
    ) -> Result<(), Failure> {
        let id = ObjectRef::of(object).id;
        let (rule, eval_env) = (self.rule, context.shared.eval_env);
        protected_namespaces::check(&id, rule, &self.trigger_namespace, eval_env, |named| {
            // No namespace means all.
            let says = if id.namespace.is_empty() { &target.name } else { &target.namespace };
            says.as_ref().is_none_or(|says| protected_namespaces::in_template(says, named, rule))
        })?;
        let known = PatchTarget::Stored { object: id.clone(), subresource: subresource.cloned() };
        // Two targets may mean one object: the second goes on where the first ended.
        let earlier = self.patches.iter().position(|patch| patch.target == known);
        let object = earlier.map_or(object, |at| &self.patches[at].after).clone();
        let values = Map::from_iter([("target", object.clone())]);
        let inner = context.inner(values, &target.context);
        let step = || {
            if let Some(guard) = &target.guard
                && !inner.holds(guard)?
            {
                return Ok(None);
            }
            change(&program.change, &object, &inner, Subject::Target).map(Some)
        };
        let outcome = context.shared.tracer.within(
            || format!("target {id}"),
            step,
            |after| match after {
                Ok(Some(after)) if *after != object => (TraceAnswer::Done, None),
                Ok(Some(_)) => (TraceAnswer::No, Some("no patches applied".into())),
                Ok(None) => (TraceAnswer::No, Some("preconditions not met".into())),
                Err(_) => (TraceAnswer::Failed, None),
            },
        );
        let after = match outcome {
            Ok(Some(after)) if after != object => after,
            Ok(_) => return Ok(()),
            Err(failure) => return Err(failure.while_doing(format_args!("target {id}"))),
        };
        if ObjectRef::of(&after).id != id {
            let message = format!("the patch makes another object of {id}");
            return Err(Failure::new(FailureKind::Patch, message)
                .hint("leave apiVersion, kind, metadata.name and metadata.namespace alone"));
        }
        match earlier {
            Some(at) => self.patches[at].after = after,
            None => {
                context.shared.counters.object()?;
                self.patches.push(PatchEffect { target: known, before: object, after });
            }
        }
        Ok(())
    }

    fn wanted(&self, target: &MutateTarget, context: &Context<'_>) -> Result<TargetQuery, Failure> {
        let optional = |template: Option<&Template>, what: &str| match template {
            Some(template) => context
                .all()
                .name(template, what, &['*', '?'])
                .map(|text| Some(text).filter(|text| !text.is_empty())),
            None => Ok(None),
        };
        let api_version = optional(target.api_version.as_ref(), "the apiVersion of a target")?;
        let kind = context.all().name(&target.kind, "the kind of a target", &['/', '*', '?'])?;
        let written = match &api_version {
            Some(api_version) => format!("{api_version}/{kind}"),
            None => kind.to_string(),
        };
        let pattern = KindPattern::parse(&written).ok_or_else(|| {
            Failure::new(FailureKind::Value, format!("{written:?} is not a kind of targets"))
                .hint("write apiVersion: group/version and kind: Kind, or Kind/subresource")
        })?;
        let selector = match &target.selector {
            Some(selector) => Selector::from_value(&context.fill(selector)?).map_err(|error| {
                Failure::new(FailureKind::Value, format!("bad selector of a target: {error}"))
            })?,
            None => Selector::everything(),
        };
        let namespace = match &self.rule.scope {
            // Kyverno: a Policy looks into its own namespace, whatever is written.
            Scope::Namespace(own) => Some(own.clone()),
            Scope::Cluster => optional(target.namespace.as_ref(), "the namespace of a target")?,
        };
        Ok(TargetQuery {
            kinds: kinds(&pattern, context.shared.eval_env.kinds),
            subresource: Some(pattern.subresource).filter(|text| !text.is_empty()),
            namespace,
            name: optional(target.name.as_ref(), "the name of a target")?,
            selector,
        })
    }

    fn find(&self, wanted: &TargetQuery, context: &Context<'_>) -> Result<Vec<Value>, Failure> {
        let gate = context.shared.gate;
        let exact = |text: &Option<Str>| {
            text.as_deref().filter(|text| !wildcard::contains_wildcard(text)).map(Str::from)
        };
        let (name, namespace) = (exact(&wanted.name), exact(&wanted.namespace));
        let mut found = Vec::new();
        for kind in &wanted.kinds {
            let namespaced = context.shared.eval_env.kinds.is_namespaced(kind);
            let within = namespace.as_deref().filter(|_| namespaced != Some(false));
            let objects = match &name {
                Some(name) if within.is_some() || namespaced == Some(false) => {
                    let object = gate.get(kind, within, name)?;
                    // Kyverno: an object that is named and not there is an error, in the API server's words.
                    if object.is_none() && wanted.kinds.len() == 1 {
                        return Err(not_found(kind, name, context.shared.eval_env.kinds));
                    }
                    object.into_iter().collect()
                }
                _ => gate.list(kind, within, &wanted.selector, None)?.objects,
            };
            let meant = |object: &Value| {
                let takes = |pattern: &Option<Str>, text: &str| {
                    pattern.as_ref().is_none_or(|pattern| wildcard::matches(pattern, text))
                };
                let labels = object.get_path(["metadata", "labels"]).and_then(Value::as_map);
                takes(&wanted.name, object.str_at(["metadata", "name"]).unwrap_or_default())
                    && (namespaced == Some(false)
                        || takes(&wanted.namespace, &namespace_of(object).unwrap_or_default()))
                    && wanted.selector.matches(labels)
            };
            found.extend(objects.into_iter().filter(|object| meant(object)));
        }
        if found.is_empty() {
            context.shared.tracer.note(|| TraceStep {
                what: "targets".into(),
                answer: TraceAnswer::No,
                why: Some("there are none".into()),
                steps: Vec::new(),
            });
        }
        Ok(found)
    }
}

fn not_found(kind: &Gvk, name: &str, kinds: &Kinds) -> Failure {
    let known = kinds.get(kind).map(|known| known.plural().to_owned());
    let plural = known.unwrap_or_else(|| usual_plural(&kind.kind));
    let resource = match kind.group.as_str() {
        "" => plural,
        group => format!("{plural}.{group}"),
    };
    Failure::new(FailureKind::Value, format!("{resource} {name:?} not found")).hint(
        "create the target before its trigger; with a wildcard in its name, or a selector, it may be missing",
    )
}

/// The kinds that a pattern means, each in one version. An unknown kind is taken as written.
fn kinds(pattern: &KindPattern, known: &Kinds) -> Vec<Gvk> {
    let mut found: Vec<Gvk> = Vec::new();
    for kind in known.iter() {
        if !pattern.matches(kind.group(), kind.version(), kind.kind(), &pattern.subresource) {
            continue;
        }
        let seen =
            found.iter().any(|other| other.group == kind.group() && other.kind == kind.kind());
        if !seen {
            // Of several versions, the one that the server prefers, if it is meant.
            let preferred = known
                .preferred(kind.group(), kind.kind())
                .filter(|preferred| wildcard::matches(&pattern.version, preferred.version()));
            found.push(preferred.unwrap_or(kind).gvk());
        }
    }
    let literal = !wildcard::contains_wildcard(&pattern.kind)
        && !wildcard::contains_wildcard(&pattern.version);
    if found.is_empty() && literal {
        let group = if pattern.group == "*" { Str::default() } else { pattern.group.clone() };
        found.push(Gvk { group, version: pattern.version.clone(), kind: pattern.kind.clone() });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_name_kinds_as_match_blocks_do() {
        let found = |written: &str| -> Vec<String> {
            let pattern = KindPattern::parse(written).unwrap();
            kinds(&pattern, &Kinds::builtin()).iter().map(ToString::to_string).collect()
        };
        assert_eq!(found("v1/ConfigMap"), ["v1/ConfigMap"]);
        assert_eq!(found("v1/Deployment"), ["apps/v1/Deployment"]);
        assert_eq!(found("*/Secret"), ["v1/Secret"]);
        assert_eq!(found("v1/Node/status"), ["v1/Node"]);
        assert_eq!(found("acme.io/v1/Thing"), ["acme.io/v1/Thing"]);
        assert_eq!(found("*/Thing"), Vec::<String>::new());
    }
}
