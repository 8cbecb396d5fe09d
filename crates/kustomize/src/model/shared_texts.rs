//! Texts that kustomize holds once and shows in several places.
//!
//! Its steps for labels and annotations put one and the same node wherever the key was missing: in the
//! metadata, in selectors, in templates. A change of one of these places in a later layer changes all
//! of them. Selectors cannot be changed in a cluster, so a build that did otherwise would not apply to
//! what kustomize deployed; here the places are remembered, brought together again after every change,
//! and the user gets a warning.

use kiln_diagnostic::Diagnostic;
use kiln_value::{Path, Segment, Value};

use crate::model::resource::Resource;

/// Places of an object with one value.
#[derive(Clone, Debug)]
pub(crate) struct SharedText {
    value: Value,
    places: Vec<Path>,
}

/// Places that changed although no step named them.
#[derive(Clone, Debug)]
pub(crate) struct Followed {
    /// What was changed.
    leader: Path,
    /// What changed with it.
    places: Vec<Path>,
    value: Value,
}

impl Followed {
    /// What to tell about it.
    pub(crate) fn warning(&self, resource: &Resource) -> Diagnostic {
        let places: Vec<String> = self.places.iter().map(Path::to_string).collect();
        let (places, them) = match places.as_slice() {
            [one] => (one.clone(), "it"),
            several => (several.join(", "), "them"),
        };
        Diagnostic::warning(format!(
            "{places} of {} became {} together with {}",
            resource.id(),
            kiln_yaml::emit(&self.value).trim_end(),
            self.leader
        ))
        .hint(format!(
            "one step of a base set {them} all, and kustomize keeps such fields together; a selector of an object that is in a cluster cannot be changed"
        ))
    }
}

impl Resource {
    /// Remembers that a step put one value into several places.
    pub(crate) fn share(&mut self, value: Value, places: Vec<Path>) {
        if places.len() > 1 {
            self.shared.push(SharedText { value, places });
        }
    }

    /// Gives all places of a shared value the value that one of them got.
    pub(crate) fn settle_shared(&mut self) {
        if self.shared.is_empty() {
            return;
        }
        let mut groups = std::mem::take(&mut self.shared);
        for group in &mut groups {
            let is_scalar = |value: &&Value| !matches!(value, Value::List(_) | Value::Map(_));
            group
                .places
                .retain(|place| self.object().get_path(place).as_ref().is_some_and(is_scalar));
            let changed = |place: &&Path| self.object().get_path(*place) != Some(&group.value);
            // kustomize walks fields in the order of their names; the last change stays.
            let Some(leader) = group.places.iter().filter(changed).max().cloned() else { continue };
            let value = self.object().get_path(&leader).cloned().unwrap_or_default();
            let mut followers = Vec::new();
            for place in &group.places {
                let Some(field) = self.object_mut().get_path_mut(place) else { continue };
                if *field == group.value {
                    followers.push(place.clone());
                }
                field.clone_from(&value);
            }
            if !followers.is_empty() {
                let value = value.clone();
                self.followed.push(Followed { leader, places: followers, value });
            }
            group.value = value;
        }
        groups.retain(|group| group.places.len() > 1);
        self.shared = groups;
    }

    /// The places below this one stand for themselves from now on.
    pub(crate) fn unshare_below(&mut self, prefix: &[Segment]) {
        for group in &mut self.shared {
            group.places.retain(|place| !place.segments().starts_with(prefix));
        }
    }

    /// What kustomize makes anew when it writes its memory: the annotations of the object.
    pub(crate) fn unshare_annotations(&mut self) {
        if !self.shared.is_empty() {
            self.unshare_below(&["metadata".into(), "annotations".into()]);
        }
    }

    /// The places that a patch replaces, or takes away with what is around them, stand for themselves.
    pub(crate) fn unshare_replaced(&mut self, patch: &Value) {
        for group in &mut self.shared {
            group.places.retain(|place| {
                let mut part = patch;
                for segment in place {
                    let directive = part.get("$patch").and_then(Value::as_str);
                    if matches!(directive, Some("replace" | "delete")) {
                        return false;
                    }
                    match part.step(segment) {
                        Some(inner) => part = inner,
                        None => return true,
                    }
                }
                true
            });
        }
    }
}
