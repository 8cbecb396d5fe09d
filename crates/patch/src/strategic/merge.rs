//! The walk over object and patch.

use kiln_schema::{Schema, SchemaNode};
use kiln_value::{Key, List, Map, Value};

use super::directive::{self, Directive, PATCH, ServerKey};
use super::error::Trail;
use super::{ListMerge, NewValues, StrategicMergeError, StrategicProblem, StrategicRules};
use super::{TextScalars, WrittenScalars, element, patch_first, server_order};

pub(super) type MergeResult<T> = Result<T, StrategicMergeError>;

/// A merge with its schema and rules. Every step gives the merged value, or `None` when nothing is
/// left of it.
#[derive(Clone, Copy)]
pub(super) struct Merge<'s> {
    pub(super) schema: &'s Schema,
    pub(super) rules: &'s StrategicRules,
    pub(super) written: Option<WrittenScalars<'s>>,
}

/// The kinds of values that merge with each other.
fn same_kind(a: &Value, b: &Value) -> bool {
    use Value::{List, Map};
    match (a, b) {
        (Map(_), Map(_)) | (List(_), List(_)) => true,
        (Map(_) | List(_), _) | (_, Map(_) | List(_)) => false,
        _ => true,
    }
}

impl<'s> Merge<'s> {
    /// Merges a patch into what the object has.
    pub(super) fn value(
        self,
        object: Value,
        patch: &Value,
        node: Option<SchemaNode<'s>>,
        trail: &Trail<'_>,
    ) -> MergeResult<Option<Value>> {
        // A null in a patch deletes, in every dialect. A null in the object counts as no value, so directives of the
        // patch are treated there as in new values.
        if patch.is_null() {
            return Ok(None);
        }
        if object.is_null() {
            return self.new_value(patch, node, trail);
        }
        if !same_kind(&object, patch) {
            if self.rules.other_kinds_replace {
                return self.new_value(patch, node, trail);
            }
            return Err(trail.error(StrategicProblem::KindsDiffer {
                object: object.type_name(),
                patch: patch.type_name(),
            }));
        }
        // Only here, after kinds were compared: a map may bring its own schema by `apiVersion` and `kind` (a List of
        // objects, a template), which says nothing about values that are not merged.
        let node = self.node_of([&object, patch], node);
        let replaces = node.is_some_and(|node| node.patch_strategy().replaces());
        match (object, patch) {
            (Value::Map(_), Value::Map(_)) if replaces && self.rules.replace_strategy => {
                Ok(Some(patch.clone()))
            }
            (Value::Map(object), Value::Map(patch)) => self.map(object, patch, node, trail),
            (Value::List(object), Value::List(patch)) => self.list(object, patch, node, trail),
            (object, patch) => Ok(Some(self.scalar(&object, patch, trail))),
        }
    }

    /// The node of a place; where there is none, a map may say itself what it is.
    pub(super) fn node_of<'v>(
        self,
        values: impl IntoIterator<Item = &'v Value>,
        node: Option<SchemaNode<'s>>,
    ) -> Option<SchemaNode<'s>> {
        if node.is_some() || !self.rules.embedded_kinds {
            return node;
        }
        values.into_iter().find_map(|value| self.schema.root_of(value))
    }

    fn map(
        self,
        mut object: Map,
        patch: &Map,
        node: Option<SchemaNode<'s>>,
        trail: &Trail<'_>,
    ) -> MergeResult<Option<Value>> {
        match Directive::of(patch).map_err(|problem| trail.error(problem))? {
            Some(Directive::Delete) => {
                return Ok(self.rules.delete_leaves_an_empty_map.then(Value::map));
            }
            Some(Directive::Replace) => {
                let patch = Value::Map(directive::without_directive(patch));
                return match self.rules.new_values {
                    NewValues::DropDirectives => Ok(Some(patch)),
                    NewValues::FollowDirectives => self.own_value(patch, node, trail),
                };
            }
            Some(Directive::Merge) if !self.rules.merge_directive => {
                return Err(trail.error(StrategicProblem::MergeDirective));
            }
            Some(Directive::Merge) | None => {}
        }
        if self.rules.server_directives {
            self.server_fields(&mut object, patch, node, trail)?;
        } else {
            self.fields(&mut object, patch, node, trail)?;
        }
        Ok(Some(Value::Map(object)))
    }

    /// Merges the fields of a map, new ones in the order of their names.
    fn fields(
        self,
        object: &mut Map,
        patch: &Map,
        node: Option<SchemaNode<'s>>,
        trail: &Trail<'_>,
    ) -> MergeResult<()> {
        // kustomize walks the whole object with the patch, so lists that the patch does not mention lose their
        // duplicates too. Those that it mentions are left to their own merge.
        if self.rules.tidy_untouched_lists {
            patch_first::tidy_fields(self, object, Some(patch), node, trail)?;
        }
        // The order in which new fields are added shows in the output. kyaml sorts the names of both sides.
        let mut changes: Vec<(&Key, &Value)> =
            patch.iter().filter(|(key, _)| **key != PATCH).collect();
        changes.sort_by_key(|(key, _)| *key);
        for (key, change) in changes {
            let child = node.and_then(|node| node.field(key));
            self.field(object, key, change, child, &trail.then(key))?;
        }
        Ok(())
    }

    /// Merges one field.
    pub(super) fn field(
        self,
        object: &mut Map,
        key: &str,
        change: &Value,
        node: Option<SchemaNode<'s>>,
        trail: &Trail<'_>,
    ) -> MergeResult<()> {
        match object.get(key) {
            None if change.is_null() => return Ok(()),
            None => {
                if let Some(new) = self.new_value(change, node, trail)? {
                    object.insert(key, new);
                }
                return Ok(());
            }
            Some(old) if old.same(change) && !is_container(old) && !old.is_null() => return Ok(()),
            Some(_) => {}
        }
        // Taken out and put back instead of cloned: the merge then edits a value that it alone holds, and a large map is
        // not copied for one field. The key keeps its place, which `insert` finds again.
        let old = object.get_mut(key).map(std::mem::take).unwrap_or_default();
        match self.value(old, change, node, trail)? {
            Some(merged) => {
                object.insert(key, merged);
            }
            None => {
                object.remove(key);
            }
        }
        Ok(())
    }

    /// Merges the fields of a map as the API server does: directives about lists and keys first.
    fn server_fields(
        self,
        object: &mut Map,
        patch: &Map,
        node: Option<SchemaNode<'s>>,
        trail: &Trail<'_>,
    ) -> MergeResult<()> {
        directive::retain_keys(object, patch).map_err(|problem| trail.error(problem))?;
        let mut keys = Vec::with_capacity(patch.len());
        for (key, change) in patch {
            keys.push((ServerKey::parse(key).map_err(|problem| trail.error(problem))?, change));
        }
        // `$setElementOrder` merges its list itself, since the order depends on which elements came from where. The list
        // must not be merged a second time as an ordinary field, so it is remembered.
        let mut ordered = Vec::new();
        for (key, change) in &keys {
            if let ServerKey::ElementOrder(field) = *key {
                let trail = trail.then(field);
                let list = patch.get(field);
                let node = node.and_then(|node| node.named_field(field));
                server_order::set_order(self, object, field, change, list, node, &trail)?;
                ordered.push(field);
            }
        }
        for (key, change) in keys {
            match key {
                ServerKey::Field(field) if !ordered.contains(&field) => {
                    let trail = trail.then(field);
                    let child = self.server_node(object.get(field), change, field, node, &trail)?;
                    self.field(object, field, change, child, &trail)?;
                }
                ServerKey::DeleteFromList(field) if !field.is_empty() => {
                    let trail = trail.then(field);
                    let child = self.server_node(object.get(field), change, field, node, &trail)?;
                    self.delete_from_list(object, field, change, child, &trail)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The node of a field. Maps and lists can only be merged where the schema names the field;
    /// plain maps of scalars have no node, but nothing below them is known either.
    fn server_node(
        self,
        old: Option<&Value>,
        change: &Value,
        field: &str,
        node: Option<SchemaNode<'s>>,
        trail: &Trail<'_>,
    ) -> MergeResult<Option<SchemaNode<'s>>> {
        let child = node.and_then(|node| node.named_field(field));
        let known = match (old, change) {
            (Some(Value::Map(_)), Value::Map(_)) => {
                child.is_some() || node.is_some_and(|node| !node.has_typed_values())
            }
            (Some(Value::List(_)), Value::List(_)) => child.is_some(),
            _ => true,
        };
        if known { Ok(child) } else { Err(trail.error(StrategicProblem::UnknownField)) }
    }

    /// Takes from a list of scalars. On anything else the API server merges, and so do we.
    fn delete_from_list(
        self,
        object: &mut Map,
        field: &str,
        change: &Value,
        node: Option<SchemaNode<'s>>,
        trail: &Trail<'_>,
    ) -> MergeResult<()> {
        match (object.get(field), change) {
            (None, _) => Ok(()),
            (Some(Value::List(old)), Value::List(delete)) => {
                let left = server_order::delete_elements(self, old, delete, node, trail)?;
                object.insert(field, left);
                Ok(())
            }
            (Some(old), change) if !change.is_null() && !same_kind(old, change) => Ok(()),
            _ => self.field(object, field, change, node, trail),
        }
    }

    fn list(
        self,
        object: List,
        patch: &List,
        node: Option<SchemaNode<'s>>,
        trail: &Trail<'_>,
    ) -> MergeResult<Option<Value>> {
        // Without a merge strategy in the schema a list is one value. Guessing a key from the elements (`name`) would work
        // for most custom resources and silently merge what their authors mean to replace.
        let Some(node) = node.filter(|node| node.patch_strategy().merges()) else {
            return Ok(Some(Value::List(patch.clone())));
        };
        match self.rules.lists {
            ListMerge::PatchFirst => patch_first::merge(self, object, patch, node, trail),
            ListMerge::ServerOrder => {
                let merged = server_order::merge(self, object.into_vec(), patch, node, trail)?;
                Ok(Some(Value::from(merged)))
            }
        }
    }

    fn scalar(self, object: &Value, patch: &Value, trail: &Trail<'_>) -> Value {
        let Value::String(old) = object else { return patch.clone() };
        // kyaml keeps the style of the node that it changes: a number put over quoted text becomes quoted text. How the
        // text was written is known only to files; elsewhere it counts as quoted if it had to be.
        let as_text = match self.rules.text_scalars {
            TextScalars::Never => false,
            TextScalars::OverQuotedText => {
                let known = self.written.and_then(|written| (written.was_quoted)(&trail.path()));
                known.unwrap_or_else(|| needs_quotes(old))
            }
            TextScalars::OverText => true,
        };
        if !as_text {
            return patch.clone();
        }
        let text = self.written.and_then(|written| (written.patch_text)(&trail.path(), patch));
        Value::String(text.map_or_else(|| element::scalar_text(patch), Into::into))
    }

    /// What a patch puts where the object has nothing.
    pub(super) fn new_value(
        self,
        patch: &Value,
        node: Option<SchemaNode<'s>>,
        trail: &Trail<'_>,
    ) -> MergeResult<Option<Value>> {
        match self.rules.new_values {
            NewValues::DropDirectives => Ok(drop_directives(patch, true)),
            NewValues::FollowDirectives => match patch {
                Value::Map(map) => match Directive::of(map) {
                    Ok(Some(Directive::Delete)) => Ok(None),
                    Ok(None) => self.own_value(patch.clone(), node, trail),
                    Ok(Some(_)) => {
                        self.own_value(Value::Map(directive::without_directive(map)), node, trail)
                    }
                    // kustomize: an unknown directive is data where there is nothing to merge with.
                    Err(_) => {
                        let said = map.get(PATCH).cloned().unwrap_or_default();
                        let said = self.own_value(said, None, &trail.then(PATCH))?;
                        let rest = Value::Map(directive::without_directive(map));
                        let mut own = self.own_value(rest, node, trail)?;
                        if let (Some(Value::Map(own)), Some(said)) = (&mut own, said) {
                            own.insert(PATCH, said);
                        }
                        Ok(own)
                    }
                },
                Value::List(list) => match node.filter(|node| node.patch_strategy().merges()) {
                    Some(node) => {
                        patch_first::own_elements(self, list.clone(), node, trail).map(Some)
                    }
                    None => Ok(Some(patch.clone())),
                },
                Value::Null => Ok(None),
                scalar => Ok(Some(scalar.clone())),
            },
        }
    }

    /// A part of a patch merged with itself: nulls go, directives are followed.
    pub(super) fn own_value(
        self,
        mut value: Value,
        node: Option<SchemaNode<'s>>,
        trail: &Trail<'_>,
    ) -> MergeResult<Option<Value>> {
        let node = self.node_of([&value], node);
        match &mut value {
            Value::Null => return Ok(None),
            Value::Map(map) => {
                match Directive::of(map).map_err(|problem| trail.error(problem))? {
                    Some(Directive::Delete) => return Ok(None),
                    Some(Directive::Replace | Directive::Merge) => {
                        map.remove(PATCH);
                    }
                    None => {}
                }
                // Scalars are what they are; skipping them leaves the map shared where nothing has to change.
                let inner: Vec<Key> = map
                    .iter()
                    .filter(|(_, value)| is_container(value) || value.is_null())
                    .map(|(key, _)| key.clone())
                    .collect();
                for key in inner {
                    let child = node.and_then(|node| node.field(&key));
                    let old = map.get(&key).cloned().unwrap_or_default();
                    match self.own_value(old.clone(), child, &trail.then(&key))? {
                        Some(own) if own.same(&old) => {}
                        Some(own) => {
                            map.insert(key, own);
                        }
                        None => {
                            map.remove(&key);
                        }
                    }
                }
            }
            Value::List(list) => {
                if let Some(node) = node.filter(|node| node.patch_strategy().merges()) {
                    return patch_first::own_list(self, std::mem::take(list), node, trail);
                }
            }
            _ => {}
        }
        Ok(Some(value))
    }
}

pub(super) fn is_container(value: &Value) -> bool {
    matches!(value, Value::Map(_) | Value::List(_))
}

/// A part of a patch without nulls in maps and without maps that have a `$patch`. Parts that need no
/// change are shared.
pub(super) fn drop_directives(patch: &Value, drop_nulls: bool) -> Option<Value> {
    match patch {
        Value::Map(map) => {
            if map.contains_key(PATCH) {
                return None;
            }
            let kept = map.iter().filter(|(_, value)| !(drop_nulls && value.is_null()));
            let kept = kept.filter_map(|(key, value)| {
                Some((key.clone(), drop_directives(value, drop_nulls)?))
            });
            Some(Value::Map(Map::from_unique(kept.collect())))
        }
        Value::List(list) => {
            let kept = list.iter().filter_map(|element| drop_directives(element, drop_nulls));
            Some(kept.collect())
        }
        scalar => Some(scalar.clone()),
    }
}

/// Whether a string cannot be written in YAML without quotes (or as a block), because it would be
/// read as something else or not at all.
fn needs_quotes(text: &str) -> bool {
    const WORDS: [&str; 9] = ["true", "false", "null", "~", "yes", "no", "on", "off", ""];
    let lower = text.to_ascii_lowercase();
    let starts_oddly = text.starts_with(|c: char| "&*!|>'\"%@`#,[]{}?:- ".contains(c));
    WORDS.contains(&lower.as_str())
        || (starts_oddly && !text.starts_with(|c: char| "?:-".contains(c)))
        || (starts_oddly && text[1..].starts_with([' ', '\t']))
        || text.contains(": ")
        || text.contains(" #")
        || text.contains('\n')
        || text.ends_with([':', ' '])
        || looks_like_a_number(text)
}

fn looks_like_a_number(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    match digits.as_bytes() {
        [b'0', b'x' | b'o' | b'b', rest @ ..] => {
            !rest.is_empty() && rest.iter().all(|b| b.is_ascii_hexdigit() || *b == b'_')
        }
        [b'.', b'i' | b'I' | b'n' | b'N', ..] => {
            matches!(digits.to_ascii_lowercase().as_str(), ".inf" | ".nan")
        }
        [b'0'..=b'9' | b'.', ..] => digits.replace('_', "").parse::<f64>().is_ok(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_needed_where_yaml_would_read_something_else() {
        for text in [
            "", "1", "-1", "1.5", "1e3", "0x1F", "0o17", "1_000", ".inf", "-.INF", ".nan", "true",
            "False", "null", "~", "yes", "Off", "a: b", "a #b", "- a", "? a", "*a", "&a", "[a]",
            "{a}", "'a", "@a", "a:", " a", "a ", "a\nb", "#a", "%a", "!a", "|", ">",
        ] {
            assert!(needs_quotes(text), "{text:?}");
        }
        for text in [
            "a", "a b", "a:b", "a#b", "-a", "?a", ":a", "1.2.3", "10m", "1Gi", "0.1.0-rc",
            "nginx:1", "1a",
        ] {
            assert!(!needs_quotes(text), "{text:?}");
        }
    }
}
