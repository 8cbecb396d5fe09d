//! ValueAddTransformer: puts one value into fields, or into one part of a file path in them.

use kiln_value::Value;

use super::Transform;
use super::namespace::Namespace;
use crate::build::budget::{self, Budget, Size};
use crate::build::session::Session;
use crate::error::{Error, Result};
use crate::load::decode::record;
use crate::load::kustomization::Selector;
use crate::model::output::wrong_node_kind;
use crate::model::resource::scalar_text;
use crate::model::resources::Resources;
use crate::model::selector::Selection;

record! {
    /// The configuration; the value defaults to the name of the kustomization's directory.
    ValueAddConfig = "ValueAddTransformer" {
        value: String = "value",
        targets: Vec<Target> = "targets",
        target_file_path: String = "targetFilePath",
    }
}

record! {
    TargetFile = "ValueAddTargets" {
        targets: Vec<Target> = "targets",
    }
}

record! {
    Target = "Target" {
        selector: Option<Selector> = "selector",
        field_path: String = "fieldPath",
        file_path_position: i64 = "filePathPosition",
    }
}

pub(crate) struct ValueAdd {
    value: String,
    targets: Vec<(Option<Selection>, Target)>,
}

impl ValueAdd {
    /// Checks the configuration; `root` is the directory of the kustomization.
    pub(crate) fn configured(config: ValueAddConfig, root: &str) -> Result<Self> {
        let mut value = config.value.trim().to_owned();
        if value.is_empty() {
            crate::load::paths::base(root).clone_into(&mut value);
        }
        if config.targets.is_empty() {
            return Err(Error::new("must specify at least one target"));
        }
        let mut targets = Vec::new();
        for target in config.targets {
            if target.field_path.is_empty() {
                return Err(Error::new("fieldPath cannot be empty"));
            }
            if target.file_path_position < 0 {
                return Err(Error::new(format!(
                    "value of FilePathPosition ({}) cannot be negative",
                    target.file_path_position
                )));
            }
            let selection = target.selector.as_ref().map(Selection::compile).transpose()?;
            targets.push((selection, target));
        }
        Ok(ValueAdd { value, targets })
    }

    fn set(&self, object: &mut Value, target: &Target, budget: &Budget) -> Result<()> {
        let parts = escaped_parts(&target.field_path);
        budget::check_path(parts.len(), 0)?;
        budget.pay(Size { nodes: parts.len(), ..Size::of_text(&self.value) })?;
        let mut place = object;
        for part in parts.iter().filter(|part| !part.trim().is_empty()) {
            place = step(place, part.trim())?;
        }
        if matches!(place, Value::List(_) | Value::Map(_)) {
            return Err(wrong_node_kind("ScalarNode", place));
        }
        *place = match target.file_path_position {
            0 => self.value.as_str().into(),
            position => {
                insert_path_part(&scalar_text(place), position as usize - 1, &self.value).into()
            }
        };
        Ok(())
    }
}

/// Splits at slashes; a backslash keeps the slash after it.
fn escaped_parts(path: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for part in path.split('/') {
        match parts.last_mut() {
            Some(last) if last.ends_with('\\') => {
                last.pop();
                last.push('/');
                last.push_str(part);
            }
            _ => parts.push(part.to_owned()),
        }
    }
    parts
}

fn step<'v>(value: &'v mut Value, part: &str) -> Result<&'v mut Value> {
    if value.is_null() {
        *value = Value::map();
    }
    match value {
        Value::Map(map) => Ok(map.get_or_insert_with(part, || Value::Null)),
        Value::List(list) => {
            let length = list.len();
            let at: usize = part
                .parse()
                .map_err(|_| Error::new(format!("{part:?} is not an index into a list")))?;
            list.make_mut().get_mut(at).ok_or_else(|| {
                Error::new(format!("index {at} specified but only {length} elements found"))
            })
        }
        other => Err(wrong_node_kind("MappingNode", other)),
    }
}

/// Puts a part into a file path; a position past the end appends. An absolute path stays one.
fn insert_path_part(path: &str, position: usize, part: &str) -> String {
    let absolute = path.starts_with('/');
    let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    parts.insert(position.min(parts.len()), part);
    format!("{}{}", if absolute { "/" } else { "" }, parts.join("/"))
}

impl Transform for ValueAdd {
    fn kind(&self) -> &str {
        "ValueAddTransformer"
    }

    fn transform(&self, resources: &mut Resources, session: &Session<'_>) -> Result<()> {
        for (selection, target) in &self.targets {
            let slots = match selection {
                Some(selection) => selection.select(resources),
                None => resources.slots(),
            };
            let mover = (target.field_path == "metadata/namespace")
                .then(|| Namespace::new(&self.value, Vec::new()));
            for slot in slots {
                resources.update(slot, &session.scopes, |resource| match &mover {
                    Some(mover) => mover.apply(resource, session),
                    None => self.set(resource.object_mut(), target, &session.budget),
                })?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_goes_into_a_path_at_its_position() {
        for (path, position, new) in [
            ("", 0, "P"),
            ("/", 3, "/P"),
            ("pie", 0, "P/pie"),
            ("/pie", 0, "/P/pie"),
            ("/raw", 1, "/raw/P"),
            ("a/nice/warm/pie", 3, "a/nice/warm/P/pie"),
            ("a", 9999, "a/P"),
        ] {
            assert_eq!(insert_path_part(path, position, "P"), new, "{path} {position}");
        }
    }
}
