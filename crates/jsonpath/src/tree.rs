//! The parsed expression.

use std::ops::Range;

use kiln_text::Regex;
use kiln_value::Str;

use crate::item::Item;

/// A node and where it was written.
#[derive(Debug)]
pub(crate) struct JsonPathNode {
    pub(crate) kind: NodeKind,
    pub(crate) span: Range<usize>,
}

#[derive(Debug)]
pub(crate) enum NodeKind {
    Constant(Item),
    Path(Path),
    /// A name and what follows it, looked up in the root; called if there are arguments.
    Name(Vec<JsonPathNode>, Option<Vec<JsonPathNode>>),
    Call(JsonPathFunction, Vec<JsonPathNode>),
    Prefix(Prefix, Box<JsonPathNode>),
    Infix(JsonPathOperator, Box<JsonPathNode>, Box<JsonPathNode>),
    /// Left side, right side, its expression if that is known, and whether it must not match.
    Match(Box<JsonPathNode>, Box<JsonPathNode>, Option<Regex>, bool),
    If(Box<JsonPathNode>, Box<JsonPathNode>, Box<JsonPathNode>),
    List(Vec<JsonPathNode>),
    Object(Vec<(ObjectKey, JsonPathNode)>),
}

#[derive(Debug)]
pub(crate) enum ObjectKey {
    Written(JsonPathNode),
    /// `#`: all captured keys, or `#N`: one of them. The value is a path.
    Captured(Option<usize>),
}

#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) from_root: bool,
    pub(crate) steps: Vec<PathStep>,
}

impl Path {
    /// Whether it can give several values.
    pub(crate) fn is_ambiguous(&self) -> bool {
        self.steps.iter().any(PathStep::is_ambiguous)
    }
}

#[derive(Debug)]
pub(crate) struct PathStep {
    pub(crate) kind: PathStepKind,
    pub(crate) span: Range<usize>,
}

#[derive(Debug)]
pub(crate) enum PathStepKind {
    Field(Str),
    Key(JsonPathNode),
    Keys(Vec<JsonPathNode>),
    Slice(Option<JsonPathNode>, Option<JsonPathNode>, Option<JsonPathNode>),
    Filter(JsonPathNode),
    Star,
    /// `..`: the value and everything below it.
    Descend,
    Script(JsonPathNode),
}

impl PathStep {
    pub(crate) fn is_ambiguous(&self) -> bool {
        !matches!(
            self.kind,
            PathStepKind::Field(_) | PathStepKind::Key(_) | PathStepKind::Script(_)
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefix {
    Not,
    Minus,
    BitNot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JsonPathOperator {
    Otherwise,
    Or,
    And,
    Equal,
    NotEqual,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    Matches,
    NotMatches,
    In,
    Xor,
    BitAnd,
    BitOr,
    Left,
    Right,
    Plus,
    Minus,
    Times,
    Divide,
    Modulo,
    Power,
}

impl JsonPathOperator {
    pub(crate) fn parse(text: &str) -> Option<JsonPathOperator> {
        Some(match text {
            "??" => JsonPathOperator::Otherwise,
            "||" => JsonPathOperator::Or,
            "&&" => JsonPathOperator::And,
            "==" => JsonPathOperator::Equal,
            "!=" => JsonPathOperator::NotEqual,
            ">" => JsonPathOperator::Greater,
            ">=" => JsonPathOperator::GreaterEqual,
            "<" => JsonPathOperator::Less,
            "<=" => JsonPathOperator::LessEqual,
            "=~" => JsonPathOperator::Matches,
            "!~" => JsonPathOperator::NotMatches,
            "in" => JsonPathOperator::In,
            "^" => JsonPathOperator::Xor,
            "&" => JsonPathOperator::BitAnd,
            "|" => JsonPathOperator::BitOr,
            "<<" => JsonPathOperator::Left,
            ">>" => JsonPathOperator::Right,
            "+" => JsonPathOperator::Plus,
            "-" => JsonPathOperator::Minus,
            "*" => JsonPathOperator::Times,
            "/" => JsonPathOperator::Divide,
            "%" => JsonPathOperator::Modulo,
            "**" => JsonPathOperator::Power,
            _ => return None,
        })
    }

    /// How tight it binds; all operators bind to the left.
    pub(crate) fn precedence(self) -> u8 {
        use JsonPathOperator as O;
        match self {
            O::Otherwise => 0,
            O::Or => 20,
            O::And => 21,
            O::Equal | O::NotEqual | O::Greater | O::GreaterEqual | O::Less | O::LessEqual => 40,
            O::Matches | O::NotMatches | O::In => 40,
            O::Xor | O::BitAnd | O::BitOr => 60,
            O::Left | O::Right => 90,
            O::Plus | O::Minus => 120,
            O::Times | O::Divide | O::Modulo => 150,
            O::Power => 200,
        }
    }

    pub(crate) fn sign(self) -> &'static str {
        use JsonPathOperator as O;
        match self {
            O::Otherwise => "??",
            O::Or => "||",
            O::And => "&&",
            O::Equal => "==",
            O::NotEqual => "!=",
            O::Greater => ">",
            O::GreaterEqual => ">=",
            O::Less => "<",
            O::LessEqual => "<=",
            O::Matches => "=~",
            O::NotMatches => "!~",
            O::In => "in",
            O::Xor => "^",
            O::BitAnd => "&",
            O::BitOr => "|",
            O::Left => "<<",
            O::Right => ">>",
            O::Plus => "+",
            O::Minus => "-",
            O::Times => "*",
            O::Divide => "/",
            O::Modulo => "%",
            O::Power => "**",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JsonPathFunction {
    Length,
    IsDefined,
    IsUndefined,
    IsEmpty,
    IsNotEmpty,
    Date,
}

impl JsonPathFunction {
    pub(crate) const ALL: &[(&str, JsonPathFunction)] = &[
        ("date", JsonPathFunction::Date),
        ("isDefined", JsonPathFunction::IsDefined),
        ("isEmpty", JsonPathFunction::IsEmpty),
        ("isNotEmpty", JsonPathFunction::IsNotEmpty),
        ("isUndefined", JsonPathFunction::IsUndefined),
        ("length", JsonPathFunction::Length),
    ];

    pub(crate) fn about(self) -> &'static str {
        match self {
            JsonPathFunction::Length => "how many elements a list, keys a map or bytes a text has",
            JsonPathFunction::IsDefined => "whether the path leads to something",
            JsonPathFunction::IsUndefined => "whether the path leads nowhere",
            JsonPathFunction::IsEmpty => "whether its length is 0",
            JsonPathFunction::IsNotEmpty => "whether its length is more than 0",
            JsonPathFunction::Date => "a text as a point in time, to be compared with others",
        }
    }

    pub(crate) fn find(name: &str) -> Option<JsonPathFunction> {
        JsonPathFunction::ALL
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, function)| *function)
    }

    pub(crate) fn name(self) -> &'static str {
        JsonPathFunction::ALL.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }
}
