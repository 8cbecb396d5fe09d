//! Running a generate program: blocks, their lists, and what their emitters make.

use kiln_object::{Gvk, ObjectId, Selector};
use kiln_rules::{
    Block, CloneSelect, Emission, Emitter, ForEach, Generate, Operation, Rule, Source, Target,
    TargetNamespace,
};
use kiln_value::{Map, Path, Str, Value};
use kiln_variables::Template;

use crate::context::{Context, text_of};
use crate::output::claim::{Claim, ContentHash, ObjectRef, Slot, set_labels};
use crate::output::effect::Ensure;
use crate::output::failure::{Failure, FailureKind, MissingSource};
use crate::output::trace::{TraceAnswer, TraceStep};
use crate::script::ScriptSession;
use crate::{protected_namespaces, write_gate};

/// Runs a program for one trigger.
pub(crate) struct GenerateRun<'r> {
    pub(crate) rule: &'r Rule,
    pub(crate) trigger: ObjectRef,
    pub(crate) trigger_namespace: Str,
    pub(crate) operation: Option<Operation>,
    pub(crate) made: Vec<Ensure>,
    pub(crate) failures: Vec<Failure>,
}

/// A failure after which nothing else is tried.
struct Stop;

impl GenerateRun<'_> {
    /// `running` is the session of rules whose expressions are in CEL.
    pub(crate) fn program(
        &mut self,
        program: &Generate,
        context: &Context<'_>,
        mut running: Option<&mut ScriptSession<'_>>,
    ) {
        for (at, block) in program.blocks.iter().enumerate() {
            let state = self.block(at, block, context, &mut running);
            if state.is_err() || (program.stop_at_failure && !self.failures.is_empty()) {
                break;
            }
        }
        self.join_duplicates();
    }

    fn block(
        &mut self,
        at: usize,
        block: &Block,
        context: &Context<'_>,
        running: &mut Option<&mut ScriptSession<'_>>,
    ) -> Result<(), Stop> {
        let Some(foreach) = &block.foreach else {
            let slot = Slot { block: at, ..Slot::default() };
            return self.emitters(&block.emitters, slot, context, running);
        };
        let elements = context.query(&foreach.list).map_err(|failure| {
            failure.at(&foreach.path.join("list")).while_doing("in foreach.list")
        });
        let elements = match elements {
            Ok(Value::List(list)) => list,
            Ok(Value::Null) => return Ok(()),
            // Kyverno: what is not a list is its only element.
            Ok(one) => vec![one].into(),
            Err(failure) => return self.fail(failure),
        };
        for (index, element) in elements.iter().enumerate() {
            if let Err(exceeded) = context.shared.counters.element() {
                return self.fail(Failure::from(exceeded).at(&foreach.path.join("list")));
            }
            if element.is_null() {
                continue;
            }
            let slot = Slot { block: at, element: Some(index), emitter: 0 };
            self.element(foreach, &block.emitters, element, slot, context, running)?;
        }
        Ok(())
    }

    fn element(
        &mut self,
        foreach: &ForEach,
        emitters: &[Emitter],
        element: &Value,
        slot: Slot,
        context: &Context<'_>,
        running: &mut Option<&mut ScriptSession<'_>>,
    ) -> Result<(), Stop> {
        let index = slot.element.unwrap_or_default();
        let inner = context.of_element(element, index, 0, &foreach.context);
        context.shared.tracer.within(
            || format!("foreach[{}] element {index}", slot.block),
            || {
                let holds = match &foreach.guard {
                    Some(guard) => inner.holds(guard),
                    None => Ok(true),
                };
                match holds {
                    Ok(true) => self.emitters(emitters, slot, &inner, running),
                    Ok(false) => Ok(()),
                    Err(failure) => self.fail(failure.at(&foreach.path)),
                }
            },
            |_| (TraceAnswer::Done, None),
        )
    }

    fn emitters(
        &mut self,
        emitters: &[Emitter],
        slot: Slot,
        context: &Context<'_>,
        running: &mut Option<&mut ScriptSession<'_>>,
    ) -> Result<(), Stop> {
        for (at, emitter) in emitters.iter().enumerate() {
            let slot = Slot { emitter: at, ..slot };
            let made = match (&emitter.emission, running.as_deref_mut()) {
                (Emission::Data { target, body }, _) => {
                    self.data(target, body.as_ref(), slot, context)
                }
                (Emission::Clone { source, target }, _) => {
                    self.clone(source, target, slot, context)
                }
                (Emission::CloneSelect(select), _) => self.clone_select(select, slot, context),
                (Emission::FromExpression { expression, .. }, Some(running)) => {
                    self.asked(running, expression, emitter, slot, context)
                }
                (Emission::Documents(parts), Some(running)) => {
                    self.documents(running, parts, emitter, slot, context)
                }
                (Emission::FromExpression { .. } | Emission::Documents(_), None) => {
                    Err(Failure::new(FailureKind::Value, "the rule has no script to run this in"))
                }
            };
            if let Err(failure) = made {
                self.fail(failure.at(&emitter.path))?;
            }
        }
        Ok(())
    }

    fn fail(&mut self, failure: Failure) -> Result<(), Stop> {
        let stop = failure.is_final();
        self.failures.push(failure);
        if stop { Err(Stop) } else { Ok(()) }
    }

    fn data(
        &mut self,
        target: &Target,
        body: Option<&Template>,
        slot: Slot,
        context: &Context<'_>,
    ) -> Result<(), Failure> {
        let (mut id, subresource) = self.target(target, context)?;
        let body = match body.map(|body| context.fill(body)).transpose()? {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Map(body)) => body,
            Some(other) => {
                let message =
                    format!("data must be an object, and this is a {}", other.type_name());
                return Err(Failure::new(FailureKind::Target, message));
            }
        };
        // Kyverno: a kind in the data wins over that of the target, all else is the other way round.
        if let Some(Value::String(kind)) = body.get("kind") {
            id.gvk.kind = kind.clone();
        }
        let object = enveloped(&id, body);
        self.ensure(id, subresource, object, Vec::new(), slot, context)
    }

    fn clone(
        &mut self,
        written: &Source,
        target: &Target,
        slot: Slot,
        context: &Context<'_>,
    ) -> Result<(), Failure> {
        let (id, subresource) = self.target(target, context)?;
        let api_version = text(context, &written.api_version, "the apiVersion of the source")?;
        let kind = text(context, &written.kind, "the kind of the source")?;
        let namespace = match &written.namespace {
            Some(namespace) => text(context, namespace, "the namespace of the source")?,
            None => Str::default(),
        };
        let name = text(context, &written.name, "the name of the source")?;
        let source = ObjectId::new(Gvk::new(&api_version, &kind), &namespace, &name);
        if source.same_object(&id) {
            self.skip(context, &id, "it is its own source");
            return Ok(());
        }
        context.shared.gate.may_read_from(some(&namespace), |named| {
            let template = written.namespace.as_ref();
            template.is_none_or(|template| {
                protected_namespaces::in_template(template, named, self.rule)
            })
        })?;
        let found = context.shared.gate.get(&source.gvk, some(&namespace), &name)?;
        let Some(found) = found else {
            let message = format!("source resource {source} not found, so {id} is not made");
            let missing = MissingSource { source, target: Some(id) };
            let kind = FailureKind::SourceMissing(Box::new(missing));
            return Err(Failure::new(kind, message).hint("create the source"));
        };
        self.copy(&found, id, subresource, slot, context)
    }

    fn clone_select(
        &mut self,
        select: &CloneSelect,
        slot: Slot,
        context: &Context<'_>,
    ) -> Result<(), Failure> {
        // An empty namespace means all of them, which an object does not choose.
        let optional = |template: Option<&Template>, what: &str| match template {
            Some(template) => context.all().name(template, what, &[]),
            None => Ok(Str::default()),
        };
        let namespace = optional(select.namespace.as_ref(), "the namespace of the sources")?;
        let into = optional(select.target_namespace.as_ref(), "the target namespace")?;
        let selector = match &select.selector {
            Some(selector) => Selector::from_value(&context.fill(selector)?).map_err(|error| {
                Failure::new(FailureKind::Value, format!("bad selector of cloneList: {error}"))
            })?,
            None => Selector::default(),
        };
        context.shared.gate.may_read_from(some(&namespace), |named| {
            let template = select.namespace.as_ref();
            template.is_none_or(|template| {
                protected_namespaces::in_template(template, named, self.rule)
            })
        })?;
        for kind in &select.kinds {
            let written = text(context, kind, "a kind of cloneList")?;
            let kind = Gvk::parse(&written).ok_or_else(|| {
                Failure::new(FailureKind::Value, format!("{written:?} is not a valid kind"))
                    .hint("write version/Kind or group/version/Kind")
            })?;
            if !namespace.is_empty() && namespace == into {
                self.skip(
                    context,
                    &ObjectId::new(kind, &into, "*"),
                    "it is in the namespace of the sources",
                );
                continue;
            }
            let found = context.shared.gate.list(&kind, some(&namespace), &selector, None)?;
            for source in &found.objects {
                let name = source.str_at(["metadata", "name"]).unwrap_or_default();
                let id = ObjectId::new(kind.clone(), &into, name);
                self.check_protected(&id, context, |named| {
                    let into = select.target_namespace.as_ref();
                    into.is_some_and(|into| {
                        protected_namespaces::in_template(into, named, self.rule)
                    })
                })?;
                if ObjectRef::of(source).id.same_object(&id) {
                    self.skip(context, &id, "it is its own source");
                    continue;
                }
                self.copy(source, id, None, slot, context)?;
            }
        }
        Ok(())
    }

    fn copy(
        &mut self,
        source: &Value,
        id: ObjectId,
        subresource: Option<Str>,
        slot: Slot,
        context: &Context<'_>,
    ) -> Result<(), Failure> {
        let mut from = ObjectRef::of(source);
        from.id.gvk = id.gvk.clone();
        let mut copy = source.clone();
        write_gate::strip_source(&mut copy, from.id.namespace != id.namespace);
        let copy = match copy {
            Value::Map(map) => enveloped(&id, map),
            other => other,
        };
        self.ensure(id, subresource, copy, vec![from], slot, context)
    }

    /// What an object is to be called.
    fn target(
        &self,
        target: &Target,
        context: &Context<'_>,
    ) -> Result<(ObjectId, Option<Str>), Failure> {
        let api_version = text(context, &target.api_version, "the apiVersion of the target")?;
        let kind = context.all().name(&target.kind, "the kind of the target", &['/'])?;
        let name = text(context, &target.name, "the name of the target")?;
        let namespace = match &target.namespace {
            TargetNamespace::None => Str::default(),
            TargetNamespace::Written(namespace) => {
                text(context, namespace, "the namespace of the target")?
            }
            TargetNamespace::OfTrigger => self.trigger_namespace.clone(),
        };
        let (kind, subresource) = match kind.split_once('/') {
            Some((kind, subresource)) => (Str::from(kind), Some(Str::from(subresource))),
            None => (kind, None),
        };
        let id = ObjectId::new(Gvk::new(&api_version, &kind), &namespace, &name);
        self.check_protected(&id, context, |named| match &target.namespace {
            TargetNamespace::Written(template) => {
                protected_namespaces::in_template(template, named, self.rule)
            }
            // A cluster-wide object: a Namespace is named by its name.
            TargetNamespace::None => {
                protected_namespaces::in_template(&target.name, named, self.rule)
            }
            TargetNamespace::OfTrigger => true,
        })?;
        Ok((id, subresource))
    }

    /// Checks that an object is in no protected namespace, unless the rule names it.
    pub(crate) fn check_protected(
        &self,
        id: &ObjectId,
        context: &Context<'_>,
        names: impl FnOnce(&str) -> bool,
    ) -> Result<(), Failure> {
        protected_namespaces::check(
            id,
            self.rule,
            &self.trigger_namespace,
            context.shared.eval_env,
            names,
        )
    }

    pub(crate) fn ensure(
        &mut self,
        id: ObjectId,
        subresource: Option<Str>,
        mut object: Value,
        sources: Vec<ObjectRef>,
        slot: Slot,
        context: &Context<'_>,
    ) -> Result<(), Failure> {
        context.shared.counters.object()?;
        write_gate::check(&id, &self.rule.scope, context.shared.eval_env.kinds)?;
        write_gate::stringify_metadata(&mut object);
        let lifecycle = &self.rule.lifecycle;
        // Before the ownership labels are on: they name the trigger by its UID, which is not content.
        let content = ContentHash::of(&object);
        let claim = Claim {
            rule: self.rule.id.clone(),
            trigger: self.trigger.clone(),
            sources,
            operation: self.operation,
            slot,
            content,
        };
        set_labels(&mut object, &claim.labels(lifecycle.labels));
        context.shared.tracer.note(|| TraceStep {
            what: match claim.sources.first() {
                Some(source) => format!("{id}, a copy of {source}"),
                None => format!("{id}"),
            },
            ..TraceStep::default()
        });
        self.made.push(Ensure {
            target: id,
            subresource,
            object,
            claim,
            write: lifecycle.write,
            existing: lifecycle.on_conflict,
        });
        Ok(())
    }

    pub(crate) fn skip(&self, context: &Context<'_>, target: &ObjectId, why: &str) {
        context.shared.tracer.note(|| TraceStep {
            what: format!("{target} is not made"),
            why: Some(why.to_owned()),
            ..TraceStep::default()
        });
    }

    /// Joins objects that were made twice; two different ones of one name are both withdrawn.
    fn join_duplicates(&mut self) {
        let mut kept: Vec<Ensure> = Vec::with_capacity(self.made.len());
        let mut places = std::collections::HashMap::new();
        let mut torn = vec![false; self.made.len()];
        for made in self.made.drain(..) {
            // Without the version: two versions of one kind are the same object in a cluster.
            let key = (
                made.target.gvk.group.clone(),
                made.target.gvk.kind.clone(),
                made.target.namespace.clone(),
                made.target.name.clone(),
                made.subresource.clone(),
            );
            match places.get(&key) {
                None => {
                    places.insert(key, kept.len());
                    kept.push(made);
                }
                Some(&at) if kept[at].claim.content == made.claim.content => {}
                Some(&at) => {
                    let other = &kept[at].claim.slot;
                    let message = format!(
                        "two parts of the rule make different objects of the name {}: {} and {}",
                        made.target,
                        shown(self.rule, *other),
                        shown(self.rule, made.claim.slot),
                    );
                    let path = path_of(self.rule, made.claim.slot);
                    let mut failure = Failure::new(FailureKind::Conflict, message).hint(
                        "give them different names, for example with the number of the element",
                    );
                    failure.path = path.cloned();
                    self.failures.push(failure);
                    // Neither is made. Which of them comes last is chance to the author, and the two would take turns in the cluster.
                    torn[at] = true;
                }
            }
        }
        let mut at = 0;
        kept.retain(|_| {
            at += 1;
            !torn[at - 1]
        });
        self.made = kept;
    }
}

fn path_of(rule: &Rule, slot: Slot) -> Option<&Path> {
    match &rule.program {
        kiln_rules::Program::Generate(program) => {
            program.blocks.get(slot.block)?.emitters.get(slot.emitter).map(|emitter| &emitter.path)
        }
        _ => None,
    }
}

/// Where a slot was written, as people would say it.
fn shown(rule: &Rule, slot: Slot) -> String {
    let path = path_of(rule, slot).map_or_else(String::new, ToString::to_string);
    match slot.element {
        Some(element) => format!("{path} for element {element}"),
        None => path,
    }
}

fn text(context: &Context<'_>, template: &Template, what: &str) -> Result<Str, Failure> {
    let mut found = text_of(context.fill(template)?, what);
    if let Err(failure) = &mut found
        && let Some(hint) = &mut failure.hint
    {
        // Authors should see everything that is wrong with a call at once.
        for remark in context.shared.remarks.borrow().iter() {
            hint.push_str("; ");
            hint.push_str(&remark.text);
        }
    }
    found
}

fn some(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// An object with its envelope in front, over whatever the body says about it.
pub(crate) fn enveloped(id: &ObjectId, mut body: Map) -> Value {
    let mut metadata = match body.remove("metadata") {
        Some(Value::Map(metadata)) => metadata,
        _ => Map::new(),
    };
    metadata.remove("name");
    metadata.remove("namespace");
    let mut named = Map::new();
    named.insert("name", id.name.clone());
    if !id.namespace.is_empty() {
        named.insert("namespace", id.namespace.clone());
    }
    for (key, value) in metadata.iter() {
        named.insert(key.clone(), value.clone());
    }
    body.remove("apiVersion");
    body.remove("kind");
    let mut object = Map::new();
    object.insert("apiVersion", id.gvk.api_version());
    object.insert("kind", id.gvk.kind.clone());
    object.insert("metadata", named);
    for (key, value) in body.iter() {
        object.insert(key.clone(), value.clone());
    }
    Value::Map(object)
}
