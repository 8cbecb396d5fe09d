//! Running programs that look at an object through paths.
//!
//! | module | holds |
//! |---|---|
//! | `items` | whether an object is as the items say |
//! | `patch` | operations computed and applied, also to what kubectl last applied |
//! | `repeats` | what is not added again when an API server asks again |
//! | `references` | objects that belong to the object: its namespace, the node of a Pod |

mod items;
mod patch;
mod references;
mod repeats;

use kiln_gotemplate::{
    Numbers, Rendering, Template, TemplateEnvironment, TemplateField, TemplateLimits,
};
use kiln_jsonpath::JsonPathLimits as PathLimits;
use kiln_rules::{Modify, NamespaceReach};
use kiln_value::{Str, Value};

use crate::context::EvalShared;
use crate::input::event::Event;
use crate::output::effect::Effect;
use crate::output::failure::Failure;
use crate::output::trace::TraceStep;

/// One program on one object.
pub(crate) struct Modifying<'m> {
    program: &'m Modify,
    shared: &'m EvalShared<'m>,
    /// The namespace of the object; empty for cluster-scoped ones.
    namespace: Str,
    references: Option<Value>,
    /// The object before the request.
    old: Option<&'m Value>,
    /// The object before the rules of the tier, if others have changed it since.
    came: Option<&'m Value>,
}

impl<'m> Modifying<'m> {
    pub(crate) fn new(
        program: &'m Modify,
        event: &'m Event,
        object: &Value,
        shared: &'m EvalShared<'m>,
    ) -> Result<Self, Failure> {
        // KubeMod: a Namespace counts as cluster-scoped, whatever the request says.
        let is_namespace = event.kind.group.is_empty() && event.kind.kind == "Namespace";
        let namespace = crate::input::event::namespace_of(object)
            .or_else(|| event.namespace.clone())
            .filter(|_| !is_namespace)
            .unwrap_or_default();
        let references = match program.asks_for_references {
            true => references::of(object, &namespace, shared)?,
            false => None,
        };
        let (old, came) = (event.old_object.as_ref(), event.context.tier_snapshot.as_ref());
        Ok(Modifying { program, shared, namespace, references, old, came })
    }

    /// Whether the rule looks at the object's namespace.
    pub(crate) fn reached(&self) -> bool {
        let reached = match &self.program.reach {
            NamespaceReach::Scope => true,
            NamespaceReach::Beyond { own, .. } if *own == self.namespace => true,
            NamespaceReach::Beyond { names: None, .. } => self.namespace.is_empty(),
            NamespaceReach::Beyond { names: Some(names), .. } => names.is_match(&self.namespace),
        };
        self.shared.tracer.note(|| TraceStep {
            what: "namespace".into(),
            answer: reached.into(),
            why: Some(match self.namespace.as_str() {
                "" => "the object is cluster-scoped".into(),
                namespace => format!("the object is in {namespace:?}"),
            }),
            steps: Vec::new(),
        });
        reached
    }

    /// The object as items and templates see it.
    fn seen(&self, object: &Value) -> Value {
        let mut seen = object.clone();
        seen.remove(["metadata", "managedFields"]);
        if let (Some(references), Value::Map(map)) = (&self.references, &mut seen)
            && !map.contains_key(references::FIELD)
        {
            map.insert(references::FIELD, references.clone());
        }
        seen
    }

    fn path_limits(&self) -> PathLimits {
        PathLimits {
            steps: self.shared.eval_env.limits.steps.min(PathLimits::default().steps),
            ..PathLimits::default()
        }
    }

    /// The text of a template about the object, with further fields.
    fn render(
        &self,
        template: &Template,
        seen: &Value,
        further: &[TemplateField<'_>],
    ) -> Result<Rendering, kiln_gotemplate::Error> {
        let namespace = Value::from(self.namespace.clone());
        let mut fields = vec![
            TemplateField { name: "Namespace", value: &namespace, numbers: Numbers::Floats },
            TemplateField { name: "Target", value: seen, numbers: Numbers::Floats },
        ];
        fields.extend_from_slice(further);
        let sources = self.shared.eval_env.sources;
        let limits = TemplateLimits {
            bytes: self.shared.counters.bytes_left().min(TemplateLimits::default().bytes),
            ..TemplateLimits::default()
        };
        template.render_fields(&fields, &TemplateEnvironment { sources, limits })
    }

    /// The refusal of the object: the rule, and its words if it has some.
    pub(crate) fn rejection(
        &self,
        policy: String,
        message: Option<&Template>,
        object: &Value,
    ) -> Effect {
        let seen = self.seen(object);
        // KubeMod: a message that cannot be rendered is left out; the object is refused all the same.
        let words =
            message.and_then(|message| self.render(message, &seen, &[]).ok().map(|made| made.text));
        let message = match &words {
            Some(words) => format!("{policy}: {}", kiln_text::quote::quote(words)),
            None => policy,
        };
        Effect::Reject { message, words }
    }
}
