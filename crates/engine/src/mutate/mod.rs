//! Running a mutate program: patches, loops over them, and the objects they act on.
//!
//! | module | holds |
//! |---|---|
//! | here | what a change makes of one object |
//! | `patch` | one patch on one object |
//! | `targets` | finding stored objects to change, and changing them |

mod patch;
mod targets;

use kiln_rules::{ForEachOrder, Mutation, MutationLoop};
use kiln_value::{List, Value};

use crate::context::Context;
use crate::output::failure::Failure;
use crate::output::trace::TraceAnswer;
use crate::write_gate::stringify_changed_metadata;

pub(crate) use patch::size;
pub(crate) use targets::{MutateRun, changed_object};

/// The name under which a change sees the object that it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// `request.object`.
    Trigger,
    /// `target`.
    Target,
}

/// What a change makes of an object. Nothing of it is kept when a part of it fails.
pub(crate) fn change(
    change: &Mutation,
    object: &Value,
    context: &Context<'_>,
    subject: Subject,
) -> Result<Value, Failure> {
    let mut after = changed(change, object, context, subject, 0)?;
    // Kyverno leaves them as they are, and the API server then refuses the object.
    stringify_changed_metadata(&mut after, object);
    Ok(after)
}

fn changed(
    change: &Mutation,
    object: &Value,
    context: &Context<'_>,
    subject: Subject,
    depth: usize,
) -> Result<Value, Failure> {
    let loops = match change {
        Mutation::Patch(patch) => return patch::apply(patch, object, context),
        Mutation::Loops(loops) => loops,
        // Those run in the session of a script.
        Mutation::Steps(_) => return Ok(object.clone()),
    };
    let mut object = object.clone();
    let mut renewed: Option<Context<'_>> = None;
    for (at, entry) in loops.iter().enumerate() {
        let here = renewed.as_ref().unwrap_or(context);
        let after = looped(entry, at, &object, here, subject, depth)?;
        // Kyverno: the next loop sees what this one left; the elements of one loop do not see each
        // other's changes.
        if after != object {
            object = after;
            let values = match subject {
                Subject::Trigger => ("request", here.request_with(&object)?),
                Subject::Target => ("target", object.clone()),
            };
            renewed = Some(here.renewed(values.0, values.1));
        }
    }
    Ok(object)
}

fn looped(
    entry: &MutationLoop,
    at: usize,
    object: &Value,
    context: &Context<'_>,
    subject: Subject,
    depth: usize,
) -> Result<Value, Failure> {
    let list = entry.foreach.path.join("list");
    let elements = context
        .query(&entry.foreach.list)
        .map_err(|failure| failure.at(&list).while_doing("in foreach.list"))?;
    let elements = match elements {
        Value::List(elements) => elements,
        Value::Null => List::from(Vec::new()),
        // Kyverno: what is not a list is its only element.
        one => List::from(vec![one]),
    };
    let mut object = object.clone();
    let mut numbered: Vec<(usize, &Value)> = elements.iter().enumerate().collect();
    if entry.order == ForEachOrder::Descending {
        numbered.reverse();
    }
    for (index, element) in numbered {
        context.shared.counters.element().map_err(|exceeded| Failure::from(exceeded).at(&list))?;
        if element.is_null() {
            continue;
        }
        let inner = context.of_element(element, index, depth, &entry.foreach.context);
        let step = || {
            if let Some(guard) = &entry.foreach.guard
                && !inner.holds(guard).map_err(|failure| failure.at(&entry.foreach.path))?
            {
                return Ok(None);
            }
            changed(&entry.change, &object, &inner, subject, depth + 1).map(Some)
        };
        let after = context.shared.tracer.within(
            || format!("foreach[{at}] element {index}"),
            step,
            |after| match after {
                Ok(Some(_)) => (TraceAnswer::Done, None),
                Ok(None) => (TraceAnswer::No, Some("preconditions not met".into())),
                Err(_) => (TraceAnswer::Failed, None),
            },
        )?;
        let after = after.unwrap_or_else(|| object.clone());
        if !context.shared.moved.get() && after != object {
            context.shared.moved.set(true);
        }
        object = after;
    }
    Ok(object)
}
