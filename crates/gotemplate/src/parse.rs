//! Tokens to trees. Every template of the text is parsed, the main one and those it defines.

use kiln_text::quote::{quote, unquote};
use kiln_value::Str;

use crate::FunctionSet;
use crate::error::{Error, ErrorKind, Refusal};
use crate::functions;
use crate::lex::{self, TemplateToken, TemplateTokenKind, Tokens};
use crate::meter::TemplateLimits;
use crate::number::Number;
use crate::tree::{
    Branch, Command, Definitions, Pipe, Pos, TemplateNode, Term, TermKind, is_empty,
};

struct TemplateParser<'t> {
    name: &'t str,
    tokens: Tokens<'t>,
    at: usize,
    functions: FunctionSet,
    definitions: Definitions,
    /// The variables in scope, and how many loops of the same template are open.
    variables: Vec<Str>,
    loops: usize,
    depth: usize,
    limits: TemplateLimits,
    action_line: usize,
}

/// What ended a list of nodes.
enum Ending {
    End,
    Else,
}

impl Ending {
    fn as_str(&self) -> &'static str {
        match self {
            Ending::End => "{{end}}",
            Ending::Else => "{{else}}",
        }
    }
}

/// A node, or what ends a list of them.
enum ParsedItem {
    Node(TemplateNode),
    Ending(Ending),
}

/// Parses a text whose main template has this name.
pub(crate) fn parse(
    name: &str,
    text: &str,
    functions: FunctionSet,
    limits: &TemplateLimits,
) -> Result<Definitions, Error> {
    let tokens = lex::tokens(text, limits.source).map_err(|fault| {
        let (Refusal::Limit(message)
        | Refusal::Failed(message)
        | Refusal::Stopped(message)
        | Refusal::Refused(message, _)) = fault;
        Error::new(ErrorKind::Limit, 0..0, message).in_file(&Str::new(name))
    })?;
    let mut parser = TemplateParser {
        name,
        tokens,
        at: 0,
        functions,
        definitions: Definitions::new(),
        variables: vec![Str::new_static("$")],
        loops: 0,
        depth: 0,
        limits: *limits,
        action_line: 0,
    };
    let mut root = Vec::new();
    while parser.peek().kind != TemplateTokenKind::Eof {
        if parser.peek().kind == TemplateTokenKind::LeftDelim {
            let before = parser.at;
            parser.next();
            if parser.next_after_space().kind == TemplateTokenKind::Define {
                parser.definition()?;
                continue;
            }
            parser.at = before;
        }
        match parser.text_or_action()? {
            ParsedItem::Node(node) => root.push(node),
            ParsedItem::Ending(ending) => {
                return Err(parser.error(format!("unexpected {}", ending.as_str())));
            }
        }
    }
    parser.add(Str::new(name), root)?;
    Ok(parser.definitions)
}

impl<'t> TemplateParser<'t> {
    fn peek(&self) -> TemplateToken<'t> {
        self.tokens.all[self.at.min(self.tokens.all.len() - 1)]
    }

    fn next(&mut self) -> TemplateToken<'t> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn peek_after_space(&mut self) -> TemplateToken<'t> {
        while self.peek().kind == TemplateTokenKind::Space {
            self.at += 1;
        }
        self.peek()
    }

    fn next_after_space(&mut self) -> TemplateToken<'t> {
        self.peek_after_space();
        self.next()
    }

    fn error(&self, message: impl Into<String>) -> Error {
        // Go reports where it stands: the token that was read last.
        let token = self.tokens.all[self.at.saturating_sub(1).min(self.tokens.all.len() - 1)];
        self.error_at(token, message)
    }

    fn error_at(&self, token: TemplateToken<'_>, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Parse, token.at..token.at + token.text.len(), message)
            .with_go_prefix(format!("template: {}:{}: ", self.name, token.line))
            .in_file(&Str::new(self.name))
    }

    fn unexpected(&self, token: TemplateToken<'_>, context: &str) -> Error {
        if token.kind != TemplateTokenKind::Error {
            return self.error_at(token, format!("unexpected {} in {context}", token.describe()));
        }
        let problem = &self.tokens.problem;
        let hint = problem
            .starts_with("bad character U+002D")
            .then(|| "write (index .map \"a-key\") for keys that are not plain names".to_owned());
        let mut message = problem.clone();
        if self.action_line != 0 && self.action_line != token.line {
            let action = if problem.ends_with(" action") { "" } else { " in action" };
            message.push_str(&format!("{action} started at {}:{}", self.name, self.action_line));
        }
        self.error_at(token, message).maybe_hint(hint)
    }

    fn expect(
        &mut self,
        kind: TemplateTokenKind,
        context: &str,
    ) -> Result<TemplateToken<'t>, Error> {
        let token = self.next_after_space();
        if token.kind == kind { Ok(token) } else { Err(self.unexpected(token, context)) }
    }

    fn deeper<R>(&mut self, parse: impl FnOnce(&mut Self) -> Result<R, Error>) -> Result<R, Error> {
        if self.depth >= self.limits.nesting {
            let token = self.peek();
            let limit = self.limits.nesting;
            let message = format!("the template nests deeper than {limit} levels");
            return Err(Error::new(ErrorKind::Limit, token.at..token.at, message)
                .in_file(&Str::new(self.name)));
        }
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }

    fn add(&mut self, name: Str, list: Vec<TemplateNode>) -> Result<(), Error> {
        let known = self.definitions.get(&name).is_some_and(|known| !is_empty(known));
        if known && !is_empty(&list) {
            let name = quote(&name);
            return Err(self.error(format!("template: multiple definition of template {name}")));
        }
        if !known {
            self.definitions.insert(name, list);
        }
        Ok(())
    }

    fn definition(&mut self) -> Result<(), Error> {
        let context = "define clause";
        let token = self.next_after_space();
        let name = self.template_name(token, context)?;
        self.expect(TemplateTokenKind::RightDelim, context)?;
        self.separate(name, context)
    }

    /// The body of another template, which sees neither variables nor loops of this one.
    fn separate(&mut self, name: Str, context: &str) -> Result<(), Error> {
        let variables = std::mem::replace(&mut self.variables, vec![Str::new_static("$")]);
        let loops = std::mem::take(&mut self.loops);
        let (list, ending) = self.deeper(Self::list)?;
        if let Ending::Else = ending {
            return Err(self.error(format!("unexpected {} in {context}", ending.as_str())));
        }
        self.add(name, list)?;
        self.variables = variables;
        self.loops = loops;
        Ok(())
    }

    fn template_name(&self, token: TemplateToken<'_>, context: &str) -> Result<Str, Error> {
        match token.kind {
            TemplateTokenKind::Str | TemplateTokenKind::RawStr => unquote(token.text)
                .map(Str::from)
                .map_err(|error| self.error_at(token, error.to_string())),
            _ => Err(self.unexpected(token, context)),
        }
    }

    fn list(&mut self) -> Result<(Vec<TemplateNode>, Ending), Error> {
        let mut list = Vec::new();
        while self.peek_after_space().kind != TemplateTokenKind::Eof {
            match self.text_or_action()? {
                ParsedItem::Node(node) => list.push(node),
                ParsedItem::Ending(ending) => return Ok((list, ending)),
            }
        }
        let token = self.peek();
        let hint = Some("every if, with, range, define and block needs its own {{end}}".to_owned());
        Err(self.error_at(token, "unexpected EOF").maybe_hint(hint))
    }

    fn text_or_action(&mut self) -> Result<ParsedItem, Error> {
        let token = self.next_after_space();
        match token.kind {
            TemplateTokenKind::Text => {
                Ok(ParsedItem::Node(TemplateNode::Text(Str::new(token.text))))
            }
            TemplateTokenKind::LeftDelim => {
                self.action_line = token.line;
                let step = self.action()?;
                self.action_line = 0;
                Ok(step)
            }
            _ => Err(self.unexpected(token, "input")),
        }
    }

    fn action(&mut self) -> Result<ParsedItem, Error> {
        let token = self.peek_after_space();
        self.at += 1;
        let node = match token.kind {
            TemplateTokenKind::Block => self.block()?,
            TemplateTokenKind::Break => {
                self.in_loop("{{break}}")?;
                TemplateNode::Break
            }
            TemplateTokenKind::Continue => {
                self.in_loop("{{continue}}")?;
                TemplateNode::Continue
            }
            TemplateTokenKind::Else => {
                // `else if` and `else with` leave their keyword to the caller.
                if !matches!(
                    self.peek_after_space().kind,
                    TemplateTokenKind::If | TemplateTokenKind::With
                ) {
                    self.expect(TemplateTokenKind::RightDelim, "else")?;
                }
                return Ok(ParsedItem::Ending(Ending::Else));
            }
            TemplateTokenKind::End => {
                self.expect(TemplateTokenKind::RightDelim, "end")?;
                return Ok(ParsedItem::Ending(Ending::End));
            }
            TemplateTokenKind::If => TemplateNode::If(self.deeper(|p| p.control("if"))?),
            TemplateTokenKind::With => TemplateNode::With(self.deeper(|p| p.control("with"))?),
            TemplateTokenKind::Range => TemplateNode::Range(self.deeper(|p| p.control("range"))?),
            TemplateTokenKind::Template => self.template()?,
            _ => {
                self.at -= 1;
                let pipe = self.pipeline("command", TemplateTokenKind::RightDelim)?;
                TemplateNode::Action(position(token), pipe)
            }
        };
        Ok(ParsedItem::Node(node))
    }

    fn in_loop(&mut self, context: &str) -> Result<(), Error> {
        self.expect(TemplateTokenKind::RightDelim, context)?;
        if self.loops == 0 {
            return Err(self.error(format!("{context} outside {{{{range}}}}")));
        }
        Ok(())
    }

    fn control(&mut self, context: &str) -> Result<Branch, Error> {
        let variables = self.variables.len();
        let pipe = self.pipeline(context, TemplateTokenKind::RightDelim)?;
        self.loops += usize::from(context == "range");
        let (list, ending) = self.list()?;
        self.loops -= usize::from(context == "range");
        let otherwise = match ending {
            Ending::End => None,
            Ending::Else => Some(self.otherwise(context)?),
        };
        self.variables.truncate(variables);
        Ok(Branch { pipe, list, otherwise })
    }

    fn otherwise(&mut self, context: &str) -> Result<Vec<TemplateNode>, Error> {
        let token = self.peek();
        match (context, token.kind) {
            ("if", TemplateTokenKind::If) => {
                self.next();
                Ok(vec![TemplateNode::If(self.deeper(|p| p.control("if"))?)])
            }
            ("with", TemplateTokenKind::With) => {
                self.next();
                Ok(vec![TemplateNode::With(self.deeper(|p| p.control("with"))?)])
            }
            // The keyword of another control structure: Go reads it as text between delimiters.
            (_, TemplateTokenKind::If | TemplateTokenKind::With) => {
                Err(self.unexpected(token, "input"))
            }
            _ => match self.list()? {
                (list, Ending::End) => Ok(list),
                (_, ending) => Err(self.error(format!("expected end; found {}", ending.as_str()))),
            },
        }
    }

    fn block(&mut self) -> Result<TemplateNode, Error> {
        let context = "block clause";
        let token = self.next_after_space();
        let name = self.template_name(token, context)?;
        let pipe = self.pipeline(context, TemplateTokenKind::RightDelim)?;
        self.separate(name.clone(), context)?;
        Ok(TemplateNode::Template(position(token), name, Some(pipe)))
    }

    fn template(&mut self) -> Result<TemplateNode, Error> {
        let context = "template clause";
        let token = self.next_after_space();
        let name = self.template_name(token, context)?;
        let pipe = if self.peek_after_space().kind == TemplateTokenKind::RightDelim {
            self.next();
            None
        } else {
            Some(self.pipeline(context, TemplateTokenKind::RightDelim)?)
        };
        Ok(TemplateNode::Template(position(token), name, pipe))
    }

    fn pipeline(&mut self, context: &str, end: TemplateTokenKind) -> Result<Pipe, Error> {
        let token = self.peek_after_space();
        let mut pipe = Pipe {
            at: position(token),
            assigns: false,
            variables: Vec::new(),
            commands: Vec::new(),
        };
        self.declarations(&mut pipe, context)?;
        loop {
            let token = self.next_after_space();
            match token.kind {
                kind if kind == end => break,
                TemplateTokenKind::Bool
                | TemplateTokenKind::CharConstant
                | TemplateTokenKind::Complex
                | TemplateTokenKind::Dot
                | TemplateTokenKind::Field
                | TemplateTokenKind::Identifier
                | TemplateTokenKind::Number
                | TemplateTokenKind::Nil
                | TemplateTokenKind::RawStr
                | TemplateTokenKind::Str
                | TemplateTokenKind::Variable
                | TemplateTokenKind::LeftParen => {
                    self.at -= 1;
                    let command = self.command()?;
                    pipe.commands.push(command);
                }
                _ => return Err(self.unexpected(token, context)),
            }
        }
        if pipe.commands.is_empty() {
            return Err(self.error(format!("missing value for {context}")));
        }
        for (stage, command) in pipe.commands.iter().enumerate().skip(1) {
            if let TermKind::Bool(_)
            | TermKind::Dot
            | TermKind::Nil
            | TermKind::Number(_)
            | TermKind::Text(..) = command.terms[0].kind
            {
                let stage = stage + 1;
                return Err(self.error(format!("non executable command in pipeline stage {stage}")));
            }
        }
        Ok(pipe)
    }

    fn declarations(&mut self, pipe: &mut Pipe, context: &str) -> Result<(), Error> {
        while self.peek_after_space().kind == TemplateTokenKind::Variable {
            let before = self.at;
            let variable = self.next();
            let follower = self.peek_after_space();
            match follower.kind {
                TemplateTokenKind::Assign | TemplateTokenKind::Declare => {
                    self.next();
                    pipe.assigns = follower.kind == TemplateTokenKind::Assign;
                    self.declare(pipe, variable);
                    return Ok(());
                }
                TemplateTokenKind::Char if follower.text == "," => {
                    self.next();
                    self.declare(pipe, variable);
                    if context != "range" || pipe.variables.len() > 1 {
                        return Err(self.error(format!("too many declarations in {context}")));
                    }
                    let kind = self.peek_after_space().kind;
                    if !matches!(
                        kind,
                        TemplateTokenKind::Variable
                            | TemplateTokenKind::RightDelim
                            | TemplateTokenKind::RightParen
                    ) {
                        return Err(self.error("range can only initialize variables"));
                    }
                }
                _ => {
                    self.at = before;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn declare(&mut self, pipe: &mut Pipe, variable: TemplateToken<'_>) {
        pipe.variables.push(Str::new(variable.text));
        self.variables.push(Str::new(variable.text));
    }

    fn command(&mut self) -> Result<Command, Error> {
        let mut command = Command { at: position(self.peek_after_space()), terms: Vec::new() };
        loop {
            self.peek_after_space();
            if let Some(term) = self.operand()? {
                command.terms.push(term);
            }
            let token = self.next();
            match token.kind {
                TemplateTokenKind::Space => continue,
                TemplateTokenKind::RightDelim | TemplateTokenKind::RightParen => self.at -= 1,
                TemplateTokenKind::Pipe => {}
                _ => return Err(self.unexpected(token, "operand")),
            }
            break;
        }
        if command.terms.is_empty() {
            return Err(self.error("empty command"));
        }
        Ok(command)
    }

    fn operand(&mut self) -> Result<Option<Term>, Error> {
        let Some(mut term) = self.term()? else { return Ok(None) };
        if self.peek().kind != TemplateTokenKind::Field {
            return Ok(Some(term));
        }
        let at = position(self.peek());
        let mut names = Vec::new();
        while self.peek().kind == TemplateTokenKind::Field {
            names.push(Str::new(&self.next().text[1..]));
        }
        term = match term.kind {
            TermKind::Field(mut before) => {
                before.extend(names);
                Term { at, kind: TermKind::Field(before) }
            }
            TermKind::Variable(mut before) => {
                before.extend(names);
                Term { at, kind: TermKind::Variable(before) }
            }
            TermKind::Bool(_)
            | TermKind::Text(..)
            | TermKind::Number(_)
            | TermKind::Nil
            | TermKind::Dot => {
                let term = quote(&term.to_string());
                return Err(self.error(format!("unexpected . after term {term}")));
            }
            _ => Term { at, kind: TermKind::Chain(Box::new(term), names) },
        };
        Ok(Some(term))
    }

    fn term(&mut self) -> Result<Option<Term>, Error> {
        let token = self.next_after_space();
        let kind = match token.kind {
            TemplateTokenKind::Identifier => TermKind::Function(self.function(token)?),
            TemplateTokenKind::Dot => TermKind::Dot,
            TemplateTokenKind::Nil => TermKind::Nil,
            TemplateTokenKind::Variable => {
                let name = Str::new(token.text);
                if !self.variables.contains(&name) {
                    let name = quote(&name);
                    return Err(self.error_at(token, format!("undefined variable {name}")));
                }
                TermKind::Variable(vec![name])
            }
            TemplateTokenKind::Field => TermKind::Field(vec![Str::new(&token.text[1..])]),
            TemplateTokenKind::Bool => TermKind::Bool(token.text == "true"),
            TemplateTokenKind::CharConstant
            | TemplateTokenKind::Complex
            | TemplateTokenKind::Number => {
                let number = match token.kind {
                    TemplateTokenKind::CharConstant => Number::character(token.text),
                    TemplateTokenKind::Complex => Number::parse_complex(token.text),
                    _ => Number::parse(token.text),
                };
                TermKind::Number(number.map_err(|message| self.error_at(token, message))?)
            }
            TemplateTokenKind::LeftParen => {
                let pipe = self.deeper(|p| {
                    p.pipeline("parenthesized pipeline", TemplateTokenKind::RightParen)
                })?;
                // Go: the pipeline begins at what is inside the parentheses.
                return Ok(Some(Term { at: pipe.at, kind: TermKind::Pipe(Box::new(pipe)) }));
            }
            TemplateTokenKind::Str | TemplateTokenKind::RawStr => {
                let text =
                    unquote(token.text).map_err(|error| self.error_at(token, error.to_string()))?;
                TermKind::Text(Str::new(token.text), Str::from(text))
            }
            _ => {
                self.at -= 1;
                return Ok(None);
            }
        };
        Ok(Some(Term { at: position(token), kind }))
    }

    fn function(
        &self,
        token: TemplateToken<'_>,
    ) -> Result<&'static functions::TemplateFunction, Error> {
        functions::find(token.text, self.functions).ok_or_else(|| {
            let name = quote(token.text);
            self.error_at(token, format!("function {name} not defined"))
                .maybe_hint(functions::suggest(token.text, self.functions))
        })
    }
}

fn position(token: TemplateToken<'_>) -> Pos {
    // The source limit keeps positions far below this.
    Pos::try_from(token.at).unwrap_or(Pos::MAX)
}
