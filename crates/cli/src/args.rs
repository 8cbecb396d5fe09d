//! What can be typed: the options every command has, and the list of commands.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, Args as _, CommandFactory, FromArgMatches, Parser, ValueEnum};

use crate::commands::{self, Command, SharedOptions};

/// Generate, clone, synchronize, mutate and reject Kubernetes resources.
#[derive(Debug, Parser)]
#[command(
    name = "kiln",
    version,
    disable_help_subcommand = true,
    args_override_self = true,
    max_term_width = 100
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options that every command takes.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Global {
    // In front of a command; each command shows its own, with the values that it has.
    #[arg(long, global = true, value_enum, default_value_t = OutputFormat::Text, hide = true)]
    pub(crate) format: OutputFormat,

    /// When to use color (NO_COLOR is respected)
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, help_heading = "Output")]
    pub(crate) color: Color,

    // Likewise.
    #[arg(long, global = true, value_parser = parse_size, default_value = MAX_INPUT_SIZE, hide = true)]
    pub(crate) max_input_size: u64,

    /// Accepted because kustomize has it; messages name files and lines instead
    #[arg(long, global = true, hide = true)]
    stack_trace: bool,
}

const MAX_INPUT_SIZE: &str = "64M";

/// The output formats. Which of them a command has is in [`commands::shared_options`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// For people
    Text,
    /// Aligned columns
    Table,
    /// YAML documents
    Yaml,
    /// JSON document
    Json,
    /// JUnit XML
    Junit,
    /// Markdown table
    Markdown,
    /// SARIF 2.1.0, for code scanning
    Sarif,
    /// One page that stands alone, for pull requests and tickets
    Html,
    /// Annotations of GitHub Actions
    Github,
    /// Code Quality report of GitLab
    Gitlab,
    /// Annotations of Azure Pipelines
    Azure,
}

impl OutputFormat {
    /// The word for it on the command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            OutputFormat::Text => "text",
            OutputFormat::Table => "table",
            OutputFormat::Yaml => "yaml",
            OutputFormat::Json => "json",
            OutputFormat::Junit => "junit",
            OutputFormat::Markdown => "markdown",
            OutputFormat::Sarif => "sarif",
            OutputFormat::Html => "html",
            OutputFormat::Github => "github",
            OutputFormat::Gitlab => "gitlab",
            OutputFormat::Azure => "azure",
        }
    }
}

/// What `-o` asks for: the word of a form means that form, as kubectl's users type it; anything else is a path.
pub(crate) fn form_or_path(output: &Path, forms: &[OutputFormat]) -> Result<OutputFormat, PathBuf> {
    let form = forms.iter().find(|form| output.as_os_str() == form.word());
    form.copied().ok_or_else(|| output.to_owned())
}

/// Paths of an option that may be given several times, or once with commas in between. A comma in the name of a file
/// that is there is part of it.
pub(crate) fn separated(paths: &[String]) -> Vec<String> {
    let split = |path: &String| match path.contains(',') && !Path::new(path).exists() {
        true => path.split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect(),
        false => vec![path.clone()],
    };
    paths.iter().flat_map(split).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal
    Auto,
    Always,
    Never,
}

/// Parses the command line; usage errors end the process with code 2.
pub(crate) fn parse(typed: Vec<OsString>) -> Args {
    let typed = commands::cfg::plain_format(typed);
    let program = typed.first().and_then(|path| Path::new(path).file_stem());
    let is_kubectl_plugin = program.is_some_and(|name| name == "kubectl-kiln");
    let meant = as_meant(typed);
    if let Some(args) = parse_alone(&meant) {
        return args;
    }
    let mut definition = definition();
    if is_kubectl_plugin {
        // As kubectl's users call it: kubectl runs the program of this name.
        definition = definition.bin_name("kubectl kiln");
    }
    let words = plain_switches(meant, &definition);
    let matches = definition.try_get_matches_from_mut(words);
    let args = matches.and_then(|matches| Args::from_arg_matches(&matches));
    args.unwrap_or_else(|error| without_hidden(error).format(&mut definition).exit())
}

/// Parses a command line that begins with the name of its command and has no mistake. Help and messages need the definition
/// of all commands.
fn parse_alone(meant: &[OsString]) -> Option<Args> {
    let definition = definition_alone(meant)?;
    let words = plain_switches(meant.iter().cloned(), &definition);
    let matches = definition.try_get_matches_from(words).ok()?;
    Args::from_arg_matches(&matches).ok()
}

/// The definition of the command that a command line begins with.
fn definition_alone(typed: &[OsString]) -> Option<clap::Command> {
    let command = commands::definition_of(typed.get(1)?.to_str()?)?;
    let program = Global::augment_args(clap::Command::new("kiln"))
        .disable_help_subcommand(true)
        .args_override_self(true)
        .subcommand_required(true)
        .subcommand(command);
    Some(with_shared_options(program))
}

/// A usage error that suggests no command which the help does not show.
fn without_hidden(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::Strings(suggested)) = error.get(ContextKind::SuggestedSubcommand) else {
        return error;
    };
    let definition = definition();
    let is_hidden =
        |name: &String| definition.find_subcommand(name).is_some_and(clap::Command::is_hide_set);
    let shown: Vec<String> = suggested.iter().filter(|name| !is_hidden(name)).cloned().collect();
    match shown.is_empty() {
        true => error.remove(ContextKind::SuggestedSubcommand),
        false => error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(shown)),
    };
    error
}

/// `kiln help COMMAND` for `kiln COMMAND --help`.
pub(crate) fn help_first(mut typed: Vec<OsString>) -> Vec<OsString> {
    if typed.get(1).is_some_and(|word| word == "help") {
        typed.remove(1);
        typed.push("--help".into());
    }
    typed
}

/// What people type who know other tools, as this program has it: `kiln help COMMAND` for `kiln COMMAND --help`, and
/// kubectl's `-o json` for `--format json`, Kyverno's `--remove-color` for `--color never`.
///
/// Commands that write to a path have `-o` for that, as kustomize and Kyverno do; the word for a form is never a path
/// there, and `./json` is.
fn as_meant(args: Vec<OsString>) -> Vec<OsString> {
    let args = help_first(args);
    let writes = |args: &[OsString]| {
        let definition = definition_alone(args).unwrap_or_else(definition);
        let mut command = &definition;
        // The innermost command: `kiln create test`.
        for word in args.iter().skip(1).filter_map(|word| word.to_str()) {
            command = command.find_subcommand(word).unwrap_or(command);
        }
        command.get_arguments().any(|argument| argument.get_short() == Some('o'))
    };
    // What follows belongs to another program.
    let own = args.iter().position(|word| word == "--").unwrap_or(args.len());
    let mut meant = Vec::with_capacity(args.len());
    let mut rest = args[..own].iter().peekable();
    while let Some(word) = rest.next() {
        let text = word.to_str().unwrap_or_default();
        if matches!(text, "--remove-color" | "--remove-color=true") {
            meant.extend(["--color".into(), OsString::from("never")]);
            continue;
        }
        let joined = ["--output=", "-o=", "-o"].iter().find_map(|flag| text.strip_prefix(flag));
        let form = match text {
            "-o" | "--output" => rest.peek().and_then(|next| next.to_str()),
            _ => joined,
        };
        let is_form = form.is_some_and(|form| OutputFormat::from_str(form, false).is_ok());
        match form.filter(|form| is_form || !form.starts_with('-') && !writes(&args)) {
            Some(form) if !form.is_empty() => {
                meant.extend(["--format".into(), OsString::from(form)]);
                if matches!(text, "-o" | "--output") {
                    rest.next();
                }
            }
            _ => meant.push(word.clone()),
        }
    }
    meant.extend_from_slice(&args[own..]);
    meant
}

/// Options without a value as scripts for kustomize write them: `--enable-helm=true`, `--network=false`.
pub(crate) fn plain_switches(
    typed: impl IntoIterator<Item = OsString>,
    definition: &clap::Command,
) -> Vec<OsString> {
    let mut typed = typed.into_iter();
    let mut command = definition;
    let mut plain: Vec<OsString> = typed.next().into_iter().collect();
    while let Some(word) = typed.next() {
        if word == "--" {
            plain.push(word);
            plain.extend(typed);
            break;
        }
        if let Some(inner) = word.to_str().and_then(|word| command.find_subcommand(word)) {
            command = inner;
        }
        match word.to_str().and_then(|word| switch(word, command, definition)) {
            Some((name, true)) => plain.push(name.into()),
            // The last one counts.
            Some((name, false)) => plain.retain(|before| before != name),
            None => plain.push(word),
        }
    }
    plain
}

/// The option in `--option=true` and whether it is on, if the command has such an option without a value.
fn switch<'w>(
    word: &'w str,
    command: &clap::Command,
    definition: &clap::Command,
) -> Option<(&'w str, bool)> {
    let (name, value) = word.split_once('=')?;
    let long = name.strip_prefix("--");
    let short = name.strip_prefix('-').and_then(|rest| {
        let mut letters = rest.chars();
        letters.next().filter(|letter| *letter != '-' && letters.next().is_none())
    });
    let on = match value {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => true,
        "0" | "f" | "F" | "FALSE" | "false" | "False" => false,
        _ => return None,
    };
    let everywhere = definition.get_arguments().filter(|argument| argument.is_global_set());
    let mut arguments = command.get_arguments().chain(everywhere);
    let is_switch = arguments.any(|argument| {
        let names =
            argument.get_long().into_iter().chain(argument.get_all_aliases().into_iter().flatten());
        let may_stand_alone = argument.get_num_args().is_some_and(|count| count.min_values() == 0);
        (matches!(argument.get_action(), ArgAction::SetTrue) || may_stand_alone)
            && (names.into_iter().any(|name| Some(name) == long)
                || short.is_some() && argument.get_short() == short)
    });
    is_switch.then_some((name, on))
}

/// The definition of the whole command line, for completions and manual pages.
pub(crate) fn definition() -> clap::Command {
    with_shared_options(Args::command())
}

/// A command line whose commands show, of the options that all accept, those that mean something to them.
pub(crate) fn with_shared_options(definition: clap::Command) -> clap::Command {
    let names: Vec<String> =
        definition.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    names.iter().fold(definition, |definition, name| {
        definition.mut_subcommand(name, |command| with_own(command, commands::shared_options(name)))
    })
}

/// A command with its own `--format` and `--max-input-size` in the place of those that all commands accept, so that its
/// help shows only what has an effect. clap keeps the option of a command over a global one of the same id, and merges
/// the values of both, so both positions still work.
fn with_own(command: clap::Command, shared: SharedOptions) -> clap::Command {
    let SharedOptions { formats, reads_files } = shared;
    let values = formats.iter().filter_map(OutputFormat::to_possible_value);
    let format = Arg::new("format")
        .long("format")
        .global(true)
        .value_name("FORMAT")
        .value_parser(
            PossibleValuesParser::new(values).try_map(|word| OutputFormat::from_str(&word, false)),
        )
        .default_value(OutputFormat::Text.word())
        .help(match formats.contains(&OutputFormat::Json) {
            true => "Output format; `json` also prints diagnostics as JSON lines",
            false => "Output format",
        })
        .help_heading("Output")
        .hide(formats.len() < 2);
    let size = Arg::new("max_input_size")
        .long("max-input-size")
        .global(true)
        .value_name("SIZE")
        .value_parser(parse_size)
        .default_value(MAX_INPUT_SIZE)
        .help("Maximum size of an input file, with the suffix K, M or G")
        .help_heading("Limits")
        .hide(!reads_files);
    command.arg(format).arg(size)
}

pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor: u64 = match &text[number.len()..] {
        "" => 1,
        "K" | "KB" | "Ki" | "KiB" => 1 << 10,
        "M" | "MB" | "Mi" | "MiB" => 1 << 20,
        "G" | "GB" | "Gi" | "GiB" => 1 << 30,
        _ => 0,
    };
    number
        .parse::<u64>()
        .ok()
        .filter(|_| factor > 0)
        .and_then(|count| count.checked_mul(factor))
        .ok_or_else(|| "a size is a number of bytes, or one with the suffix K, M or G".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        definition().debug_assert();
    }

    #[test]
    fn a_definition_alone_is_that_of_the_command() {
        let mut alone_too = 0;
        for command in definition().get_subcommands() {
            let name = command.get_name();
            // One that is not listed has all definitions made, and starts later.
            let Some(alone) = definition_alone(&["kiln".into(), name.into()]) else { continue };
            alone_too += 1;
            let alone = alone.find_subcommand(name).unwrap();
            let shape = |command: &clap::Command| {
                format!("{:?}", command.get_arguments().collect::<Vec<_>>())
            };
            assert_eq!(shape(alone), shape(command), "{name}");
            let inner = |command: &clap::Command| -> Vec<String> {
                command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect()
            };
            assert_eq!(inner(alone), inner(command), "{name}");
        }
        assert!(alone_too > 30, "{alone_too}");
    }

    #[test]
    fn a_command_line_without_mistakes_needs_one_definition() {
        let words =
            |typed: &str| -> Vec<OsString> { typed.split(' ').map(OsString::from).collect() };
        for typed in
            ["kiln build --color never .", "kiln eval cel 1+1", "kiln create --recursive=true"]
        {
            let alone = parse_alone(&words(typed)).map(|args| format!("{args:?}"));
            let all =
                definition().try_get_matches_from(plain_switches(words(typed), &definition()));
            let all = all.and_then(|matches| Args::from_arg_matches(&matches)).ok();
            assert_eq!(alone, all.map(|args| format!("{args:?}")), "{typed}");
            assert!(parse_alone(&words(typed)).is_some(), "{typed}");
        }
        for typed in [
            "kiln",
            "kiln buidl .",
            "kiln build --no-such-option",
            "kiln build --help",
            "kiln --color never build",
        ] {
            assert!(parse_alone(&words(typed)).is_none(), "{typed}");
        }
    }

    #[test]
    fn what_is_typed_for_other_tools_is_understood() {
        for (typed, meant) in [
            ("kiln help", "kiln --help"),
            ("kiln help eval cel", "kiln eval cel --help"),
            ("kiln plan -o json", "kiln plan --format json"),
            ("kiln plan -ojson r.yaml", "kiln plan --format json r.yaml"),
            ("kiln apply r.yaml -o=yaml", "kiln apply r.yaml --format yaml"),
            ("kiln apply r.yaml --output json", "kiln apply r.yaml --format json"),
            ("kiln apply r.yaml --remove-color", "kiln apply r.yaml --color never"),
            // Paths.
            ("kiln apply r.yaml -o ./json", "kiln apply r.yaml -o ./json"),
            ("kiln build -o out.yaml", "kiln build -o out.yaml"),
            ("kiln build -oout.yaml", "kiln build -oout.yaml"),
            ("kiln create test -o t.yaml", "kiln create test -o t.yaml"),
            // Where there is nothing to write to, the message is about forms.
            ("kiln explain ns/a -o wide", "kiln explain ns/a --format wide"),
            ("kiln explain ns/a -o", "kiln explain ns/a -o"),
            ("kiln up -- kiln plan -o json", "kiln up -- kiln plan -o json"),
            ("kiln eval cel --offset", "kiln eval cel --offset"),
        ] {
            let words = typed.split(' ').map(OsString::from).collect();
            let words: Vec<_> = as_meant(words).into_iter().collect();
            let wanted: Vec<OsString> = meant.split(' ').map(OsString::from).collect();
            assert_eq!(words, wanted, "{typed}");
        }
    }

    #[test]
    fn hidden_commands_are_not_suggested() {
        let said = |typed: &str| {
            let error = Args::try_parse_from(typed.split(' ')).unwrap_err();
            without_hidden(error).to_string()
        };
        let plan = said("kiln plann");
        assert!(plan.contains("'plan'") && !plan.contains("plugin-sandbox"), "{plan}");
        let hidden = said("kiln plugin-sandbo");
        assert!(!hidden.contains("'plugin-sandbox'"), "{hidden}");
    }

    #[test]
    fn options_without_a_value_may_have_one() {
        let plain = |typed: &str| {
            let words = plain_switches(typed.split(' ').map(OsString::from), &definition());
            let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
            words.join(" ")
        };
        for (typed, wanted) in [
            ("kiln build --enable-helm=true .", "kiln build --enable-helm ."),
            ("kiln build --enable-helm=1 --network=false .", "kiln build --enable-helm ."),
            ("kiln build --network --network=F .", "kiln build ."),
            ("kiln build --stack-trace=true .", "kiln build --stack-trace ."),
            ("kiln build --network=maybe", "kiln build --network=maybe"),
            ("kiln build --helm-command=true", "kiln build --helm-command=true"),
            ("kiln build -- --network=true", "kiln build -- --network=true"),
            ("kiln create --recursive=true", "kiln create --recursive"),
            ("kiln edit fix --vars=T", "kiln edit fix --vars"),
            ("kiln apply r.yaml -t=true -p=false", "kiln apply r.yaml -t"),
            ("kiln apply r.yaml -o=true", "kiln apply r.yaml -o=true"),
            ("kiln create --vars=true", "kiln create --vars=true"),
        ] {
            assert_eq!(plain(typed), wanted, "{typed}");
        }
    }

    #[test]
    fn a_word_is_a_form_and_the_rest_are_paths() {
        let forms = [OutputFormat::Json, OutputFormat::Junit];
        let read = |text: &str| form_or_path(Path::new(text), &forms);
        assert_eq!(read("json"), Ok(OutputFormat::Json));
        for path in ["./json", "yaml", "json/", "out.json", "JSON"] {
            assert_eq!(read(path), Err(PathBuf::from(path)), "{path}");
        }
        let paths = ["a.yaml,b.yaml".to_owned(), "c".to_owned()];
        assert_eq!(separated(&paths), ["a.yaml", "b.yaml", "c"]);
    }

    #[test]
    fn sizes_have_suffixes() {
        for (text, size) in
            [("10", 10), ("2K", 2048), ("64M", 64 << 20), ("1Gi", 1 << 30), ("3MB", 3 << 20)]
        {
            assert_eq!(parse_size(text), Ok(size), "{text}");
        }
        for text in ["", "M", "-1", "1.5M", "99999999999G"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
