//! Checks for each element of a list.

use kiln_rules::CheckLoop;
use kiln_value::{List, Value};

use super::{Checked, Checking, Failed, Subject};
use crate::context::Context;
use crate::output::failure::{Failure, FailureKind};
use crate::output::trace::TraceAnswer;

impl Checking<'_> {
    pub(super) fn loops(
        &self,
        loops: &[CheckLoop],
        subject: Subject<'_>,
        context: &Context<'_>,
    ) -> Result<Checked, Failure> {
        let mut counted = false;
        let mut unlisted = None;
        for (at, entry) in loops.iter().enumerate() {
            let list = entry.foreach.path.join("list");
            let elements = match context.query_found(&entry.foreach.list) {
                Ok(Some(Value::List(elements))) => elements,
                // Kyverno: a value that is not a list is its only element.
                Ok(Some(one)) => List::from(vec![one]),
                // Kyverno: a list that is not there has no elements.
                Ok(None) => continue,
                Err(failure) if failure.bars_defaults() => return Err(failure.at(&list)),
                Err(failure) => {
                    let failure = failure.at(&list).while_doing("failed to evaluate list");
                    unlisted.get_or_insert(failure);
                    continue;
                }
            };
            for (index, element) in elements.iter().enumerate() {
                let counters = &context.shared.counters;
                counters.element().map_err(|exceeded| Failure::from(exceeded).at(&list))?;
                if element.is_null() {
                    continue;
                }
                let inner =
                    context.of_element(element, index, subject.depth, &entry.foreach.context);
                let checked = context.shared.tracer.within(
                    || format!("foreach[{at}] element {index}"),
                    || self.element(entry, element, subject, &inner),
                    |checked| match checked {
                        Ok(Checked::Pass(_)) => (TraceAnswer::Yes, None),
                        Ok(Checked::Fail(failed)) => {
                            (TraceAnswer::No, Some(failed.message.clone()))
                        }
                        Ok(Checked::Skip(why)) => (TraceAnswer::Done, Some(why.clone())),
                        Ok(Checked::Nothing(why)) => (TraceAnswer::Done, Some((*why).to_owned())),
                        Err(_) => (TraceAnswer::Failed, None),
                    },
                );
                match checked {
                    Ok(Checked::Pass(_)) => counted = true,
                    Ok(Checked::Skip(_) | Checked::Nothing(_)) => {}
                    Ok(Checked::Fail(failed)) => {
                        let message = format!("validation failure: {}", failed.message);
                        return Ok(Checked::Fail(Failed { message, ..failed }));
                    }
                    Err(failure) => return Err(failure.while_doing("validation failure")),
                }
            }
        }
        match unlisted {
            _ if counted => Ok(Checked::Pass("rule passed".to_owned())),
            Some(failure) => Err(failure),
            None => Ok(Checked::Nothing("no element was checked")),
        }
    }

    fn element(
        &self,
        entry: &CheckLoop,
        element: &Value,
        subject: Subject<'_>,
        context: &Context<'_>,
    ) -> Result<Checked, Failure> {
        let is_map = matches!(element, Value::Map(_));
        if entry.element_scope == Some(true) && !is_map {
            let message = format!(
                "failed to process foreach: cannot use elementScope=true foreach rules for elements \
                 that are not maps, expected type=map got type={}",
                element.type_name()
            );
            let failure = Failure::new(FailureKind::Value, message);
            return Err(failure.at(&entry.foreach.path.join("elementScope")));
        }
        if let Some(guard) = &entry.foreach.guard {
            let held = context.holds(guard).map_err(|failure| failure.at(&entry.foreach.path))?;
            if !held {
                return Ok(Checked::Skip("preconditions not met".to_owned()));
            }
        }
        let depth = subject.depth + 1;
        let value = match is_map && entry.element_scope != Some(false) {
            true => element,
            false => self.object,
        };
        self.check(&entry.check, Subject { value, depth }, context)
    }
}
