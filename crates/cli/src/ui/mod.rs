//! All output of the command line. Colours, form and quietness are decided here, once.

mod clean;
mod diagnostic;
mod difference;
mod paint;
mod progress;
mod table;

use std::io::{self, BufWriter, IsTerminal, Write};

use kiln_diagnostic::Diagnostic;

use crate::args::{Color, Global, OutputFormat};
use crate::commands;
use clean::Clean;
use diagnostic::Words;
pub(crate) use difference::difference;
pub(crate) use paint::{Paint, Style};
pub(crate) use progress::{Counter, Progress};
pub(crate) use table::table;

/// A number of things, in words: `1 rule`, `2 rules`.
pub(crate) fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Text that others wrote, on one line and without what a terminal would obey: names and messages in a cluster may hold
/// anything.
pub(crate) fn plain(text: &str) -> String {
    let plain = |c: char| match c {
        '\n' | '\r' | '\t' => ' ',
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    text.chars().map(plain).collect()
}

/// Says something on standard error. A closed standard error is not a failure.
pub(crate) fn status(text: &str) {
    let mut out = Clean::new(io::stderr().lock(), true);
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Where commands write to.
pub(crate) struct Ui {
    format: OutputFormat,
    stdout_color: bool,
    stderr_color: bool,
    /// Problems are announced with Kiln's own words, or with those of kustomize.
    words: Words,
    /// Whether problems are not shown.
    silent: bool,
}

impl Ui {
    pub(crate) fn new(global: &Global) -> Self {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let color = |is_terminal: bool| match global.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => is_terminal && !plain,
        };
        Ui {
            format: global.format,
            stdout_color: color(io::stdout().is_terminal()),
            stderr_color: color(io::stderr().is_terminal()),
            words: Words::Kiln,
            silent: false,
        }
    }

    /// For parts of commands that answer programs: problems are part of the answer.
    pub(crate) fn silent() -> Self {
        let words = Words::Kiln;
        Ui {
            format: OutputFormat::Text,
            stdout_color: false,
            stderr_color: false,
            words,
            silent: true,
        }
    }

    /// The same, with problems announced as kustomize does.
    pub(crate) fn in_words_of_kustomize(self) -> Ui {
        Ui { words: Words::Kustomize, ..self }
    }

    /// The form of output that was asked for.
    pub(crate) fn format(&self) -> OutputFormat {
        self.format
    }

    /// The same, with another form of output.
    pub(crate) fn in_form(&self, format: OutputFormat) -> Ui {
        Ui { format, ..*self }
    }

    /// Refuses the form of output that was asked for, if the command has no such form. clap refuses it behind the command;
    /// in front of it, the option accepts the forms of all commands.
    pub(crate) fn has_formats_of(&self, command: &str) -> Result<(), Diagnostic> {
        let formats = commands::shared_options(command).formats;
        if formats.contains(&self.format) {
            return Ok(());
        }
        let words: Vec<_> = formats.iter().map(|format| format.word()).collect();
        let asked = self.format.word();
        Err(Diagnostic::error(format!("this command does not support --format {asked}"))
            .hint(format!("use --format {}", words.join(" or "))))
    }

    /// Prints what programs read: as YAML where that was asked for, otherwise as JSON.
    pub(crate) fn document(&self, document: &serde_json::Value) -> io::Result<()> {
        let mut out = self.data();
        let text = format!("{document:#}");
        match (self.format, kiln_value::json::parse(&text)) {
            (OutputFormat::Yaml, Ok(value)) => out.write_all(kiln_yaml::emit(&value).as_bytes())?,
            _ => writeln!(out, "{text}")?,
        }
        out.flush()
    }

    /// Standard output, buffered; what is for people holds nothing that a terminal would obey. Flush it at the end, so
    /// that a full disk is noticed.
    pub(crate) fn stdout(&self) -> Clean<BufWriter<io::StdoutLock<'static>>> {
        let is_for_people = matches!(self.format, OutputFormat::Text | OutputFormat::Table);
        Clean::new(self.data(), is_for_people).with_color(is_for_people && self.stdout_color)
    }

    /// Standard output for what is printed byte by byte, whatever it holds.
    pub(crate) fn data(&self) -> BufWriter<io::StdoutLock<'static>> {
        BufWriter::with_capacity(1 << 16, io::stdout().lock())
    }

    /// Shows a problem on standard error: for people, or as one line of JSON.
    pub(crate) fn problem(&self, problem: &Diagnostic) {
        if self.silent {
            return;
        }
        let text = match self.format {
            OutputFormat::Json => {
                serde_json::to_string(problem).unwrap_or_else(|_| problem.to_string())
            }
            _ => diagnostic::render(problem, self.words, self.stderr_color),
        };
        // Nothing is left to be done when standard error is closed too.
        let _ = writeln!(io::stderr(), "{text}");
    }

    /// Says something on standard error. A closed standard error is not a failure.
    pub(crate) fn status(&self, text: &str) {
        status(text);
    }
}
