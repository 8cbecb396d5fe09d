//! The objects that expressions and documents ask for, as a generate program makes them.

use kiln_cel::{Effect, Val};
use kiln_object::{Gvk, ObjectId};
use kiln_rules::{DocumentPart, Emitter, Expression, Scope};
use kiln_value::{Str, Value};

use super::read_log::Origins;
use super::{ScriptSession, documents};
use crate::context::{Context, Remark};
use crate::generate::{GenerateRun, enveloped};
use crate::output::claim::{ObjectRef, Slot};
use crate::output::failure::{Failure, FailureKind};
use crate::{protected_namespaces, write_gate};

/// How often one evaluation says that objects are made elsewhere than they say.
const MOST_REMARKS: usize = 16;

impl GenerateRun<'_> {
    /// Runs an expression and makes what it asked for: all of it, or nothing when it fails.
    pub(crate) fn asked(
        &mut self,
        running: &mut ScriptSession<'_>,
        expression: &Expression,
        emitter: &Emitter,
        slot: Slot,
        context: &Context<'_>,
    ) -> Result<(), Failure> {
        let value = running.eval(expression)?;
        let effects = running.take_effects();
        check_result(&value, expression)?;
        let before = self.made.len();
        let mut number = 0;
        for effect in effects {
            let Effect::Generate { namespace, objects } = effect;
            // The call of a namespaced policy names none: there is only one.
            let namespace = namespace.or_else(|| self.rule.scope.namespace().map(Str::from));
            for object in objects {
                let slot = Slot { element: Some(number), ..slot };
                number += 1;
                let made = self.object(running, object, namespace.as_ref(), emitter, slot, context);
                if let Err(failure) = made {
                    self.made.truncate(before);
                    return Err(running.blame(failure.while_doing("failed to generate resources")));
                }
            }
        }
        Ok(())
    }

    /// Fills documents in, each an object.
    pub(crate) fn documents(
        &mut self,
        running: &mut ScriptSession<'_>,
        parts: &[DocumentPart],
        emitter: &Emitter,
        slot: Slot,
        context: &Context<'_>,
    ) -> Result<(), Failure> {
        let before = self.made.len();
        for (at, part) in parts.iter().enumerate() {
            let slot = Slot { element: Some(at), ..slot };
            let made = documents::fill(running, part, at + 1)
                .and_then(|object| self.object(running, object, None, emitter, slot, context));
            if let Err(failure) = made {
                self.made.truncate(before);
                return Err(running.blame(failure));
            }
        }
        Ok(())
    }

    /// One object; `into` is the namespace that the expression said.
    fn object(
        &mut self,
        running: &mut ScriptSession<'_>,
        mut object: Value,
        into: Option<&Str>,
        emitter: &Emitter,
        slot: Slot,
        context: &Context<'_>,
    ) -> Result<(), Failure> {
        let Origins { sources, whole } = running.read_log.borrow_mut().origins(&object);
        let asked = ObjectRef::of(&object).id;
        let id = self.called(&asked, into, emitter, context)?;
        self.check_protected(&id, context, |_| {
            protected_namespaces::in_emitter(emitter, self.rule, &id)
        })?;
        let carried = sources.iter().any(|source| source.id.namespace == asked.namespace);
        if into.is_some()
            && !asked.namespace.is_empty()
            && asked.namespace != id.namespace
            && !carried
        {
            let text = format!(
                "{} says namespace {:?} itself, and is made in {:?}: the namespace of the call wins",
                asked,
                asked.namespace.as_str(),
                id.namespace.as_str()
            );
            let path = Some(emitter.path.clone());
            let mut remarks = context.shared.remarks.borrow_mut();
            if remarks.len() < MOST_REMARKS {
                remarks.push(Remark { text, path });
            }
        }
        let moved = match sources.first() {
            Some(source) => source.id.namespace != id.namespace,
            None => !asked.namespace.is_empty() && asked.namespace != id.namespace,
        };
        if whole {
            write_gate::strip_source(&mut object, moved);
        } else {
            write_gate::strip_server_fields(&mut object, moved);
        }
        let object = match object {
            Value::Map(map) => enveloped(&id, map),
            other => other,
        };
        context.shared.counters.bytes(kiln_value::json::to_string(&object).len() as u64)?;
        let is_source = |source: &ObjectRef| source.id.same_object(&id);
        if whole && sources.iter().any(is_source) {
            self.skip(context, &id, "it is its own source");
            return Ok(());
        }
        self.ensure(id, None, object, sources, slot, context)
    }

    /// What an object is called, in the namespace that it goes to.
    fn called(
        &self,
        asked: &ObjectId,
        into: Option<&Str>,
        emitter: &Emitter,
        context: &Context<'_>,
    ) -> Result<ObjectId, Failure> {
        let ObjectId { gvk, namespace, name } = asked;
        let entry = match &emitter.name {
            Some(name) => format!("{} ({name})", emitter.path),
            None => emitter.path.to_string(),
        };
        if gvk.kind.is_empty() || gvk.version.is_empty() {
            let message = format!("{entry} asks for an object without apiVersion or kind");
            return Err(Failure::new(FailureKind::Target, message).hint("set both"));
        }
        if name.is_empty() {
            let message = format!("{entry} asks for a {} without metadata.name", gvk.kind);
            return Err(Failure::new(FailureKind::Target, message)
                .hint("set metadata.name, for example to a name made of object.metadata.name"));
        }
        let scope = &self.rule.scope;
        if context.shared.eval_env.kinds.is_namespaced(gvk) == Some(false) {
            if let Scope::Namespace(own) = scope {
                let message = format!(
                    "cross-scope generation denied: a policy scoped to namespace {:?} cannot \
                     generate cluster-scoped resource {}/{}",
                    own.as_str(),
                    gvk.api_version(),
                    gvk.kind
                );
                return Err(
                    Failure::new(FailureKind::OutOfReach, message).hint("use a GeneratingPolicy")
                );
            }
            return Ok(ObjectId::new(Gvk::clone(gvk), "", name));
        }
        let namespace = match (scope, into) {
            (Scope::Cluster, Some(into)) => into,
            (Scope::Cluster, None) => namespace,
            (Scope::Namespace(own), Some(_)) => own,
            // Kyverno: a document that says another namespace is refused.
            (Scope::Namespace(own), None) if namespace.is_empty() || namespace == own => own,
            (Scope::Namespace(own), None) => {
                let message = format!(
                    "cross-namespace generation denied: a policy in namespace {:?} cannot generate \
                     resources into namespace {:?}",
                    own.as_str(),
                    namespace.as_str()
                );
                return Err(
                    Failure::new(FailureKind::OutOfReach, message).hint("use a GeneratingPolicy")
                );
            }
        };
        Ok(ObjectId::new(gvk.clone(), namespace, name))
    }
}

/// An expression that makes objects gives true or false, or lists of them.
fn check_result(value: &Val, expression: &Expression) -> Result<(), Failure> {
    match value {
        Val::Bool(_) => Ok(()),
        Val::List(list) => list.iter().try_for_each(|value| check_result(&value, expression)),
        other => {
            let message =
                format!("output is expected to be of type bool, and is {}", other.type_name());
            Err(Failure::new(FailureKind::Value, message).at(&expression.path))
        }
    }
}
