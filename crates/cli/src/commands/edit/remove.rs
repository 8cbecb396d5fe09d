//! `kiln edit remove`

use kiln_kustomize::edit::{Generator, KustomizationFile, Labelled, Listed};

use super::{PatchArgs, failed, words};
use crate::exit::CommandFailure;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Remove {
    /// Remove annotations from commonAnnotations
    Annotation(Keys),
    /// Remove options from buildMetadata
    Buildmetadata {
        /// originAnnotations, transformerAnnotations, managedByLabel, separated by commas
        #[arg(value_name = "OPTION,OPTION")]
        options: String,
    },
    /// Remove directories from components
    Component {
        /// Paths or patterns
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<String>,
    },
    /// Remove ConfigMaps from configMapGenerator
    Configmap(RemovedNames),
    /// Remove labels from commonLabels
    Label(Keys),
    /// Remove a patch; everything about it must be given
    Patch(PatchArgs),
    /// Remove files and directories from resources
    Resource {
        /// Paths or patterns
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<String>,
    },
    /// Remove Secrets from secretGenerator
    Secret(RemovedNames),
    /// Remove files from transformers
    Transformer {
        /// Paths or patterns
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<String>,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct Keys {
    /// Keys, separated by commas
    #[arg(value_name = "KEY,KEY")]
    keys: String,
    /// Ignore missing keys
    #[arg(short, long)]
    ignore_non_existence: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct RemovedNames {
    /// Names, separated by commas
    #[arg(value_name = "NAME,NAME")]
    names: String,
    /// Namespace of the objects
    #[arg(long, default_value = "", hide_default_value = true)]
    namespace: String,
}

pub(super) fn run(remove: &Remove, file: &mut KustomizationFile) -> Result<(), CommandFailure> {
    let keys = |file: &mut KustomizationFile, which, args: &Keys| {
        file.remove_pairs(which, &words(&args.keys), args.ignore_non_existence)
    };
    let names = |file: &mut KustomizationFile, which, args: &RemovedNames| {
        file.remove_generated(which, &words(&args.names), &args.namespace)
    };
    match remove {
        Remove::Annotation(args) => keys(file, Labelled::Annotation, args),
        Remove::Buildmetadata { options } => file.remove_build_metadata(&words(options)),
        Remove::Component { paths } => file.remove_paths(Listed::Component, paths),
        Remove::Configmap(args) => names(file, Generator::ConfigMap, args),
        Remove::Label(args) => keys(file, Labelled::Label, args),
        Remove::Patch(patch) => file.remove_patch(&patch.entry()),
        Remove::Resource { paths } => file.remove_paths(Listed::Resource, paths),
        Remove::Secret(args) => names(file, Generator::Secret, args),
        Remove::Transformer { paths } => file.remove_paths(Listed::Transformer, paths),
    }
    .map_err(failed)
}
