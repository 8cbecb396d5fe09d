//! `kiln edit set`

use kiln_diagnostic::Diagnostic;
use kiln_kustomize::edit::{Generator, Image, KustomizationFile, Labelled, Replicas, parse_pairs};

use super::{failed, try_generator, words};
use crate::exit::CommandFailure;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Set {
    /// Set annotations in commonAnnotations
    Annotation {
        /// KEY:VALUE, the value optionally in double quotes
        #[arg(required = true, value_name = "KEY:VALUE")]
        pairs: Vec<String>,
    },
    /// Set the options of buildMetadata
    Buildmetadata {
        /// originAnnotations, transformerAnnotations, managedByLabel, separated by commas
        #[arg(value_name = "OPTION,OPTION")]
        options: String,
    },
    /// Set values of a ConfigMap in configMapGenerator
    Configmap(GeneratedArgs),
    /// Set the new name, tag or digest of images
    ///
    /// An asterisk as name, tag or digest keeps what the file says.
    Image {
        /// NAME[=NEWNAME][:TAG][@DIGEST]
        #[arg(required = true, value_name = "IMAGE")]
        images: Vec<String>,
    },
    /// Set labels in commonLabels
    Label {
        /// KEY:VALUE, the value optionally in double quotes
        #[arg(required = true, value_name = "KEY:VALUE")]
        pairs: Vec<String>,
    },
    /// Set namePrefix
    Nameprefix {
        /// Prefix of names
        #[arg(value_name = "PREFIX", allow_hyphen_values = true)]
        text: String,
    },
    /// Set namespace
    Namespace {
        /// Namespace of all resources
        #[arg(value_name = "NAMESPACE")]
        text: String,
    },
    /// Set nameSuffix
    Namesuffix {
        /// Suffix of names
        #[arg(value_name = "SUFFIX", allow_hyphen_values = true)]
        text: String,
    },
    /// Set replicas
    Replicas {
        /// NAME=COUNT
        #[arg(required = true, value_name = "NAME=COUNT")]
        replicas: Vec<String>,
    },
    /// Set values of a Secret in secretGenerator
    Secret(GeneratedArgs),
}

#[derive(Debug, clap::Args)]
pub(super) struct GeneratedArgs {
    /// Name of the object
    name: String,
    /// Existing key and its new value
    #[arg(long, value_name = "KEY=VALUE")]
    from_literal: Vec<String>,
    /// Namespace of the object
    #[arg(long, default_value = "", hide_default_value = true)]
    namespace: String,
    /// New namespace of the object
    #[arg(long, default_value = "", hide_default_value = true)]
    new_namespace: String,
}

pub(super) fn run(set: &Set, file: &mut KustomizationFile) -> Result<(), CommandFailure> {
    match set {
        Set::Annotation { pairs } => {
            let pairs = parse_pairs(pairs, Labelled::Annotation).map_err(failed)?;
            if let Some((key, _)) = pairs.iter().find(|(key, _)| !is_annotation_key(key)) {
                return Err(Diagnostic::error(format!("invalid annotation key: {key}"))
                    .hint("a key is [DOMAIN/]NAME, the name up to 63 letters, digits, '-', '_' and '.'")
                    .into());
            }
            file.add_pairs(Labelled::Annotation, &pairs, true).map_err(failed)?;
        }
        Set::Buildmetadata { options } => {
            file.set_build_metadata(&words(options)).map_err(failed)?;
        }
        Set::Configmap(args) => generated(Generator::ConfigMap, args, file)?,
        Set::Image { images } => {
            let images: Result<Vec<Image>, _> = images.iter().map(|i| Image::parse(i)).collect();
            file.set_images(&images.map_err(failed)?);
        }
        Set::Label { pairs } => {
            let pairs = parse_pairs(pairs, Labelled::Label).map_err(failed)?;
            file.add_pairs(Labelled::Label, &pairs, true).map_err(failed)?;
        }
        Set::Nameprefix { text } => file.set_text("namePrefix", text),
        Set::Namespace { text } => file.set_text("namespace", text),
        Set::Namesuffix { text } => file.set_text("nameSuffix", text),
        Set::Replicas { replicas } => {
            let replicas: Result<Vec<Replicas>, _> =
                replicas.iter().map(|r| Replicas::parse(r)).collect();
            file.set_replicas(&replicas.map_err(failed)?);
        }
        Set::Secret(args) => generated(Generator::Secret, args, file)?,
    }
    Ok(())
}

fn generated(
    which: Generator,
    args: &GeneratedArgs,
    file: &mut KustomizationFile,
) -> Result<(), CommandFailure> {
    let (literals, new) = (&args.from_literal, &args.new_namespace);
    let entry =
        file.set_generated(which, &args.name, &args.namespace, literals, new).map_err(failed)?;
    try_generator(which, &entry, file)
}

/// kustomize checks the keys of annotations here, and nowhere else.
fn is_annotation_key(key: &str) -> bool {
    let inside = |text: &str, more: &str| {
        text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
    };
    let ends = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.ends_with(|c: char| c.is_ascii_alphanumeric())
    };
    let (domain, name) = match key.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, key),
    };
    let domain_fits = domain.is_none_or(|domain| {
        domain.len() <= 253
            && domain.starts_with(|c: char| c.is_ascii_alphabetic())
            && ends(domain)
            && inside(domain, "-.")
    });
    domain_fits && name.len() <= 63 && ends(name) && inside(name, "-_.")
}
