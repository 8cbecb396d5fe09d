//! Text to a tree. Precedence climbing for operators; paths are read step by step.

use std::ops::Range;

use kiln_diagnostic::did_you_mean;
use kiln_text::quote::unquote;
use kiln_text::{Regex, float};
use kiln_value::{Str, Value};

use crate::JsonPathLimits;
use crate::error::{Error, ErrorKind};
use crate::item::Item;
use crate::scan::{JsonPathScanner, JsonPathToken, JsonPathTokenKind};
use crate::tree::{
    JsonPathFunction, JsonPathNode, JsonPathOperator, NodeKind, ObjectKey, Path, PathStep,
    PathStepKind, Prefix,
};

pub(crate) struct JsonPathParser<'t> {
    scanner: JsonPathScanner<'t>,
    depth: usize,
    limits: JsonPathLimits,
}

type Result<R> = std::result::Result<R, Error>;

/// Parses an expression.
pub(crate) fn parse(text: &str, limits: &JsonPathLimits) -> Result<JsonPathNode> {
    if text.len() > limits.source {
        let message = format!("the expression is longer than {} bytes", limits.source);
        return Err(Error::new(ErrorKind::Limit, 0..0, message));
    }
    let mut parser =
        JsonPathParser { scanner: JsonPathScanner { text, at: 0 }, depth: 0, limits: *limits };
    let node = parser.expression()?;
    match parser.next() {
        token if token.kind == JsonPathTokenKind::End => Ok(node),
        token => Err(unexpected(token, "an operator or the end")),
    }
}

fn unexpected(token: JsonPathToken<'_>, wanted: &str) -> Error {
    let error =
        syntax(token.at..token.end(), format!("{wanted} is wanted here, not {}", token.describe()));
    match (token.kind, token.text) {
        (JsonPathTokenKind::Char('='), _) => error.hint("write == to compare"),
        (JsonPathTokenKind::Ident, "and") => error.hint("write && for and"),
        (JsonPathTokenKind::Ident, "or") => error.hint("write || for or"),
        (JsonPathTokenKind::Ident, "not") => error.hint("write ! for not"),
        _ => error,
    }
}

fn syntax(span: Range<usize>, message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Syntax, span, message)
}

/// Characters that operators are made of: as many as stand together are one operator.
fn is_operator(c: char) -> bool {
    "&|+-*/%=!><~^?".contains(c)
}

impl<'t> JsonPathParser<'t> {
    fn next(&mut self) -> JsonPathToken<'t> {
        self.scanner.next()
    }

    fn peek(&self) -> JsonPathToken<'t> {
        self.scanner.clone().next()
    }

    fn expect(&mut self, wanted: char) -> Result<JsonPathToken<'t>> {
        let token = self.next();
        if token.kind == JsonPathTokenKind::Char(wanted) {
            return Ok(token);
        }
        Err(unexpected(token, &format!("`{wanted}`")))
    }

    fn deeper<R>(&mut self, parse: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        if self.depth >= self.limits.depth {
            let at = self.scanner.at;
            let message = format!("the expression nests deeper than {} levels", self.limits.depth);
            return Err(Error::new(ErrorKind::Limit, at..at, message));
        }
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }

    fn expression(&mut self) -> Result<JsonPathNode> {
        self.deeper(|parser| parser.climb(0))
    }

    fn climb(&mut self, least: u8) -> Result<JsonPathNode> {
        let depth = self.depth;
        let mut left = self.primary()?;
        loop {
            let before = self.scanner;
            let token = self.next();
            let mut sign = token.text.to_owned();
            match token.kind {
                JsonPathTokenKind::Char(c) if is_operator(c) => {
                    while let Some(c) = self.scanner.peek().filter(|c| is_operator(*c)) {
                        self.scanner.skip(c);
                        sign.push(c);
                    }
                }
                JsonPathTokenKind::Ident if token.text == "in" => {}
                _ => {
                    self.scanner = before;
                    break;
                }
            }
            if sign == "?" {
                if least > 0 {
                    self.scanner = before;
                    break;
                }
                left = self.choice(left)?;
                continue;
            }
            let Some(operator) = JsonPathOperator::parse(&sign) else {
                let span = token.at..self.scanner.at;
                if span.len() > 1 {
                    let known = JsonPathOperator::parse(&sign[..1]).is_some();
                    let hint = known.then(|| "put a space between two operators".to_owned());
                    return Err(
                        syntax(span, format!("there is no operator {sign}")).maybe_hint(hint)
                    );
                }
                self.scanner = before;
                break;
            };
            if operator.precedence() < least {
                self.scanner = before;
                break;
            }
            // A long chain is as deep as its tree.
            self.depth += 1;
            let right = self.deeper(|parser| parser.climb(operator.precedence() + 1))?;
            left = infix(operator, left, right)?;
        }
        self.depth = depth;
        Ok(left)
    }

    /// `condition ? a : b`; without the second half, null.
    fn choice(&mut self, condition: JsonPathNode) -> Result<JsonPathNode> {
        self.depth += 1;
        let yes = self.expression()?;
        let token = self.next();
        let no = match token.kind {
            JsonPathTokenKind::Char(':') => self.expression()?,
            JsonPathTokenKind::End => {
                JsonPathNode { kind: NodeKind::Constant(Item::NULL), span: token.at..token.at }
            }
            _ => return Err(unexpected(token, "`:`")),
        };
        let span = condition.span.start..no.span.end;
        let kind = NodeKind::If(Box::new(condition), Box::new(yes), Box::new(no));
        Ok(JsonPathNode { kind, span })
    }

    fn primary(&mut self) -> Result<JsonPathNode> {
        let token = self.next();
        let kind = match token.kind {
            JsonPathTokenKind::Char('$') => return self.path(token, true),
            JsonPathTokenKind::Char('@') => return self.path(token, false),
            JsonPathTokenKind::Char('(') => {
                let mut inner = self.expression()?;
                let close = self.expect(')')?;
                inner.span = token.at..close.end();
                return Ok(inner);
            }
            JsonPathTokenKind::Char('[') => NodeKind::List(self.list()?),
            JsonPathTokenKind::Char('{') => NodeKind::Object(self.object()?),
            JsonPathTokenKind::Char(sign @ ('!' | '-' | '~')) => {
                let prefix = match sign {
                    '!' => Prefix::Not,
                    '-' => Prefix::Minus,
                    _ => Prefix::BitNot,
                };
                let inner = self.deeper(Self::primary)?;
                NodeKind::Prefix(prefix, Box::new(inner))
            }
            JsonPathTokenKind::Char('#') => {
                let message = "a placeholder stands only before the colon of an object";
                return Err(syntax(token.at..token.end(), message));
            }
            JsonPathTokenKind::Number => {
                let plain = !token.text.starts_with("0x") && !token.text.starts_with("0X");
                let number = float::parse(token.text).filter(|_| plain);
                let number = number.ok_or_else(|| {
                    syntax(token.at..token.end(), format!("{} is not a decimal number", token.text))
                })?;
                NodeKind::Constant(Item::number(number))
            }
            JsonPathTokenKind::Text => {
                NodeKind::Constant(Item::Value(Value::from(self.text(token)?)))
            }
            JsonPathTokenKind::Ident => self.word(token)?,
            _ => return Err(unexpected(token, "a value")),
        };
        Ok(JsonPathNode { kind, span: token.at..self.scanner.at })
    }

    fn text(&self, token: JsonPathToken<'_>) -> Result<String> {
        unquote(token.text).map_err(|_| {
            let span = token.at..token.end();
            let error = syntax(span, "the text cannot be read");
            match token.text.starts_with('\'') {
                true => error.hint("single quotes hold one character: use double quotes"),
                false => error.hint("close it with a quote, and write \\\\ for a backslash"),
            }
        })
    }

    fn word(&mut self, token: JsonPathToken<'_>) -> Result<NodeKind> {
        match token.text {
            "true" => return Ok(NodeKind::Constant(Item::Value(Value::Bool(true)))),
            "false" => return Ok(NodeKind::Constant(Item::Value(Value::Bool(false)))),
            "null" => return Ok(NodeKind::Constant(Item::NULL)),
            _ => {}
        }
        if let Some(function) = JsonPathFunction::find(token.text) {
            let arguments = match self.peek().kind {
                JsonPathTokenKind::Char('(') => {
                    self.next();
                    self.arguments()?
                }
                _ => Vec::new(),
            };
            return Ok(NodeKind::Call(function, arguments));
        }
        let constant = |token: JsonPathToken<'_>| JsonPathNode {
            kind: NodeKind::Constant(Item::Value(Value::from(token.text))),
            span: token.at..token.end(),
        };
        let mut keys = vec![constant(token)];
        loop {
            let before = self.scanner;
            match self.next().kind {
                JsonPathTokenKind::Char('.') => {
                    let name = self.next();
                    if name.kind != JsonPathTokenKind::Ident {
                        return Err(unexpected(name, "a field"));
                    }
                    keys.push(constant(name));
                }
                JsonPathTokenKind::Char('[') => {
                    keys.push(self.expression()?);
                    self.expect(']')?;
                }
                JsonPathTokenKind::Char('(') => {
                    return Ok(NodeKind::Name(keys, Some(self.arguments()?)));
                }
                _ => {
                    self.scanner = before;
                    return Ok(NodeKind::Name(keys, None));
                }
            }
        }
    }

    fn arguments(&mut self) -> Result<Vec<JsonPathNode>> {
        let mut arguments = Vec::new();
        if self.peek().kind == JsonPathTokenKind::Char(')') {
            self.next();
            return Ok(arguments);
        }
        loop {
            arguments.push(self.expression()?);
            let token = self.next();
            match token.kind {
                JsonPathTokenKind::Char(')') => return Ok(arguments),
                JsonPathTokenKind::Char(',') => {}
                _ => return Err(unexpected(token, "`,` or `)`")),
            }
        }
    }

    fn list(&mut self) -> Result<Vec<JsonPathNode>> {
        let mut elements = Vec::new();
        loop {
            match self.peek().kind {
                JsonPathTokenKind::Char(',') => {
                    self.next();
                }
                JsonPathTokenKind::Char(']') => {
                    self.next();
                    return Ok(elements);
                }
                _ => elements.push(self.expression()?),
            }
        }
    }

    fn object(&mut self) -> Result<Vec<(ObjectKey, JsonPathNode)>> {
        let mut entries = Vec::new();
        loop {
            match self.peek().kind {
                JsonPathTokenKind::Char(',') => {
                    self.next();
                }
                JsonPathTokenKind::Char('}') => {
                    self.next();
                    return Ok(entries);
                }
                JsonPathTokenKind::Char('#') => {
                    self.next();
                    entries.push(self.captured()?);
                }
                _ => {
                    let key = self.expression()?;
                    self.expect(':')?;
                    entries.push((ObjectKey::Written(key), self.expression()?));
                }
            }
        }
    }

    fn captured(&mut self) -> Result<(ObjectKey, JsonPathNode)> {
        let mut number = None;
        if self.peek().kind == JsonPathTokenKind::Number {
            let token = self.next();
            number =
                Some(token.text.parse().map_err(|_| unexpected(token, "the number of a key"))?);
        }
        self.expect(':')?;
        let token = self.next();
        let path = match token.kind {
            JsonPathTokenKind::Char('$') => self.path(token, true)?,
            JsonPathTokenKind::Char('@') => self.path(token, false)?,
            _ => return Err(unexpected(token, "a path that begins with `$`")),
        };
        Ok((ObjectKey::Captured(number), path))
    }

    fn path(&mut self, begin: JsonPathToken<'_>, from_root: bool) -> Result<JsonPathNode> {
        let mut steps = Vec::new();
        loop {
            let before = self.scanner;
            let token = self.next();
            match token.kind {
                JsonPathTokenKind::Char('.') => self.after_dot(token, &mut steps)?,
                JsonPathTokenKind::Char('[') => {
                    let kind = self.bracket()?;
                    steps.push(PathStep { kind, span: token.at..self.scanner.at });
                }
                JsonPathTokenKind::Char('(') => self.script(token, &mut steps)?,
                _ => {
                    self.scanner = before;
                    let span = begin.at..before.at;
                    return Ok(JsonPathNode {
                        kind: NodeKind::Path(Path { from_root, steps }),
                        span,
                    });
                }
            }
        }
    }

    fn script(&mut self, open: JsonPathToken<'_>, steps: &mut Vec<PathStep>) -> Result<()> {
        let script = self.expression()?;
        self.expect(')')?;
        steps.push(PathStep { kind: PathStepKind::Script(script), span: open.at..self.scanner.at });
        Ok(())
    }

    fn after_dot(&mut self, dot: JsonPathToken<'_>, steps: &mut Vec<PathStep>) -> Result<()> {
        let token = self.next();
        let span = dot.at..token.end();
        match token.kind {
            JsonPathTokenKind::Ident => {
                steps.push(PathStep { kind: PathStepKind::Field(Str::new(token.text)), span });
            }
            JsonPathTokenKind::Char('*') => steps.push(PathStep { kind: PathStepKind::Star, span }),
            JsonPathTokenKind::Char('.') => {
                steps.push(PathStep { kind: PathStepKind::Descend, span });
                self.after_descent(steps)?;
            }
            _ => {
                let error = unexpected(token, "a name, `*` or `.`");
                return Err(match token.kind {
                    JsonPathTokenKind::Char('[') => error.hint("leave the dot before `[` out"),
                    _ => error,
                });
            }
        }
        Ok(())
    }

    fn after_descent(&mut self, steps: &mut Vec<PathStep>) -> Result<()> {
        let token = self.next();
        let kind = match token.kind {
            JsonPathTokenKind::Ident => PathStepKind::Field(Str::new(token.text)),
            JsonPathTokenKind::Char('*') => PathStepKind::Star,
            JsonPathTokenKind::Char('(') => return self.script(token, steps),
            JsonPathTokenKind::Char('[') => match self.bracket()? {
                PathStepKind::Slice(..) => {
                    let span = token.at..self.scanner.at;
                    return Err(syntax(span, "`..` cannot be joined with a slice"));
                }
                PathStepKind::Key(key) => PathStepKind::Keys(vec![key]),
                kind => kind,
            },
            _ => return Err(unexpected(token, "a name, `*` or `[`")),
        };
        steps.push(PathStep { kind, span: token.at..self.scanner.at });
        Ok(())
    }

    /// What stands in brackets, and the closing one.
    fn bracket(&mut self) -> Result<PathStepKind> {
        let token = self.peek();
        match token.kind {
            JsonPathTokenKind::Char('*') => {
                self.next();
                self.expect(']')?;
                return Ok(PathStepKind::Star);
            }
            JsonPathTokenKind::Char('?') => {
                self.next();
                let filter = self.expression()?;
                self.expect(']')?;
                return Ok(PathStepKind::Filter(filter));
            }
            _ => {}
        }
        // Between colons an expression may be left out.
        let mut parts: Vec<Option<JsonPathNode>> = Vec::new();
        let mut separator = None;
        loop {
            let token = self.peek();
            let part = match (token.kind, separator) {
                (JsonPathTokenKind::Char(':'), _) => None,
                (JsonPathTokenKind::Char(']'), Some(':')) => None,
                _ => Some(self.expression()?),
            };
            parts.push(part);
            let token = self.next();
            match (token.kind, separator) {
                (JsonPathTokenKind::Char(']'), _) => break,
                (JsonPathTokenKind::Char(found @ (':' | ',')), None) => separator = Some(found),
                (JsonPathTokenKind::Char(found), Some(known)) if found == known => {}
                (JsonPathTokenKind::Char(':' | ','), _) => {
                    let message = "commas and colons do not mix in brackets";
                    return Err(syntax(token.at..token.end(), message));
                }
                _ => return Err(unexpected(token, "`,`, `:` or `]`")),
            }
        }
        if separator == Some(':') {
            if parts.len() > 3 {
                let at = self.scanner.at;
                return Err(syntax(at - 1..at, "a slice has at most three parts: [min:max:step]"));
            }
            parts.resize_with(3, || None);
            let mut parts = parts.into_iter();
            let mut part = || parts.next().flatten();
            return Ok(PathStepKind::Slice(part(), part(), part()));
        }
        let mut keys: Vec<JsonPathNode> = parts.into_iter().flatten().collect();
        Ok(match keys.pop() {
            Some(only) if keys.is_empty() => PathStepKind::Key(only),
            last => {
                keys.extend(last);
                PathStepKind::Keys(keys)
            }
        })
    }
}

fn infix(
    operator: JsonPathOperator,
    left: JsonPathNode,
    right: JsonPathNode,
) -> Result<JsonPathNode> {
    let span = left.span.start..right.span.end;
    let kind = match operator {
        JsonPathOperator::Matches | JsonPathOperator::NotMatches => {
            let regex = match &right.kind {
                NodeKind::Constant(pattern) => {
                    let regex = Regex::new(&pattern.text());
                    Some(regex.map_err(|error| syntax(right.span.clone(), error.to_string()))?)
                }
                _ => None,
            };
            let negated = operator == JsonPathOperator::NotMatches;
            NodeKind::Match(Box::new(left), Box::new(right), regex, negated)
        }
        _ => NodeKind::Infix(operator, Box::new(left), Box::new(right)),
    };
    Ok(JsonPathNode { kind, span })
}

/// What was probably meant by a function that is not there.
pub(crate) fn suggest(name: &str) -> Option<String> {
    did_you_mean(name, JsonPathFunction::ALL.iter().map(|(name, _)| *name))
        .map(|near| format!("did you mean {near}?"))
        .or_else(|| {
            let names: Vec<&str> = JsonPathFunction::ALL.iter().map(|(name, _)| *name).collect();
            Some(format!("the functions are {}", names.join(", ")))
        })
}
