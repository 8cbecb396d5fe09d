//! JMESPath expressions as CEL: the parsed expression, part by part, with the types of what it reads.
//!
//! A key that is missing is an error in both languages, so paths stay paths; where JMESPath forgives it (`||`, filters,
//! projections, comparisons, arguments of functions), the path becomes an optional.

mod functions;

pub(crate) use functions::{as_text, map_of_keys};

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use kiln_jmespath::{Expression, Syntax};
use kiln_value::Value;

use crate::cel::{Cel, Operator};
use crate::shape::Shape;
use crate::term::{Place, Term, literal};
use crate::verdict::{Difference, Obstacle};

/// The names that expressions can read, and what they stand for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    names: BTreeMap<String, Term>,
    /// Variables of loops that are in use, so that inner ones get other names.
    used: Vec<String>,
    /// What is known to differ; all copies of a scope write into one list.
    notes: Rc<RefCell<Vec<Difference>>>,
}

impl Scope {
    pub(crate) fn set(&mut self, name: &str, term: Term) {
        self.names.insert(name.to_owned(), term);
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Term> {
        self.names.get(name)
    }

    /// Notes inputs for which a translation means something else.
    pub(crate) fn note(&self, difference: Difference) {
        let mut notes = self.notes.borrow_mut();
        if !notes.contains(&difference) {
            notes.push(difference);
        }
    }

    /// What was noted.
    pub(crate) fn notes(&self) -> Vec<Difference> {
        self.notes.borrow().clone()
    }

    /// A name for a variable of a loop, after what the list is called.
    pub(crate) fn fresh(&mut self, list: &Cel) -> String {
        let wanted = singular(list);
        let mut name = wanted.clone();
        let mut number = 2;
        while self.used.contains(&name) || is_taken(&name) {
            name = format!("{wanted}{number}");
            number += 1;
        }
        self.used.push(name.clone());
        name
    }

    /// A loop ends: the next one beside it may use its name.
    pub(crate) fn release(&mut self, name: &str) {
        self.used.retain(|used| used != name);
    }
}

/// Names that expressions of policies have already, or that CEL keeps for itself.
fn is_taken(name: &str) -> bool {
    const WORDS: [&str; 26] = [
        "object",
        "oldObject",
        "request",
        "variables",
        "resource",
        "images",
        "image",
        "in",
        "true",
        "false",
        "null",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
    ];
    WORDS.contains(&name) || name == "void" || name == "while"
}

/// What an element of a list is called: the last word of the list, in the singular.
fn singular(list: &Cel) -> String {
    let word = match list {
        Cel::Select { field, .. } => Some(field.clone()),
        Cel::Name(name) => Some(name.clone()),
        // What a map gives is called after its elements, not after the list that it began with.
        Cel::Call { function, args, .. } if function == "map" => {
            return args.last().map_or_else(|| "item".to_owned(), singular);
        }
        Cel::Call { target: Some(target), .. } => return singular(target),
        Cel::Index { of, .. } => return singular(of),
        Cel::Binary(Operator::Plus, left, _) => return singular(left),
        _ => None,
    };
    let word = word.unwrap_or_else(|| "item".to_owned());
    let lower = word.to_ascii_lowercase();
    for (ending, name) in [("containers", "container"), ("policies", "policy"), ("keys", "key")] {
        if lower.ends_with(ending) {
            return name.to_owned();
        }
    }
    match word
        .strip_suffix("ies")
        .map(|stem| format!("{stem}y"))
        .or_else(|| word.strip_suffix('s').map(str::to_owned))
    {
        Some(stem) if stem.len() > 1 && !lower.ends_with("ss") => stem,
        _ if word == "item" => word,
        _ if word.len() > 1 => format!("{}Item", word.trim_end_matches("Item")),
        _ => "item".to_owned(),
    }
}

/// Translates an expression, with the variables `{{ }}` that stand inside it.
pub(crate) fn translate(text: &str, scope: &Scope) -> Result<Term, Obstacle> {
    let mut scope = scope.clone();
    let text = with_inner_variables(text, &mut scope)?;
    let expression = Expression::compile(&text).map_err(|error| {
        Obstacle::new(format!("expression {text:?}"), format!("mend the expression: {error}"))
    })?;
    let mut translator = Translator { scope, context: text };
    translator.term(&expression.syntax(), &Current::Root)
}

/// Translates an expression that is searched in a value, and not in the context.
pub(crate) fn translate_in(text: &str, scope: &Scope, value: &Term) -> Result<Term, Obstacle> {
    let mut scope = scope.clone();
    let text = with_inner_variables(text, &mut scope)?;
    let expression = Expression::compile(&text).map_err(|error| {
        Obstacle::new(format!("expression {text:?}"), format!("mend the expression: {error}"))
    })?;
    let mut translator = Translator { scope, context: text };
    translator.term(&expression.syntax(), &Current::At(value.clone()))
}

/// Puts names in the place of variables inside an expression: `'{{ x }}'` is text, `` `{{ x }}` `` is a value, and a bare
/// one is a key.
fn with_inner_variables(text: &str, scope: &mut Scope) -> Result<String, Obstacle> {
    let mut text = text.to_owned();
    for number in 0.. {
        let Some(end) = text.find("}}") else { break };
        let Some(start) = text[..end].rfind("{{") else { break };
        let inner = text[start + 2..end].trim().trim_start_matches('-').to_owned();
        let term = translate(&inner, scope)?;
        let (before, after) = (text[..start].chars().last(), text[end + 2..].chars().next());
        let quoted = |mark: char| before == Some(mark) && after == Some(mark);
        if quoted('\'') {
            let name = format!("__v{number}");
            scope.set(&name, functions::as_text(&term));
            text.replace_range(start - 1..end + 3, &name);
        } else if quoted('`') {
            let name = format!("__v{number}");
            scope.set(&name, term);
            text.replace_range(start - 1..end + 3, &name);
        } else if quoted('"') || before == Some('.') {
            let name = format!("__k{number}");
            scope.set(&name, functions::as_text(&term));
            let wide = usize::from(quoted('"'));
            text.replace_range(start - wide..end + 2 + wide, &name);
        } else {
            return Err(Obstacle::new(
                format!("variable {inner:?} inside of an expression"),
                "put it in quotes as a whole, or set it as a context variable first",
            ));
        }
    }
    Ok(text)
}

/// What `@` and names are read from.
#[derive(Clone, Debug)]
enum Current {
    /// The context of the rule.
    Root,
    At(Term),
}

struct Translator {
    scope: Scope,
    /// The text, for messages.
    context: String,
}

type Translated = Result<Term, Obstacle>;

impl Translator {
    fn unsupported(&self, what: impl Into<String>) -> Obstacle {
        Obstacle::new(
            format!("{} in {{{{ {} }}}}", what.into(), self.context),
            "write this part in CEL by hand",
        )
    }

    fn term(&mut self, syntax: &Syntax, current: &Current) -> Translated {
        match syntax {
            Syntax::Current => match current {
                Current::Root => Err(self.unsupported("@ outside of a projection")),
                Current::At(term) => Ok(term.clone()),
            },
            Syntax::Field(name) => self.field(name, current),
            Syntax::Literal(value) => Ok(Term::Literal(value.clone())),
            Syntax::Index(at) => match current {
                Current::Root => Err(self.unsupported("an index of the context")),
                Current::At(term) => self.element(term, *at),
            },
            Syntax::Slice { .. } => Err(self.unsupported("a slice")),
            Syntax::Chain(parts) => self.chain(parts, current),
            Syntax::Pipe(parts) => {
                let mut current = current.clone();
                for part in parts {
                    current = Current::At(self.term(part, &current)?);
                }
                match current {
                    Current::At(term) => Ok(term),
                    Current::Root => Err(self.unsupported("an empty expression")),
                }
            }
            Syntax::Or(parts) => self.or(parts, current),
            Syntax::And(parts) => self.and(parts, current),
            Syntax::Not(part) => {
                let part = self.term(part, current)?;
                Ok(Term::Value(self.truth(&part)?.negate(), Shape::Bool))
            }
            Syntax::Compare(operator, left, right) => {
                let (left, right) = (self.term(left, current)?, self.term(right, current)?);
                self.compare(operator, &left, &right)
            }
            Syntax::MultiList(parts) => {
                let parts: Result<Vec<Term>, Obstacle> =
                    parts.iter().map(|part| self.term(part, current)).collect();
                Ok(Term::Several(parts?))
            }
            Syntax::MultiMap(parts) => {
                let parts: Result<Vec<(String, Term)>, Obstacle> = parts
                    .iter()
                    .map(|(key, part)| match part {
                        // `null` without quotes is a field that nothing has.
                        Syntax::Field(name) if name == "null" => {
                            Ok((key.clone(), Term::Literal(Value::Null)))
                        }
                        part => Ok((key.clone(), self.term(part, current)?)),
                    })
                    .collect();
                Ok(Term::Fields(parts?))
            }
            Syntax::Projection { left, right } => {
                let left = self.term(left, current)?;
                self.project(&left, None, right)
            }
            Syntax::ValueProjection { left, right } => {
                let left = self.term(left, current)?;
                self.project_values(&left, right)
            }
            Syntax::Filter { left, condition, right } => {
                let left = self.term(left, current)?;
                self.project(&left, Some(condition), right)
            }
            Syntax::Flatten(part) => self.flatten(part, current),
            Syntax::Call { name, arguments } => self.call(name, arguments, current),
            Syntax::Reference(_) => Err(self.unsupported("an expression reference")),
        }
    }

    fn field(&mut self, name: &str, current: &Current) -> Translated {
        if let Some(term) = self.scope.get(name).filter(|_| name.starts_with("__v")) {
            return Ok(term.clone());
        }
        if name.starts_with("__k") {
            let key = self.scope.get(name).map_or_else(|| Cel::text(name), Term::strict);
            let Current::At(term) = current else {
                return Err(self.unsupported("a name from a variable"));
            };
            return self.keyed(term, key);
        }
        match current {
            Current::At(Term::Image(image)) => {
                let image = Term::Value((**image).clone(), Shape::Unknown);
                let part = functions::image_part(&image, name);
                let part = part.ok_or_else(|| self.unsupported(format!("{name} of an image")))?;
                Ok(Term::Value(part, Shape::Text))
            }
            Current::At(term) => Ok(term.field(name)),
            // `""` is a field that nothing has; policies mean the empty text by it.
            Current::Root if name.is_empty() => Ok(Term::Literal(Value::Null)),
            Current::Root => self.scope.get(name).cloned().ok_or_else(|| {
                Obstacle::new(
                    format!("variable {name:?} in {{{{ {} }}}}", self.context),
                    "it is set nowhere in the rule: set it in the context, or write a CEL variable",
                )
            }),
        }
    }

    fn keyed(&mut self, term: &Term, key: Cel) -> Translated {
        Ok(match term {
            Term::Place(place) => {
                let shape = place.shape.field("").0;
                Term::Place(place.at(key, shape))
            }
            Term::Literal(Value::Map(_)) | Term::Value(..) => {
                Term::Place(Place::of(term.strict(), term.shape()).at(key, Shape::Unknown))
            }
            Term::Optional(cel, shape) => {
                Term::Optional(cel.clone().index(key, true), shape.field("").0)
            }
            // The image of a container, by its name.
            Term::Images(_) => match key {
                Cel::Select { of, ref field, .. } if field == "name" => {
                    Term::Image(Box::new(Cel::function("image", vec![of.select("image")])))
                }
                _ => return Err(self.unsupported("an image by a name")),
            },
            _ => return Err(self.unsupported("a key from a variable")),
        })
    }

    fn element(&mut self, term: &Term, at: i64) -> Translated {
        let shape = term.shape().element();
        if at < 0 {
            if at != -1 {
                return Err(self.unsupported("a negative index"));
            }
            return Ok(Term::Optional(term.list().call("last", vec![]), shape));
        }
        Ok(match term {
            Term::Place(place) => Term::Place(place.at(Cel::int(at), shape)),
            Term::Optional(cel, _) => Term::Optional(cel.clone().index(Cel::int(at), true), shape),
            Term::Guarded { lenient, .. } => {
                Term::Optional(lenient.clone().index(Cel::int(at), true), shape)
            }
            Term::Several(parts) => {
                let at = usize::try_from(at).unwrap_or(usize::MAX);
                parts.get(at).cloned().unwrap_or(Term::Literal(Value::Null))
            }
            other => Term::Optional(other.strict().index(Cel::int(at), true), shape),
        })
    }

    fn chain(&mut self, parts: &[Syntax], current: &Current) -> Translated {
        let mut current = current.clone();
        for (number, part) in parts.iter().enumerate() {
            let next = match (part, &current) {
                // `request` is not a value of its own in CEL's policies: object and old object stand beside it.
                (Syntax::Field(name), Current::Root) if name == "request" => {
                    let Some(Syntax::Field(inner)) = parts.get(number + 1) else {
                        return Err(self.unsupported("the whole request"));
                    };
                    let name = format!("request.{inner}");
                    let term = self
                        .scope
                        .get(&name)
                        .cloned()
                        .ok_or_else(|| self.unsupported(format!("request.{inner}")))?;
                    let rest = &parts[number + 2..];
                    return match rest.is_empty() {
                        true => Ok(term),
                        false => self.chain(rest, &Current::At(term)),
                    };
                }
                _ => self.term(part, &current)?,
            };
            current = Current::At(next);
        }
        match current {
            Current::At(term) => Ok(term),
            Current::Root => Err(self.unsupported("an empty expression")),
        }
    }

    fn or(&mut self, parts: &[Syntax], current: &Current) -> Translated {
        let mut terms = Vec::new();
        for part in parts {
            terms.push(self.term(part, current)?);
        }
        let is_bool = |term: &Term| term.shape() == Shape::Bool && matches!(term, Term::Value(..));
        if terms.iter().all(is_bool) {
            let parts: Result<Vec<Cel>, Obstacle> =
                terms.iter().map(|term| self.truth(term)).collect();
            return Ok(Term::Value(Cel::any(parts?), Shape::Bool));
        }
        let Some(last) = terms.pop() else { return Err(self.unsupported("an empty ||")) };
        terms.into_iter().rev().try_fold(last, |default, term| self.or_default(&term, &default))
    }

    /// `term || default`: missing, null and empty values give way.
    fn or_default(&mut self, term: &Term, default: &Term) -> Translated {
        // What a request says is there.
        if matches!(term, Term::Value(Cel::Select { of, .. }, _) if **of == Cel::name("request")) {
            return Ok(term.clone());
        }
        if let Term::Literal(value) = term {
            return Ok(if is_false(value) { default.clone() } else { term.clone() });
        }
        let mut shape = term.shape();
        if shape == Shape::Unknown {
            shape = default.shape();
        }
        let value = match default {
            // `|| ''` of a list is only there to have a value.
            Term::Literal(value) if is_false(value) && term.shape().is_list() => Cel::empty_list(),
            Term::Literal(Value::Null) => {
                return Ok(match term {
                    Term::Place(place) if !place.is_present() => {
                        Term::Optional(place.optional(), shape)
                    }
                    Term::Place(_) | Term::Optional(..) | Term::Guarded { .. } => term.clone(),
                    other => Term::Value(other.strict(), shape),
                });
            }
            // Nothing is left if both are missing, which is no error.
            default @ (Term::Place(_) | Term::Optional(..))
                if !default.is_present() && !term.is_present() =>
            {
                let either = term.optional().call("or", vec![default.optional()]);
                return Ok(Term::Optional(either, shape));
            }
            default => default.strict(),
        };
        match term {
            Term::Several(_) => Ok(Term::Value(term.list(), shape)),
            Term::Guarded { .. } if value == Cel::empty_list() => {
                Ok(Term::Value(term.list(), shape))
            }
            term if term.is_present()
                && !matches!(default, Term::Literal(value) if is_false(value)) =>
            {
                let truth = self.truth(term)?;
                Ok(Term::Value(Cel::choose(truth, term.strict(), value), shape))
            }
            term => Ok(Term::Value(term.or(value), shape)),
        }
    }

    fn and(&mut self, parts: &[Syntax], current: &Current) -> Translated {
        let mut terms = Vec::new();
        for part in parts {
            terms.push(self.term(part, current)?);
        }
        let (last, guards) = terms.split_last().ok_or_else(|| self.unsupported("an empty &&"))?;
        let guards: Result<Vec<Cel>, Obstacle> =
            guards.iter().map(|term| self.truth(term)).collect();
        let guards = Cel::all(guards?);
        if last.shape() == Shape::Bool {
            let last = self.truth(last)?;
            return Ok(Term::Value(Cel::all([guards, last]), Shape::Bool));
        }
        Ok(Term::Optional(
            Cel::choose(guards, last.optional(), Cel::function("optional.none", vec![])),
            last.shape(),
        ))
    }

    /// Whether JMESPath takes the value for true.
    fn truth(&self, term: &Term) -> Result<Cel, Obstacle> {
        if let Term::Literal(value) = term {
            return Ok(Cel::bool(!is_false(value)));
        }
        if let Term::Guarded { has, value, .. } = term
            && !term.shape().is_list()
        {
            let truth = self.truth(&Term::Value(value.clone(), term.shape()))?;
            return Ok(Cel::all([has.clone(), truth]));
        }
        Ok(match term.shape() {
            Shape::Bool => {
                let value = term.or(Cel::bool(false));
                if value.is_condition() { value } else { value.equals(Cel::bool(true)) }
            }
            Shape::Text => term.or(Cel::text("")).differs(Cel::text("")),
            Shape::List(_) => {
                Cel::binary(Operator::More, Cel::function("size", vec![term.list()]), Cel::int(0))
            }
            _ => match term.has() {
                has if has.is_bool(true) => {
                    return Err(self.unsupported("a value of unknown type as a condition"));
                }
                has => has,
            },
        })
    }

    fn compare(&mut self, operator: &str, left: &Term, right: &Term) -> Translated {
        let (left, right) = match left {
            Term::Literal(_)
                if !matches!(right, Term::Literal(_)) && matches!(operator, "==" | "!=") =>
            {
                (right, left)
            }
            _ => (left, right),
        };
        let truth = match operator {
            "==" | "!=" => {
                let equal = match right {
                    Term::Literal(Value::Null) => left.has().negate(),
                    Term::Literal(Value::Bool(false))
                        if left.shape().is_list() || left.shape().is_map() =>
                    {
                        Cel::bool(false)
                    }
                    Term::Literal(value) => {
                        let other = unlike(value);
                        left.or(other).equals(literal(value))
                    }
                    right if left.is_present() && right.is_present() => {
                        left.strict().equals(right.strict())
                    }
                    right => left.optional().equals(right.optional()),
                };
                if operator == "==" { equal } else { equal.negate() }
            }
            _ => {
                let operator = match operator {
                    "<" => Operator::Less,
                    "<=" => Operator::LessEqual,
                    ">" => Operator::More,
                    _ => Operator::MoreEqual,
                };
                let present = Cel::all([left.has(), right.has()]);
                Cel::all([present, Cel::binary(operator, left.strict(), right.strict())])
            }
        };
        Ok(Term::Value(truth, Shape::Bool))
    }

    /// `left[?condition].right`, or `left[*].right`.
    fn project(&mut self, left: &Term, condition: Option<&Syntax>, right: &Syntax) -> Translated {
        if let Term::Images(lists) = left {
            return Ok(Term::Images(lists.clone()));
        }
        if let (Term::Several(parts), None) = (left, condition) {
            // `[a, b].x`: each part is an element.
            let each: Result<Vec<Term>, Obstacle> =
                parts.iter().map(|part| self.term(right, &Current::At(part.clone()))).collect();
            return Ok(Term::Several(each?));
        }
        let shape = left.shape().element();
        if condition.is_none() && *right == Syntax::Current {
            return Ok(match left {
                Term::Optional(..) => left.clone(),
                _ => left.mapped(|list| list, Shape::List(Box::new(shape))),
            });
        }
        let name = self.scope.fresh(&left.list());
        let element = Term::Value(Cel::name(&name), shape.clone());
        let mut truth = None;
        if let Some(condition) = condition {
            truth = Some(self.kept(condition, &element)?);
        }
        let filtered = |list: Cel| match &truth {
            Some(truth) => list.each("filter", &name, truth.clone()),
            None => list,
        };
        if *right == Syntax::Current {
            return Ok(left.mapped(filtered, Shape::List(Box::new(shape))));
        }
        let each = self.term(right, &Current::At(element.clone()))?;
        let inner = Shape::List(Box::new(each.shape()));
        let has = self.presence(right, &each, &element)?;
        if has.is_bool(false) {
            return Ok(Term::Value(Cel::empty_list(), inner));
        }
        let mapped = |list: Cel| {
            let list = filtered(list);
            let list =
                if has.is_bool(true) { list } else { list.each("filter", &name, has.clone()) };
            list.each("map", &name, each.strict())
        };
        Ok(left.mapped(mapped, inner))
    }

    /// Whether an element has what a projection takes from it: elements without it are left out, also where a function is
    /// called on it.
    fn presence(&mut self, right: &Syntax, each: &Term, element: &Term) -> Result<Cel, Obstacle> {
        let has = each.has();
        Ok(Cel::all([self.called_on(right, element)?, has]))
    }

    /// Whether what a function is called on is there, as in `path.contains(@, 'x')`.
    fn called_on(&mut self, syntax: &Syntax, element: &Term) -> Result<Cel, Obstacle> {
        let Syntax::Chain(parts) = syntax else { return Ok(Cel::bool(true)) };
        let call = parts.iter().position(|part| matches!(part, Syntax::Call { .. }));
        match call.filter(|at| *at > 0) {
            Some(at) => Ok(self.chain(&parts[..at], &Current::At(element.clone()))?.has()),
            None => Ok(Cel::bool(true)),
        }
    }

    /// Whether a filter keeps an element. One for which the condition finds nothing goes.
    fn kept(&mut self, condition: &Syntax, element: &Term) -> Result<Cel, Obstacle> {
        let there = self.called_on(condition, element)?;
        let term = self.term(condition, &Current::At(element.clone()))?;
        Ok(Cel::all([there, self.truth(&term)?]))
    }

    fn project_values(&mut self, left: &Term, right: &Syntax) -> Translated {
        if let Term::Images(_) = left {
            let each = Term::Value(Cel::name("image"), Shape::Unknown);
            let Syntax::Field(field) = right else {
                return match right {
                    Syntax::Current => Ok(left.clone()),
                    _ => Err(self.unsupported("this part of images")),
                };
            };
            let part = functions::image_part(&each, field)
                .ok_or_else(|| self.unsupported(format!("images.*.{field}")))?;
            let list = left.strict().each("map", "image", part);
            return Ok(Term::Value(list, Shape::List(Box::new(Shape::Text))));
        }
        let map = left.or(Cel::Map(Vec::new()));
        let name = self.scope.fresh(&Cel::name("keys"));
        let shape = left.shape().field("").0;
        let element = Term::Value(map.clone().index(Cel::name(&name), false), shape);
        let each = self.term(right, &Current::At(element))?;
        let inner = Shape::List(Box::new(each.shape()));
        let mut keys = map;
        let has = each.has();
        if !has.is_bool(true) {
            keys = keys.each("filter", &name, has);
        }
        Ok(Term::Value(keys.each("map", &name, each.strict()), inner))
    }

    /// `part[]`: lists in a list are spread out.
    fn flatten(&mut self, part: &Syntax, current: &Current) -> Translated {
        match part {
            Syntax::Projection { left, right } if **right != Syntax::Current => {
                let left = self.term(left, current)?;
                if matches!(left, Term::Images(_) | Term::Several(_)) {
                    let each = self.project(&left, None, right)?;
                    return Ok(self.flattened(&each));
                }
                self.flat_map(&left, None, right)
            }
            Syntax::Filter { left, condition, right } if **right != Syntax::Current => {
                let left = self.term(left, current)?;
                self.flat_map(&left, Some(condition), right)
            }
            Syntax::ValueProjection { .. } => {
                let term = self.term(part, current)?;
                Ok(self.flattened(&term))
            }
            part => {
                let term = self.term(part, current)?;
                Ok(self.flattened(&term))
            }
        }
    }

    fn flattened(&mut self, term: &Term) -> Term {
        match term {
            Term::Several(parts) => {
                // A part that is not a list stays an element.
                if parts.iter().all(|part| part.shape().is_no_list()) {
                    let listed = parts.iter().map(|part| match part.has() {
                        has if has.is_bool(true) => Cel::List(vec![part.strict()]),
                        has => Cel::choose(has, Cel::List(vec![part.strict()]), Cel::empty_list()),
                    });
                    let shape =
                        Shape::List(Box::new(parts.first().map_or(Shape::Unknown, Term::shape)));
                    return match listed.reduce(Cel::plus) {
                        Some(list) => Term::Value(list, shape),
                        None => Term::Value(Cel::empty_list(), shape),
                    };
                }
                let shape = parts.first().map_or(Shape::Unknown, Term::shape);
                Term::Value(term.list(), shape)
            }
            Term::Value(..) | Term::Guarded { .. } if term.shape().element().is_list() => {
                term.mapped(|list| list.call("flatten", vec![]), term.shape().element())
            }
            // What is missing gives nothing, and is no error.
            Term::Place(place) if !place.is_present() => {
                term.mapped(|list| list, place.shape.clone())
            }
            other => other.clone(),
        }
    }

    /// `left[?condition].right[]`, where `right` is a list: all of them joined.
    fn flat_map(&mut self, left: &Term, condition: Option<&Syntax>, right: &Syntax) -> Translated {
        let name = self.scope.fresh(&left.list());
        let element = Term::Value(Cel::name(&name), left.shape().element());
        let mut truth = None;
        if let Some(condition) = condition {
            truth = Some(self.kept(condition, &element)?);
        }
        let filtered = |list: Cel| match &truth {
            Some(truth) => list.each("filter", &name, truth.clone()),
            None => list,
        };
        let each = self.term(right, &Current::At(element.clone()))?;
        let inner = each.shape();
        if inner.is_no_list() {
            let has = self.presence(right, &each, &element)?;
            let mapped = |list: Cel| {
                let list = filtered(list);
                let list =
                    if has.is_bool(true) { list } else { list.each("filter", &name, has.clone()) };
                list.each("map", &name, each.strict())
            };
            return Ok(left.mapped(mapped, Shape::List(Box::new(inner))));
        }
        let shape = if inner.is_list() { inner } else { Shape::List(Box::new(Shape::Unknown)) };
        let there = self.called_on(right, &element)?;
        let joined = |list: Cel| {
            let list = filtered(list);
            let list =
                if there.is_bool(true) { list } else { list.each("filter", &name, there.clone()) };
            list.each("map", &name, each.list()).call("flatten", vec![])
        };
        Ok(left.mapped(joined, shape))
    }
}

/// What JMESPath takes for false.
fn is_false(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(truth) => !truth,
        Value::Number(_) => false,
        Value::String(text) => text.is_empty(),
        Value::List(list) => list.is_empty(),
        Value::Map(map) => map.is_empty(),
    }
}

/// A value of the same type that is not equal: the default of a comparison.
pub(crate) fn unlike(value: &Value) -> Cel {
    match value {
        Value::String(text) if text.is_empty() => Cel::text("-"),
        Value::String(_) => Cel::text(""),
        Value::Bool(truth) => Cel::bool(!truth),
        Value::Number(number) => Cel::int(if number.as_f64() == 0.0 { -1 } else { 0 }),
        Value::List(_) => Cel::List(vec![Cel::Literal(Value::Null)]),
        Value::Map(_) | Value::Null => Cel::Literal(Value::Null),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cel_printer::print_flat;
    use crate::scope::rule_scope;

    fn translated(expression: &str) -> String {
        let pod = Shape::of_kinds([("v1", "Pod")]);
        let scope = rule_scope(&Cel::name("object"), &pod);
        match translate(expression, &scope) {
            Ok(term) => print_flat(&term.strict()),
            Err(obstacle) => format!("not convertible: {}", obstacle.construct),
        }
    }

    #[test]
    fn paths_stay_paths_and_become_optionals_where_jmespath_forgives_what_is_missing() {
        for (jmespath, cel) in [
            ("request.object.spec.nodeName", "object.spec.nodeName"),
            (
                "request.object.metadata.labels.app || ''",
                "object.metadata.?labels.?app.orValue('')",
            ),
            (
                "request.object.metadata.annotations.\"a.b/c\"",
                "object.metadata.annotations['a.b/c']",
            ),
            ("request.operation || 'BACKGROUND'", "request.operation"),
            (
                "request.object.spec.[initContainers, containers][]",
                "object.spec.?initContainers.orValue([]) + object.spec.containers",
            ),
            (
                "request.object.spec.containers[].name",
                "object.spec.containers.map(container, container.name)",
            ),
            (
                "request.object.spec.containers[].ports[].hostPort",
                "object.spec.containers.map(container, container.?ports.orValue([])).flatten()\
                 .filter(port, has(port.hostPort)).map(port, port.hostPort)",
            ),
            (
                "request.object.spec.volumes[?hostPath].name",
                "object.spec.volumes.filter(volume, has(volume.hostPath)).map(volume, volume.name)",
            ),
            ("length(request.object.spec.containers)", "size(object.spec.containers)"),
            ("contains(request.object.metadata.name, 'x')", "object.metadata.name.contains('x')"),
            (
                "keys(request.object.spec) | contains(@, 'hostNetwork')",
                "has(object.spec.hostNetwork)",
            ),
            (
                "regex_match('^v[0-9]$', request.object.metadata.name)",
                "object.metadata.name.matches('^v[0-9]$')",
            ),
            ("to_upper(request.object.metadata.name)", "object.metadata.name.upperAscii()"),
            (
                "x509_decode(request.object.metadata.name)",
                "not convertible: function x509_decode() in {{ x509_decode(request.object.metadata.name) }}",
            ),
        ] {
            assert_eq!(translated(jmespath), cel, "{jmespath}");
        }
    }
}
