//! Loading rules and resources, for every command that runs or checks them.

use kiln_diagnostic::{Diagnostic, Severity};
use kiln_dialects::{Compiled, PolicyHost, is_policy, misplaced_kind};
use kiln_object::Kinds;
pub(crate) use kiln_studio::rule_set;
use kiln_studio::{compile_given, compile_policies};
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
/// When a definition cannot be used.
pub(crate) fn kinds_of<'d>(
    documents: impl IntoIterator<Item = &'d Document>,
) -> Result<Kinds, CommandFailure> {
    Ok(kiln_offline::kinds_of(documents)?)
}

/// These kinds, and those that the documents define.
///
/// # Errors
/// When a definition cannot be used.
pub(crate) fn more_kinds<'d>(
    kinds: Kinds,
    documents: impl IntoIterator<Item = &'d Document>,
) -> Result<Kinds, CommandFailure> {
    Ok(kiln_offline::more_kinds(kinds, documents)?)
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
    let compiled = compile_given(host, documents, resources, kinds);
    for problem in &compiled.diagnostics {
        ui.problem(problem);
    }
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

/// The objects of documents, lists taken apart.
///
/// # Errors
/// When a document is not a Kubernetes object.
pub(crate) fn objects_of(documents: Vec<Document>) -> Result<Vec<Value>, CommandFailure> {
    Ok(kiln_offline::objects_of(documents)?)
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
