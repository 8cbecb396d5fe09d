//! `kiln fmt`

use std::io::Write;

use kiln_diagnostic::{Diagnostic, SourceLocation};
use kiln_value::Value;
use kiln_yaml::{ReadOptions, Reader, emit_documents, first_comment};
use serde_json::json;
use similar::TextDiff;

use crate::args::{Global, OutputFormat};
use crate::exit::{CommandFailure, CommandOutcome, CommandResult};
use crate::input::{self, Links};
use crate::ui::{Ui, plain};

/// Format YAML or JSON files as `kustomize build` does
///
/// Sorts keys and quotes strings only where necessary; comments, anchors and the style of the source are lost. With
/// --keep-comments they stay, as in editors. With --check, exits with code 1 if a file is not formatted.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files, directories (every .yaml, .yml and .json file below), or - for standard input
    #[arg(required = true, value_name = "FILES")]
    files: Vec<String>,

    /// Change nothing; list the files that are not formatted
    #[arg(long, conflicts_with = "write")]
    check: bool,

    /// Rewrite the files in place: all of them, or none if one cannot be written
    #[arg(long)]
    write: bool,

    /// With --check or --write, show the differences
    #[arg(long)]
    diff: bool,

    /// With --write, also rewrite files with comments; the comments are lost
    #[arg(long, requires = "write", conflicts_with = "keep_comments")]
    drop_comments: bool,

    /// Keep comments, the order of keys and quotes: change only indentation and blanks
    #[arg(long)]
    keep_comments: bool,
}

/// A file as it is, and as it should be.
struct Formatted {
    name: String,
    old: String,
    new: String,
    first_comment: Option<SourceLocation>,
}

impl Formatted {
    fn differs(&self) -> bool {
        self.old != self.new
    }
}

pub(crate) fn run(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    ui.has_formats_of("fmt")?;
    if args.diff && !args.check && !args.write {
        return Err(Diagnostic::error("--diff goes with --check or --write").into());
    }
    if args.write && args.files.iter().any(|file| file == "-") {
        return Err(Diagnostic::error("standard input cannot be rewritten in place").into());
    }
    let mut paths = Vec::new();
    for file in &args.files {
        // A link in a directory may lead out of it, and another user may have put it there.
        let links = if args.write { Links::PassOver } else { Links::Follow };
        paths.extend(input::expand(file, links)?);
    }
    if args.check || args.write {
        compare(ui, global, args, &paths)
    } else if args.keep_comments {
        print_tidied(ui, global, &paths)
    } else {
        print(ui, global, &paths)
    }
}

/// Prints the documents of all files as one stream.
fn print(ui: &Ui, global: &Global, paths: &[String]) -> CommandResult {
    let mut reader = Reader::new(options(global));
    let mut values: Vec<Value> = Vec::new();
    for path in paths {
        let input = input::read(path, global.max_input_size)?;
        let documents = reader.read_bytes(&input.name, &input.bytes)?;
        values.extend(documents.into_iter().map(kiln_yaml::Document::into_value));
    }
    let mut out = ui.data();
    match ui.format() {
        OutputFormat::Json => {
            for value in &values {
                writeln!(out, "{}", kiln_value::json::to_string(value))?;
            }
        }
        _ => out.write_all(emit_documents(&values).as_bytes())?,
    }
    out.flush()?;
    Ok(CommandOutcome::Done)
}

/// Prints the files with their comments.
fn print_tidied(ui: &Ui, global: &Global, paths: &[String]) -> CommandResult {
    let mut out = ui.data();
    for (number, path) in paths.iter().enumerate() {
        if number > 0 {
            writeln!(out, "---")?;
        }
        out.write_all(tidied(path, global)?.new.as_bytes())?;
    }
    out.flush()?;
    Ok(CommandOutcome::Done)
}

fn tidied(path: &str, global: &Global) -> Result<Formatted, Diagnostic> {
    let input = input::read(path, global.max_input_size)?;
    let old = String::from_utf8_lossy(&input.bytes).into_owned();
    let new = kiln_editor::tidy(&input.name, &old)?;
    Ok(Formatted { name: path.to_owned(), old, new, first_comment: None })
}

/// Compares every file with its canonical form, and rewrites it if that was asked for.
fn compare(ui: &Ui, global: &Global, args: &Args, paths: &[String]) -> CommandResult {
    let mut files = Vec::new();
    let mut problems = Vec::new();
    for path in paths {
        let formatted = match args.keep_comments {
            true => tidied(path, global),
            false => format(path, global),
        };
        match formatted {
            Ok(file) => {
                problems.extend(would_lose_comments(&file, args));
                files.push(file);
            }
            Err(problem) => problems.push(problem),
        }
    }
    if args.write && problems.is_empty() {
        // Everything that can fail for one file happens before the first is changed.
        let mut replacements = Vec::new();
        for file in files.iter().filter(|file| file.differs()) {
            replacements.push(input::Replacement::prepare(&file.name, &file.new)?);
        }
        for replacement in replacements {
            replacement.put()?;
        }
    }
    if problems.is_empty() || args.check {
        report(ui, args, &files)?;
    }
    if !problems.is_empty() {
        return Err(CommandFailure::BadInput(problems));
    }
    let unformatted = args.check && files.iter().any(Formatted::differs);
    Ok(if unformatted { CommandOutcome::Negative } else { CommandOutcome::Done })
}

fn format(path: &str, global: &Global) -> Result<Formatted, Diagnostic> {
    let input = input::read(path, global.max_input_size)?;
    let documents = kiln_yaml::read_bytes(&input.name, &input.bytes, options(global))?;
    let new = emit_documents(documents.iter().map(kiln_yaml::Document::value));
    let source = documents.first().map(|document| document.source().clone());
    Ok(Formatted {
        name: path.to_owned(),
        old: String::from_utf8_lossy(&input.bytes).into_owned(),
        new,
        first_comment: source.as_ref().and_then(first_comment),
    })
}

/// Comments are work; they are thrown away only on request.
fn would_lose_comments(file: &Formatted, args: &Args) -> Option<Diagnostic> {
    let comment = file.first_comment.clone().filter(|_| args.write && !args.drop_comments)?;
    Some(
        Diagnostic::error(format!("rewriting {} would lose its comments", file.name))
            .at(comment)
            .hint("use --drop-comments to rewrite it all the same; no file has been changed"),
    )
}

fn report(ui: &Ui, args: &Args, files: &[Formatted]) -> Result<(), CommandFailure> {
    let mut out = ui.stdout();
    for file in files.iter().filter(|file| file.differs()) {
        let diff = args.diff.then(|| {
            TextDiff::from_lines(&file.old, &file.new)
                .unified_diff()
                .header(&plain(&file.name), "canonical")
                .to_string()
        });
        match (ui.format(), diff) {
            (OutputFormat::Json, diff) => {
                let line = json!({"file": file.name, "rewritten": args.write, "diff": diff});
                writeln!(out, "{line}")?;
            }
            (_, Some(diff)) => write!(out, "{diff}")?,
            (_, None) => writeln!(out, "{}", plain(&file.name))?,
        }
    }
    out.flush()?;
    Ok(())
}

fn options(global: &Global) -> ReadOptions {
    ReadOptions::kustomize_resource()
        .max_input_size(usize::try_from(global.max_input_size).unwrap_or(usize::MAX))
}
