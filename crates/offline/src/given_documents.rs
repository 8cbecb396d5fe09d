//! Documents of files as objects, and the kinds that they define.

use kiln_diagnostic::Diagnostic;
use kiln_object::{Gvk, Kinds, ObjectId, list, metadata};
use kiln_value::Value;
use kiln_yaml::Document;

/// The kinds that are built in, and those that the documents define.
///
/// # Errors
/// When a definition cannot be used: without it, rules would not find their objects.
pub fn kinds_of<'d>(
    documents: impl IntoIterator<Item = &'d Document>,
) -> Result<Kinds, Vec<Diagnostic>> {
    more_kinds(Kinds::builtin(), documents)
}

/// These kinds, and those that the documents define.
///
/// # Errors
/// When a definition cannot be used.
pub fn more_kinds<'d>(
    mut kinds: Kinds,
    documents: impl IntoIterator<Item = &'d Document>,
) -> Result<Kinds, Vec<Diagnostic>> {
    let mut problems = Vec::new();
    for document in documents {
        if document.value().str_at(["kind"]) != Some("CustomResourceDefinition") {
            continue;
        }
        match kinds.clone().with_crd(document.value()) {
            Ok(more) => kinds = more,
            Err(error) => problems.push(Diagnostic::error(error.to_string()).at(document.place())),
        }
    }
    if problems.is_empty() { Ok(kinds) } else { Err(problems) }
}

/// The objects of documents, lists taken apart. Those with `generateName` need no name.
///
/// # Errors
/// When a document is not a Kubernetes object; each is named with its place.
pub fn objects_of(documents: Vec<Document>) -> Result<Vec<Value>, Vec<Diagnostic>> {
    let mut objects = Vec::new();
    let mut problems = Vec::new();
    for document in documents {
        let found = list::flatten(document.value().clone());
        let wrong = |object: &Value| {
            // The server makes up the rest of such a name, after rules at admission have seen the object.
            let named_later = metadata::generate_name(object).is_some_and(|name| !name.is_empty());
            ObjectId::of(object).err().filter(|_| !named_later || Gvk::of(object).is_none())
        };
        if let Some(missing) = found.iter().find_map(wrong) {
            problems.push(
                Diagnostic::error(format!("this is not a Kubernetes object: {missing}"))
                    .at(document.place())
                    .hint("a resource has apiVersion, kind and metadata.name or metadata.generateName"),
            );
        }
        objects.extend(found);
    }
    if problems.is_empty() { Ok(objects) } else { Err(problems) }
}
