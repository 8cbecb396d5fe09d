//! Replacements: a value from one place, written to many.

use std::sync::Arc;

use kiln_diagnostic::did_you_mean;
use kiln_value::{Path, Segment, Str, Value, json};

use super::Transform;
use crate::build::budget::{self, Budget, Size, own_size};
use crate::build::kustomize_differences;
use crate::build::session::{KustomizationSite, Session};
use crate::error::{Error, Result};
use crate::fields::field_path::{self, FoundField, Leaf};
use crate::fields::lazy_location::{LazyLocation, LocatedDocument};
use crate::load::decode::{self, record};
use crate::load::kustomization::{FieldOptions, Replacement, ReplacementSource, ReplacementTarget};
use crate::model::output::{parse_document, parse_text, resolve_plain, splice_scalar};
use crate::model::resource::{Loose, Resource, scalar_text};
use crate::model::resources::{Resources, Slot, nearest_object};
use crate::model::restyle::restyle;
use crate::model::selector::Selection;

record! {
    /// The configuration of a ReplacementTransformer.
    ReplacementConfig = "ReplacementTransformer" {
        replacements: Vec<Replacement> = "replacements",
    }
}

/// All replacements of one kustomization, in order.
pub(crate) struct Replacements {
    /// With the place of each.
    list: Vec<(Replacement, LazyLocation)>,
}

const DEFAULT_PATH: &str = "metadata.name";

impl Replacements {
    /// Reads the files that entries name; `written` is where the entries are.
    ///
    /// # Errors
    /// When an entry has both a path and a body, or a file has another form.
    pub(crate) fn load(
        entries: &[Replacement],
        at: &KustomizationSite<'_, '_>,
        written: &LazyLocation,
    ) -> Result<Self> {
        let mut list = Vec::new();
        for (number, entry) in entries.iter().enumerate() {
            if entry.path.is_empty() {
                list.push((entry.clone(), written.entry(number)));
                continue;
            }
            let has_targets = entry.targets.as_ref().is_some_and(|targets| !targets.is_empty());
            if entry.source.is_some() || has_targets {
                return Err(Error::new("cannot specify both path and inline replacement"));
            }
            let (value, document) = at.load_config(&entry.path)?;
            let located = |error: decode::DecodeError| at.decode_error(error, document.as_deref());
            let file = document.as_ref().map(|d| LocatedDocument::new(Arc::clone(d)));
            let file = LazyLocation::new::<Segment>(file.as_ref(), []);
            match &value {
                Value::List(_) => {
                    let found = decode::lenient::<Vec<Replacement>>(&value).map_err(located)?;
                    let found = found.into_iter().enumerate();
                    list.extend(found.map(|(number, entry)| (entry, file.entry(number))));
                }
                Value::Map(_) => list.push((decode::lenient(&value).map_err(located)?, file)),
                other => {
                    let found = match other {
                        Value::String(_) => "string",
                        Value::Bool(_) => "bool",
                        Value::Number(_) => "float64",
                        _ => "invalid",
                    };
                    return Err(Error::new(format!(
                        "unsupported replacement type encountered within replacement path: {found}"
                    )));
                }
            }
        }
        Ok(Replacements { list })
    }
}

impl Transform for Replacements {
    fn kind(&self) -> &str {
        "ReplacementTransformer"
    }

    fn transform(&self, resources: &mut Resources, session: &Session<'_>) -> Result<()> {
        for (replacement, written) in &self.list {
            let targets = replacement.targets.as_ref();
            let nothing = replacement.source.is_none() && replacement.source_value.is_none();
            let Some(targets) = targets.filter(|_| !nothing) else {
                return Err(Error::new(
                    "replacements must specify a source and at least one target",
                )
                .at(written.place()));
            };
            let mut value = source_value(replacement, resources, &written.field("source"))
                .map_err(|error| error.at(written.field("source").place()))?;
            value.measure(&session.budget)?;
            for (number, target) in targets.iter().enumerate() {
                let at = written.field("targets").entry(number);
                write(target, &mut value, resources, (session, &at))
                    .map_err(|error| error.at(at.place()))?;
            }
        }
        Ok(())
    }
}

/// What is written: a value and, if it is a scalar, its text.
struct Source {
    value: Value,
    text: Str,
    size: Size,
    /// The field it is, unless it is only a part of its text.
    field: Option<(Slot, Path)>,
}

impl Source {
    fn of(value: Value) -> Self {
        let text = scalar_text(&value);
        Source { value, text, size: Size::default(), field: None }
    }

    fn measure(&mut self, budget: &Budget) -> Result<()> {
        self.size = budget.measure(&self.value)?;
        self.size.bytes = self.size.bytes.max(self.text.len());
        Ok(())
    }

    /// kustomize: the source is the field itself, so that writing to it changes what is written next.
    fn look_again(&mut self, slot: Slot, resource: &Resource, budget: &Budget) -> Result<()> {
        let Some((own, path)) = &self.field else { return Ok(()) };
        let now = resource.object().get_path(path).filter(|now| **now != self.value);
        if let Some(now) = now.filter(|_| *own == slot) {
            *self = Source { field: self.field.take(), ..Source::of(now.clone()) };
            self.measure(budget)?;
        }
        Ok(())
    }
}

fn source_value(
    replacement: &Replacement,
    resources: &mut Resources,
    at: &LazyLocation,
) -> Result<Source> {
    let source = match (&replacement.source, &replacement.source_value) {
        (Some(_), Some(_)) => {
            return Err(Error::new("value and resource selectors are mutually exclusive"));
        }
        (None, text) => {
            let text = text.clone().unwrap_or_default();
            let value = resolve_plain(&text);
            return Ok(Source { text: text.into(), ..Source::of(value) });
        }
        (Some(source), None) => source,
    };
    let slot = select_source(source, resources)?;
    let resource = resources.get(slot);
    let field_path =
        if source.field_path.is_empty() { DEFAULT_PATH } else { source.field_path.as_str() };
    let path = field_path::look_up(resource.object(), &field_path::split(field_path))
        .map_err(|error| error.context("error looking up replacement source"))?;
    let found = path.and_then(|path| Some((resource.object().get_path(&path)?.clone(), path)));
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::List(list) => list.is_empty(),
        Value::Map(map) => map.is_empty(),
        _ => false,
    };
    let (value, path) = found.filter(|(value, _)| !is_empty(value)).ok_or_else(|| {
        let place =
            if source.field_path.is_empty() { at.place() } else { at.field("fieldPath").place() };
        let missing = missing_step(resource, &field_path::split(field_path));
        Error::new(format!(
            "fieldPath `{field_path}` is missing for replacement source {}",
            source.id()
        ))
        .at(place)
        .maybe_hint(missing)
    })?;
    let mut found = Source::of(value);
    if matches!(found.value, Value::Number(_) | Value::Bool(_))
        && let Some(written) = resource.written(&path)
    {
        found.text = Str::new(written);
    }
    found.field = Some((slot, path));
    refine(found, source.options.as_ref())
}

/// The one object that is the source.
fn select_source(source: &ReplacementSource, resources: &mut Resources) -> Result<Slot> {
    let id = source.id();
    let candidates =
        if id.name.is_empty() { resources.slots() } else { resources.by_any_name(&id.name) };
    let mut matches = candidates.into_iter().filter(|slot| {
        let resource = resources.get(*slot);
        // kustomize: here even cluster-scoped objects count as being in the default namespace.
        let now = crate::model::id::ResId { cluster_scoped: false, ..resource.id().clone() };
        now.is_selected_by(&id) || resource.previous_ids().any(|then| then.is_selected_by(&id))
    });
    match (matches.next(), matches.next()) {
        (Some(only), None) => Ok(only),
        (Some(_), Some(_)) => {
            Err(Error::new(format!("multiple matches for selector {}", describe(source))))
        }
        (None, _) => {
            drop(matches);
            Err(Error::new(format!("nothing selected by {}", describe(source)))
                .maybe_hint(nearest_object(&id.gvk.kind, &id.name, resources)))
        }
    }
}

fn describe(source: &ReplacementSource) -> String {
    let mut text = source.id().to_string();
    if !source.field_path.is_empty() {
        text.push(':');
        text.push_str(&source.field_path);
    }
    if let Some(options) = &source.options
        && (!options.delimiter.is_empty() || options.create)
    {
        text.push_str(&format!(
            ":{}({}), create={}",
            options.delimiter, options.index, options.create
        ));
    }
    text
}

const ONLY_SCALARS: &str = "delimiter option can only be used with scalar nodes";

/// Takes one piece of the text, if a delimiter is given.
fn refine(mut source: Source, options: Option<&FieldOptions>) -> Result<Source> {
    let Some(options) = options.filter(|options| !options.delimiter.is_empty()) else {
        return Ok(source);
    };
    if matches!(source.value, Value::List(_) | Value::Map(_)) {
        return Err(Error::new(ONLY_SCALARS));
    }
    let piece = usize::try_from(options.index)
        .ok()
        .and_then(|index| source.text.split(options.delimiter.as_str()).nth(index))
        .map(Str::new);
    let Some(piece) = piece else {
        return Err(Error::new(format!(
            "options.index {} is out of bounds for value {}",
            options.index, source.text
        )));
    };
    source.value = retype(&source.value, &piece).unwrap_or_else(|_| Value::String(piece.clone()));
    source.text = piece;
    source.field = None;
    Ok(source)
}

/// A text as a value of the same type as another.
fn retype(like: &Value, text: &str) -> Result<Value> {
    let read = resolve_plain(text);
    let word = |value: &Value| match value {
        Value::Null => "!!null",
        Value::Bool(_) => "!!bool",
        Value::Number(number) if number.is_integer() => "!!int",
        Value::Number(_) => "!!float",
        _ => "!!str",
    };
    match (like, &read) {
        (Value::String(_), _) => Ok(text.into()),
        (Value::Number(wanted), Value::Number(found))
            if found.is_integer() || !wanted.is_integer() =>
        {
            Ok(read)
        }
        (Value::Bool(_), Value::Bool(_)) | (Value::Null, Value::Null) => Ok(read),
        _ => Err(Error::new(format!(
            "yaml: cannot decode {} `{text}` as a {}",
            word(&read),
            word(like)
        ))
        .hint("quote the target's value to make it text")),
    }
}

fn write(
    target: &ReplacementTarget,
    source: &mut Source,
    resources: &mut Resources,
    (session, at): (&Session<'_>, &LazyLocation),
) -> Result<()> {
    let Some(select) = &target.select else {
        return Err(Error::new("target must specify resources to select"));
    };
    let creating = |error: Error| error.context("error creating target selector");
    let select = Selection::compile(select).map_err(creating)?;
    let reject: Vec<Selection> =
        target.reject.iter().map(Selection::compile).collect::<Result<_>>().map_err(creating)?;
    for slot in select.candidates(resources) {
        if is_target(resources.get(slot), &select, &reject) {
            resources.update(slot, &session.scopes, |resource| {
                write_into(resource, slot, target, source, (session, at))
            })?;
        }
    }
    Ok(())
}

fn is_target(resource: &Resource, select: &Selection, reject: &[Selection]) -> bool {
    let any_id = |selection: &Selection| {
        selection.matches_id(resource.id())
            || resource.previous_ids().any(|id| selection.matches_id(&id))
    };
    let rejected = reject.iter().any(|reject| {
        (reject.names_labels() && reject.matches_labels(resource))
            || (reject.names_an_id() && any_id(reject))
    });
    select.matches_labels(resource) && !rejected && any_id(select)
}

fn write_into(
    resource: &mut Resource,
    slot: Slot,
    target: &ReplacementTarget,
    source: &mut Source,
    (session, at): (&Session<'_>, &LazyLocation),
) -> Result<()> {
    let budget = &session.budget;
    let options = target.options.clone().unwrap_or_default();
    let default = [DEFAULT_PATH.to_owned()];
    let paths: &[String] =
        if target.field_paths.is_empty() { &default } else { &target.field_paths };
    for (number, field_path) in paths.iter().enumerate() {
        let parts = field_path::split(field_path);
        budget::check_path(parts.len(), source.size.depth)?;
        let create = options.create.then(|| Leaf::like(&source.value));
        if options.create {
            budget.pay(Size { nodes: parts.len(), bytes: field_path.len(), depth: 0 })?;
        }
        let pieces = session.options.behavior.delimiters_in_structured_text;
        let inside = if pieces { &options } else { &FieldOptions::default() };
        if write_into_text(resource.object_mut(), &parts, source, (create, inside), budget)? {
            continue;
        }
        let doing = if options.create { "find or create" } else { "find" };
        let not_found = format!("unable to {doing} field {field_path:?} in replacement target");
        let found = field_path::find_all(resource.object_mut(), &parts, create)
            .map_err(|error| error.context(&not_found));
        let place = || match target.field_paths.is_empty() {
            true => at.place(),
            false => at.field("fieldPaths").entry(number).place(),
        };
        let found = found.map_err(|error| error.at(place()))?;
        if found.is_empty() {
            return Err(Error::new(not_found)
                .at(place())
                .maybe_hint(missing_step(resource, &parts))
                .hint("set options.create to make the field, or correct the path"));
        }
        for found in found.into_iter().filter(|found| !found.in_copy) {
            if let Some(warning) = kustomize_differences::made_below_null(resource, &found) {
                session.warn(warning);
            }
            set_field(resource, &found, source, &options, budget)?;
            resource.settle_shared();
            source.look_again(slot, resource, budget)?;
        }
    }
    Ok(())
}

/// Which part of a path an object does not have, and what it has instead, if that is a map.
fn missing_step(resource: &Resource, parts: &[String]) -> Option<String> {
    let object = resource.object();
    let is_there = |length: &usize| {
        let path = field_path::look_up(object, parts.get(..*length)?).ok()??;
        object.get_path(&path).map(|value| (path, value))
    };
    let (length, (path, value)) =
        (0..parts.len()).rev().find_map(|length| Some((length, is_there(&length)?)))?;
    let missing = parts.get(length)?;
    let known: Vec<&str> = value.as_map()?.iter().map(|(key, _)| key.as_str()).collect();
    let nearest = did_you_mean(missing, known.iter().copied())?;
    let id = resource.id();
    let place = if path.is_root() { String::new() } else { format!("{path} of ") };
    Some(format!("{place}{}/{} has no {missing}; did you mean {nearest}?", id.gvk.kind, id.name))
}

fn set_field(
    resource: &mut Resource,
    found: &FoundField,
    source: &Source,
    options: &FieldOptions,
    budget: &Budget,
) -> Result<()> {
    let Some(field) = resource.object().get_path(&found.path) else { return Ok(()) };
    budget.pay(source.size)?;
    let is_scalar = !matches!(field, Value::List(_) | Value::Map(_));
    let mut text = source.text.clone();
    if !options.delimiter.is_empty() {
        if !is_scalar {
            return Err(Error::new(ONLY_SCALARS));
        }
        let old = match (field, resource.written(&found.path)) {
            (Value::Number(_) | Value::Bool(_), Some(written)) => Str::new(written),
            (field, _) => scalar_text(field),
        };
        text = replace_piece(&old, options, &text);
    }
    let before = own_size(field);
    let value = if is_scalar {
        typed(resource, found, &text)
    } else {
        resource.unshare_below(found.path.segments());
        source.value.clone()
    };
    if let Some(field) = resource.object_mut().get_path_mut(&found.path) {
        *field = value;
        if !options.delimiter.is_empty() {
            budget.pay(budget::growth(before, field))?;
        }
    }
    Ok(())
}

/// The value that a text is in a field, which keeps its type. Only the end of the build decides whether a text
/// fits: whatever comes later may still replace it.
fn typed(resource: &mut Resource, found: &FoundField, text: &Str) -> Value {
    let known = resource.loose.iter().position(|loose| loose.place == found.path);
    let known = known.map(|at| resource.loose.swap_remove(at));
    let like = match known {
        Some(loose) => loose.like,
        None if found.is_new => None,
        None => resource.object().get_path(&found.path).cloned(),
    };
    let (value, problem) = match &like {
        None => (resolve_plain(text), None),
        Some(like) => match retype(like, text) {
            Ok(value) => (value, None),
            Err(error) => {
                let place = resource.document.as_ref().map(|document| document.place());
                (Value::String(text.clone()), Some((text.clone(), error.at(place))))
            }
        },
    };
    if like.is_none() || problem.is_some() {
        resource.loose.push(Loose { place: found.path.clone(), like, problem });
    }
    value
}

/// The old text with one of its pieces replaced; before the first and after the last, added.
fn replace_piece(old: &str, options: &FieldOptions, piece: &str) -> Str {
    let mut pieces: Vec<&str> = old.split(options.delimiter.as_str()).collect();
    match usize::try_from(options.index) {
        Err(_) => pieces.insert(0, piece),
        Ok(index) if index >= pieces.len() => pieces.push(piece),
        Ok(index) => pieces[index] = piece,
    }
    pieces.join(&options.delimiter).into()
}

/// Writes into text that is YAML or JSON itself; says whether the path led there.
fn write_into_text(
    object: &mut Value,
    parts: &[String],
    source: &Source,
    (create, options): (Option<Leaf>, &FieldOptions),
    budget: &Budget,
) -> Result<bool> {
    let Some((outer, inner)) = text_on_the_way(object, parts) else { return Ok(false) };
    let Some(Value::String(text)) = object.get_path(&outer).cloned() else { return Ok(false) };
    Ok(match rewrite_text(&text, inner, source, (create, options), budget)? {
        Some(rewritten) => {
            if let Some(place) = object.get_path_mut(&outer) {
                *place = rewritten.into();
            }
            true
        }
        None => false,
    })
}

/// The first text on a path that goes on below it, and the rest of the path.
fn text_on_the_way<'p>(object: &Value, parts: &'p [String]) -> Option<(Path, &'p [String])> {
    for length in 1..parts.len() {
        let Ok(Some(path)) = field_path::look_up(object, &parts[..length]) else { continue };
        let Some(value) = object.get_path(&path) else { continue };
        if !matches!(value, Value::List(_) | Value::Map(_))
            && parse_text(&scalar_text(value)).is_ok()
        {
            return Some((path, &parts[length..]));
        }
    }
    None
}

fn rewrite_text(
    text: &str,
    parts: &[String],
    source: &Source,
    (create, options): (Option<Leaf>, &FieldOptions),
    budget: &Budget,
) -> Result<Option<String>> {
    let Ok(Some(document)) = parse_document(text) else { return Ok(None) };
    let mut value = document.value().clone();
    let found = field_path::find_all(&mut value, parts, create).unwrap_or_default();
    if found.is_empty() {
        return Ok(None);
    }
    // The whole text is written anew.
    budget.pay(Size::of_text(text))?;
    let mut spliced = Some(text.to_owned());
    for found in &found {
        budget.pay(source.size)?;
        let Some(field) = value.get_path_mut(&found.path) else { return Ok(None) };
        let is_scalar = !matches!(field, Value::List(_) | Value::Map(_));
        let mut written = source.text.clone();
        if !options.delimiter.is_empty() {
            if !is_scalar {
                // kustomize: then the text as a whole is looked at, and has no such field.
                return Ok(None);
            }
            written = replace_piece(&scalar_text(field), options, &written);
            budget.pay(Size::of_text(&written))?;
        }
        let new = match (is_scalar, found.is_new) {
            (false, _) => source.value.clone(),
            (true, true) => resolve_plain(&written),
            // kustomize: writes `!!int text` here, which readers of the file refuse.
            (true, false) => retype(field, &written)?,
        };
        // A scalar for a scalar leaves everything else as it is written.
        spliced = spliced
            .filter(|_| is_scalar && !found.is_new)
            .and_then(|text| splice_scalar(&text, &found.path, &new));
        *field = new;
    }
    let first = text.trim_start().chars().next();
    if matches!(first, Some('{' | '[')) {
        return Ok(Some(if text.contains('\n') && text.contains("  ") {
            json::to_go_string_pretty(&value)
        } else {
            json::to_go_string(&value)
        }));
    }
    let replaced: Vec<&Path> = found.iter().map(|found| &found.path).collect();
    let text = restyle(&document, &value, &replaced)
        .or(spliced)
        .unwrap_or_else(|| crate::model::output::emit_in_order(&value));
    Ok(Some(text.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    #[test]
    fn a_scalar_keeps_its_type() {
        let set = |old: Value, text: &str| {
            let mut resource = Resource::default().with_object(value!({"f": old}));
            let found = FoundField {
                path: Path::root().join("f"),
                is_new: false,
                below_null: false,
                in_copy: false,
            };
            let source = Source::of(text.into());
            let options = FieldOptions::default();
            set_field(&mut resource, &found, &source, &options, &Budget::default())?;
            resource.check_types().map(|()| resource.object().get("f").cloned().unwrap())
        };
        assert_eq!(set(value!(1), "7").unwrap(), value!(7));
        assert_eq!(set(value!("x"), "7").unwrap(), value!("7"));
        assert_eq!(set(value!({"a": 1}), "7").unwrap(), value!("7"));
        assert_eq!(
            set(value!(1), "seven").unwrap_err().message(),
            "yaml: cannot decode !!str `seven` as a !!int"
        );
    }

    #[test]
    fn pieces_are_replaced_or_added() {
        let options = |index| FieldOptions { delimiter: "/".into(), index, ..Default::default() };
        assert_eq!(replace_piece("a/b", &options(1), "x"), "a/x");
        assert_eq!(replace_piece("a/b", &options(-1), "x"), "x/a/b");
        assert_eq!(replace_piece("a/b", &options(9), "x"), "a/b/x");
    }

    #[test]
    fn text_that_is_json_stays_json() {
        let source = Source::of("new".into());
        let parts = field_path::split("b.c");
        let budget = Budget::default();
        let write = |text: &str| {
            rewrite_text(text, &parts, &source, (None, &FieldOptions::default()), &budget).unwrap()
        };
        assert_eq!(write(r#"{"b": {"c": "old"}, "a": 1}"#).unwrap(), r#"{"a":1,"b":{"c":"new"}}"#);
        assert_eq!(write("# note\nb:\n  c: old # why\n").unwrap(), "# note\nb:\n  c: new # why");
        assert_eq!(write("plain"), None);
        let slash = FieldOptions { delimiter: "/".into(), index: 1, ..FieldOptions::default() };
        let piece = |text: &str| rewrite_text(text, &parts, &source, (None, &slash), &budget);
        assert_eq!(piece("b: {c: a/b}").unwrap().unwrap(), "b: {c: a/new}");
        assert_eq!(piece("b: {c: [a]}").unwrap(), None);
    }
}
