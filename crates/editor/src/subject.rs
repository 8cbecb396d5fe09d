//! What a document is, and what its fields hold.

use kiln_fields::{DocumentKind, Field, FieldTable, FieldType, kustomize};
use kiln_schema::types::{StructId, types};

use crate::outline::{Entry, OutlineStep, unquoted};
use crate::text_document::TextDocument;

/// The names of kustomization files, whose `kind` may be missing.
const KUSTOMIZATION_FILES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// What one YAML document is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DocumentSubject {
    pub(crate) kind: Option<&'static DocumentKind>,
    /// The type of its kind, where it is one of Kubernetes' own.
    pub(crate) kubernetes: Option<StructId>,
    pub(crate) is_kustomization: bool,
}

/// The languages that texts in documents have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextLanguage {
    JmesPath,
    Cel,
    GoTemplate,
    /// `$(NAME)` of kustomize.
    Vars,
}

impl DocumentSubject {
    pub(crate) fn of(document: &TextDocument, entries: &[Entry]) -> Self {
        let top = |name: &str| {
            let entry = entries.iter().find(
                |entry| matches!(entry.path.as_slice(), [OutlineStep::Key(key)] if key == name),
            );
            entry.map(|entry| unquoted(&document.text()[entry.value.clone()]).to_owned())
        };
        DocumentSubject::called(document, top("apiVersion").as_deref(), top("kind").as_deref())
    }

    pub(crate) fn called(
        document: &TextDocument,
        api_version: Option<&str>,
        kind: Option<&str>,
    ) -> Self {
        let is_file = KUSTOMIZATION_FILES.contains(&document.file_name());
        let fits = |known: &&DocumentKind| {
            Some(known.name) == kind
                && api_version.is_none_or(|version| known.api_versions.contains(&version))
        };
        let found = kiln_fields::kinds().find(fits).or_else(|| {
            // A version that is still being written: the kind alone says enough, unless two programs have it.
            let mut named = kiln_fields::kinds().filter(|known| Some(known.name) == kind);
            named.next().filter(|_| named.next().is_none())
        });
        let found = found.or_else(|| is_file.then(|| &kustomize::KINDS[0]));
        let is_kustomization =
            found.is_some_and(|kind| std::ptr::eq(kind.table, &raw const kustomize::KUSTOMIZATION));
        let kubernetes = match (found, api_version, kind) {
            (None, Some(api_version), Some(kind)) => types().kind(api_version, kind),
            _ => None,
        };
        DocumentSubject { kind: found, kubernetes, is_kustomization }
    }

    /// What may stand at a path; several types where the table has several forms, none where any value may.
    pub(crate) fn types_at(self, path: &[OutlineStep]) -> Vec<FieldType> {
        let Some(kind) = self.kind else { return Vec::new() };
        let mut types = vec![FieldType::Table(kind.table)];
        for step in path {
            types = types.iter().flat_map(|holds| inside(holds, step)).collect();
        }
        let mut flat = Vec::new();
        types.iter().for_each(|holds| flatten(holds, &mut flat));
        flat
    }

    /// The field that a path leads to, if its last step is a key of a table.
    pub(crate) fn field_at(
        self,
        path: &[OutlineStep],
    ) -> Option<(&'static Field, &'static FieldTable)> {
        let (last, above) = path.split_last()?;
        let name = last.key()?;
        self.tables_at(above).into_iter().find_map(|table| Some((find(table, name)?, table)))
    }

    /// The tables whose fields may stand at a path.
    pub(crate) fn tables_at(self, path: &[OutlineStep]) -> Vec<&'static FieldTable> {
        let tables = self.types_at(path).into_iter().filter_map(|holds| match holds {
            FieldType::Table(table) => Some(table),
            _ => None,
        });
        tables.collect()
    }

    fn original(self) -> &'static str {
        self.kind.map_or("", |kind| kind.original)
    }

    /// The language of the text around a byte of a value, and the part of the value that is in it.
    pub(crate) fn language_at(
        self,
        path: &[OutlineStep],
        value: &str,
        at: usize,
    ) -> Option<(TextLanguage, std::ops::Range<usize>)> {
        let at = at.min(value.len());
        if self.is_kustomization {
            let open = value[..at].rfind("$(")?;
            let close = value[open..].find(')').map_or(value.len(), |end| open + end);
            return (at <= close).then_some((TextLanguage::Vars, open + 2..close));
        }
        let is_mod_rule = self.original() == "KubeMod";
        let braces = value[..at].rfind("{{").filter(|open| !value[*open..at].contains("}}"));
        if let Some(open) = braces {
            let close = value[open..].find("}}").map_or(value.len(), |end| open + end);
            let language =
                if is_mod_rule { TextLanguage::GoTemplate } else { TextLanguage::JmesPath };
            return Some((language, open + 2..close));
        }
        let expression = |holds: &FieldType| match holds {
            FieldType::Expression("CEL") => Some(TextLanguage::Cel),
            FieldType::Expression("JMESPath") => Some(TextLanguage::JmesPath),
            _ => None,
        };
        let language = self.types_at(path).iter().find_map(expression)?;
        Some((language, 0..value.len()))
    }
}

/// The field of a name, in any letter case: kustomize reads names so, and elsewhere it is what is meant.
pub(crate) fn find(table: &'static FieldTable, name: &str) -> Option<&'static Field> {
    table
        .field(name)
        .or_else(|| table.fields.iter().find(|field| field.name.eq_ignore_ascii_case(name)))
}

fn inside(holds: &FieldType, step: &OutlineStep) -> Vec<FieldType> {
    match (holds, step) {
        (FieldType::Either(forms), step) => {
            forms.iter().flat_map(|form| inside(form, step)).collect()
        }
        (FieldType::Table(table), OutlineStep::Key(key)) => {
            find(table, key).map(|field| field.holds).into_iter().collect()
        }
        (FieldType::Map(inner), OutlineStep::Key(_))
        | (FieldType::List(inner), OutlineStep::Index(_)) => {
            vec![**inner]
        }
        (FieldType::Tables(table), OutlineStep::Index(_)) => vec![FieldType::Table(table)],
        _ => Vec::new(),
    }
}

fn flatten(holds: &FieldType, flat: &mut Vec<FieldType>) {
    match holds {
        FieldType::Either(forms) => forms.iter().for_each(|form| flatten(form, flat)),
        holds => flat.push(*holds),
    }
}

/// A type in words: `list of strings`.
pub(crate) fn in_words(holds: &FieldType) -> String {
    match holds {
        FieldType::String => "string".into(),
        FieldType::Expression(language) => format!("{language} expression"),
        FieldType::Enum(words) => words.join(" | "),
        FieldType::Boolean => "boolean".into(),
        FieldType::Integer => "integer".into(),
        FieldType::Any => "any value".into(),
        FieldType::List(inner) => format!("list of {}", in_words(inner)),
        FieldType::Map(inner) => format!("map of {}", in_words(inner)),
        FieldType::Table(table) => table.title.into(),
        FieldType::Tables(table) => format!("list of {}", table.title),
        FieldType::Either(forms) => forms.iter().map(in_words).collect::<Vec<_>>().join(", or "),
    }
}
