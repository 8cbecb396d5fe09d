//! Documents with variables, compiled once.
//!
//! Compiling resolves references, finds every variable and reads its expression. What is left to do
//! per request is to evaluate the expressions and to rebuild the places that held them; a document
//! without variables is handed out as it is.

use std::ops::Range;

use kiln_value::{Path, Value};
use memchr::memmem;

use crate::SubstitutionLimits;
use crate::at_sign;
use crate::error::SubstituteError;
use crate::query::Query;
use crate::reference::{self, Unresolved};
use crate::scan::{self, Marked};

/// A document whose variables are known.
#[derive(Clone, Debug)]
pub struct Template {
    pub(crate) document: Value,
    pub(crate) root: Option<TemplatePart>,
    pub(crate) base_depth: usize,
    pub(crate) unresolved: Option<Unresolved>,
}

/// The places of a document that hold variables or escapes, and nothing else.
#[derive(Clone, Debug)]
pub(crate) enum TemplatePart {
    Text(Box<TemplateText>),
    /// Positions of a list, and what is below them.
    List(Vec<(usize, TemplatePart)>),
    Map(Vec<TemplateEntry>),
}

/// An entry of a map whose key or value holds variables.
#[derive(Clone, Debug)]
pub(crate) struct TemplateEntry {
    pub(crate) at: usize,
    pub(crate) key: Option<Box<TemplateText>>,
    pub(crate) value: Option<TemplatePart>,
}

/// A text that holds variables or escapes.
#[derive(Clone, Debug)]
pub(crate) struct TemplateText {
    pub(crate) text: Marked,
    pub(crate) path: Path,
    pub(crate) in_key: bool,
    /// Whether places in the text are places in the text as the user wrote it (no reference was
    /// resolved in it).
    pub(crate) as_written: bool,
    /// The variables of the first pass.
    pub(crate) first: Vec<Prepared>,
}

/// A variable that is ready to be evaluated.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    /// Its place, braces included.
    pub(crate) span: Range<usize>,
    pub(crate) shallow: bool,
    pub(crate) ask: Ask,
}

/// What a variable asks for.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    /// Nothing stands between the braces.
    Nothing,
    This(Choice),
    /// `@`: whatever lies at the same place in the target or in the object of the request.
    Here {
        target: Choice,
        object: Choice,
    },
}

/// A query, and what it becomes while an object is being deleted.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    usual: Query,
    deleted: Option<Query>,
}

impl Choice {
    fn of(text: &str) -> Self {
        // Kyverno: a plain replacement of text, also inside literals.
        let deleted = memmem::find(text.as_bytes(), b"request.object")
            .map(|_| Query::new(&text.replace("request.object", "request.oldObject")));
        Choice { usual: Query::new(text), deleted }
    }

    pub(crate) fn query(&self, deleting: bool) -> &Query {
        self.deleted.as_ref().filter(|_| deleting).unwrap_or(&self.usual)
    }
}

impl Prepared {
    /// Reads the variable at a place of a text that belongs to `path`.
    pub(crate) fn read(text: &str, span: Range<usize>, path: &Path) -> Self {
        let content = scan::content(&text[span.clone()]);
        let ask = match content.expression {
            "" => Ask::Nothing,
            "@" => Ask::Here {
                target: Choice::of(&at_sign::expression("target", path)),
                object: Choice::of(&at_sign::expression("request.object", path)),
            },
            expression => Ask::This(Choice::of(expression)),
        };
        Prepared { span, shallow: content.shallow, ask }
    }
}

/// A variable as it stands in a document, for checks that happen before anything is evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable<'t> {
    /// The place of the text that holds it; for a key, the place of its map.
    pub path: &'t Path,
    /// Whether the text is a key.
    pub in_key: bool,
    /// The place inside the text, braces included; none if references changed the text.
    pub span: Option<Range<usize>>,
    /// What stands between the braces. Holds further variables if `nested`.
    pub expression: &'t str,
    /// Whether the variable is marked with a minus.
    pub shallow: bool,
    /// Whether there are variables inside, so that the expression is known only later.
    pub nested: bool,
}

/// Text that looks like a variable and is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookalike<'t> {
    /// The place of the text that holds it; for a key, the place of its map.
    pub path: &'t Path,
    /// The text from its opening braces on.
    pub text: &'t str,
}

impl Template {
    /// Compiles a document.
    ///
    /// A reference that leads nowhere is not an error yet: substitution reports it, as Kyverno does, and
    /// [`Template::check_references`] finds it earlier.
    pub fn compile(document: &Value) -> Self {
        Self::compile_part(document, &Path::root())
    }

    /// Compiles a part of a larger document. Places in errors, `{{@}}` and the paths of references
    /// count from the root of the larger document; references see the part only.
    pub fn compile_part(part: &Value, path: &Path) -> Self {
        let base_depth = path.segments().len();
        match reference::resolve(part, path) {
            Ok(document) => {
                let mut compiler = Compiler { path: path.clone() };
                let written = if document.same(part) { None } else { Some(part) };
                let root = compiler.value(&document, written.unwrap_or(&document));
                Template { document, root, base_depth, unresolved: None }
            }
            Err(unresolved) => Template {
                document: part.clone(),
                root: None,
                base_depth,
                unresolved: Some(unresolved),
            },
        }
    }

    /// Whether substitution hands out the document as it is.
    pub fn is_plain(&self) -> bool {
        self.root.is_none() && self.unresolved.is_none()
    }

    /// The document, its references resolved.
    pub fn document(&self) -> &Value {
        &self.document
    }

    /// Reports the first reference that leads nowhere.
    ///
    /// # Errors
    /// As [`Substitution::run`](crate::Substitution::run) would report it.
    pub fn check_references(&self) -> Result<(), SubstituteError> {
        self.unresolved.as_ref().map_or(Ok(()), |unresolved| Err(unresolved.into()))
    }

    /// Every variable in the order of the document, inner ones before the ones around them.
    pub fn variables(&self) -> Vec<Variable<'_>> {
        let mut found = Vec::new();
        self.each_pattern(&mut |pattern| {
            let text = pattern.text.text();
            let mut masked = pattern.text.clone();
            for _ in 0..SubstitutionLimits::default().rounds {
                let spans = scan::variables(masked.shadow());
                if spans.is_empty() {
                    break;
                }
                for span in spans {
                    let content = scan::content(&text[span.clone()]);
                    let inside = span.start + 2..span.end - 2;
                    found.push(Variable {
                        path: &pattern.path,
                        in_key: pattern.in_key,
                        span: pattern.as_written.then(|| span.clone()),
                        expression: content.expression,
                        shallow: content.shallow,
                        nested: masked.shadow()[inside.clone()] != text.as_bytes()[inside],
                    });
                    masked.mask(span);
                }
            }
        });
        found
    }

    /// Text that looks like a variable and stays as it is: braces nest too deep inside it, or its end
    /// is missing. Worth a warning; Kyverno keeps silent.
    pub fn lookalikes(&self) -> Vec<Lookalike<'_>> {
        let mut found = Vec::new();
        self.each_pattern(&mut |pattern| {
            let mut masked = pattern.text.clone();
            for _ in 0..SubstitutionLimits::default().rounds {
                let spans = scan::variables(masked.shadow());
                if spans.is_empty() {
                    break;
                }
                spans.into_iter().for_each(|span| masked.mask(span));
            }
            let shadow = masked.shadow();
            let opening =
                memmem::find_iter(shadow, b"{{").find(|at| *at == 0 || shadow[at - 1] != b'\\');
            if let Some(at) = opening {
                found.push(Lookalike { path: &pattern.path, text: &pattern.text.text()[at..] });
            }
        });
        found
    }

    fn each_pattern<'t>(&'t self, see: &mut dyn FnMut(&'t TemplateText)) {
        fn walk<'t>(node: &'t TemplatePart, see: &mut dyn FnMut(&'t TemplateText)) {
            match node {
                TemplatePart::Text(pattern) => see(pattern),
                TemplatePart::List(elements) => {
                    elements.iter().for_each(|(_, node)| walk(node, see));
                }
                TemplatePart::Map(entries) => {
                    for entry in entries {
                        entry.key.iter().for_each(|pattern| see(pattern));
                        entry.value.iter().for_each(|node| walk(node, see));
                    }
                }
            }
        }
        self.root.iter().for_each(|node| walk(node, see));
    }
}

struct Compiler {
    path: Path,
}

impl Compiler {
    /// What has to be done below a value. `written` is the same place before references were resolved.
    fn value(&mut self, value: &Value, written: &Value) -> Option<TemplatePart> {
        match value {
            Value::String(text) => {
                let pattern = self.pattern(text, false, written.as_str() == Some(text))?;
                Some(TemplatePart::Text(Box::new(pattern)))
            }
            Value::List(list) => {
                let mut below = Vec::new();
                for (at, element) in list.iter().enumerate() {
                    self.path.push(at);
                    let written = written.index(at).unwrap_or(&Value::Null);
                    below.extend(self.value(element, written).map(|node| (at, node)));
                    self.path.pop();
                }
                (!below.is_empty()).then_some(TemplatePart::List(below))
            }
            Value::Map(map) => {
                let mut below = Vec::new();
                for (at, (key, element)) in map.iter().enumerate() {
                    let known = written.get(key);
                    let pattern = self.pattern(key, true, known.is_some()).map(Box::new);
                    self.path.push(key);
                    let value = self.value(element, known.unwrap_or(&Value::Null));
                    self.path.pop();
                    if pattern.is_some() || value.is_some() {
                        below.push(TemplateEntry { at, key: pattern, value });
                    }
                }
                (!below.is_empty()).then_some(TemplatePart::Map(below))
            }
            _ => None,
        }
    }

    fn pattern(&self, text: &str, in_key: bool, as_written: bool) -> Option<TemplateText> {
        memmem::find(text.as_bytes(), b"{{")?;
        let marked = Marked::template(text);
        let first = scan::variables(marked.shadow())
            .into_iter()
            .map(|span| Prepared::read(text, span, &self.path))
            .collect();
        Some(TemplateText { text: marked, path: self.path.clone(), in_key, as_written, first })
    }
}
