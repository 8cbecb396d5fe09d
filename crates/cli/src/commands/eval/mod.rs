//! `kiln eval`: expressions on their own, outside of any rule.

mod cel;
mod conditions;
mod gotemplate;
mod jmespath;
mod jp;
mod jsonpath;
mod pattern;

use std::io::{IsTerminal, Write};

use kiln_diagnostic::Diagnostic;
use kiln_value::Value;
use kiln_yaml::{Document, ReadOptions, read_bytes};

use crate::args::{Global, OutputFormat};
use crate::exit::CommandResult;
use crate::input;
use crate::ui::Ui;
pub(crate) use jp::Args as JpArgs;

/// Evaluate an expression on JSON or YAML
///
/// Prints the result to standard output. If the expression fails, prints the error with a caret and exits with code 1.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    language: Language,
}

#[derive(Debug, clap::Subcommand)]
enum Language {
    #[command(name = "jmespath")]
    JmesPath(jmespath::Args),
    #[command(name = "jsonpath")]
    JsonPath(jsonpath::Args),
    #[command(name = "gotemplate")]
    GoTemplate(gotemplate::Args),
    Cel(cel::Args),
    Conditions(conditions::Args),
    Pattern(pattern::Args),
}

pub(super) const FORMS: [OutputFormat; 3] =
    [OutputFormat::Text, OutputFormat::Yaml, OutputFormat::Json];

/// `kiln jp`
pub(crate) fn run_jp(ui: &Ui, global: &Global, args: &JpArgs) -> CommandResult {
    ui.has_formats_of("eval")?;
    jp::run(ui, global, args)
}

pub(crate) fn run(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    ui.has_formats_of("eval")?;
    match &args.language {
        Language::JmesPath(args) => jmespath::run(ui, global, args),
        Language::JsonPath(args) => jsonpath::run(ui, global, args),
        Language::GoTemplate(args) => gotemplate::run(ui, global, args),
        Language::Cel(args) => cel::run(ui, global, args),
        Language::Conditions(args) => conditions::run(ui, global, args),
        Language::Pattern(args) => pattern::run(ui, global, args),
    }
}

/// The one document of a file or of standard input. Nothing at all is null.
fn read_one(path: Option<&str>, global: &Global) -> Result<Value, Diagnostic> {
    let path = match path {
        // Waiting for a person to type JSON is never what was meant.
        None if std::io::stdin().is_terminal() => return Ok(Value::Null),
        None => "-",
        Some(path) => path,
    };
    let document = only_document(read_documents(path, global)?, path)?;
    Ok(document.map_or(Value::Null, Document::into_value))
}

/// The document of a file that may have one at the most.
fn only_document(documents: Vec<Document>, path: &str) -> Result<Option<Document>, Diagnostic> {
    if let [_, second, ..] = documents.as_slice() {
        let count = documents.len();
        return Err(Diagnostic::error(format!("{path} has {count} documents, and one is needed"))
            .at(second.place())
            .hint("keep one document in the file"));
    }
    Ok(documents.into_iter().next())
}

fn read_documents(path: &str, global: &Global) -> Result<Vec<Document>, Diagnostic> {
    let input = input::read(path, global.max_input_size)?;
    let options = ReadOptions::kubernetes()
        .max_input_size(usize::try_from(global.max_input_size).unwrap_or(usize::MAX));
    read_bytes(&input.name, &input.bytes, options)
}

/// Prints a result: as JSON unless YAML was asked for.
fn print_result(ui: &Ui, value: &Value) -> std::io::Result<()> {
    let mut out = ui.data();
    match ui.format() {
        OutputFormat::Yaml => out.write_all(kiln_yaml::emit(value).as_bytes())?,
        _ => writeln!(out, "{}", kiln_value::json::to_string_pretty(value))?,
    }
    out.flush()
}
