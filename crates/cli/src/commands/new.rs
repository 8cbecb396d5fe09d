//! `kiln new`

mod recorded_test;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use kiln_diagnostic::Diagnostic;

use crate::args::Global;
use crate::exit::{CommandFailure, CommandOutcome, CommandResult};
use crate::input;
use crate::ui::{Ui, plain};

/// Create a policy, ModRule, test or plugin
///
/// Writes commented files with a test that passes into a new directory, and prints the commands to run next. Existing files are kept.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Create a policy: policy.yaml, resources.yaml and kyverno-test.yaml
    Policy {
        #[command(flatten)]
        named: Named,
        /// What the policy does
        #[arg(long, value_enum, default_value_t = PolicyRule::Validate)]
        rule: PolicyRule,
    },
    /// Create a ModRule: modrule.yaml, resources.yaml and kyverno-test.yaml
    Modrule {
        #[command(flatten)]
        named: Named,
    },
    /// Write a test of the policies in a directory, from what they do now
    ///
    /// Applies the policies below the directory to its resources, and writes what each rule did as the expected result
    /// into kyverno-test.yaml. Read it: it says what happens, not what should.
    Test {
        /// Directory with policies and resources
        #[arg(value_name = "DIR", default_value = ".")]
        directory: PathBuf,
    },
    /// Create a generator for kustomizations as a KRM function, with a kustomization to run it
    Plugin {
        #[command(flatten)]
        named: Named,
    },
}

#[derive(Debug, clap::Args)]
struct Named {
    /// Name, also of the directory
    #[arg(value_name = "NAME", value_parser = name)]
    name: String,
    /// Directory to write into [default: NAME]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PolicyRule {
    /// Rejects Deployments without a label
    Validate,
    /// Adds a label to Deployments
    Mutate,
    /// Creates a NetworkPolicy in every Namespace, and keeps it synchronized
    Generate,
    /// Rejects Deployments with a CEL expression: a ValidatingPolicy
    Cel,
}

/// A file of a start, as a path in its directory and its text.
type StarterTemplate = (&'static str, &'static str);

impl PolicyRule {
    fn files(self) -> &'static [StarterTemplate] {
        match self {
            PolicyRule::Validate => &[
                ("policy.yaml", include_str!("new/validate/policy.yaml")),
                ("resources.yaml", include_str!("new/validate/resources.yaml")),
                ("kyverno-test.yaml", include_str!("new/validate/kyverno-test.yaml")),
            ],
            PolicyRule::Mutate => &[
                ("policy.yaml", include_str!("new/mutate/policy.yaml")),
                ("resources.yaml", include_str!("new/mutate/resources.yaml")),
                ("patched.yaml", include_str!("new/mutate/patched.yaml")),
                ("kyverno-test.yaml", include_str!("new/mutate/kyverno-test.yaml")),
            ],
            PolicyRule::Generate => &[
                ("policy.yaml", include_str!("new/generate/policy.yaml")),
                ("resources.yaml", include_str!("new/generate/resources.yaml")),
                ("generated.yaml", include_str!("new/generate/generated.yaml")),
                ("kyverno-test.yaml", include_str!("new/generate/kyverno-test.yaml")),
            ],
            PolicyRule::Cel => &[
                ("policy.yaml", include_str!("new/cel/policy.yaml")),
                ("resources.yaml", include_str!("new/cel/resources.yaml")),
                ("kyverno-test.yaml", include_str!("new/cel/kyverno-test.yaml")),
            ],
        }
    }
}

const MODRULE: &[StarterTemplate] = &[
    ("modrule.yaml", include_str!("new/modrule/modrule.yaml")),
    ("resources.yaml", include_str!("new/modrule/resources.yaml")),
    ("patched.yaml", include_str!("new/modrule/patched.yaml")),
    ("kyverno-test.yaml", include_str!("new/modrule/kyverno-test.yaml")),
];

const PLUGIN: &[StarterTemplate] = &[
    ("plugin.sh", include_str!("new/plugin/plugin.sh")),
    ("settings.yaml", include_str!("new/plugin/settings.yaml")),
    ("kustomization.yaml", include_str!("new/plugin/kustomization.yaml")),
    ("expected.yaml", include_str!("new/plugin/expected.yaml")),
];

/// What stands for the name in the files.
const PLACEHOLDER: &str = "NAME";

/// A name that objects may have.
fn name(text: &str) -> Result<String, String> {
    let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_name = !text.is_empty()
        && text.len() <= 63
        && text.chars().all(|c| is_letter(c) || c == '-')
        && text.starts_with(is_letter)
        && text.ends_with(is_letter);
    match is_name {
        true => Ok(text.to_owned()),
        false if text.contains(std::path::is_separator) => Err(format!(
            "a name is no path: to write below another directory, give its last part as the name, and \
             --directory {text}"
        )),
        false => Err("a name has lower-case letters, digits and dashes, at most 63".to_owned()),
    }
}

pub(crate) fn run(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    ui.has_formats_of("new")?;
    let (named, files, next) = match &args.what {
        What::Policy { named, rule } => (named, rule.files(), TEST_NEXT),
        What::Modrule { named } => (named, MODRULE, TEST_NEXT),
        What::Plugin { named } => (named, PLUGIN, PLUGIN_NEXT),
        What::Test { directory } => return recorded_test::run(ui, global, directory),
    };
    let directory = named.directory.clone().unwrap_or_else(|| PathBuf::from(&named.name));
    write_all(ui, &directory, &named.name, files)?;
    let mut out = ui.stdout();
    for command in next {
        writeln!(out, "next: {}", command.replace("DIR", &shown(&directory)))?;
    }
    out.flush()?;
    Ok(CommandOutcome::Done)
}

const TEST_NEXT: &[&str] = &["kiln test DIR", "kiln check --watch DIR"];
const PLUGIN_NEXT: &[&str] = &[
    "kiln build DIR --enable-alpha-plugins --enable-exec",
    "kiln build DIR --enable-alpha-plugins --enable-exec --diff DIR/expected.yaml --exit-code",
];

fn shown(path: &Path) -> String {
    plain(&path.display().to_string())
}

/// Writes all files or none: half a start beside the user's own file is a puzzle.
fn write_all(
    ui: &Ui,
    directory: &Path,
    name: &str,
    files: &[StarterTemplate],
) -> Result<(), CommandFailure> {
    let paths: Vec<PathBuf> = files.iter().map(|(file, _)| directory.join(file)).collect();
    if let Some(there) = paths.iter().find(|path| fs::symlink_metadata(path).is_ok()) {
        return Err(Diagnostic::error(format!("{} is there already", shown(there)))
            .hint("choose another name, or another directory with --directory")
            .into());
    }
    fs::create_dir_all(directory)
        .map_err(|error| input::cannot("make", &shown(directory), &error))?;
    let mut out = ui.stdout();
    for (path, (file, text)) in paths.iter().zip(files) {
        write_new(path, &text.replace(PLACEHOLDER, name))?;
        if file.ends_with(".sh") {
            make_executable(path)?;
        }
        writeln!(out, "wrote {}", shown(path))?;
    }
    Ok(out.flush()?)
}

fn write_new(path: &Path, text: &str) -> Result<(), CommandFailure> {
    let failed = |error| input::cannot("write", &shown(path), &error);
    let mut file = File::options().write(true).create_new(true).open(path).map_err(failed)?;
    Ok(file.write_all(text.as_bytes()).map_err(failed)?)
}

#[cfg(unix)]
fn make_executable(path: &Path) -> Result<(), CommandFailure> {
    use std::os::unix::fs::PermissionsExt as _;
    let failed = |error| input::cannot("change", &shown(path), &error);
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(failed)?)
}

#[cfg(not(unix))]
fn make_executable(_: &Path) -> Result<(), CommandFailure> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn names_are_those_of_objects() {
        for text in ["a", "a-1", "team-label"] {
            assert!(name(text).is_ok(), "{text}");
        }
        for text in ["", "-a", "a-", "A", "a.b", "a/b", "../x", &"a".repeat(64)] {
            assert!(name(text).is_err(), "{text}");
        }
    }
}
