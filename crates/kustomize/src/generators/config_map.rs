//! ConfigMaps and Secrets from literals and files.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kiln_value::{Map, Value};

use super::key_values;
use crate::build::session::KustomizationSite;
use crate::error::{Error, Result};
use crate::load::kustomization::{GeneratorArgs, GeneratorOptions};
use crate::model::resource::{Behavior, Resource};

/// Which of the two is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GeneratedKind {
    ConfigMap,
    Secret,
}

impl GeneratedKind {
    /// The name of the built-in generator.
    pub(crate) fn generator(self) -> &'static str {
        match self {
            GeneratedKind::ConfigMap => "ConfigMapGenerator",
            GeneratedKind::Secret => "SecretGenerator",
        }
    }
}

/// Makes the object that an entry describes.
///
/// # Errors
/// When it has no name, or a source is wrong.
pub(crate) fn generate(
    kind: GeneratedKind,
    args: &GeneratorArgs,
    global: Option<&GeneratorOptions>,
    site: &KustomizationSite<'_, '_>,
) -> Result<Resource> {
    if args.name.is_empty() {
        return Err(Error::new("a configmap must have a name"));
    }
    let options = GeneratorOptions::merged(args.options.as_ref(), global);
    let mut metadata = Map::new();
    metadata.insert("name", args.name.as_str());
    if !args.namespace.is_empty() {
        metadata.insert("namespace", args.namespace.as_str());
    }
    for (field, texts) in [("labels", &options.labels), ("annotations", &options.annotations)] {
        if !texts.is_empty() {
            let texts: Map = texts.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            metadata.insert(field, texts);
        }
    }
    let mut object = Map::new();
    object.insert("apiVersion", "v1");
    object.insert("kind", if kind == GeneratedKind::ConfigMap { "ConfigMap" } else { "Secret" });
    object.insert("metadata", metadata);
    let pairs = key_values::load(args, site)?;
    match kind {
        GeneratedKind::ConfigMap => {
            for (key, bytes) in pairs {
                let (field, text) = match String::from_utf8(bytes) {
                    Ok(text) => ("data", text),
                    Err(error) => ("binaryData", base64_lines(error.as_bytes())),
                };
                if let Value::Map(data) = object.get_or_insert_with(field, Value::map) {
                    data.insert(key, text);
                }
            }
        }
        GeneratedKind::Secret => {
            let kind = if args.secret_type.is_empty() { "Opaque" } else { &args.secret_type };
            object.insert("type", kind);
            let data: Map =
                pairs.into_iter().map(|(key, bytes)| (key, base64_lines(&bytes))).collect();
            object.insert("data", data);
        }
    }
    if options.immutable {
        object.insert("immutable", true);
    }
    let mut resource = Resource::new(Value::Map(object), &site.session.scopes);
    resource.needs_hash = !options.disable_name_suffix_hash;
    resource.behavior = Behavior::parse(&args.behavior);
    Ok(resource)
}

/// Base64; from 70 characters on in lines, each with a line break after it.
pub(crate) fn base64_lines(bytes: &[u8]) -> String {
    const LINE: usize = 70;
    let text = STANDARD.encode(bytes);
    if text.len() < LINE {
        return text;
    }
    let mut lines = String::with_capacity(text.len() + text.len() / LINE + 1);
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at(LINE.min(rest.len()));
        lines.push_str(line);
        lines.push('\n');
        rest = more;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_base64_is_broken_into_lines() {
        assert_eq!(base64_lines(b"abc"), "YWJj");
        let text = base64_lines(&[b'a'; 60]);
        let lengths: Vec<usize> = text.split_inclusive('\n').map(str::len).collect();
        assert_eq!(lengths, [71, 11]);
    }
}
