//! The functions of Kyverno's JMESPath in CEL.

use kiln_jmespath::Syntax;
use kiln_value::Value;

use super::{Current, Translated, Translator};
use crate::cel::{Cel, Operator};
use crate::shape::Shape;
use crate::term::Term;
use crate::verdict::{CoveredRequests, Difference, Obstacle};

/// A value as text, as it stands in the middle of a text.
pub(crate) fn as_text(term: &Term) -> Term {
    if let Term::Literal(value) = term {
        let text = match value {
            Value::String(text) => text.to_string(),
            other => kiln_value::json::to_string(other),
        };
        return Term::Literal(Value::from(text));
    }
    match term.shape() {
        Shape::Text if matches!(term, Term::Optional(..)) => {
            Term::Value(term.or(Cel::text("null")), Shape::Text)
        }
        Shape::Text => term.clone(),
        Shape::Unknown
        | Shape::Int
        | Shape::Double
        | Shape::Bool
        | Shape::IntOrString
        | Shape::Quantity => Term::Value(Cel::function("string", vec![term.strict()]), Shape::Text),
        _ => Term::Value(Cel::name("json").call("Marshal", vec![term.strict()]), Shape::Text),
    }
}

/// A part of an image, as `images` has it.
pub(super) fn image_part(image: &Term, field: &str) -> Option<Cel> {
    let image = image.strict();
    Some(match field {
        // The server of Docker Hub has another name than its images.
        "registry" => image
            .call("registry", vec![])
            .call("replace", vec![Cel::text("index.docker.io"), Cel::text("docker.io")]),
        "path" => path_of(&image),
        "tag" => image.call("tag", vec![]),
        "digest" => image.call("digest", vec![]),
        "name" => image
            .call("repository", vec![])
            .call("split", vec![Cel::text("/")])
            .call("last", vec![])
            .call("value", vec![]),
        _ => return None,
    })
}

/// The repository of an image. What Docker Hub adds to images without a namespace is not part of it.
fn path_of(image: &Cel) -> Cel {
    let repository = image.clone().call("repository", vec![]);
    let Cel::Call { target: None, function, args } = image else { return repository };
    let [written] = args.as_slice() else { return repository };
    if function != "image" {
        return repository;
    }
    let added = Cel::text("library/");
    Cel::choose(
        written.clone().call("contains", vec![added.clone()]),
        repository.clone(),
        repository.call("replace", vec![added, Cel::text("")]),
    )
}

/// An argument of a function, which is an error where there is none.
fn needed(term: &Term) -> Cel {
    match term {
        Term::Several(_) => term.list(),
        term => term.strict(),
    }
}

impl Translator {
    pub(super) fn call(
        &mut self,
        name: &str,
        arguments: &[Syntax],
        current: &Current,
    ) -> Translated {
        // `contains(keys(x), 'y')` asks whether x has y.
        if let (
            "contains",
            [Syntax::Call { name: inner, arguments: of }, Syntax::Literal(Value::String(key))],
        ) = (name, arguments)
            && inner == "keys"
            && let [of] = of.as_slice()
        {
            let of = self.term(of, current)?;
            // What has no keys because it is not there is an error in both languages.
            return Ok(Term::Value(of.strict().select(key).has(), Shape::Bool));
        }
        let mut terms = Vec::new();
        for argument in arguments {
            match argument {
                Syntax::Reference(_) => {
                    return Err(self.unsupported(format!("{name}() with an expression")));
                }
                argument => terms.push(self.term(argument, current)?),
            }
        }
        self.function(name, &terms).ok_or_else(|| {
            Obstacle::new(
                format!("function {name}() in {{{{ {} }}}}", self.context),
                "CEL has no such function for these arguments: write this part by hand",
            )
        })
    }

    fn function(&mut self, name: &str, terms: &[Term]) -> Option<Term> {
        let text = |cel: Cel| Some(Term::Value(cel, Shape::Text));
        let bool = |cel: Cel| Some(Term::Value(cel, Shape::Bool));
        Some(match (name, terms) {
            ("length", [of]) => Term::Value(Cel::function("size", vec![needed(of)]), Shape::Int),
            ("contains", [of, Term::Literal(Value::String(key))]) if is_keys_of(of) => {
                let map = map_of_keys(of)?.clone();
                return bool(map.select(key).has());
            }
            ("contains", [of, what]) => {
                let is_list = of.shape().is_list() || matches!(of, Term::Several(_));
                match is_list {
                    true => return bool(what.strict().within(needed(of))),
                    false => return bool(of.strict().call("contains", vec![what.strict()])),
                }
            }
            ("starts_with", [of, what]) => {
                return bool(of.strict().call("startsWith", vec![what.strict()]));
            }
            ("ends_with", [of, what]) => {
                return bool(of.strict().call("endsWith", vec![what.strict()]));
            }
            ("equal_fold", [a, b]) => {
                let lower = |term: &Term| term.strict().call("lowerAscii", vec![]);
                return bool(lower(a).equals(lower(b)));
            }
            ("regex_match", [pattern, of]) => {
                let of = as_text(of);
                return bool(of.strict().call("matches", vec![pattern.strict()]));
            }
            ("regex_replace_all", [pattern, of, Term::Literal(Value::String(with))]) => {
                // `$1` of Go is `\\1` here.
                let with = Cel::text(with.replace('\\', "\\\\").replace('$', "\\"));
                return text(
                    Cel::name("regex")
                        .call("replace", vec![as_text(of).strict(), pattern.strict(), with]),
                );
            }
            ("pattern_match", [pattern, of]) => {
                let pattern = pattern.text()?;
                return bool(crate::wildcards::matches(as_text(of).strict(), pattern));
            }
            ("keys", [of]) => keys(of),
            ("values", [of]) => {
                let map = of.or(Cel::Map(Vec::new()));
                let shape = of.shape().field("").0;
                let each = map.clone().index(Cel::name("key"), false);
                Term::Value(map.each("map", "key", each), Shape::List(Box::new(shape)))
            }
            ("to_upper", [of]) => return text(of.strict().call("upperAscii", vec![])),
            ("to_lower", [of]) => return text(of.strict().call("lowerAscii", vec![])),
            ("to_string", [of]) => match of {
                // to_string of nothing is "null".
                Term::Optional(cel, Shape::Text) => {
                    Term::Value(cel.clone().or_value(Cel::text("null")), Shape::Text)
                }
                Term::Place(_) if of.shape() == Shape::Text => of.clone(),
                of => as_text(of),
            },
            ("to_number", [Term::Literal(Value::String(number))]) => {
                let number = kiln_text::float::parse(number)?;
                Term::Literal(Value::from(number))
            }
            ("to_number", [of]) if of.shape().is_number() => of.clone(),
            ("to_number", [of]) => {
                Term::Value(Cel::function("double", vec![of.strict()]), Shape::Double)
            }
            ("to_array", [of]) if of.shape().is_list() => Term::Value(of.list(), of.shape()),
            ("to_array", [of]) => {
                let shape = Shape::List(Box::new(of.shape()));
                Term::Value(Cel::List(vec![of.strict()]), shape)
            }
            ("split", [of, by]) => Term::Value(
                of.strict().call("split", vec![by.strict()]),
                Shape::List(Box::new(Shape::Text)),
            ),
            ("join", [by, list]) => return text(needed(list).call("join", vec![by.strict()])),
            ("replace_all", [of, old, new]) => {
                return text(of.strict().call("replace", vec![old.strict(), new.strict()]));
            }
            ("replace", [of, old, new, Term::Literal(count)]) => {
                let count = count.as_i64()?;
                return text(
                    of.strict().call("replace", vec![old.strict(), new.strict(), Cel::int(count)]),
                );
            }
            ("trim", [of, Term::Literal(Value::String(set))])
                if set.trim().is_empty() && !set.is_empty() =>
            {
                return text(of.strict().call("trim", vec![]));
            }
            ("trim_prefix", [of, prefix]) => {
                let (of, prefix) = (of.strict(), prefix.strict());
                let starts = of.clone().call("startsWith", vec![prefix.clone()]);
                let rest = of.clone().call("substring", vec![Cel::function("size", vec![prefix])]);
                return text(Cel::choose(starts, rest, of));
            }
            ("truncate", [of, Term::Literal(length)]) => {
                let (of, length) = (of.strict(), length.as_i64()?);
                let is_longer = Cel::binary(
                    Operator::More,
                    Cel::function("size", vec![of.clone()]),
                    Cel::int(length),
                );
                let cut = of.clone().call("substring", vec![Cel::int(0), Cel::int(length)]);
                return text(Cel::choose(is_longer, cut, of));
            }
            ("sort", [list]) => Term::Value(needed(list).call("sort", vec![]), list.shape()),
            ("reverse", [list]) if list.shape().is_list() => {
                Term::Value(needed(list).call("reverse", vec![]), list.shape())
            }
            ("max" | "min", [Term::Several(parts)]) => {
                let function = if name == "max" { "math.greatest" } else { "math.least" };
                let parts = parts.iter().map(Term::strict).collect();
                Term::Value(Cel::function(function, parts), Shape::Double)
            }
            ("max" | "min", [list]) => {
                Term::Value(needed(list).call(name, vec![]), list.shape().element())
            }
            ("sum", [list]) => {
                Term::Value(needed(list).call("sum", vec![]), list.shape().element())
            }
            ("not_null", [first, rest @ ..]) => {
                let shape = first.shape();
                let cel = rest.iter().rev().fold(None, |after: Option<Cel>, term| {
                    Some(after.map_or_else(|| term.strict(), |after| term.or(after)))
                });
                match cel {
                    Some(after) => Term::Value(first.or(after), shape),
                    None => first.clone(),
                }
            }
            ("label_match", [selector, labels]) => {
                let (selector, labels) =
                    (selector.or(Cel::Map(Vec::new())), labels.or(Cel::Map(Vec::new())));
                let key = || Cel::name("label");
                let same =
                    labels.clone().index(key(), false).equals(selector.clone().index(key(), false));
                return bool(selector.each("all", "label", Cel::all([key().within(labels), same])));
            }
            ("lookup", [of, key]) => {
                let place = crate::term::Place::of(of.strict(), of.shape());
                let shape = if of.shape().is_list() {
                    of.shape().element()
                } else {
                    of.shape().field("").0
                };
                Term::Place(place.at(key.strict(), shape))
            }
            ("base64_decode", [of]) => {
                let bytes = Cel::name("base64").call("decode", vec![of.strict()]);
                return text(Cel::function("string", vec![bytes]));
            }
            ("base64_encode", [of]) => {
                let bytes = Cel::function("bytes", vec![of.strict()]);
                return text(Cel::name("base64").call("encode", vec![bytes]));
            }
            ("parse_json", [of]) => {
                Term::Value(Cel::name("json").call("Unmarshal", vec![of.strict()]), Shape::Unknown)
            }
            ("parse_yaml", [of]) => {
                Term::Value(Cel::name("yaml").call("Parse", vec![of.strict()]), Shape::Unknown)
            }
            ("md5" | "sha1" | "sha256", [of]) => {
                return text(Cel::function(name, vec![of.strict()]));
            }
            ("random", [pattern]) => return text(Cel::function("random", vec![pattern.strict()])),
            ("abs", [of]) => Term::Value(Cel::function("math.abs", vec![of.strict()]), of.shape()),
            ("add" | "subtract" | "multiply" | "divide" | "modulo", [left, right]) => {
                arithmetic(name, left, right)?
            }
            ("merge", [left, right]) => self.merged(left, right)?,
            _ => return None,
        })
    }
}

fn is_keys_of(term: &Term) -> bool {
    map_of_keys(term).is_some()
}

/// The map whose keys these are.
pub(crate) fn map_of_keys(term: &Term) -> Option<&Cel> {
    match term {
        Term::Value(Cel::Call { target: Some(map), function, args }, _) if function == "map" => {
            matches!(args.as_slice(), [Cel::Name(a), Cel::Name(b)] if a == b).then_some(&**map)
        }
        _ => None,
    }
}

/// The keys of a map.
fn keys(of: &Term) -> Term {
    let map = of.strict();
    Term::Value(map.each("map", "key", Cel::name("key")), Shape::List(Box::new(Shape::Text)))
}

/// Numbers as numbers, everything else as quantities.
fn arithmetic(name: &str, left: &Term, right: &Term) -> Option<Term> {
    let is_number = |term: &Term| term.shape().is_number();
    if is_number(left) && is_number(right) {
        let operator = match name {
            "add" => Operator::Plus,
            "subtract" => Operator::Minus,
            "multiply" => Operator::Times,
            "divide" => Operator::Divided,
            _ => Operator::Modulo,
        };
        let shape = if left.shape() == Shape::Int && right.shape() == Shape::Int && name != "divide"
        {
            Shape::Int
        } else {
            Shape::Double
        };
        let side = |term: &Term| match shape {
            Shape::Double if term.shape() == Shape::Int => {
                Cel::function("double", vec![term.strict()])
            }
            _ => term.strict(),
        };
        return Some(Term::Value(Cel::binary(operator, side(left), side(right)), shape));
    }
    let quantity = |term: &Term| Cel::function("quantity", vec![term.strict()]);
    Some(match name {
        "add" => Term::Value(quantity(left).call("add", vec![quantity(right)]), Shape::Quantity),
        "subtract" => {
            Term::Value(quantity(left).call("sub", vec![quantity(right)]), Shape::Quantity)
        }
        "divide" => {
            let float = |term: &Term| quantity(term).call("asApproximateFloat", vec![]);
            Term::Value(Cel::binary(Operator::Divided, float(left), float(right)), Shape::Double)
        }
        _ => return None,
    })
}

impl Translator {
    /// `merge(x, {a: null})` takes a key away from what is compared.
    fn merged(&self, left: &Term, right: &Term) -> Option<Term> {
        let Term::Fields(parts) = right else { return None };
        if !parts.iter().all(|(_, part)| matches!(part, Term::Literal(Value::Null))) {
            return None;
        }
        for (key, _) in parts {
            self.scope.note(Difference::other(
                format!("objects with the key {key} that a merged map has no value for"),
                "null in the patch of the rule removes the key; the new policy leaves it",
                CoveredRequests::HasKey(key.clone()),
            ));
        }
        let map = left.or(Cel::Map(Vec::new()));
        let test = Cel::all(parts.iter().map(|(key, _)| Cel::name("key").differs(Cel::text(key))));
        let args = vec![Cel::name("key"), Cel::name("value"), test, Cel::name("value")];
        Some(Term::Value(map.call("transformMap", args), left.shape()))
    }
}
