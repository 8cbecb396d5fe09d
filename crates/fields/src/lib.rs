//! The fields of every kind that Kiln reads: one table for each kind and for each part of one.
//!
//! Readers of policies and of test steps take the names that they accept from these tables. Readers with types of their
//! own (kustomizations, test suites) have tests that compare them with the tables, name by name and type by type. The
//! reference pages below `docs/reference/fields` are printed from here.
//!
//! ```
//! let rule = &kiln_fields::kyverno::RULE;
//! assert!(rule.field("preconditions").is_some());
//! assert_eq!(rule.field("skipBackgroundRequests").unwrap().default, Some("true"));
//! ```

pub mod chainsaw;
pub mod deleting;
pub mod kubemod;
pub mod kustomize;
pub mod kyverno;
pub mod kyverno_cli;
pub mod policies;
mod shared;
pub mod validating;

pub use shared::{LABEL_REQUIREMENT, LABEL_SELECTOR, METADATA};

/// A kind of document.
#[derive(Debug)]
pub struct DocumentKind {
    /// Its name, as documents write it.
    pub name: &'static str,
    /// The values of `apiVersion` that are read; none where a file has no `apiVersion`.
    pub api_versions: &'static [&'static str],
    /// The program that the kind comes from.
    pub original: &'static str,
    pub summary: &'static str,
    /// The fields of the document.
    pub table: &'static FieldTable,
}

/// Every kind that Kiln reads.
pub fn kinds() -> impl Iterator<Item = &'static DocumentKind> {
    [
        kyverno::KINDS,
        policies::KINDS,
        kubemod::KINDS,
        kustomize::KINDS,
        kyverno_cli::KINDS,
        chainsaw::KINDS,
    ]
    .into_iter()
    .flatten()
}

/// The fields of a document or of a part of one.
#[derive(Debug)]
pub struct FieldTable {
    /// What the part is called.
    pub title: &'static str,
    /// What it says.
    pub summary: &'static str,
    /// Its fields, in the order in which people write them.
    pub fields: &'static [Field],
}

#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name, as documents write it.
    pub name: &'static str,
    pub holds: FieldType,
    /// Whether a document without it is an error.
    pub is_required: bool,
    /// What holds where the field is missing.
    pub default: Option<&'static str>,
    /// A value, in YAML.
    pub example: Option<&'static str>,
    /// Whether the program that the kind comes from has it.
    pub in_original: bool,
    /// What Kiln does with it.
    pub support: Support,
    /// What it means.
    pub doc: &'static str,
}

/// What a field holds.
#[derive(Clone, Copy, Debug)]
pub enum FieldType {
    /// Text.
    String,
    /// Text in a language of expressions or templates.
    Expression(&'static str),
    /// One of some words.
    Enum(&'static [&'static str]),
    /// True or false.
    Boolean,
    /// A whole number.
    Integer,
    /// Any value.
    Any,
    List(&'static FieldType),
    /// A map with keys that the author chooses.
    Map(&'static FieldType),
    /// A map with these fields.
    Table(&'static FieldTable),
    /// A list of maps with these fields.
    Tables(&'static FieldTable),
    /// One of several forms.
    Either(&'static [FieldType]),
}

/// What Kiln does with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// It has its meaning.
    Full,
    /// It is accepted and has no effect.
    Ignored,
    /// It is accepted, and Kiln does not run what it asks for.
    NotRun,
    /// It is an error.
    Rejected,
    /// It has its meaning, and another field should be written.
    Deprecated(&'static str),
}

impl FieldTable {
    /// A table.
    pub const fn new(
        title: &'static str,
        summary: &'static str,
        fields: &'static [Field],
    ) -> FieldTable {
        FieldTable { title, summary, fields }
    }

    /// The field of a name.
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// The names of the fields.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + Clone {
        self.fields.iter().map(|field| field.name)
    }
}

impl FieldType {
    /// The tables that a value of the type may have.
    pub fn tables(&self) -> Vec<&'static FieldTable> {
        match self {
            FieldType::Table(table) | FieldType::Tables(table) => vec![table],
            FieldType::List(inner) | FieldType::Map(inner) => inner.tables(),
            FieldType::Either(forms) => forms.iter().flat_map(FieldType::tables).collect(),
            _ => Vec::new(),
        }
    }
}

impl Field {
    /// A field that the original has, too.
    pub const fn new(name: &'static str, holds: FieldType, doc: &'static str) -> Field {
        Field {
            name,
            holds,
            is_required: false,
            default: None,
            example: None,
            in_original: true,
            support: Support::Full,
            doc,
        }
    }

    pub(crate) const fn required(mut self) -> Field {
        self.is_required = true;
        self
    }

    pub(crate) const fn default(mut self, value: &'static str) -> Field {
        self.default = Some(value);
        self
    }

    pub(crate) const fn example(mut self, value: &'static str) -> Field {
        self.example = Some(value);
        self
    }

    pub(crate) const fn only_kiln(mut self) -> Field {
        self.in_original = false;
        self
    }

    pub(crate) const fn ignored(mut self) -> Field {
        self.support = Support::Ignored;
        self
    }

    pub(crate) const fn not_run(mut self) -> Field {
        self.support = Support::NotRun;
        self
    }

    pub(crate) const fn rejected(mut self) -> Field {
        self.support = Support::Rejected;
        self
    }

    pub(crate) const fn deprecated(mut self, instead: &'static str) -> Field {
        self.support = Support::Deprecated(instead);
        self
    }
}

// Constructors by type, so that a table reads as one.

pub(crate) const fn string(name: &'static str, doc: &'static str) -> Field {
    Field::new(name, FieldType::String, doc)
}

pub(crate) const fn strings(name: &'static str, doc: &'static str) -> Field {
    Field::new(name, FieldType::List(&FieldType::String), doc)
}

pub(crate) const fn string_map(name: &'static str, doc: &'static str) -> Field {
    Field::new(name, FieldType::Map(&FieldType::String), doc)
}

pub(crate) const fn boolean(name: &'static str, doc: &'static str) -> Field {
    Field::new(name, FieldType::Boolean, doc)
}

pub(crate) const fn integer(name: &'static str, doc: &'static str) -> Field {
    Field::new(name, FieldType::Integer, doc)
}

pub(crate) const fn any(name: &'static str, doc: &'static str) -> Field {
    Field::new(name, FieldType::Any, doc)
}

pub(crate) const fn one_of(
    name: &'static str,
    words: &'static [&'static str],
    doc: &'static str,
) -> Field {
    Field::new(name, FieldType::Enum(words), doc)
}

pub(crate) const fn jmespath(name: &'static str, doc: &'static str) -> Field {
    Field::new(name, FieldType::Expression("JMESPath"), doc)
}

pub(crate) const fn cel(name: &'static str, doc: &'static str) -> Field {
    Field::new(name, FieldType::Expression("CEL"), doc)
}

pub(crate) const fn table(
    name: &'static str,
    table: &'static FieldTable,
    doc: &'static str,
) -> Field {
    Field::new(name, FieldType::Table(table), doc)
}

pub(crate) const fn tables(
    name: &'static str,
    table: &'static FieldTable,
    doc: &'static str,
) -> Field {
    Field::new(name, FieldType::Tables(table), doc)
}

pub(crate) const fn list(
    name: &'static str,
    element: &'static FieldType,
    doc: &'static str,
) -> Field {
    Field::new(name, FieldType::List(element), doc)
}
