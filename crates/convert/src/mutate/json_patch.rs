//! JSON patches as lists of `JSONPatch{}`.

use kiln_value::{Path, Value};
use kiln_yaml::{ReadOptions, read_bytes};

use super::Changes;
use crate::cel::Cel;
use crate::conditions_to_cel::conditions;
use crate::context;
use crate::jmespath_to_cel::{Scope, translate};
use crate::shape::Shape;
use crate::templates::{self, Part};
use crate::term::{Place, Term};
use crate::verdict::Obstacle;

/// A step of a pointer.
enum Step {
    Key(String),
    Computed(Cel),
}

impl Step {
    /// Whether it leads to an element of a list.
    fn is_element(&self) -> bool {
        match self {
            Step::Key(key) => key == "-" || key.parse::<i64>().is_ok(),
            Step::Computed(cel) => {
                matches!(cel, Cel::Call { target: None, function, .. } if function == "string")
            }
        }
    }

    /// What the step leads to.
    fn below(&self, place: &Place) -> Place {
        match self {
            Step::Key(key) => match key.parse::<i64>() {
                Ok(at) => place.at(Cel::int(at), place.shape.element()),
                Err(_) => place.field(key),
            },
            // The number of an element, as text.
            Step::Computed(Cel::Call { target: None, function, args })
                if function == "string" && args.len() == 1 =>
            {
                place.at(args[0].clone(), place.shape.element())
            }
            Step::Computed(cel) => place.at(cel.clone(), Shape::Unknown),
        }
    }
}

impl Changes<'_> {
    /// The patches of a rule.
    pub(super) fn patches(
        &mut self,
        patches: &Value,
        scope: &Scope,
        path: &Path,
    ) -> Result<Cel, Obstacle> {
        let operations = read(patches, path)?;
        let mut parents: Vec<(String, Cel)> = Vec::new();
        let (mut found, mut optional): (Vec<Cel>, Vec<Cel>) = (Vec::new(), Vec::new());
        for (at, operation) in operations.iter().enumerate() {
            let path = path.join(at);
            let pointer = operation.str_at(["path"]).unwrap_or_default();
            let steps = steps(pointer, scope).map_err(|obstacle| obstacle.at(&path))?;
            let word = operation.str_at(["op"]).unwrap_or_default();
            if word == "add" {
                self.parents(&steps, &mut parents);
            }
            let mut fields =
                vec![("op".to_owned(), Cel::text(word)), ("path".to_owned(), pointer_cel(&steps))];
            if let Some(from) = operation.str_at(["from"]) {
                let from = self::steps(from, scope).map_err(|obstacle| obstacle.at(&path))?;
                fields.push(("from".to_owned(), pointer_cel(&from)));
            }
            if let Some(value) = operation.get("value") {
                let value = templates::term(value, scope, &path.join("value"))?;
                fields.push(("value".to_owned(), dynamic(&value)));
            }
            let patch = Cel::Struct("JSONPatch".to_owned(), fields);
            let place = steps.iter().fold(self.object.clone(), |place, step| step.below(&place));
            // Kyverno: what is not there is removed already.
            match word == "remove" && !place.is_present() {
                true => optional.push(Cel::choose(
                    place.has(),
                    Cel::List(vec![patch]),
                    Cel::empty_list(),
                )),
                false => found.push(patch),
            }
        }
        let before = parents.into_iter().map(|(_, cel)| cel);
        let own = (!found.is_empty()).then_some(Cel::List(found));
        Ok(before.chain(optional).chain(own).reduce(Cel::plus).unwrap_or_else(Cel::empty_list))
    }

    /// Kyverno makes the parents of what is added; a JSON patch of a policy in CEL does not.
    fn parents(&self, steps: &[Step], parents: &mut Vec<(String, Cel)>) {
        let mut place = self.object.clone();
        for (at, step) in steps.iter().enumerate() {
            let Some((next, _)) = steps[at + 1..].split_first() else { return };
            place = step.below(&place);
            let pointer = pointer_cel(&steps[..=at]);
            let known = crate::cel_printer::print_flat(&pointer);
            let is_element = step.is_element();
            if is_element || place.is_present() || parents.iter().any(|(other, _)| *other == known)
            {
                continue;
            }
            let empty = if next.is_element() { Cel::empty_list() } else { Cel::Map(Vec::new()) };
            let make = Cel::Struct(
                "JSONPatch".to_owned(),
                vec![
                    ("op".to_owned(), Cel::text("add")),
                    ("path".to_owned(), pointer),
                    ("value".to_owned(), empty),
                ],
            );
            let cel = Cel::choose(place.has(), Cel::empty_list(), Cel::List(vec![make]));
            parents.push((known, cel));
        }
    }

    /// Patches for each element of a list, with its index.
    pub(super) fn patch_loop(
        &mut self,
        entry: &Value,
        patches: &Value,
        path: &Path,
    ) -> Result<Cel, Obstacle> {
        let mut scope = self.scope.clone();
        let list = translate(entry.str_at(["list"]).unwrap_or_default(), &scope)
            .map_err(|obstacle| obstacle.at(&path.join("list")))?;
        let cel = super::merge::looped(&list);
        // There is an index only where there is a list.
        let there = match &list {
            Term::Several(_) => cel.clone(),
            list => list.strict(),
        };
        let element = Place::of(there.index(Cel::name("i"), false), list.shape().element());
        scope.set("element", Term::Place(element));
        scope.set("elementIndex", Term::Value(Cel::name("i"), Shape::Int));
        context::add(entry.get("context"), self.kinds, &mut scope, None, &path.join("context"))?;
        let mut indices = Cel::function("lists.range", vec![Cel::function("size", vec![cel])]);
        if entry.str_at(["order"]) == Some("Descending") {
            indices = indices.call("reverse", vec![]);
        }
        if let Some(found) = entry.get("preconditions") {
            let guard = conditions(found, &scope, &path.join("preconditions"))?;
            if !guard.is_bool(true) {
                indices = indices.each("filter", "i", guard);
            }
        }
        let each = self.patches(patches, &scope, &path.join("patchesJson6902"))?;
        Ok(match each {
            Cel::List(mut one) if one.len() == 1 => indices.each("map", "i", one.remove(0)),
            // Parents that do not depend on the element are made once.
            each => indices.each("map", "i", each).call("flatten", vec![]),
        })
    }
}

/// The operations of a patch, which is a text of YAML or a list.
fn read(patches: &Value, path: &Path) -> Result<Vec<Value>, Obstacle> {
    let bad =
        |why: String| Obstacle::new("patchesJson6902", format!("mend the patch: {why}")).at(path);
    match patches {
        Value::List(list) => Ok(list.iter().cloned().collect()),
        Value::String(text) => {
            // Variables in braces are not YAML: they stand in quotes while it is read.
            let quoted = quoted_variables(text);
            let read = read_bytes("patch", quoted.as_bytes(), ReadOptions::kubernetes())
                .map_err(|problem| bad(problem.to_string()))?;
            match read.first().map(|document| document.value().clone()) {
                Some(Value::List(list)) => Ok(list.iter().cloned().collect()),
                _ => Err(bad("it is not a list of operations".to_owned())),
            }
        }
        _ => Err(bad("it is neither text nor a list".to_owned())),
    }
}

/// A text of YAML in which values that begin with a variable are in quotes.
fn quoted_variables(text: &str) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        match line.split_once(": ") {
            Some((key, value))
                if value.trim_start().starts_with("{{") && value.trim_end().ends_with("}}") =>
            {
                lines.push(format!(
                    "{key}: \"{}\"",
                    value.trim().replace('\\', "\\\\").replace('"', "\\\"")
                ));
            }
            _ => lines.push(line.to_owned()),
        }
    }
    lines.join("\n")
}

/// The steps of a pointer, which may hold variables.
fn steps(pointer: &str, scope: &Scope) -> Result<Vec<Step>, Obstacle> {
    let mut steps: Vec<Vec<Part>> = Vec::new();
    for part in templates::parts(pointer) {
        match part {
            Part::Text(text) => {
                for (at, piece) in text.split('/').enumerate() {
                    if at > 0 {
                        steps.push(Vec::new());
                    }
                    if !piece.is_empty()
                        && let Some(last) = steps.last_mut()
                    {
                        last.push(Part::Text(piece.to_owned()));
                    }
                }
            }
            variable => steps.last_mut().into_iter().for_each(|last| last.push(variable.clone())),
        }
    }
    let mut found = Vec::new();
    for step in steps {
        found.push(match step.as_slice() {
            [Part::Text(text)] => Step::Key(text.replace("~1", "/").replace("~0", "~")),
            [] => continue,
            parts => {
                let text: String = parts
                    .iter()
                    .map(|part| match part {
                        Part::Text(text) => text.replace("~1", "/").replace("~0", "~"),
                        Part::Variable(variable) => format!("{{{{ {variable} }}}}"),
                    })
                    .collect();
                let term = templates::text_term(&text, scope)?;
                let cel = match term.shape() {
                    Shape::Int => Cel::function("string", vec![term.strict()]),
                    _ => Cel::name("jsonpatch").call("escapeKey", vec![term.strict()]),
                };
                Step::Computed(cel)
            }
        });
    }
    Ok(found)
}

fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// The pointer as text, or as an expression.
fn pointer_cel(steps: &[Step]) -> Cel {
    let mut joined: Option<Cel> = None;
    let mut text = String::new();
    let push = |joined: &mut Option<Cel>, part: Cel| {
        *joined = Some(match joined.take() {
            Some(before) => before.plus(part),
            None => part,
        });
    };
    for step in steps {
        text.push('/');
        match step {
            Step::Key(key) => text.push_str(&escaped(key)),
            Step::Computed(cel) => {
                push(&mut joined, Cel::text(std::mem::take(&mut text)));
                push(&mut joined, cel.clone());
            }
        }
    }
    if !text.is_empty() || joined.is_none() {
        push(&mut joined, Cel::text(text));
    }
    joined.unwrap_or_else(|| Cel::text(""))
}

/// A value of a patch. Maps with values of several types say so.
pub(crate) fn dynamic(term: &Term) -> Cel {
    fn of(value: &Value) -> Cel {
        match value {
            Value::Map(map) => {
                let mut types: Vec<&str> = map.values().map(Value::type_name).collect();
                types.dedup();
                let mixed = types.len() > 1;
                let entries = map.iter().map(|(key, value)| {
                    let cel = of(value);
                    (
                        Cel::text(key.as_str()),
                        if mixed { Cel::function("dyn", vec![cel]) } else { cel },
                    )
                });
                Cel::Map(entries.collect())
            }
            Value::List(list) => Cel::List(list.iter().map(of).collect()),
            scalar => Cel::Literal(scalar.clone()),
        }
    }
    match term {
        Term::Literal(value) => of(value),
        Term::Fields(parts) => {
            let entries = parts
                .iter()
                .map(|(key, part)| (Cel::text(key), Cel::function("dyn", vec![dynamic(part)])));
            Cel::Map(entries.collect())
        }
        Term::Several(parts) => Cel::List(parts.iter().map(dynamic).collect()),
        other => other.strict(),
    }
}
