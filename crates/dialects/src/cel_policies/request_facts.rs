//! What CEL expressions read that only a request tells.

use kiln_rules::{
    DocumentPart, Emission, Expression, Mutate, Mutation, NamedExpression, Program, RequestFacts,
    Script, Targets, TextPiece,
};

/// What the expressions of a rule read of the request.
pub(crate) fn of_rule(script: Option<&Script>, program: &Program) -> RequestFacts {
    let named = script.into_iter().flat_map(|script| {
        script.variables.iter().chain(&script.conditions).chain(&script.annotations)
    });
    let named = named.map(|named| &named.expression);
    named.chain(expressions(program)).map(of_expression).collect()
}

/// What one expression reads of the request. `oldObject` is also a variable of its own.
pub(crate) fn of_expression(expression: &Expression) -> RequestFacts {
    let request = expression.program.uses("request");
    let fields = request.fields.iter().map(|field| RequestFacts::of_field(Some(field)));
    let whole = request.whole.then(|| RequestFacts::of_field(None));
    let old_object = expression.program.uses("oldObject").is_any();
    fields.chain(whole).chain([RequestFacts { old_object, ..RequestFacts::default() }]).collect()
}

/// All expressions of a program.
fn expressions(program: &Program) -> Vec<&Expression> {
    let mut found = Vec::new();
    match program {
        Program::Generate(generate) => {
            for (_, _, emitter) in generate.emitters() {
                found.extend(emitted(&emitter.emission));
            }
        }
        Program::Mutate(mutate) => changed(mutate, &mut found),
        Program::Validate(validate) => found.extend(validate.expressions()),
        // Their languages know no requests.
        Program::Modify(_) | Program::Delete(_) => {}
    }
    found
}

fn changed<'p>(mutate: &'p Mutate, found: &mut Vec<&'p Expression>) {
    if let Mutation::Steps(steps) = &mutate.change {
        found.extend(steps.iter().map(|step| &step.expression));
    }
    let named = |conditions: &'p [NamedExpression]| {
        conditions.iter().map(|condition| &condition.expression)
    };
    match &mutate.targets {
        Some(Targets::FromExpression(targets)) => {
            found.push(&targets.expression);
            found.extend(named(&targets.conditions));
        }
        Some(Targets::Filtered(targets)) => found.extend(named(&targets.conditions)),
        Some(_) | None => {}
    }
}

/// The expressions of an emitter.
pub(super) fn emitted(emission: &Emission) -> Vec<&Expression> {
    let mut found = Vec::new();
    match emission {
        Emission::FromExpression { expression, .. } => found.push(expression),
        Emission::Documents(parts) => parts.iter().for_each(|part| in_document(part, &mut found)),
        Emission::Data { .. } | Emission::Clone { .. } | Emission::CloneSelect(_) => {}
    }
    found
}

fn in_document<'p>(part: &'p DocumentPart, found: &mut Vec<&'p Expression>) {
    match part {
        DocumentPart::Plain(_) => {}
        DocumentPart::Whole(expression) => found.push(expression),
        DocumentPart::Text(pieces) => {
            found.extend(pieces.iter().filter_map(|piece| match piece {
                TextPiece::Plain(_) => None,
                TextPiece::Value(expression) => Some(expression),
            }));
        }
        DocumentPart::Map(entries) => {
            entries.iter().for_each(|(_, part)| in_document(part, found));
        }
        DocumentPart::List(parts) => parts.iter().for_each(|part| in_document(part, found)),
    }
}
