//! Loading rules and resources, for every command that runs or checks them.

use std::cell::LazyCell;
use std::sync::Arc;

use kiln_diagnostic::{Diagnostic, Severity};
use kiln_dialects::{
    Compiled, PolicyHost, compile_for, is_exception, is_policy, misplaced_kind, unknown_kinds,
};
use kiln_object::{Gvk, Kinds, ObjectId, list, metadata};
use kiln_value::Value;
use kiln_yaml::{Document, ReadOptions, Reader};

use crate::args::Global;
use crate::exit::CommandFailure;
use crate::input::{self, Links};
use crate::ui::Ui;

/// Refuses documents without a policy; `place` says where they are.
///
/// # Errors
/// When there is none. One of a kind that is misspelt or in another group is named.
pub(crate) fn require_policy(documents: &[Document], place: &str) -> Result<(), CommandFailure> {
    if documents.iter().any(is_policy) {
        return Ok(());
    }
    let misplaced: Vec<Diagnostic> = documents.iter().filter_map(misplaced_kind).collect();
    if !misplaced.is_empty() {
        return Err(misplaced.into());
    }
    Err(Diagnostic::error(format!("there is no policy in {place}"))
        .hint(
            "give files with a ClusterPolicy, Policy, CleanupPolicy, GeneratingPolicy, MutatingPolicy, ValidatingPolicy, \
             DeletingPolicy, MutatingAdmissionPolicy, ValidatingAdmissionPolicy or ModRule",
        )
        .into())
}

/// Reads the documents of files, directories and standard input, as Kubernetes clients do.
pub(crate) fn read_all(paths: &[String], global: &Global) -> Result<Vec<Document>, CommandFailure> {
    let options = ReadOptions::kubernetes()
        .max_input_size(usize::try_from(global.max_input_size).unwrap_or(usize::MAX));
    let mut reader = Reader::new(options);
    let mut documents = Vec::new();
    let mut problems = Vec::new();
    for path in paths {
        for file in input::expand(path, Links::Follow)? {
            let read = input::read(&file, global.max_input_size)
                .and_then(|input| reader.read_bytes(&input.name, &input.bytes));
            match read {
                Ok(read) => documents.extend(read),
                Err(problem) => problems.push(problem),
            }
        }
    }
    if problems.is_empty() { Ok(documents) } else { Err(problems.into()) }
}

/// The kinds that are built in, and those that the documents define.
///
/// # Errors
/// When a definition cannot be used: without it, rules would not find their objects.
pub(crate) fn kinds_of<'d>(
    documents: impl IntoIterator<Item = &'d Document>,
) -> Result<Kinds, CommandFailure> {
    more_kinds(Kinds::builtin(), documents)
}

/// These kinds, and those that the documents define.
///
/// # Errors
/// When a definition cannot be used.
pub(crate) fn more_kinds<'d>(
    mut kinds: Kinds,
    documents: impl IntoIterator<Item = &'d Document>,
) -> Result<Kinds, CommandFailure> {
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
    if problems.is_empty() { Ok(kinds) } else { Err(problems.into()) }
}

/// Compiles the policies among documents, and says what is wrong with them and what is not run. What is not known
/// and is in none of the files is remarked.
pub(crate) fn compile_rules(
    ui: &Ui,
    host: PolicyHost,
    documents: &[Document],
    resources: &[Document],
    kinds: &Kinds,
) -> Compiled {
    let mut compiled = compile_policies(host, documents, kinds);
    let own = LazyCell::new(kiln_install::definitions);
    let is_given = |kind: &str| {
        own.iter().any(|definition| definition.str_at(["spec", "names", "kind"]) == Some(kind))
            || documents.iter().chain(resources).any(|document| {
                let objects = list::flatten(document.value().clone());
                objects.iter().any(|object| object.str_at(["kind"]) == Some(kind))
            })
    };
    compiled.diagnostics.extend(unknown_kinds(&compiled.policies, kinds, is_given));
    for problem in &compiled.diagnostics {
        ui.problem(problem);
    }
    compiled
}

fn compile_policies(host: PolicyHost, documents: &[Document], kinds: &Kinds) -> Compiled {
    let policies = documents.iter().filter(|found| is_policy(found) || is_exception(found));
    let mut compiled = compile_for(host, policies, kinds);
    compiled.diagnostics.extend(documents.iter().filter_map(misplaced_kind));
    compiled
}

/// The same for a cluster that may hold definitions of kinds which are in none of the files: what is not known here is
/// for the engine to say.
pub(crate) fn compile_for_stored(ui: &Ui, documents: &[Document], kinds: &Kinds) -> Compiled {
    let compiled = compile_policies(PolicyHost::Cluster, documents, kinds);
    for problem in &compiled.diagnostics {
        ui.problem(problem);
    }
    compiled
}

/// Whether nothing is suspicious and everything is run, as `--strict` wants it.
pub(crate) fn is_clean(compiled: &Compiled) -> bool {
    let is_note = |found: &Diagnostic| found.severity == Severity::Note;
    compiled.not_run.is_empty() && compiled.diagnostics.iter().all(is_note)
}

/// The objects of documents, lists taken apart. Those with `generateName` need no name.
///
/// # Errors
/// When a document is not a Kubernetes object; each is named with its place.
pub(crate) fn objects_of(documents: Vec<Document>) -> Result<Vec<Value>, CommandFailure> {
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
    if problems.is_empty() { Ok(objects) } else { Err(problems.into()) }
}

/// The only document of a file.
pub(crate) fn read_only(path: &str, global: &Global) -> Result<Document, CommandFailure> {
    let documents = read_all(&[path.to_owned()], global)?;
    let count = documents.len();
    let [document] = <[Document; 1]>::try_from(documents).map_err(|_| {
        Diagnostic::error(format!("{path} has {count} documents, and one is needed"))
    })?;
    Ok(document)
}

/// The policies and their exceptions, ready to be run.
pub(crate) fn rule_set(compiled: &Compiled) -> kiln_engine::RuleSet {
    kiln_engine::RuleSet::new(compiled.policies.iter().map(Arc::clone))
        .with_exceptions(compiled.exceptions.iter().map(Arc::clone))
}
