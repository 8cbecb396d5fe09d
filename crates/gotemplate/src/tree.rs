//! The parsed template, and how Go prints its parts in messages.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write as _};

use kiln_value::Str;

use crate::functions::TemplateFunction;
use crate::number::Number;

/// Where a node begins, in bytes.
pub(crate) type Pos = u32;

/// The templates of one text, by their names.
pub(crate) type Definitions = BTreeMap<Str, Vec<TemplateNode>>;

/// Named templates, of one text or of several that share them.
#[derive(Debug, Default)]
pub(crate) struct Trees {
    pub(crate) files: Vec<SourceFile>,
    pub(crate) named: BTreeMap<Str, Definition>,
}

/// A text that templates were parsed from.
#[derive(Debug)]
pub(crate) struct SourceFile {
    pub(crate) name: Str,
    pub(crate) text: String,
}

/// A named template, and which file defines it.
#[derive(Debug)]
pub(crate) struct Definition {
    file: usize,
    pub(crate) list: Vec<TemplateNode>,
}

impl Trees {
    /// Takes over what a text defines. As in Go a later definition replaces an earlier one, unless it is empty.
    pub(crate) fn add(&mut self, name: &str, text: &str, definitions: Definitions) {
        let file = self.files.len();
        self.files.push(SourceFile { name: Str::new(name), text: text.to_owned() });
        for (name, list) in definitions {
            if !is_empty(&list) || !self.named.contains_key(&name) {
                self.named.insert(name, Definition { file, list });
            }
        }
    }
}

/// Go: a template of nothing but white space may be defined again.
pub(crate) fn is_empty(list: &[TemplateNode]) -> bool {
    list.iter().all(|node| matches!(node, TemplateNode::Text(text) if text.trim().is_empty()))
}

/// Where templates are looked for: in a text, then in what is around it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TemplateScope<'t> {
    pub(crate) trees: &'t Trees,
    pub(crate) outer: Option<&'t TemplateScope<'t>>,
}

/// A template that was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundTemplate<'t> {
    pub(crate) name: &'t str,
    pub(crate) list: &'t [TemplateNode],
    pub(crate) file: &'t SourceFile,
}

impl<'t> TemplateScope<'t> {
    pub(crate) fn find(&self, name: &str) -> Option<FoundTemplate<'t>> {
        let mut scope = *self;
        loop {
            if let Some((name, found)) = scope.trees.named.get_key_value(name) {
                let file = &scope.trees.files[found.file];
                return Some(FoundTemplate { name, list: &found.list, file });
            }
            scope = *scope.outer?;
        }
    }
}

#[derive(Debug)]
pub(crate) enum TemplateNode {
    Text(Str),
    Action(Pos, Pipe),
    If(Branch),
    With(Branch),
    Range(Branch),
    Template(Pos, Str, Option<Pipe>),
    Break,
    Continue,
}

#[derive(Debug)]
pub(crate) struct Branch {
    pub(crate) pipe: Pipe,
    pub(crate) list: Vec<TemplateNode>,
    pub(crate) otherwise: Option<Vec<TemplateNode>>,
}

/// `$a, $b := command | command`
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) at: Pos,
    pub(crate) assigns: bool,
    pub(crate) variables: Vec<Str>,
    pub(crate) commands: Vec<Command>,
}

#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) at: Pos,
    pub(crate) terms: Vec<Term>,
}

#[derive(Debug)]
pub(crate) struct Term {
    pub(crate) at: Pos,
    pub(crate) kind: TermKind,
}

impl Term {
    /// Whether it names a place in the data.
    pub(crate) fn is_path(&self) -> bool {
        matches!(self.kind, TermKind::Field(_) | TermKind::Variable(_))
    }
}

#[derive(Debug)]
pub(crate) enum TermKind {
    Dot,
    Nil,
    Bool(bool),
    Number(Number),
    /// The literal as written, and what it stands for.
    Text(Str, Str),
    Field(Vec<Str>),
    /// The variable with its dollar sign, then fields.
    Variable(Vec<Str>),
    Function(&'static TemplateFunction),
    Chain(Box<Term>, Vec<Str>),
    Pipe(Box<Pipe>),
}

/// A part of the tree that messages point at.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TreePart<'t> {
    None,
    Pipe(&'t Pipe),
    Command(&'t Command),
    Term(&'t Term),
    Action(Pos, &'t Pipe),
    Template(Pos, &'t str, Option<&'t Pipe>),
}

impl TreePart<'_> {
    pub(crate) fn at(&self) -> usize {
        let at = match self {
            TreePart::None => 0,
            TreePart::Pipe(pipe) => pipe.at,
            TreePart::Command(command) => command.at,
            TreePart::Term(term) => term.at,
            TreePart::Action(at, _) | TreePart::Template(at, ..) => *at,
        };
        at as usize
    }

    /// How much of it stands before the position that Go gives it. Go: fields are where their second name is.
    pub(crate) fn lead(&self) -> usize {
        let TreePart::Term(term) = self else { return 0 };
        match &term.kind {
            TermKind::Field(names) if names.len() > 1 => names[0].len() + 1,
            TermKind::Variable(names) if names.len() > 1 => names[0].len(),
            _ => 0,
        }
    }
}

impl Display for TreePart<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TreePart::None => Ok(()),
            TreePart::Pipe(pipe) => pipe.fmt(f),
            TreePart::Command(command) => command.fmt(f),
            TreePart::Term(term) => term.fmt(f),
            TreePart::Action(_, pipe) => write!(f, "{{{{{pipe}}}}}"),
            TreePart::Template(_, name, pipe) => {
                write!(f, "{{{{template {}", kiln_text::quote::quote(name))?;
                if let Some(pipe) = pipe {
                    write!(f, " {pipe}")?;
                }
                f.write_str("}}")
            }
        }
    }
}

impl Display for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.variables.is_empty() {
            f.write_str(&self.variables.join(", "))?;
            f.write_str(if self.assigns { " = " } else { " := " })?;
        }
        for (position, command) in self.commands.iter().enumerate() {
            if position > 0 {
                f.write_str(" | ")?;
            }
            command.fmt(f)?;
        }
        Ok(())
    }
}

impl Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, term) in self.terms.iter().enumerate() {
            if position > 0 {
                f.write_char(' ')?;
            }
            match &term.kind {
                TermKind::Pipe(pipe) => write!(f, "({pipe})")?,
                _ => term.fmt(f)?,
            }
        }
        Ok(())
    }
}

impl Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            TermKind::Dot => f.write_char('.'),
            TermKind::Nil => f.write_str("nil"),
            TermKind::Bool(truth) => truth.fmt(f),
            TermKind::Number(number) => f.write_str(&number.text),
            TermKind::Text(literal, _) => f.write_str(literal),
            TermKind::Field(names) => names.iter().try_for_each(|name| write!(f, ".{name}")),
            TermKind::Variable(names) => f.write_str(&names.join(".")),
            TermKind::Function(function) => f.write_str(function.name()),
            TermKind::Chain(inner, names) => {
                match &inner.kind {
                    TermKind::Pipe(pipe) => write!(f, "({pipe})")?,
                    _ => inner.fmt(f)?,
                }
                names.iter().try_for_each(|name| write!(f, ".{name}"))
            }
            TermKind::Pipe(pipe) => pipe.fmt(f),
        }
    }
}
