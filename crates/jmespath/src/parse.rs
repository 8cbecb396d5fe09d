//! Tokens to a tree, by binding powers.
//!
//! The grammar is the classic one. Where go-jmespath is more lenient than the grammar, so is this
//! parser, because policies rely on it: commas between arguments and between the entries of a
//! multi-select map may be missing, and a call may end in one.

use std::collections::HashSet;
use std::ops::Range;

use kiln_value::{Key, MAX_DEPTH, Value, json};

use crate::error::{Error, ErrorKind};
use crate::functions;
use crate::lex::{JmesPathToken, Lexer};
use crate::meter::JmesPathLimits;
use crate::number;
use crate::tree::{Comparison, JmesPathCall, JmesPathNode, Measure, NodeId, Slice, Tree};
use crate::weight::weight;

/// More nodes than any expression that means something.
const MOST_NODES: usize = 100_000;

/// How many levels an expression may put around its input.
const MOST_GROWTH: usize = 64;

const FLATTEN: u8 = 9;
const STAR: u8 = 20;
const FILTER: u8 = 21;
const DOT: u8 = 40;
const NOT: u8 = 45;

/// How strongly a token binds to what stands left of it.
fn binding_power(token: &JmesPathToken<'_>) -> u8 {
    match token {
        JmesPathToken::Pipe => 1,
        JmesPathToken::Or => 2,
        JmesPathToken::And => 3,
        JmesPathToken::Equal
        | JmesPathToken::NotEqual
        | JmesPathToken::Less
        | JmesPathToken::LessOrEqual
        | JmesPathToken::Greater
        | JmesPathToken::GreaterOrEqual => 5,
        JmesPathToken::Flatten => FLATTEN,
        JmesPathToken::Star => STAR,
        JmesPathToken::Filter => FILTER,
        JmesPathToken::Dot => DOT,
        JmesPathToken::Not => NOT,
        JmesPathToken::OpenBrace => 50,
        JmesPathToken::OpenBracket => 55,
        JmesPathToken::OpenParen => 60,
        _ => 0,
    }
}

/// Parses a whole source.
pub(crate) fn parse(source: &str, limits: &JmesPathLimits) -> Result<(Tree, NodeId), Error> {
    let longest = limits.source.min(u32::MAX as usize - 1);
    if source.len() > longest {
        return Err(Error::new(
            ErrorKind::Limit,
            longest..source.len(),
            format!("the expression has {} bytes, more than {longest}", source.len()),
        ));
    }
    let mut lexer = Lexer::new(source);
    let (token, span) = lexer.next()?;
    let next = lexer.next()?;
    let mut parser = JmesPathParser {
        lexer,
        tree: Tree::default(),
        token,
        span,
        next,
        end: 0,
        depth: 0,
        limits,
    };
    let top = parser.expression(0)?;
    if parser.token != JmesPathToken::End {
        return Err(parser.unexpected("the end of the expression"));
    }
    Ok((parser.tree, top))
}

struct JmesPathParser<'s> {
    lexer: Lexer<'s>,
    tree: Tree,
    /// The token to be looked at, and its bytes.
    token: JmesPathToken<'s>,
    span: Range<usize>,
    next: (JmesPathToken<'s>, Range<usize>),
    /// Where the last token ended that was taken.
    end: usize,
    depth: usize,
    limits: &'s JmesPathLimits,
}

impl<'s> JmesPathParser<'s> {
    fn advance(&mut self) -> Result<(JmesPathToken<'s>, Range<usize>), Error> {
        let after = self.lexer.next()?;
        let (token, span) = std::mem::replace(&mut self.next, after);
        let token = std::mem::replace(&mut self.token, token);
        let span = std::mem::replace(&mut self.span, span);
        self.end = span.end;
        Ok((token, span))
    }

    fn expect(&mut self, wanted: &JmesPathToken<'_>) -> Result<(), Error> {
        if self.token != *wanted {
            return Err(self.unexpected(&wanted.describe()));
        }
        self.advance().map(|_| ())
    }

    fn unexpected(&self, wanted: &str) -> Error {
        let found = self.token.describe();
        let error = Error::new(
            ErrorKind::Syntax,
            self.span.clone(),
            format!("expected {wanted}, found {found}"),
        );
        match self.token {
            JmesPathToken::Number(digits) if digits.starts_with('-') => {
                error.hint("quote a key that has a dash: \"a-b\"; to subtract, use subtract(a, b)")
            }
            _ => error,
        }
    }

    fn push(&mut self, node: JmesPathNode, span: Range<usize>) -> Result<NodeId, Error> {
        let id = self.tree.push(node, span);
        self.check(id)
    }

    fn join(
        &mut self,
        operator: fn(Vec<NodeId>) -> JmesPathNode,
        left: NodeId,
        right: NodeId,
    ) -> Result<NodeId, Error> {
        let id = self.tree.join(operator, left, right);
        self.check(id)
    }

    fn check(&self, id: NodeId) -> Result<NodeId, Error> {
        let Measure { height, growth, depth, .. } = self.tree.measure(id);
        let problem = if height > self.limits.depth {
            format!("the expression nests deeper than {} levels", self.limits.depth)
        } else if growth > MOST_GROWTH || depth > MAX_DEPTH + MOST_GROWTH {
            "the result would nest too many lists and maps".to_owned()
        } else if self.tree.len() > MOST_NODES {
            format!("the expression has more than {MOST_NODES} parts")
        } else {
            return Ok(id);
        };
        Err(Error::new(ErrorKind::Limit, self.tree.span(id), problem))
    }

    fn expression(&mut self, power: u8) -> Result<NodeId, Error> {
        self.depth += 1;
        if self.depth > self.limits.depth {
            return Err(Error::new(
                ErrorKind::Limit,
                self.span.clone(),
                format!("the expression nests deeper than {} levels", self.limits.depth),
            ));
        }
        let mut left = self.prefix()?;
        while power < binding_power(&self.token) {
            left = self.infix(left)?;
        }
        self.depth -= 1;
        Ok(left)
    }

    /// What can begin an expression.
    fn prefix(&mut self) -> Result<NodeId, Error> {
        let (token, span) = self.advance()?;
        match token {
            JmesPathToken::Json(text) => {
                let value =
                    json::parse(&text).map_err(|problem| bad_literal(&text, &span, &problem))?;
                let value = number::as_floats(&value);
                let weight = weight(&value);
                self.push(JmesPathNode::Literal(value, weight), span)
            }
            JmesPathToken::Raw(text) => {
                let weight = text.len() as u64;
                self.push(JmesPathNode::Literal(Value::from(&*text), weight), span)
            }
            JmesPathToken::Identifier(name) => self.push(JmesPathNode::Field(Key::new(name)), span),
            JmesPathToken::Quoted(name) => {
                if self.token == JmesPathToken::OpenParen {
                    return Err(Error::new(
                        ErrorKind::Syntax,
                        span,
                        "a quoted name cannot be a function",
                    ));
                }
                self.push(JmesPathNode::Field(Key::from(name)), span)
            }
            JmesPathToken::Current => self.push(JmesPathNode::Current, span),
            JmesPathToken::Star => {
                let left = self.push(JmesPathNode::Current, span.start..span.start)?;
                let right = match self.token {
                    JmesPathToken::CloseBracket => self.nothing()?,
                    _ => self.projected(STAR)?,
                };
                self.push(JmesPathNode::ValueProjection { left, right }, span.start..self.end)
            }
            JmesPathToken::Filter => {
                let left = self.push(JmesPathNode::Current, span.start..span.start)?;
                self.filter(left)
            }
            JmesPathToken::Flatten => {
                let left = self.push(JmesPathNode::Current, span.start..span.start)?;
                self.flatten(left)
            }
            JmesPathToken::OpenBrace => self.multi_map(span.start),
            JmesPathToken::OpenBracket => match (&self.token, &self.next.0) {
                (JmesPathToken::Number(_) | JmesPathToken::Colon, _) => {
                    let left = self.push(JmesPathNode::Current, span.start..span.start)?;
                    self.bracketed(left, span.start)
                }
                (JmesPathToken::Star, JmesPathToken::CloseBracket) => {
                    let left = self.push(JmesPathNode::Current, span.start..span.start)?;
                    self.list_projection(left)
                }
                _ => self.multi_list(span.start),
            },
            JmesPathToken::Ampersand => {
                let part = self.expression(0)?;
                self.push(JmesPathNode::Reference(part), span.start..self.end)
            }
            JmesPathToken::Not => {
                let part = self.expression(NOT)?;
                self.push(JmesPathNode::Not(part), span.start..self.end)
            }
            JmesPathToken::OpenParen => {
                let part = self.expression(0)?;
                self.expect(&JmesPathToken::CloseParen)?;
                Ok(part)
            }
            token => Err(self.cannot_begin(&token, span)),
        }
    }

    fn cannot_begin(&self, token: &JmesPathToken<'_>, span: Range<usize>) -> Error {
        let error = match token {
            JmesPathToken::End => {
                Error::new(ErrorKind::Syntax, span, "the expression ends too early")
            }
            token => Error::new(
                ErrorKind::Syntax,
                span,
                format!("{} cannot begin an expression", token.describe()),
            ),
        };
        match token {
            JmesPathToken::Number(digits) => {
                error.hint(format!("write numbers in backticks: `{digits}`"))
            }
            _ => error,
        }
    }

    /// What can go on an expression; the token to be looked at binds to the left.
    fn infix(&mut self, left: NodeId) -> Result<NodeId, Error> {
        let start = self.tree.span(left).start;
        let (token, span) = self.advance()?;
        match token {
            JmesPathToken::Dot if self.token == JmesPathToken::Star => {
                self.advance()?;
                let right = self.projected(DOT)?;
                self.push(JmesPathNode::ValueProjection { left, right }, start..self.end)
            }
            JmesPathToken::Dot => {
                let right = self.after_dot(DOT)?;
                self.join(JmesPathNode::Chain, left, right)
            }
            JmesPathToken::Pipe => {
                let right = self.expression(1)?;
                self.join(JmesPathNode::Pipe, left, right)
            }
            JmesPathToken::Or => {
                let right = self.expression(2)?;
                self.join(JmesPathNode::Or, left, right)
            }
            JmesPathToken::And => {
                let right = self.expression(3)?;
                self.join(JmesPathNode::And, left, right)
            }
            JmesPathToken::Equal
            | JmesPathToken::NotEqual
            | JmesPathToken::Less
            | JmesPathToken::LessOrEqual
            | JmesPathToken::Greater
            | JmesPathToken::GreaterOrEqual => {
                let right = self.expression(binding_power(&token))?;
                let comparison = match token {
                    JmesPathToken::Equal => Comparison::Equal,
                    JmesPathToken::NotEqual => Comparison::NotEqual,
                    JmesPathToken::Less => Comparison::Less,
                    JmesPathToken::LessOrEqual => Comparison::LessOrEqual,
                    JmesPathToken::Greater => Comparison::Greater,
                    _ => Comparison::GreaterOrEqual,
                };
                self.push(JmesPathNode::Compare(comparison, left, right), start..self.end)
            }
            JmesPathToken::OpenParen => self.call(left, span),
            JmesPathToken::Filter => self.filter(left),
            JmesPathToken::Flatten => self.flatten(left),
            JmesPathToken::OpenBracket => match self.token {
                JmesPathToken::Number(_) | JmesPathToken::Colon => self.bracketed(left, span.start),
                JmesPathToken::Star => self.list_projection(left),
                _ => Err(self
                    .unexpected("an index, a slice or `*`")
                    .hint("a field is written `.name`, a filter `[?condition]`")),
            },
            token => Err(Error::new(
                ErrorKind::Syntax,
                span,
                format!("{} cannot stand here", token.describe()),
            )),
        }
    }

    fn call(&mut self, callee: NodeId, paren: Range<usize>) -> Result<NodeId, Error> {
        let JmesPathNode::Field(name) = self.tree.node(callee) else {
            return Err(Error::new(ErrorKind::Syntax, paren, "only a name can be called"));
        };
        let name = name.clone();
        let mut arguments = Vec::new();
        while self.token != JmesPathToken::CloseParen {
            arguments.push(self.expression(0)?);
            // go-jmespath: a comma may be missing, and there may be one before the parenthesis.
            if self.token == JmesPathToken::Comma {
                self.advance()?;
            }
        }
        self.advance()?;
        let function = functions::find(&name);
        let call = JmesPathCall { name, function, arguments, pattern: Default::default() };
        let start = self.tree.span(callee).start;
        self.push(JmesPathNode::Call(call), start..self.end)
    }

    /// After `[` with a number or a colon: an index, or a slice that projects.
    fn bracketed(&mut self, left: NodeId, bracket: usize) -> Result<NodeId, Error> {
        if self.token != JmesPathToken::Colon && self.next.0 != JmesPathToken::Colon {
            let index = self.integer()?;
            self.expect(&JmesPathToken::CloseBracket)?;
            let right = self.push(JmesPathNode::Index(index), bracket..self.end)?;
            return self.join(JmesPathNode::Chain, left, right);
        }
        let mut parts = [None; 3];
        let mut part = 0;
        while self.token != JmesPathToken::CloseBracket && part < 3 {
            match self.token {
                JmesPathToken::Colon => {
                    part += 1;
                    self.advance()?;
                }
                JmesPathToken::Number(_) => parts[part] = Some(self.integer()?),
                _ => return Err(self.unexpected("a number or `:`")),
            }
        }
        self.expect(&JmesPathToken::CloseBracket)?;
        let [start, stop, step] = parts;
        let slice =
            self.push(JmesPathNode::Slice(Slice { start, stop, step }), bracket..self.end)?;
        let left = self.join(JmesPathNode::Chain, left, slice)?;
        let right = self.projected(STAR)?;
        let from = self.tree.span(left).start;
        self.push(JmesPathNode::Projection { left, right }, from..self.end)
    }

    fn integer(&mut self) -> Result<i64, Error> {
        let (token, span) = self.advance()?;
        match token {
            JmesPathToken::Number(digits) => digits.parse().map_err(|_| {
                Error::new(ErrorKind::Syntax, span, format!("{digits} is not an index"))
            }),
            other => Err(Error::new(
                ErrorKind::Syntax,
                span,
                format!("expected a number, found {}", other.describe()),
            )),
        }
    }

    /// After `[`: `*]` and what is done to each element.
    fn list_projection(&mut self, left: NodeId) -> Result<NodeId, Error> {
        self.expect(&JmesPathToken::Star)?;
        self.expect(&JmesPathToken::CloseBracket)?;
        let right = self.projected(STAR)?;
        let start = self.tree.span(left).start;
        self.push(JmesPathNode::Projection { left, right }, start..self.end)
    }

    fn flatten(&mut self, left: NodeId) -> Result<NodeId, Error> {
        let start = self.tree.span(left).start;
        let left = self.push(JmesPathNode::Flatten(left), start..self.end)?;
        let right = self.projected(FLATTEN)?;
        self.push(JmesPathNode::Projection { left, right }, start..self.end)
    }

    /// After `[?`.
    fn filter(&mut self, left: NodeId) -> Result<NodeId, Error> {
        let condition = self.expression(0)?;
        self.expect(&JmesPathToken::CloseBracket)?;
        let right = match self.token {
            JmesPathToken::Flatten => self.nothing()?,
            _ => self.projected(FILTER)?,
        };
        let start = self.tree.span(left).start;
        self.push(JmesPathNode::Filter { left, condition, right }, start..self.end)
    }

    fn nothing(&mut self) -> Result<NodeId, Error> {
        self.push(JmesPathNode::Current, self.end..self.end)
    }

    /// What a projection does to each element.
    fn projected(&mut self, power: u8) -> Result<NodeId, Error> {
        match self.token {
            JmesPathToken::OpenBracket | JmesPathToken::Filter => self.expression(power),
            JmesPathToken::Dot => {
                self.advance()?;
                self.after_dot(power)
            }
            _ if binding_power(&self.token) < 10 => self.nothing(),
            _ => Err(self.unexpected("`.`, `[` or the end of the projection")),
        }
    }

    fn after_dot(&mut self, power: u8) -> Result<NodeId, Error> {
        match self.token {
            JmesPathToken::Identifier(_) | JmesPathToken::Quoted(_) | JmesPathToken::Star => {
                self.expression(power)
            }
            JmesPathToken::OpenBracket => {
                let (_, span) = self.advance()?;
                self.multi_list(span.start)
            }
            JmesPathToken::OpenBrace => {
                let (_, span) = self.advance()?;
                self.multi_map(span.start)
            }
            _ => Err(self.unexpected("a name, `*`, `[` or `{`")),
        }
    }

    fn multi_list(&mut self, start: usize) -> Result<NodeId, Error> {
        let mut parts = Vec::new();
        loop {
            parts.push(self.expression(0)?);
            if self.token == JmesPathToken::CloseBracket {
                break;
            }
            self.expect(&JmesPathToken::Comma)?;
        }
        self.advance()?;
        self.push(JmesPathNode::MultiList(parts), start..self.end)
    }

    fn multi_map(&mut self, start: usize) -> Result<NodeId, Error> {
        let mut parts: Vec<(Key, NodeId)> = Vec::new();
        loop {
            let key = match &self.token {
                JmesPathToken::Identifier(name) => Key::new(name),
                JmesPathToken::Quoted(name) => Key::new(name),
                _ => return Err(self.unexpected("a key")),
            };
            self.advance()?;
            self.expect(&JmesPathToken::Colon)?;
            parts.push((key, self.expression(0)?));
            match self.token {
                JmesPathToken::Comma => {
                    self.advance()?;
                }
                JmesPathToken::CloseBrace => break,
                // go-jmespath: the comma may be missing here too.
                _ => {}
            }
        }
        self.advance()?;
        // Go: of equal keys the last one counts.
        let distinct: HashSet<&str> = parts.iter().map(|(key, _)| key.as_str()).collect();
        let unique = distinct.len() == parts.len();
        self.push(JmesPathNode::MultiMap { parts, unique }, start..self.end)
    }
}

fn bad_literal(text: &str, span: &Range<usize>, problem: &json::JsonError) -> Error {
    let error = Error::new(
        ErrorKind::Syntax,
        span.clone(),
        format!("what stands in backticks is not JSON: {}", problem.message),
    );
    let bare = text.trim();
    if !bare.is_empty() && bare.chars().all(|c| c.is_alphanumeric() || "_-./".contains(c)) {
        return error.hint(format!("for a text write '{bare}'"));
    }
    error
}
