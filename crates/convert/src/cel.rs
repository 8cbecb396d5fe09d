//! CEL expressions as trees: built by the converters, simplified on the way, printed at the end.

use kiln_value::Value;

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cel {
    /// A variable, such as `object`.
    Name(String),
    /// Text, a number, a boolean or null.
    Literal(Value),
    /// `of.field`, or `of.?field`.
    Select {
        of: Box<Cel>,
        field: String,
        optional: bool,
    },
    /// `of[key]`, or `of[?key]`.
    Index {
        of: Box<Cel>,
        key: Box<Cel>,
        optional: bool,
    },
    /// `function(args)`, or `target.function(args)`; macros are written as calls.
    Call {
        target: Option<Box<Cel>>,
        function: String,
        args: Vec<Cel>,
    },
    /// An operator of two sides.
    Binary(Operator, Box<Cel>, Box<Cel>),
    /// Joined by `&&`.
    All(Vec<Cel>),
    /// Joined by `||`.
    Any(Vec<Cel>),
    Not(Box<Cel>),
    /// `condition ? then : otherwise`
    Choose(Box<Cel>, Box<Cel>, Box<Cel>),
    List(Vec<Cel>),
    Map(Vec<(Cel, Cel)>),
    /// `Name{field: value}`
    Struct(String, Vec<(String, Cel)>),
    /// An expression that was written in CEL already.
    Written(String),
}

/// An operator of two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    More,
    MoreEqual,
    In,
    Plus,
    Minus,
    Times,
    Divided,
    Modulo,
}

impl Operator {
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Operator::Equal => "==",
            Operator::NotEqual => "!=",
            Operator::Less => "<",
            Operator::LessEqual => "<=",
            Operator::More => ">",
            Operator::MoreEqual => ">=",
            Operator::In => "in",
            Operator::Plus => "+",
            Operator::Minus => "-",
            Operator::Times => "*",
            Operator::Divided => "/",
            Operator::Modulo => "%",
        }
    }

    fn opposite(self) -> Option<Operator> {
        Some(match self {
            Operator::Equal => Operator::NotEqual,
            Operator::NotEqual => Operator::Equal,
            Operator::Less => Operator::MoreEqual,
            Operator::LessEqual => Operator::More,
            Operator::More => Operator::LessEqual,
            Operator::MoreEqual => Operator::Less,
            _ => return None,
        })
    }
}

impl Cel {
    pub(crate) fn name(name: impl Into<String>) -> Cel {
        Cel::Name(name.into())
    }

    pub(crate) fn text(text: impl AsRef<str>) -> Cel {
        Cel::Literal(Value::from(text.as_ref()))
    }

    pub(crate) fn int(number: i64) -> Cel {
        Cel::Literal(Value::from(number))
    }

    pub(crate) fn bool(truth: bool) -> Cel {
        Cel::Literal(Value::Bool(truth))
    }

    pub(crate) fn empty_list() -> Cel {
        Cel::List(Vec::new())
    }

    pub(crate) fn texts<'t>(texts: impl IntoIterator<Item = &'t str>) -> Cel {
        Cel::List(texts.into_iter().map(Cel::text).collect())
    }

    pub(crate) fn is_bool(&self, truth: bool) -> bool {
        matches!(self, Cel::Literal(Value::Bool(found)) if *found == truth)
    }

    /// `self.field`, or `self['field']` where the name is not one of an identifier.
    pub(crate) fn select(self, field: &str) -> Cel {
        self.step(field, false)
    }

    /// `self.?field`, or `self[?'field']`.
    pub(crate) fn maybe(self, field: &str) -> Cel {
        self.step(field, true)
    }

    fn step(self, field: &str, optional: bool) -> Cel {
        let of = Box::new(self);
        if is_selector(field) {
            Cel::Select { of, field: field.to_owned(), optional }
        } else {
            Cel::Index { of, key: Box::new(Cel::text(field)), optional }
        }
    }

    pub(crate) fn index(self, key: Cel, optional: bool) -> Cel {
        Cel::Index { of: Box::new(self), key: Box::new(key), optional }
    }

    /// `self.function(args)`
    pub(crate) fn call(self, function: &str, args: Vec<Cel>) -> Cel {
        Cel::Call { target: Some(Box::new(self)), function: function.to_owned(), args }
    }

    /// `function(args)`
    pub(crate) fn function(function: &str, args: Vec<Cel>) -> Cel {
        Cel::Call { target: None, function: function.to_owned(), args }
    }

    /// `self.macro(variable, body)`. Questions about what a list is filtered or mapped to are asked of the list itself.
    pub(crate) fn each(self, function: &str, variable: &str, body: Cel) -> Cel {
        let asks = matches!(function, "all" | "exists");
        match self {
            Cel::Call { target: Some(list), function: before, mut args }
                if asks && args.len() == 2 && matches!(before.as_str(), "map" | "filter") =>
            {
                let inner = args.remove(1);
                let name = args.remove(0);
                let Cel::Name(own) = &name else {
                    return list
                        .call(&before, vec![name, inner])
                        .call(function, vec![Cel::name(variable), body]);
                };
                let fits = !body.is_written_in() && (own == variable || !body.mentions(own));
                if !fits {
                    return list
                        .call(&before, vec![name, inner])
                        .call(function, vec![Cel::name(variable), body]);
                }
                let own = own.clone();
                let joined = match (before.as_str(), function) {
                    ("map", _) => body.replaced(variable, &inner),
                    ("filter", "all") => {
                        Cel::any([inner.negate(), body.replaced(variable, &Cel::name(&own))])
                    }
                    _ => Cel::all([inner, body.replaced(variable, &Cel::name(&own))]),
                };
                list.each(function, &own, joined)
            }
            list => list.call(function, vec![Cel::name(variable), body]),
        }
    }

    /// Whether some of it was written in CEL already, so that it is not known what it reads.
    fn is_written_in(&self) -> bool {
        let mut found = false;
        self.visit(&mut |part| found |= matches!(part, Cel::Written(_)));
        found
    }

    /// Shows every part of it.
    fn visit(&self, show: &mut dyn FnMut(&Cel)) {
        show(self);
        match self {
            Cel::Name(_) | Cel::Literal(_) | Cel::Written(_) => {}
            Cel::Select { of, .. } | Cel::Not(of) => of.visit(show),
            Cel::Index { of, key, .. } => [of, key].into_iter().for_each(|part| part.visit(show)),
            Cel::Call { target, args, .. } => {
                target.iter().for_each(|target| target.visit(show));
                args.iter().for_each(|arg| arg.visit(show));
            }
            Cel::Binary(_, left, right) => {
                [left, right].into_iter().for_each(|part| part.visit(show));
            }
            Cel::All(parts) | Cel::Any(parts) | Cel::List(parts) => {
                parts.iter().for_each(|part| part.visit(show));
            }
            Cel::Choose(a, b, c) => [a, b, c].into_iter().for_each(|part| part.visit(show)),
            Cel::Map(entries) => entries.iter().for_each(|(key, value)| {
                key.visit(show);
                value.visit(show);
            }),
            Cel::Struct(_, fields) => fields.iter().for_each(|(_, value)| value.visit(show)),
        }
    }

    /// The same with an expression in the place of a name, simplified where that makes a comparison plain.
    #[must_use]
    fn replaced(self, name: &str, with: &Cel) -> Cel {
        let boxed = |part: Box<Cel>| Box::new(part.replaced(name, with));
        let each = |parts: Vec<Cel>| parts.into_iter().map(|part| part.replaced(name, with));
        match self {
            Cel::Name(found) if found == name => with.clone(),
            Cel::Name(_) | Cel::Literal(_) | Cel::Written(_) => self,
            Cel::Select { of, field, optional } => Cel::Select { of: boxed(of), field, optional },
            Cel::Index { of, key, optional } => {
                Cel::Index { of: boxed(of), key: boxed(key), optional }
            }
            Cel::Call { target, function, args } => {
                Cel::Call { target: target.map(boxed), function, args: each(args).collect() }
            }
            Cel::Binary(operator, left, right) => {
                Cel::binary(operator, left.replaced(name, with), right.replaced(name, with))
            }
            Cel::All(parts) => Cel::all(each(parts)),
            Cel::Any(parts) => Cel::any(each(parts)),
            Cel::Not(inner) => inner.replaced(name, with).negate(),
            Cel::Choose(a, b, c) => Cel::Choose(boxed(a), boxed(b), boxed(c)),
            Cel::List(parts) => Cel::List(each(parts).collect()),
            Cel::Map(entries) => Cel::Map(
                entries
                    .into_iter()
                    .map(|(key, value)| (key.replaced(name, with), value.replaced(name, with)))
                    .collect(),
            ),
            Cel::Struct(kind, fields) => Cel::Struct(
                kind,
                fields
                    .into_iter()
                    .map(|(field, value)| (field, value.replaced(name, with)))
                    .collect(),
            ),
        }
    }

    pub(crate) fn or_value(self, default: Cel) -> Cel {
        self.call("orValue", vec![default])
    }

    pub(crate) fn has(self) -> Cel {
        match self {
            // `has( )` takes a field; a key is looked up.
            Cel::Index { of, key, .. } => Cel::binary(Operator::In, *key, *of),
            other => Cel::function("has", vec![other]),
        }
    }

    pub(crate) fn binary(operator: Operator, left: Cel, right: Cel) -> Cel {
        match (operator, &left, &right) {
            // `x == true` says the same as `x` only where x is known to be a boolean; comparisons are.
            (Operator::Equal, left, Cel::Literal(Value::Bool(true))) if left.is_condition() => {
                left.clone()
            }
            (Operator::NotEqual, left, Cel::Literal(Value::Bool(false))) if left.is_condition() => {
                left.clone()
            }
            (Operator::Equal, left, Cel::Literal(Value::Bool(false))) if left.is_condition() => {
                left.clone().negate()
            }
            (Operator::NotEqual, left, Cel::Literal(Value::Bool(true))) if left.is_condition() => {
                left.clone().negate()
            }
            _ => Cel::Binary(operator, Box::new(left), Box::new(right)),
        }
    }

    pub(crate) fn equals(self, other: Cel) -> Cel {
        Cel::binary(Operator::Equal, self, other)
    }

    pub(crate) fn differs(self, other: Cel) -> Cel {
        Cel::binary(Operator::NotEqual, self, other)
    }

    pub(crate) fn within(self, list: Cel) -> Cel {
        Cel::binary(Operator::In, self, list)
    }

    pub(crate) fn plus(self, other: Cel) -> Cel {
        match (&self, &other) {
            (Cel::Literal(Value::String(a)), Cel::Literal(Value::String(b))) => {
                Cel::text(format!("{a}{b}"))
            }
            _ => Cel::binary(Operator::Plus, self, other),
        }
    }

    pub(crate) fn choose(condition: Cel, then: Cel, otherwise: Cel) -> Cel {
        Cel::Choose(Box::new(condition), Box::new(then), Box::new(otherwise))
    }

    /// All of them, without those that are always true.
    pub(crate) fn all(parts: impl IntoIterator<Item = Cel>) -> Cel {
        let mut found = Vec::new();
        for part in parts {
            match part {
                Cel::All(inner) => found.extend(inner),
                part if part.is_bool(true) => {}
                part if part.is_bool(false) => return part,
                part if found.contains(&part) => {}
                part => found.push(part),
            }
        }
        match found.len() {
            0 => Cel::bool(true),
            1 => found.remove(0),
            _ => Cel::All(found),
        }
    }

    /// Any of them, without those that are always false.
    pub(crate) fn any(parts: impl IntoIterator<Item = Cel>) -> Cel {
        let mut found = Vec::new();
        for part in parts {
            match part {
                Cel::Any(inner) => found.extend(inner),
                part if part.is_bool(false) => {}
                part if part.is_bool(true) => return part,
                part if found.contains(&part) => {}
                part => found.push(part),
            }
        }
        match found.len() {
            0 => Cel::bool(false),
            1 => found.remove(0),
            _ => Cel::Any(joined_equalities(found)),
        }
    }

    /// The opposite, written as a person would write it.
    pub(crate) fn negate(self) -> Cel {
        match self {
            Cel::Not(inner) => *inner,
            Cel::Literal(Value::Bool(truth)) => Cel::bool(!truth),
            Cel::All(parts) => Cel::any(parts.into_iter().map(Cel::negate)),
            Cel::Any(parts) => Cel::all(parts.into_iter().map(Cel::negate)),
            Cel::Binary(operator, left, right) => match operator.opposite() {
                Some(opposite) => Cel::Binary(opposite, left, right),
                None => Cel::Not(Box::new(Cel::Binary(operator, left, right))),
            },
            Cel::Call { target: Some(target), function, mut args }
                if args.len() == 2 && matches!(function.as_str(), "all" | "exists") =>
            {
                let body = args.remove(1).negate();
                let opposite = if function == "all" { "exists" } else { "all" };
                target.call(opposite, vec![args.remove(0), body])
            }
            other => Cel::Not(Box::new(other)),
        }
    }

    /// Whether the type checker knows that it is a boolean.
    pub(crate) fn is_condition(&self) -> bool {
        match self {
            Cel::All(_) | Cel::Any(_) | Cel::Not(_) | Cel::Literal(Value::Bool(_)) => true,
            Cel::Binary(operator, ..) => operator.opposite().is_some() || *operator == Operator::In,
            Cel::Call { function, .. } => matches!(
                function.as_str(),
                "has"
                    | "all"
                    | "exists"
                    | "exists_one"
                    | "matches"
                    | "startsWith"
                    | "endsWith"
                    | "contains"
                    | "hasValue"
                    | "isGreaterThan"
                    | "isLessThan"
                    | "isQuantity"
            ),
            Cel::Choose(_, then, otherwise) => then.is_condition() && otherwise.is_condition(),
            _ => false,
        }
    }

    /// Whether a name is read in it.
    pub(crate) fn mentions(&self, name: &str) -> bool {
        match self {
            Cel::Name(found) => found == name,
            Cel::Literal(_) => false,
            Cel::Select { of, .. } => of.mentions(name),
            Cel::Index { of, key, .. } => of.mentions(name) || key.mentions(name),
            Cel::Call { target, args, .. } => {
                target.as_ref().is_some_and(|target| target.mentions(name))
                    || args.iter().any(|arg| arg.mentions(name))
            }
            Cel::Binary(_, left, right) => left.mentions(name) || right.mentions(name),
            Cel::All(parts) | Cel::Any(parts) | Cel::List(parts) => {
                parts.iter().any(|part| part.mentions(name))
            }
            Cel::Not(inner) => inner.mentions(name),
            Cel::Choose(a, b, c) => [a, b, c].iter().any(|part| part.mentions(name)),
            Cel::Map(entries) => {
                entries.iter().any(|(key, value)| key.mentions(name) || value.mentions(name))
            }
            Cel::Struct(_, fields) => fields.iter().any(|(_, value)| value.mentions(name)),
            Cel::Written(text) => text.contains(name),
        }
    }
}

/// `x == 'a' || x == 'b'` is `x in ['a', 'b']`.
fn joined_equalities(parts: Vec<Cel>) -> Vec<Cel> {
    let mut joined: Vec<Cel> = Vec::new();
    for part in parts {
        let Cel::Binary(Operator::Equal, left, right) = &part else {
            joined.push(part);
            continue;
        };
        if !matches!(**right, Cel::Literal(Value::String(_) | Value::Number(_))) {
            joined.push(part);
            continue;
        }
        let same_type = |a: &Cel, b: &Cel| {
            matches!(
                (a, b),
                (Cel::Literal(Value::String(_)), Cel::Literal(Value::String(_)))
                    | (Cel::Literal(Value::Number(_)), Cel::Literal(Value::Number(_)))
            )
        };
        let known = joined.iter_mut().find_map(|known| match known {
            Cel::Binary(operator @ (Operator::Equal | Operator::In), of, with)
                if **of == **left =>
            {
                match (&mut **with, *operator) {
                    (Cel::List(list), Operator::In)
                        if list.first().is_some_and(|first| same_type(first, right)) =>
                    {
                        list.push((**right).clone());
                        Some(())
                    }
                    (literal @ Cel::Literal(_), Operator::Equal) if same_type(literal, right) => {
                        let both = Cel::List(vec![literal.clone(), (**right).clone()]);
                        **with = both;
                        *operator = Operator::In;
                        Some(())
                    }
                    _ => None,
                }
            }
            _ => None,
        });
        if known.is_none() {
            joined.push(part);
        }
    }
    joined
}

/// Whether a field can be selected with a dot.
pub(crate) fn is_selector(name: &str) -> bool {
    is_identifier(name) && !matches!(name, "in" | "true" | "false" | "null")
}

pub(crate) fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}
