//! Images, replicas and patches: lists of small maps.

use kiln_value::{Map, Value};

use super::{KustomizationFile, key_in};
use crate::error::{Error, Result};
use crate::load::decode;
use crate::load::kustomization::{Patch, Selector};

/// An image and what it becomes. `*` keeps what the file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// The image as resources name it.
    pub name: String,
    pub new_name: String,
    pub new_tag: String,
    pub digest: String,
}

impl Image {
    /// Reads `NAME[=NEWNAME][:TAG][@DIGEST]`.
    ///
    /// # Errors
    /// When nothing but a name is there.
    pub fn parse(text: &str) -> Result<Self> {
        let (key, value) = text.split_once('=').unwrap_or(("", text));
        let (name, tag, digest) = split_image(value);
        if name == text {
            return Err(Error::new(format!("invalid format of image: {text}")).hint(
                "write NAME:TAG, NAME@DIGEST, NAME:TAG@DIGEST, or NAME=NEWNAME with any of these behind it",
            ));
        }
        let (name, new_name) =
            if text.contains('=') && !key.is_empty() { (key, name) } else { (name, "") };
        Ok(Image {
            name: name.to_owned(),
            new_name: new_name.to_owned(),
            new_tag: tag.to_owned(),
            digest: digest.to_owned(),
        })
    }
}

/// Name, tag and digest of an image; a colon before the first slash belongs to a host.
fn split_image(image: &str) -> (&str, &str, &str) {
    let start = image.find('/').unwrap_or(0);
    let at = |mark: char| image[start..].find(mark).map(|at| start + at);
    match (at(':'), at('@')) {
        (None, None) => (image, "", ""),
        (Some(colon), Some(digest)) if colon < digest => {
            (&image[..colon], &image[colon + 1..digest], &image[digest + 1..])
        }
        (_, Some(digest)) => (&image[..digest], "", &image[digest + 1..]),
        (Some(colon), None) => (&image[..colon], &image[colon + 1..], ""),
    }
}

/// How many replicas an object gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replicas {
    /// The object's name.
    pub name: String,
    /// How many.
    pub count: i64,
}

impl Replicas {
    /// Reads `NAME=COUNT`.
    ///
    /// # Errors
    /// When it is anything else.
    pub fn parse(text: &str) -> Result<Self> {
        text.split_once('=')
            .and_then(|(name, count)| {
                Some(Replicas { name: name.to_owned(), count: count.parse().ok()? })
            })
            .ok_or_else(|| {
                Error::new("invalid format of replica, use the following format: <name>=<count>")
                    .hint(format!("{text} does not have it, web=3 does"))
            })
    }
}

/// A patch and the objects it is for.
#[derive(Clone, Debug, Default)]
pub struct PatchEntry {
    /// The file with the patch.
    pub path: String,
    pub patch: String,
    /// The API group of objects.
    pub group: String,
    pub version: String,
    pub kind: String,
    pub name: String,
    pub namespace: String,
    pub annotation_selector: String,
    pub label_selector: String,
}

impl PatchEntry {
    fn target(&self) -> [(&'static str, &str); 7] {
        [
            ("annotationSelector", &self.annotation_selector),
            ("group", &self.group),
            ("kind", &self.kind),
            ("labelSelector", &self.label_selector),
            ("name", &self.name),
            ("namespace", &self.namespace),
            ("version", &self.version),
        ]
    }

    fn value(&self) -> Value {
        let mut entry = Map::new();
        for (key, text) in [("patch", &self.patch), ("path", &self.path)] {
            if !text.is_empty() {
                entry.insert(key, text.as_str());
            }
        }
        let target: Map = self.target().into_iter().filter(|(_, text)| !text.is_empty()).collect();
        if !target.is_empty() {
            entry.insert("target", target);
        }
        Value::Map(entry)
    }

    fn is(&self, entry: &Value) -> bool {
        let Ok(other) = decode::lenient::<Patch>(entry) else { return false };
        let same_target = match &other.target {
            None => self.target().iter().all(|(_, text)| text.is_empty()),
            Some(target) => {
                self.target().iter().any(|(_, text)| !text.is_empty()) && self.selects_as(target)
            }
        };
        other.path == self.path
            && other.patch == self.patch
            && same_target
            && other.options.is_none()
    }

    fn selects_as(&self, other: &Selector) -> bool {
        *other.group == *self.group
            && *other.version == *self.version
            && *other.kind == *self.kind
            && *other.name == *self.name
            && *other.namespace == *self.namespace
            && other.annotation_selector == self.annotation_selector
            && other.label_selector == self.label_selector
    }

    /// The words a user knows it by.
    fn shown(&self) -> &str {
        if self.path.is_empty() { &self.patch } else { &self.path }
    }

    fn check(&self) -> Result<()> {
        if !self.path.is_empty() && !self.patch.is_empty() {
            return Err(Error::new("patch and path can't be set at the same time"));
        }
        Ok(())
    }
}

impl KustomizationFile {
    /// Sets what images become.
    pub fn set_images(&mut self, images: &[Image]) {
        for image in images {
            self.set_named("images", &image.name, |entry| {
                for (key, new) in [
                    ("newName", &image.new_name),
                    ("newTag", &image.new_tag),
                    ("digest", &image.digest),
                ] {
                    let kept = entry.get(key).is_some_and(|old| old.as_str() != Some(""));
                    match new.as_str() {
                        "*" if kept => {}
                        "" | "*" => drop(entry.remove(key)),
                        new => drop(entry.insert(key, new)),
                    }
                }
                // kustomize: an image is replaced as a whole.
                entry.remove("tagSuffix");
            });
        }
    }

    /// Sets how many replicas objects get.
    pub fn set_replicas(&mut self, replicas: &[Replicas]) {
        for one in replicas {
            self.set_named("replicas", &one.name, |entry| {
                entry.insert("count", one.count);
            });
        }
    }

    /// Changes the entry with this name, or makes one: at its place by name if the list is sorted by
    /// name, otherwise at the end.
    fn set_named(&mut self, field: &str, name: &str, change: impl FnOnce(&mut Map)) {
        let list = self.list_mut(field);
        let is_named = |entry: &Value| name_of(entry) == name;
        let at = list.iter().position(is_named).unwrap_or_else(|| {
            let sorted = list.is_sorted_by(|a, b| name_of(a) <= name_of(b));
            let at = if sorted {
                list.partition_point(|entry| name_of(entry) < name)
            } else {
                list.len()
            };
            list.insert(at, Value::Map([("name", name)].into_iter().collect()));
            at
        });
        if let Some(entry) = list[at].as_map_mut() {
            change(entry);
        }
        let mut position = 0;
        list.retain(|entry| {
            position += 1;
            position <= at + 1 || name_of(entry) != name
        });
    }

    /// Adds a patch; one that is there already is skipped with a note.
    ///
    /// # Errors
    /// When both a file and a text are given, or neither.
    pub fn add_patch(&mut self, patch: &PatchEntry) -> Result<()> {
        patch.check()?;
        if patch.path.is_empty() && patch.patch.is_empty() {
            return Err(Error::new("must provide either patch or path"));
        }
        if self.list("patches").iter().any(|entry| patch.is(entry)) {
            self.notes.push(format!("patch {} already in kustomization file", patch.shown()));
        } else {
            self.list_mut("patches").push(patch.value());
        }
        Ok(())
    }

    /// Removes a patch; all parts must be the same.
    ///
    /// # Errors
    /// When both a file and a text are given.
    pub fn remove_patch(&mut self, patch: &PatchEntry) -> Result<()> {
        patch.check()?;
        if !self.list("patches").iter().any(|entry| patch.is(entry)) {
            self.notes.push(format!("patch {} doesn't exist in kustomization file", patch.shown()));
            return Ok(());
        }
        self.list_mut("patches").retain(|entry| !patch.is(entry));
        self.drop_if_empty("patches");
        Ok(())
    }
}

fn name_of(entry: &Value) -> &str {
    entry.get(&key_in(entry, "name")).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_taken_apart() {
        let cases = [
            ("a:1", ("a", "", "1", "")),
            ("a=b", ("a", "b", "", "")),
            ("a=b:1@sha256:x", ("a", "b", "1", "sha256:x")),
            ("a@sha256:x", ("a", "", "", "sha256:x")),
            ("h:5000/a:1", ("h:5000/a", "", "1", "")),
            ("a=h:5000/b", ("a", "h:5000/b", "", "")),
            ("a=*:2", ("a", "*", "2", "")),
        ];
        for (text, (name, new_name, new_tag, digest)) in cases {
            let image = Image::parse(text).unwrap();
            assert_eq!(
                (&*image.name, &*image.new_name, &*image.new_tag, &*image.digest),
                (name, new_name, new_tag, digest),
                "{text}"
            );
        }
        assert!(Image::parse("a").is_err());
        assert!(Replicas::parse("a=b").is_err());
        assert!(Replicas::parse("a").is_err());
    }
}
