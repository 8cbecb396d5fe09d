//! What can be typed: the options every command has, and the list of commands.

use clap::{CommandFactory, Parser, ValueEnum};

use crate::commands::Command;

/// Shapes Kubernetes resources: generates, clones, synchronises, patches and rejects them.
#[derive(Debug, Parser)]
#[command(name = "kiln", version, disable_help_subcommand = true, max_term_width = 100)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options that every command takes.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Global {
    /// The form of the output, and with json of the messages too
    #[arg(long, global = true, value_enum, default_value_t = Format::Text, help_heading = "Output")]
    pub(crate) format: Format,

    /// When to use colours (NO_COLOR is honoured)
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, help_heading = "Output")]
    pub(crate) color: Color,

    /// Refuse an input larger than this, with the suffix K, M or G
    #[arg(long, global = true, value_parser = parse_size, default_value = "64M",
          value_name = "SIZE", help_heading = "Limits")]
    pub(crate) max_input_size: u64,
}

/// The forms of output. Commands say in their help which of them they have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// Columns
    Table,
    /// YAML documents
    Yaml,
    /// JSON
    Json,
    /// JUnit XML, of test results
    Junit,
}

impl Format {
    /// The word for it on the command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Format::Text => "text",
            Format::Table => "table",
            Format::Yaml => "yaml",
            Format::Json => "json",
            Format::Junit => "junit",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal
    Auto,
    Always,
    Never,
}

/// Parses the command line; usage errors end the process with code 2.
pub(crate) fn parse() -> Args {
    Args::parse()
}

/// The definition of the whole command line, for completions and manual pages.
pub(crate) fn definition() -> clap::Command {
    Args::command()
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
