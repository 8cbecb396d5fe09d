//! `kiln edit add`

use kiln_diagnostic::Diagnostic;
use kiln_kustomize::edit::{
    Generated, Generator, KustomizationFile, Labelled, Listed, parse_pairs,
};

use super::{PatchArgs, failed, files, try_generator, words};
use crate::exit::CommandFailure;
use crate::ui::Ui;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Add {
    /// Add annotations to commonAnnotations
    Annotation {
        /// KEY:VALUE, the value optionally in double quotes
        #[arg(required = true, value_name = "KEY:VALUE")]
        pairs: Vec<String>,
        /// Replace an existing value
        #[arg(short, long)]
        force: bool,
    },
    /// Add directories to resources
    Base {
        /// Directories, separated by commas
        #[arg(value_name = "DIR,DIR")]
        directories: String,
    },
    /// Add options to buildMetadata
    Buildmetadata {
        /// originAnnotations, transformerAnnotations, managedByLabel, separated by commas
        #[arg(value_name = "OPTION,OPTION")]
        options: String,
    },
    /// Add directories to components
    Component {
        /// Paths or patterns
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<String>,
    },
    /// Add a ConfigMap to configMapGenerator, or entries to an existing one
    Configmap(GeneratedArgs),
    /// Add files to configurations
    Configuration {
        /// Paths or patterns
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<String>,
    },
    /// Add files to generators
    Generator {
        /// Paths or patterns
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<String>,
    },
    /// Add labels to commonLabels, or to labels
    Label {
        /// KEY:VALUE, the value optionally in double quotes
        #[arg(required = true, value_name = "KEY:VALUE")]
        pairs: Vec<String>,
        /// Replace an existing value
        #[arg(short, long)]
        force: bool,
        /// Leave selectors alone: add to labels
        #[arg(long)]
        without_selector: bool,
        /// Label templates as well
        #[arg(long, requires = "without_selector")]
        include_templates: bool,
    },
    /// Add a patch to patches
    Patch(PatchArgs),
    /// Add files, directories or repositories to resources
    Resource {
        /// Paths, patterns or addresses
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<String>,
        /// Add them without checking that they exist
        #[arg(long)]
        no_verify: bool,
    },
    /// Add a Secret to secretGenerator, or entries to an existing one
    Secret {
        #[command(flatten)]
        generated: GeneratedArgs,
        /// Type of the Secret
        #[arg(long = "type", default_value = "Opaque")]
        secret_type: String,
    },
    /// Add files to transformers
    Transformer {
        /// Paths or patterns
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<String>,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct GeneratedArgs {
    /// Name of the object
    name: String,
    /// File, optionally with its key: [KEY=]PATH
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    from_file: Vec<String>,
    /// Key and value
    #[arg(long, value_name = "KEY=VALUE")]
    from_literal: Vec<String>,
    /// File with KEY=VALUE lines
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    from_env_file: String,
    /// How to treat an existing object of that name: create, merge or replace
    #[arg(long, default_value = "", hide_default_value = true)]
    behavior: String,
    /// Namespace of the object
    #[arg(long, default_value = "", hide_default_value = true)]
    namespace: String,
    /// Keep the name without a hash suffix
    #[arg(long = "disableNameSuffixHash", alias = "disable-name-suffix-hash")]
    disable_name_suffix_hash: bool,
}

pub(super) fn run(ui: &Ui, add: &Add, file: &mut KustomizationFile) -> Result<(), CommandFailure> {
    match add {
        Add::Annotation { pairs, force } => {
            let pairs = parse_pairs(pairs, Labelled::Annotation).map_err(failed)?;
            file.add_pairs(Labelled::Annotation, &pairs, *force).map_err(failed)
        }
        Add::Base { directories } => {
            let directories = words(directories);
            for directory in &directories {
                if !std::path::Path::new(directory).exists() {
                    return Err(Diagnostic::error(format!("{directory} does not exist")).into());
                }
            }
            file.add_bases(&directories).map_err(failed)
        }
        Add::Buildmetadata { options } => file.add_build_metadata(&words(options)).map_err(failed),
        Add::Component { paths } => {
            file.add_paths(Listed::Component, &files::expand_or_directories(paths)?);
            Ok(())
        }
        Add::Configmap(args) => generated(ui, Generator::ConfigMap, args, "", file),
        Add::Configuration { paths } => listed(ui, Listed::Configuration, paths, file),
        Add::Generator { paths } => listed(ui, Listed::Generator, paths, file),
        Add::Label { pairs, force, without_selector, include_templates } => {
            let pairs = parse_pairs(pairs, Labelled::Label).map_err(failed)?;
            if *without_selector {
                file.add_plain_labels(&pairs, *force, *include_templates)
            } else {
                file.add_pairs(Labelled::Label, &pairs, *force)
            }
            .map_err(failed)
        }
        Add::Patch(patch) => file.add_patch(&patch.entry()).map_err(failed),
        Add::Resource { paths, no_verify } => {
            let paths =
                if *no_verify { paths.clone() } else { files::expand_or_directories(paths)? };
            file.add_paths(Listed::Resource, &paths);
            Ok(())
        }
        Add::Secret { generated: args, secret_type } => {
            generated(ui, Generator::Secret, args, secret_type, file)
        }
        Add::Transformer { paths } => listed(ui, Listed::Transformer, paths, file),
    }
}

fn listed(
    ui: &Ui,
    listed: Listed,
    patterns: &[String],
    file: &mut KustomizationFile,
) -> Result<(), CommandFailure> {
    let paths = files::expand(patterns, |pattern| Ok(no_match(ui, pattern)))?;
    file.add_paths(listed, &paths);
    Ok(())
}

fn no_match(ui: &Ui, pattern: &str) -> Option<String> {
    ui.problem(&Diagnostic::warning(format!("{pattern} has no match")));
    None
}

fn generated(
    ui: &Ui,
    which: Generator,
    args: &GeneratedArgs,
    secret_type: &str,
    file: &mut KustomizationFile,
) -> Result<(), CommandFailure> {
    let mut sources = Vec::new();
    for source in &args.from_file {
        let (key, pattern) = match source.split_once('=') {
            Some((key, pattern)) => (Some(key), pattern.to_owned()),
            None => (None, source.clone()),
        };
        let found = files::expand(&[pattern], |pattern| Ok(no_match(ui, pattern)))?;
        match (key, found.as_slice()) {
            (None, _) => sources.extend(found),
            (Some(key), [one]) => sources.push(format!("{key}={one}")),
            (Some(_), several) => {
                return Err(Diagnostic::error(format!(
                    "'pattern '{source}' catches files [{}], should catch only one",
                    several.join(" ")
                ))
                .into());
            }
        }
    }
    let new = Generated {
        name: args.name.clone(),
        namespace: args.namespace.clone(),
        literals: args.from_literal.clone(),
        files: sources,
        env_file: args.from_env_file.clone(),
        behavior: args.behavior.clone(),
        secret_type: secret_type.to_owned(),
        disable_name_suffix_hash: args.disable_name_suffix_hash,
    };
    let entry = file.add_generated(which, &new).map_err(failed)?;
    try_generator(which, &entry, file)
}
