//! The parser: precedence climbing over tokens, macros expanded as they are met.
//!
//! Nesting is counted and limited; operator chains, `!`/`-` runs and selections are loops, so the
//! stack needed does not depend on the length of the source.

use std::sync::Arc;

use kiln_value::Str;

use super::ast::{
    Ast, BinaryOp, Element, Expr, ExprId, ExprKind, Literal, LogicOp, MapEntry, MessageField,
    UnaryOp,
};
use super::lex::{CelToken, lex};
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
    let mut parser = CelParser { source, dialect, tokens, at: 0, depth: 0, exprs: Vec::new() };
    let root = parser.expr().and_then(|root| match parser.peek() {
        CelToken::End => Ok(root),
        _ => Err(parser.unexpected("the end of the expression")),
    });
    root.map(|root| Ast { exprs: parser.exprs, root }).map_err(fail)
}

pub(super) type Parsed<T = ExprId> = Result<T, Issue>;

pub(super) struct CelParser<'s> {
    source: &'s str,
    pub(super) dialect: &'s Dialect,
    tokens: Vec<(CelToken, Span)>,
    at: usize,
    depth: usize,
    pub(super) exprs: Vec<Expr>,
}

impl CelParser<'_> {
    fn peek(&self) -> CelToken {
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

    fn accept(&mut self, token: CelToken) -> bool {
        let found = self.peek() == token;
        if found {
            self.advance();
        }
        found
    }

    fn expect(&mut self, token: CelToken, words: &str) -> Parsed<Span> {
        if self.peek() == token { Ok(self.advance()) } else { Err(self.unexpected(words)) }
    }

    fn unexpected(&self, wanted: &str) -> Issue {
        let span = self.span();
        let found = match self.peek() {
            CelToken::End => "<EOF>",
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
        if self.accept(CelToken::Question) {
            let yes = self.or()?;
            self.expect(CelToken::Colon, "':'")?;
            let no = self.expr()?;
            let span = self.span_of(result).to(self.span_of(no));
            result = self.add(ExprKind::Ternary { condition: result, yes, no }, span);
        }
        self.depth -= 1;
        Ok(result)
    }

    fn or(&mut self) -> Parsed {
        self.logic(LogicOp::Or, CelToken::OrOr, |parser| {
            parser.logic(LogicOp::And, CelToken::AndAnd, |parser| parser.binary(0))
        })
    }

    fn logic(
        &mut self,
        op: LogicOp,
        token: CelToken,
        term: impl Fn(&mut Self) -> Parsed,
    ) -> Parsed {
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
            CelToken::Bang => (CelToken::Bang, UnaryOp::Not),
            CelToken::Minus => (CelToken::Minus, UnaryOp::Negate),
            _ => return self.member(),
        };
        let span = self.span();
        let mut count = 0usize;
        while self.accept(token) {
            count += 1;
        }
        // A minus directly before a number belongs to it: -9223372036854775808 has no positive twin.
        if op == UnaryOp::Negate && matches!(self.peek(), CelToken::Int | CelToken::Float) {
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
                CelToken::Dot => operand = self.selection(operand)?,
                CelToken::OpenBracket => {
                    let open = self.advance();
                    let optional = self.accept(CelToken::Question);
                    let index = self.expr()?;
                    let close = self.expect(CelToken::CloseBracket, "']'")?;
                    operand =
                        self.add(ExprKind::Index { operand, index, optional }, open.to(close));
                }
                CelToken::OpenBrace => match self.struct_name(operand) {
                    Some(name) => operand = self.structure(name, operand)?,
                    None => return Ok(operand),
                },
                _ => return Ok(operand),
            }
        }
    }

    fn selection(&mut self, operand: ExprId) -> Parsed {
        let dot = self.advance();
        let optional = self.accept(CelToken::Question);
        let (field, span) = self.field_name()?;
        if self.peek() != CelToken::OpenParen || optional {
            return Ok(self.add(ExprKind::Select { operand, field, optional }, dot.to(span)));
        }
        let (args, close) = self.arguments()?;
        self.call(Some(operand), field, args, dot.to(close))
    }

    /// A field name: any word, reserved ones too, or one in back quotes.
    fn field_name(&mut self) -> Parsed<(Str, Span)> {
        let span = self.span();
        match self.peek() {
            CelToken::Ident => {
                self.advance();
                Ok((Str::new(self.text(span)), span))
            }
            CelToken::Quoted if self.dialect.quoted_fields => {
                self.advance();
                let text = self.text(span);
                Ok((Str::new(&text[1..text.len() - 1]), span))
            }
            CelToken::Quoted => Err(Issue::new("unsupported syntax: '`'", span)),
            _ => Err(self.unexpected("IDENTIFIER")),
        }
    }

    fn arguments(&mut self) -> Parsed<(Vec<ExprId>, Span)> {
        self.expect(CelToken::OpenParen, "'('")?;
        let mut args = Vec::new();
        if self.peek() != CelToken::CloseParen {
            loop {
                args.push(self.expr()?);
                if !self.accept(CelToken::Comma) {
                    break;
                }
            }
        }
        let close = self.expect(CelToken::CloseParen, "')'")?;
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
            CelToken::Dot => {
                self.advance();
                let name = self.expect(CelToken::Ident, "IDENTIFIER")?;
                self.name(name, true)
            }
            CelToken::Ident => {
                self.advance();
                self.name(span, false)
            }
            CelToken::OpenParen => {
                self.advance();
                let inner = self.expr()?;
                self.expect(CelToken::CloseParen, "')'")?;
                Ok(inner)
            }
            CelToken::OpenBracket => self.list(),
            CelToken::OpenBrace => self.map(),
            CelToken::Int | CelToken::UInt | CelToken::Float => self.number(false, span),
            CelToken::String => {
                self.advance();
                let text = literal::string(self.text(span), span)?;
                Ok(self.add(ExprKind::Literal(Literal::String(text)), span))
            }
            CelToken::Bytes => {
                self.advance();
                let bytes = literal::bytes(self.text(span), span)?;
                Ok(self.add(ExprKind::Literal(Literal::Bytes(Arc::from(bytes))), span))
            }
            CelToken::True | CelToken::False => {
                let value = self.peek() == CelToken::True;
                self.advance();
                Ok(self.add(ExprKind::Literal(Literal::Bool(value)), span))
            }
            CelToken::Null => {
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
        if self.peek() != CelToken::OpenParen {
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
            CelToken::Int => {
                literal::int(text, negative).map(Literal::Int).ok_or("invalid int literal")
            }
            CelToken::UInt => literal::uint(text).map(Literal::UInt).ok_or("invalid uint literal"),
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
        while self.peek() != CelToken::CloseBracket {
            let optional = self.accept(CelToken::Question);
            elements.push(Element { value: self.expr()?, optional });
            if !self.accept(CelToken::Comma) {
                break;
            }
        }
        let close = self.expect(CelToken::CloseBracket, "']'")?;
        Ok(self.add(ExprKind::List(elements), open.to(close)))
    }

    fn map(&mut self) -> Parsed {
        let open = self.advance();
        let mut entries = Vec::new();
        while self.peek() != CelToken::CloseBrace {
            let optional = self.accept(CelToken::Question);
            let key = self.expr()?;
            self.expect(CelToken::Colon, "':'")?;
            entries.push(MapEntry { key, value: self.expr()?, optional });
            if !self.accept(CelToken::Comma) {
                break;
            }
        }
        let close = self.expect(CelToken::CloseBrace, "'}'")?;
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
        while self.peek() != CelToken::CloseBrace {
            let optional = self.accept(CelToken::Question);
            let (name, span) = self.field_name()?;
            self.expect(CelToken::Colon, "':'")?;
            fields.push(MessageField { name, value: self.expr()?, optional, span });
            if !self.accept(CelToken::Comma) {
                break;
            }
        }
        let close = self.expect(CelToken::CloseBrace, "'}'")?;
        let span = self.span_of(operand).to(close);
        Ok(self.add(ExprKind::Struct { name, fields }, span))
    }
}

fn binary_op(token: CelToken) -> Option<(BinaryOp, u8)> {
    Some(match token {
        CelToken::EqualEqual => (BinaryOp::Equal, 0),
        CelToken::NotEqual => (BinaryOp::NotEqual, 0),
        CelToken::Less => (BinaryOp::Less, 0),
        CelToken::LessEqual => (BinaryOp::LessEqual, 0),
        CelToken::Greater => (BinaryOp::Greater, 0),
        CelToken::GreaterEqual => (BinaryOp::GreaterEqual, 0),
        CelToken::In => (BinaryOp::In, 0),
        CelToken::Plus => (BinaryOp::Add, 1),
        CelToken::Minus => (BinaryOp::Subtract, 1),
        CelToken::Star => (BinaryOp::Multiply, 2),
        CelToken::Slash => (BinaryOp::Divide, 2),
        CelToken::Percent => (BinaryOp::Modulo, 2),
        _ => return None,
    })
}
