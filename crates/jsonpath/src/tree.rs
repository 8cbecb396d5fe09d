//! The parsed expression.

use std::ops::Range;

use kiln_text::Regex;
use kiln_value::Str;

use crate::item::Item;

/// A node and where it was written.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) kind: NodeKind,
    pub(crate) span: Range<usize>,
}

#[derive(Debug)]
pub(crate) enum NodeKind {
    Constant(Item),
    Path(Path),
    /// A name and what follows it, looked up in the root; called if there are arguments.
    Name(Vec<Node>, Option<Vec<Node>>),
    Call(Function, Vec<Node>),
    Prefix(Prefix, Box<Node>),
    Infix(Operator, Box<Node>, Box<Node>),
    /// Left side, right side, its expression if that is known, and whether it must not match.
    Match(Box<Node>, Box<Node>, Option<Regex>, bool),
    If(Box<Node>, Box<Node>, Box<Node>),
    List(Vec<Node>),
    Object(Vec<(ObjectKey, Node)>),
}

#[derive(Debug)]
pub(crate) enum ObjectKey {
    Written(Node),
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
    Key(Node),
    Keys(Vec<Node>),
    Slice(Option<Node>, Option<Node>, Option<Node>),
    Filter(Node),
    Star,
    /// `..`: the value and everything below it.
    Descend,
    Script(Node),
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
pub(crate) enum Operator {
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

impl Operator {
    pub(crate) fn parse(text: &str) -> Option<Operator> {
        Some(match text {
            "??" => Operator::Otherwise,
            "||" => Operator::Or,
            "&&" => Operator::And,
            "==" => Operator::Equal,
            "!=" => Operator::NotEqual,
            ">" => Operator::Greater,
            ">=" => Operator::GreaterEqual,
            "<" => Operator::Less,
            "<=" => Operator::LessEqual,
            "=~" => Operator::Matches,
            "!~" => Operator::NotMatches,
            "in" => Operator::In,
            "^" => Operator::Xor,
            "&" => Operator::BitAnd,
            "|" => Operator::BitOr,
            "<<" => Operator::Left,
            ">>" => Operator::Right,
            "+" => Operator::Plus,
            "-" => Operator::Minus,
            "*" => Operator::Times,
            "/" => Operator::Divide,
            "%" => Operator::Modulo,
            "**" => Operator::Power,
            _ => return None,
        })
    }

    /// How tight it binds; all operators bind to the left.
    pub(crate) fn precedence(self) -> u8 {
        use Operator as O;
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
        use Operator as O;
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
pub(crate) enum Function {
    Length,
    IsDefined,
    IsUndefined,
    IsEmpty,
    IsNotEmpty,
    Date,
}

impl Function {
    pub(crate) const ALL: &[(&str, Function)] = &[
        ("date", Function::Date),
        ("isDefined", Function::IsDefined),
        ("isEmpty", Function::IsEmpty),
        ("isNotEmpty", Function::IsNotEmpty),
        ("isUndefined", Function::IsUndefined),
        ("length", Function::Length),
    ];

    pub(crate) fn about(self) -> &'static str {
        match self {
            Function::Length => "how many elements a list, keys a map or bytes a text has",
            Function::IsDefined => "whether the path leads to something",
            Function::IsUndefined => "whether the path leads nowhere",
            Function::IsEmpty => "whether its length is 0",
            Function::IsNotEmpty => "whether its length is more than 0",
            Function::Date => "a text as a point in time, to be compared with others",
        }
    }

    pub(crate) fn find(name: &str) -> Option<Function> {
        Function::ALL.iter().find(|(known, _)| *known == name).map(|(_, function)| *function)
    }

    pub(crate) fn name(self) -> &'static str {
        Function::ALL.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }
}
