//! `kiln schema`

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use kiln_diagnostic::{Diagnostic, did_you_mean};
use kiln_editor::json_schema::{
    ALL_KINDS_FILE, document_kinds, editor_comment, file_name, kinds_called, schema,
    schema_of_all_kinds,
};
use kiln_value::{Value, json};

use crate::exit::{CommandFailure, CommandOutcome, CommandResult};
use crate::input;
use crate::ui::{Ui, counted, plain};

/// Print JSON Schemas for editors
///
/// They are those of policies, kustomizations and tests. They are printed from the tables of fields that `kiln check` uses: what a schema refuses, Kiln refuses. Without
/// options, prints the schema of one kind, or of all kinds that Kiln reads in one document.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Kind, such as ClusterPolicy, Kustomization or chainsaw.kyverno.io/v1alpha1/Test
    #[arg(value_name = "KIND", conflicts_with = "all")]
    kind: Option<String>,

    /// Write the schemas of all kinds into this directory, and kiln.json, which fits them all
    #[arg(long, value_name = "DIR")]
    all: Option<PathBuf>,

    /// Print the comment for YAML files that names the schema in this directory or at this URL
    #[arg(long, value_name = "DIR|URL", conflicts_with = "all")]
    comment: Option<String>,

    /// List the kinds
    #[arg(long, conflicts_with_all = ["kind", "all", "comment"])]
    list: bool,
}

pub(crate) fn run(ui: &Ui, args: &Args) -> CommandResult {
    ui.has_formats_of("schema")?;
    if args.list {
        return list(ui);
    }
    if let Some(directory) = &args.all {
        return write_all(ui, directory);
    }
    let kind = args.kind.as_deref().map(one_kind).transpose()?;
    let mut out = ui.data();
    match &args.comment {
        Some(place) => {
            let file = kind.map_or_else(|| ALL_KINDS_FILE.to_owned(), file_name);
            let schema = format!("{}/{file}", place.trim_end_matches('/'));
            writeln!(out, "{}", editor_comment(&schema))?;
        }
        None => {
            let printed = kind.map_or_else(schema_of_all_kinds, schema);
            writeln!(out, "{}", json::to_string_pretty(&printed))?;
        }
    }
    out.flush()?;
    Ok(CommandOutcome::Done)
}

fn one_kind(name: &str) -> Result<&'static kiln_fields::DocumentKind, CommandFailure> {
    let found = kinds_called(name);
    match found.as_slice() {
        [only] => Ok(only),
        [] => {
            let problem = Diagnostic::error(format!("there is no schema of {name:?}"));
            let last = name.rsplit('/').next().unwrap_or(name);
            let meant = did_you_mean(last, document_kinds().map(|kind| kind.name));
            Err(problem
                .hint(match meant {
                    Some(meant) => format!("did you mean {meant:?}?"),
                    None => "list the kinds with: kiln schema --list".to_owned(),
                })
                .into())
        }
        several => {
            let names: Vec<String> = several
                .iter()
                .filter_map(|kind| Some(format!("{}/{}", kind.api_versions.first()?, kind.name)))
                .collect();
            Err(Diagnostic::error(format!("{name} is a kind of several programs"))
                .hint(format!("write {}", names.join(" or ")))
                .into())
        }
    }
}

fn list(ui: &Ui) -> CommandResult {
    let mut out = ui.stdout();
    for kind in document_kinds() {
        writeln!(out, "{:<36} {}", kind.name, kind.api_versions.join(", "))?;
    }
    out.flush()?;
    Ok(CommandOutcome::Done)
}

fn write_all(ui: &Ui, directory: &Path) -> CommandResult {
    let shown = plain(&directory.display().to_string());
    fs::create_dir_all(directory).map_err(|error| input::cannot("make", &shown, &error))?;
    let mut written = 0;
    let mut write = |name: &str, schema: &Value| {
        written += 1;
        input::write_file(&directory.join(name), &format!("{}\n", json::to_string_pretty(schema)))
    };
    for kind in document_kinds() {
        write(&file_name(kind), &schema(kind))?;
    }
    write(ALL_KINDS_FILE, &schema_of_all_kinds())?;
    let mut out = ui.stdout();
    writeln!(out, "wrote {} into {shown}", counted(written, "schema", "schemas"))?;
    let example = editor_comment(&format!("{}/{ALL_KINDS_FILE}", shown.trim_end_matches('/')));
    writeln!(out, "first line of a YAML file that has one of these kinds: {example}")?;
    out.flush()?;
    Ok(CommandOutcome::Done)
}
