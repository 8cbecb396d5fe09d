//! The parser: precedence climbing over tokens, macros expanded as they are met.
//!
//! Nesting is counted and limited; operator chains, `!`/`-` runs and selections are loops, so the
//! stack needed does not depend on the length of the source.

use std::sync::Arc;

use kiln_value::Str;

use super::ast::{
    Ast, BinaryOp, Element, Entry, Expr, ExprId, ExprKind, Field, Literal, LogicOp, UnaryOp,
};
use super::lex::{Token, lex};
use super::{literal, macros};
use crate::Span;
use crate::error::{CompileError, Issue};

/// What the parser of an environment accepts.
#[derive(Clone, Debug)]
pub(crate) struct Dialect {
    /// Expand macros; without it they are plain calls.
    pub(crate) macros: bool,
    /// `all(i, v, …)`, `transformList` and the like.
    pub(crate) two_variables: bool,
    /// `` a.`b-c` ``.
    pub(crate) quoted_fields: bool,
    /// `cel.block`, `cel.index` and `cel.iterVar`, as optimisers and test suites write them.
    pub(crate) blocks: bool,
    /// Kyverno: `x.orValue(y)` gives back an `x` that is not an optional.
    pub(crate) lenient_or_value: bool,
    /// As in the release of CEL that Kubernetes has, where that departs from the conformance suite.
    pub(crate) kubernetes: bool,
    /// How deep expressions may nest.
    pub(crate) max_depth: usize,
    /// How many characters an expression may have.
    pub(crate) max_length: usize,
}

/// Words that may not be variables, though they may be fields.
const RESERVED: [&str; 17] = [
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
    "void",
    "while",
];

/// Parses an expression.
pub(crate) fn parse(source: &str, dialect: &Dialect) -> Result<Ast, CompileError> {
    let fail = |issue| CompileError::new(source, vec![issue]);
    if source.len() > dialect.max_length {
        let length = source.chars().count();
        if length > dialect.max_length {
            let limit = dialect.max_length;
            return Err(fail(Issue::new(
                format!("expression code point size exceeds limit: size: {length}, limit {limit}"),
                Span::default(),
            )));
        }
    }
    let tokens = lex(source).map_err(fail)?;
    let mut parser = Parser { source, dialect, tokens, at: 0, depth: 0, exprs: Vec::new() };
    let root = parser.expr().and_then(|root| match parser.peek() {
        Token::End => Ok(root),
        _ => Err(parser.unexpected("the end of the expression")),
    });
    root.map(|root| Ast { exprs: parser.exprs, root }).map_err(fail)
}

pub(super) type Parsed<T = ExprId> = Result<T, Issue>;

pub(super) struct Parser<'s> {
    source: &'s str,
    pub(super) dialect: &'s Dialect,
    tokens: Vec<(Token, Span)>,
    at: usize,
    depth: usize,
    pub(super) exprs: Vec<Expr>,
}

impl Parser<'_> {
    fn peek(&self) -> Token {
        self.tokens[self.at].0
    }

    fn span(&self) -> Span {
        self.tokens[self.at].1
    }

    fn text(&self, span: Span) -> &str {
        &self.source[span.range()]
    }

    /// Moves past a token; the end stays where it is.
    fn advance(&mut self) -> Span {
        let span = self.span();
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
        span
    }

    fn accept(&mut self, token: Token) -> bool {
        let found = self.peek() == token;
        if found {
            self.advance();
        }
        found
    }

    fn expect(&mut self, token: Token, words: &str) -> Parsed<Span> {
        if self.peek() == token { Ok(self.advance()) } else { Err(self.unexpected(words)) }
    }

    fn unexpected(&self, wanted: &str) -> Issue {
        let span = self.span();
        let found = match self.peek() {
            Token::End => "<EOF>",
            _ => self.text(span),
        };
        Issue::new(format!("Syntax error: mismatched input '{found}' expecting {wanted}"), span)
    }

    pub(super) fn add(&mut self, kind: ExprKind, span: Span) -> ExprId {
        let id = ExprId(u32::try_from(self.exprs.len()).unwrap_or(u32::MAX));
        self.exprs.push(Expr { kind, span });
        id
    }

    pub(super) fn span_of(&self, id: ExprId) -> Span {
        self.exprs[id.index()].span
    }

    /// One level of nesting: `condition ? yes : no`, or anything that binds tighter.
    fn expr(&mut self) -> Parsed {
        self.depth += 1;
        if self.depth > self.dialect.max_depth {
            let limit = self.dialect.max_depth;
            let message = format!("expression recursion limit exceeded: {limit}");
            return Err(Issue::new(message, self.span()));
        }
        let mut result = self.or()?;
        if self.accept(Token::Question) {
            let yes = self.or()?;
            self.expect(Token::Colon, "':'")?;
            let no = self.expr()?;
            let span = self.span_of(result).to(self.span_of(no));
            result = self.add(ExprKind::Ternary { condition: result, yes, no }, span);
        }
        self.depth -= 1;
        Ok(result)
    }

    fn or(&mut self) -> Parsed {
        self.logic(LogicOp::Or, Token::OrOr, |parser| {
            parser.logic(LogicOp::And, Token::AndAnd, |parser| parser.binary(0))
        })
    }

    fn logic(&mut self, op: LogicOp, token: Token, term: impl Fn(&mut Self) -> Parsed) -> Parsed {
        let first = term(self)?;
        if self.peek() != token {
            return Ok(first);
        }
        let mut terms = vec![first];
        while self.accept(token) {
            terms.push(term(self)?);
        }
        let span = self.span_of(first).to(self.span_of(terms[terms.len() - 1]));
        Ok(self.add(ExprKind::Logic { op, terms }, span))
    }

    /// Left-associative operators that bind at least as tight as `tightness`.
    fn binary(&mut self, tightness: u8) -> Parsed {
        let mut left = self.unary()?;
        while let Some((op, binds)) = binary_op(self.peek()) {
            if binds < tightness {
                break;
            }
            let span = self.advance();
            let right = self.binary(binds + 1)?;
            // The operator is the place that messages about its overloads point at.
            left = self.add(ExprKind::Binary { op, left, right }, span);
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parsed {
        let (token, op) = match self.peek() {
            Token::Bang => (Token::Bang, UnaryOp::Not),
            Token::Minus => (Token::Minus, UnaryOp::Negate),
            _ => return self.member(),
        };
        let span = self.span();
        let mut count = 0usize;
        while self.accept(token) {
            count += 1;
        }
        // A minus directly before a number belongs to it: -9223372036854775808 has no positive twin.
        if op == UnaryOp::Negate && matches!(self.peek(), Token::Int | Token::Float) {
            let negative = count % 2 == 1;
            let number = self.number(negative, if negative { span } else { self.span() })?;
            return self.postfix(number);
        }
        let operand = self.member()?;
        // cel-go: pairs of the same sign cancel out.
        if count.is_multiple_of(2) {
            return Ok(operand);
        }
        let span = span.to(self.span_of(operand));
        Ok(self.add(ExprKind::Unary { op, operand }, span))
    }

    fn member(&mut self) -> Parsed {
        let first = self.primary()?;
        self.postfix(first)
    }

    /// `.field`, `.?field`, `.method(…)`, `[index]`, `[?index]` and `{fields}`, any number of them.
    fn postfix(&mut self, mut operand: ExprId) -> Parsed {
        loop {
            match self.peek() {
                Token::Dot => operand = self.selection(operand)?,
                Token::OpenBracket => {
                    let open = self.advance();
                    let optional = self.accept(Token::Question);
                    let index = self.expr()?;
                    let close = self.expect(Token::CloseBracket, "']'")?;
                    operand =
                        self.add(ExprKind::Index { operand, index, optional }, open.to(close));
                }
                Token::OpenBrace => match self.struct_name(operand) {
                    Some(name) => operand = self.structure(name, operand)?,
                    None => return Ok(operand),
                },
                _ => return Ok(operand),
            }
        }
    }

    fn selection(&mut self, operand: ExprId) -> Parsed {
        let dot = self.advance();
        let optional = self.accept(Token::Question);
        let (field, span) = self.field_name()?;
        if self.peek() != Token::OpenParen || optional {
            return Ok(self.add(ExprKind::Select { operand, field, optional }, dot.to(span)));
        }
        let (args, close) = self.arguments()?;
        self.call(Some(operand), field, args, dot.to(close))
    }

    /// A field name: any word, reserved ones too, or one in back quotes.
    fn field_name(&mut self) -> Parsed<(Str, Span)> {
        let span = self.span();
        match self.peek() {
            Token::Ident => {
                self.advance();
                Ok((Str::new(self.text(span)), span))
            }
            Token::Quoted if self.dialect.quoted_fields => {
                self.advance();
                let text = self.text(span);
                Ok((Str::new(&text[1..text.len() - 1]), span))
            }
            Token::Quoted => Err(Issue::new("unsupported syntax: '`'", span)),
            _ => Err(self.unexpected("IDENTIFIER")),
        }
    }

    fn arguments(&mut self) -> Parsed<(Vec<ExprId>, Span)> {
        self.expect(Token::OpenParen, "'('")?;
        let mut args = Vec::new();
        if self.peek() != Token::CloseParen {
            loop {
                args.push(self.expr()?);
                if !self.accept(Token::Comma) {
                    break;
                }
            }
        }
        let close = self.expect(Token::CloseParen, "')'")?;
        Ok((args, close))
    }

    fn call(
        &mut self,
        target: Option<ExprId>,
        function: Str,
        args: Vec<ExprId>,
        span: Span,
    ) -> Parsed {
        if self.dialect.macros
            && let Some(expanded) = macros::expand(self, target, &function, &args, span)?
        {
            return Ok(expanded);
        }
        Ok(self.add(ExprKind::Call { target, function, args }, span))
    }

    fn primary(&mut self) -> Parsed {
        let span = self.span();
        match self.peek() {
            Token::Dot => {
                self.advance();
                let name = self.expect(Token::Ident, "IDENTIFIER")?;
                self.name(name, true)
            }
            Token::Ident => {
                self.advance();
                self.name(span, false)
            }
            Token::OpenParen => {
                self.advance();
                let inner = self.expr()?;
                self.expect(Token::CloseParen, "')'")?;
                Ok(inner)
            }
            Token::OpenBracket => self.list(),
            Token::OpenBrace => self.map(),
            Token::Int | Token::UInt | Token::Float => self.number(false, span),
            Token::String => {
                self.advance();
                let text = literal::string(self.text(span), span)?;
                Ok(self.add(ExprKind::Literal(Literal::String(text)), span))
            }
            Token::Bytes => {
                self.advance();
                let bytes = literal::bytes(self.text(span), span)?;
                Ok(self.add(ExprKind::Literal(Literal::Bytes(Arc::from(bytes))), span))
            }
            Token::True | Token::False => {
                let value = self.peek() == Token::True;
                self.advance();
                Ok(self.add(ExprKind::Literal(Literal::Bool(value)), span))
            }
            Token::Null => {
                self.advance();
                Ok(self.add(ExprKind::Literal(Literal::Null), span))
            }
            _ => Err(self.unexpected("an expression")),
        }
    }

    fn name(&mut self, span: Span, absolute: bool) -> Parsed {
        let name = Str::new(self.text(span));
        if RESERVED.contains(&name.as_str()) {
            return Err(Issue::new(format!("reserved identifier: {name}"), span));
        }
        if self.peek() != Token::OpenParen {
            return Ok(self.add(ExprKind::Ident { name, absolute }, span));
        }
        let (args, close) = self.arguments()?;
        self.call(None, name, args, span.to(close))
    }

    fn number(&mut self, negative: bool, start: Span) -> Parsed {
        let token = self.peek();
        let span = self.advance();
        let text = self.text(span);
        let value = match token {
            Token::Int => {
                literal::int(text, negative).map(Literal::Int).ok_or("invalid int literal")
            }
            Token::UInt => literal::uint(text).map(Literal::UInt).ok_or("invalid uint literal"),
            _ => text
                .parse::<f64>()
                .ok()
                .filter(|value| value.is_finite())
                .map(|value| Literal::Double(if negative { -value } else { value }))
                .ok_or("invalid double literal"),
        };
        let span = start.to(span);
        let value = value.map_err(|message| Issue::new(message, span))?;
        Ok(self.add(ExprKind::Literal(value), span))
    }

    fn list(&mut self) -> Parsed {
        let open = self.advance();
        let mut elements = Vec::new();
        while self.peek() != Token::CloseBracket {
            let optional = self.accept(Token::Question);
            elements.push(Element { value: self.expr()?, optional });
            if !self.accept(Token::Comma) {
                break;
            }
        }
        let close = self.expect(Token::CloseBracket, "']'")?;
        Ok(self.add(ExprKind::List(elements), open.to(close)))
    }

    fn map(&mut self) -> Parsed {
        let open = self.advance();
        let mut entries = Vec::new();
        while self.peek() != Token::CloseBrace {
            let optional = self.accept(Token::Question);
            let key = self.expr()?;
            self.expect(Token::Colon, "':'")?;
            entries.push(Entry { key, value: self.expr()?, optional });
            if !self.accept(Token::Comma) {
                break;
            }
        }
        let close = self.expect(Token::CloseBrace, "'}'")?;
        Ok(self.add(ExprKind::Map(entries), open.to(close)))
    }

    /// The dotted name in front of `{`, if what was read so far is one.
    fn struct_name(&self, operand: ExprId) -> Option<Str> {
        let mut parts = Vec::new();
        let mut at = operand;
        loop {
            match &self.exprs[at.index()].kind {
                ExprKind::Ident { name, .. } => {
                    parts.push(name.as_str());
                    parts.reverse();
                    return Some(Str::from(parts.join(".")));
                }
                ExprKind::Select { operand, field, optional: false } => {
                    parts.push(field.as_str());
                    at = *operand;
                }
                _ => return None,
            }
        }
    }

    fn structure(&mut self, name: Str, operand: ExprId) -> Parsed {
        self.advance();
        let mut fields = Vec::new();
        while self.peek() != Token::CloseBrace {
            let optional = self.accept(Token::Question);
            let (name, span) = self.field_name()?;
            self.expect(Token::Colon, "':'")?;
            fields.push(Field { name, value: self.expr()?, optional, span });
            if !self.accept(Token::Comma) {
                break;
            }
        }
        let close = self.expect(Token::CloseBrace, "'}'")?;
        let span = self.span_of(operand).to(close);
        Ok(self.add(ExprKind::Struct { name, fields }, span))
    }
}

fn binary_op(token: Token) -> Option<(BinaryOp, u8)> {
    Some(match token {
        Token::EqualEqual => (BinaryOp::Equal, 0),
        Token::NotEqual => (BinaryOp::NotEqual, 0),
        Token::Less => (BinaryOp::Less, 0),
        Token::LessEqual => (BinaryOp::LessEqual, 0),
        Token::Greater => (BinaryOp::Greater, 0),
        Token::GreaterEqual => (BinaryOp::GreaterEqual, 0),
        Token::In => (BinaryOp::In, 0),
        Token::Plus => (BinaryOp::Add, 1),
        Token::Minus => (BinaryOp::Subtract, 1),
        Token::Star => (BinaryOp::Multiply, 2),
        Token::Slash => (BinaryOp::Divide, 2),
        Token::Percent => (BinaryOp::Modulo, 2),
        _ => return None,
    })
}
