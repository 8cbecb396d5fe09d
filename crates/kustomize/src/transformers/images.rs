//! Names, tags and digests of images.

use kiln_text::Regex;
use kiln_value::{Path, Value};

use super::Transform;
use crate::build::budget::Size;
use crate::build::session::Session;
use crate::error::{Error, Result};
use crate::fields::field_spec::{FieldSpec, Specs};
use crate::load::decode::record;
use crate::load::kustomization::Image;
use crate::model::output::wrong_node_kind;
use crate::model::resource::{Resource, scalar_text};
use crate::model::resources::Resources;
use crate::release::ReleaseBehavior;

record! {
    /// The configuration of an ImageTagTransformer.
    ImageConfig = "ImageTagTransformer" {
        image_tag: Image = "imageTag",
        field_specs: Specs = "fieldSpecs",
    }
}

/// Rewrites images. All entries of a kustomization are one step, so that objects are walked once.
pub(crate) struct Images {
    entries: Vec<ImageEntry>,
    specs: Specs,
}

struct ImageEntry {
    image: Image,
    /// `None`: the name is not a regular expression, and so fits no image.
    pattern: Option<Regex>,
}

/// Which digests an image may have to be matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DigestAlgorithms {
    Sha256,
    /// Those of the grammar of OCI: `sha512`, `multihash+base58`.
    Any,
}

impl DigestAlgorithms {
    pub(crate) fn of(behavior: ReleaseBehavior) -> Self {
        if behavior.any_digest_algorithm { DigestAlgorithms::Any } else { DigestAlgorithms::Sha256 }
    }

    fn pattern(self) -> &'static str {
        match self {
            DigestAlgorithms::Sha256 => "sha256",
            DigestAlgorithms::Any => "[a-zA-Z0-9]+([.+_-][a-zA-Z0-9]+)*",
        }
    }
}

impl Images {
    pub(crate) fn new(images: &[Image], specs: Specs, digests: DigestAlgorithms) -> Self {
        let entry = |image: &Image| ImageEntry {
            image: image.clone(),
            // kustomize 5.8.1 crashes on a name that is not a regular expression; here it matches nothing in any release.
            pattern: Regex::new(&format!(
                "^{}(:[a-zA-Z0-9_.{{}}-]*)?(@{}:[a-zA-Z0-9_.{{}}-]*)?$",
                image.name,
                digests.pattern()
            ))
            .ok(),
        };
        Images { entries: images.iter().map(entry).collect(), specs }
    }

    fn apply(&self, resource: &mut Resource, session: &Session<'_>) -> Result<()> {
        if resource.kind() == "CustomResourceDefinition" {
            return Ok(());
        }
        let mut fields = Vec::new();
        let mut null_lists = Vec::new();
        find_in_containers(resource.object(), &mut Path::root(), false, &mut fields)?;
        let id = resource.id().clone();
        for spec in self.specs.iter().filter(|spec| spec.fits(&id.gvk)) {
            find_by_spec(spec, resource, &mut fields, &mut null_lists)?;
        }
        for path in null_lists {
            if let Some(list) = resource.object_mut().get_path_mut(&path) {
                *list = Value::list();
            }
        }
        for field in fields {
            let Some(old) = resource.object().get_path(&field.path).map(scalar_text) else {
                continue;
            };
            let mut image = old.to_string();
            for entry in &self.entries {
                for _ in 0..field.visits {
                    if let Some(new) = entry.rewrite(&image) {
                        image = new;
                    }
                }
            }
            if image != old
                && let Some(place) = resource.object_mut().get_path_mut(&field.path)
            {
                session.budget.pay(Size::of_text(&image))?;
                *place = image.into();
            }
        }
        Ok(())
    }
}

/// A field with an image, and how often kustomize comes by with each entry.
struct ImageField {
    path: Path,
    visits: usize,
}

/// The fields `image` in the elements of any list `containers` or `initContainers`.
fn find_in_containers(
    value: &Value,
    path: &mut Path,
    in_containers: bool,
    fields: &mut Vec<ImageField>,
) -> Result<()> {
    match value {
        Value::List(list) => {
            for (at, element) in list.iter().enumerate() {
                path.push(at);
                find_in_containers(element, path, false, fields)?;
                if in_containers {
                    match (element, element.get("image")) {
                        (Value::Map(_), Some(image @ (Value::List(_) | Value::Map(_)))) => {
                            return Err(wrong_node_kind("ScalarNode", image));
                        }
                        (Value::Map(_), Some(Value::Null) | None) => {}
                        (Value::Map(_), Some(_)) => {
                            fields.push(ImageField { path: path.join("image"), visits: 1 });
                        }
                        (Value::Null, _) => {}
                        (other, _) => return Err(wrong_node_kind("MappingNode", other)),
                    }
                }
                path.pop();
            }
        }
        Value::Map(map) => {
            for (key, inner) in map {
                path.push(key);
                let containers = matches!(key.as_str(), "containers" | "initContainers");
                find_in_containers(inner, path, containers, fields)?;
                path.pop();
            }
        }
        _ => {}
    }
    Ok(())
}

fn find_by_spec(
    spec: &FieldSpec,
    resource: &Resource,
    fields: &mut Vec<ImageField>,
    null_lists: &mut Vec<Path>,
) -> Result<()> {
    let parts = crate::fields::field_spec::split_path(&spec.path, '/');
    let mut walk = Walk { path: Path::root(), found: Vec::new(), null_lists };
    walk.enter(resource.object(), &parts).map_err(|error| {
        error.context(format_args!("considering field '{}' of object {}", spec.path, resource.id()))
    })?;
    for path in walk.found {
        match fields.iter_mut().find(|field| field.path == path) {
            Some(field) => field.visits += 1,
            None => fields.push(ImageField { path, visits: 1 }),
        }
    }
    Ok(())
}

struct Walk<'w> {
    path: Path,
    found: Vec<Path>,
    /// Lists that are null: kustomize makes empty lists of them in passing.
    null_lists: &'w mut Vec<Path>,
}

impl Walk<'_> {
    fn enter(&mut self, value: &Value, parts: &[String]) -> Result<()> {
        let Some((part, rest)) = parts.split_first() else {
            match value {
                Value::Null => {}
                Value::List(_) | Value::Map(_) => return Err(wrong_node_kind("ScalarNode", value)),
                _ => self.found.push(self.path.clone()),
            }
            return Ok(());
        };
        match value {
            Value::Null => Ok(()),
            Value::List(list) => {
                for (at, element) in list.iter().enumerate() {
                    self.path.push(at);
                    self.enter(element, parts)?;
                    self.path.pop();
                }
                Ok(())
            }
            Value::Map(map) => {
                let (name, is_list) =
                    part.strip_suffix("[]").map_or((part.as_str(), false), |name| (name, true));
                if let Some(inner) = map.get(name) {
                    self.path.push(name);
                    if is_list && inner.is_null() {
                        self.null_lists.push(self.path.clone());
                    }
                    self.enter(inner, rest)?;
                    self.path.pop();
                }
                Ok(())
            }
            _ => Err(Error::new("expected sequence or mapping node")),
        }
    }
}

impl ImageEntry {
    /// The image as this entry wants it, if it means this image.
    fn rewrite(&self, image: &str) -> Option<String> {
        if !self.pattern.as_ref()?.is_match(image) {
            return None;
        }
        let Image { new_name, new_tag, digest: new_digest, tag_suffix, .. } = &self.image;
        let (name, tag, digest) = split(image);
        let name = if new_name.is_empty() { name } else { new_name };
        let (tag, digest) = match (new_tag.is_empty(), new_digest.is_empty(), tag_suffix.is_empty())
        {
            (false, _, _) => (new_tag.clone(), new_digest.as_str()),
            (true, false, _) => (String::new(), new_digest.as_str()),
            (true, true, false) => (format!("{tag}{tag_suffix}"), ""),
            (true, true, true) => (tag.to_owned(), digest),
        };
        let mut rewritten = name.to_owned();
        if !tag.is_empty() {
            rewritten.push(':');
            rewritten.push_str(&tag);
        }
        if !digest.is_empty() {
            rewritten.push('@');
            rewritten.push_str(digest);
        }
        Some(rewritten)
    }
}

/// Name, tag and digest; a colon before the first slash belongs to a port.
fn split(image: &str) -> (&str, &str, &str) {
    let after_host = image.find('/').unwrap_or(0);
    let find = |c: char| image[after_host..].find(c).map(|at| after_host + at);
    match (find(':'), find('@')) {
        (None, None) => (image, "", ""),
        (Some(colon), Some(at)) if colon < at => {
            (&image[..colon], &image[colon + 1..at], &image[at + 1..])
        }
        (_, Some(at)) => (&image[..at], "", &image[at + 1..]),
        (Some(colon), None) => (&image[..colon], &image[colon + 1..], ""),
    }
}

impl Transform for Images {
    fn kind(&self) -> &str {
        "ImageTagTransformer"
    }

    fn repeats(&self) -> usize {
        self.entries.len()
    }

    fn transform(&self, resources: &mut Resources, session: &Session<'_>) -> Result<()> {
        resources.iter_mut().try_for_each(|resource| self.apply(resource, session))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_rewritten_part_by_part() {
        let image = |name: &str, new_name: &str, new_tag: &str, digest: &str, tag_suffix: &str| {
            let text = str::to_owned;
            let image = Image {
                name: text(name),
                new_name: text(new_name),
                new_tag: text(new_tag),
                digest: text(digest),
                tag_suffix: text(tag_suffix),
            };
            Images::new(&[image], Vec::new(), DigestAlgorithms::Any)
        };
        let cases = [
            (image("nginx", "", "2", "", ""), "nginx:1@sha256:a", Some("nginx:2")),
            (image("nginx", "", "", "sha256:b", ""), "nginx:1", Some("nginx@sha256:b")),
            (image("nginx", "", "2", "sha256:b", ""), "nginx", Some("nginx:2@sha256:b")),
            (image("nginx", "r/n", "", "", ""), "nginx:1", Some("r/n:1")),
            (image("nginx", "", "", "", "-x"), "nginx:1@sha256:a", Some("nginx:1-x")),
            (image("h:5000/n", "", "2", "", ""), "h:5000/n:1", Some("h:5000/n:2")),
            (image("nginx", "", "2", "", ""), "docker.io/nginx:1", None),
            (image(".*", "", "2", "", ""), "a/b", Some("a/b:2")),
            (image("a(", "", "2", "", ""), "a(", None),
            (image("nginx", "", "2", "", ""), "nginx@sha512:a", Some("nginx:2")),
            (image("nginx", "", "2", "", ""), "nginx@multihash+base58:a", Some("nginx:2")),
            (image("nginx", "", "2", "", ""), "nginx@+:a", None),
        ];
        for (images, old, new) in cases {
            assert_eq!(images.entries[0].rewrite(old).as_deref(), new, "{old}");
        }
    }
}
