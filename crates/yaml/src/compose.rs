//! From events to values: types, anchors, merge keys, duplicate keys, limits.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use kiln_diagnostic::{Diagnostic, Source, SourceLocation, did_you_mean};
use kiln_value::{Key, KeyTable, List, Map, Number, Value};

use crate::anchors::{Anchored, Anchors, BadAlias, Weight};
use crate::data::{Content, TextWithData};
use crate::emitter::float;
use crate::events::event::{CollectionForm, Quoting, Scalar, YamlEvent};
use crate::events::parse::Events;
use crate::events::syntax;
use crate::folded;
use crate::merge::{self, Merge};
use crate::options::{DuplicateKeys, ReadOptions, ScalarTable};
use crate::resolve::{self, Typed};
use crate::span::Track;

/// Boxed, so that the way of success stays narrow.
pub(crate) type YamlFault = Box<Diagnostic>;

/// Composes the documents of one source, one after the other.
pub(crate) struct Composer<'t, T> {
    events: Events<'t>,
    source: &'t Arc<Source>,
    options: &'t ReadOptions,
    keys: &'t mut KeyTable,
    anchors: Anchors<'t, T>,
    /// Entries and elements of all open maps and lists; each closes by taking its own off the end.
    entries: Vec<ComposedEntry<T>>,
    elements: Vec<Value>,
    element_tracks: Vec<T>,
    /// How far a node reaches that has just been composed, for the extent of block collections.
    end: usize,
    read: Weight,
    deepest: usize,
    /// What to fill into scalars.
    pub(crate) data: Option<&'t TextWithData>,
}

/// An entry of a map that is being read.
pub(crate) struct ComposedEntry<T> {
    pub(crate) key: Key,
    pub(crate) key_span: Range<usize>,
    pub(crate) value: Value,
    pub(crate) track: T,
    /// Whether data stands in the key.
    pub(crate) from_data: bool,
}

/// A document as composed.
pub(crate) struct Composed<T> {
    pub(crate) value: Value,
    pub(crate) track: T,
    /// Where its text begins.
    pub(crate) start: usize,
    /// Whether nothing but comments was there.
    pub(crate) empty: bool,
}

/// Where a node stands.
#[derive(Clone, Copy)]
struct Position {
    depth: usize,
    /// Inside brackets or braces.
    flow: bool,
}

impl<'t, T: Track> Composer<'t, T> {
    /// A composer that begins at this byte of the source, which must be where a document begins.
    pub(crate) fn new(
        source: &'t Arc<Source>,
        start: usize,
        options: &'t ReadOptions,
        keys: &'t mut KeyTable,
    ) -> Self {
        Composer {
            events: Events::new(source.text(), start),
            source,
            options,
            keys,
            anchors: Anchors::new(),
            entries: Vec::new(),
            elements: Vec::new(),
            element_tracks: Vec::new(),
            end: start,
            read: Weight::default(),
            deepest: 0,
            data: None,
        }
    }

    /// The next document, or `None` at the end of the source.
    pub(crate) fn document(&mut self) -> Result<Option<Composed<T>>, YamlFault> {
        self.anchors.clear();
        let (event, span) = self.event()?;
        let start = match event {
            YamlEvent::DocumentStart => span.start,
            _ => return Ok(None),
        };
        let (event, span) = self.event()?;
        let empty = matches!(&event, YamlEvent::Scalar(scalar)
            if scalar.is_plain() && scalar.text.is_empty() && scalar.properties.tag.is_none());
        let (value, track) = self.node(event, span, Position { depth: 0, flow: false })?;
        self.event()?;
        Ok(Some(Composed { value, track, start, empty }))
    }

    fn event(&mut self) -> Result<(YamlEvent<'t>, Range<usize>), YamlFault> {
        self.events.next().map_err(|error| Box::new(syntax::explain(&error, self.source)))
    }

    fn node(
        &mut self,
        event: YamlEvent<'t>,
        span: Range<usize>,
        at: Position,
    ) -> Result<(Value, T), YamlFault> {
        self.read.nodes += 1;
        match event {
            YamlEvent::Scalar(scalar) => {
                self.end = span.end;
                self.scalar(scalar, span, at)
            }
            YamlEvent::MapStart(properties, form) => {
                let at =
                    Position { depth: at.depth, flow: at.flow || form == CollectionForm::Flow };
                self.check_depth(at.depth + 1, &span)?;
                self.anchored(properties.anchor, at, |composer| composer.map(span, at))
            }
            YamlEvent::ListStart(properties, form) => {
                let at =
                    Position { depth: at.depth, flow: at.flow || form == CollectionForm::Flow };
                self.check_depth(at.depth + 1, &span)?;
                self.anchored(properties.anchor, at, |composer| composer.list(span, at))
            }
            YamlEvent::Alias(name) => {
                self.end = span.end;
                let anchored = self.follow(name, &span)?;
                self.check_depth(at.depth + anchored.height, &span)?;
                self.deepest = self.deepest.max(at.depth + anchored.height);
                self.read.add(anchored.weight);
                let track = anchored.track.alias(span);
                Ok((anchored.value, track))
            }
            YamlEvent::DocumentStart
            | YamlEvent::DocumentEnd
            | YamlEvent::StreamEnd
            | YamlEvent::ListEnd
            | YamlEvent::MapEnd => Err(self.fault(span, "a value is missing here")),
        }
    }

    /// Composes a node and keeps it for aliases if it has an anchor.
    fn anchored(
        &mut self,
        anchor: Option<&'t str>,
        at: Position,
        compose: impl FnOnce(&mut Self) -> Result<(Value, T), YamlFault>,
    ) -> Result<(Value, T), YamlFault> {
        let Some(name) = anchor else {
            self.deepest = self.deepest.max(at.depth + 1);
            return compose(self);
        };
        self.anchors.open(name);
        let before = self.read;
        let deepest_before = std::mem::replace(&mut self.deepest, at.depth + 1);
        let (value, track) = compose(self)?;
        let mut weight = self.read.since(before);
        weight.nodes += 1;
        let anchored = Anchored {
            value: value.clone(),
            track: track.clone(),
            weight,
            height: self.deepest - at.depth,
        };
        self.deepest = self.deepest.max(deepest_before);
        self.anchors.close(name, anchored);
        Ok((value, track))
    }

    fn scalar(
        &mut self,
        mut scalar: Scalar<'t>,
        span: Range<usize>,
        at: Position,
    ) -> Result<(Value, T), YamlFault> {
        match self.data.and_then(|data| data.content(&scalar)) {
            None => {}
            Some(Content::Text(text)) => scalar.text = text.into(),
            Some(Content::Structure(value)) => {
                return self.inserted(value, scalar.properties.anchor, span, at);
            }
        }
        let bytes = scalar.text.len();
        self.read.bytes += bytes;
        let anchor = scalar.properties.anchor.take();
        if scalar.quoting == Quoting::Folded && self.options.scalars == ScalarTable::V3 {
            scalar.text = folded::as_kustomize_reads_it(scalar.text);
        }
        let value = if scalar.text.is_empty() && self.is_kustomize_blank(&scalar, at) {
            Value::from("")
        } else {
            resolve::value(&scalar, self.options)
                .map_err(|problem| self.fault(span.clone(), problem))?
        };
        let track = T::scalar(span);
        if let Some(name) = anchor {
            let weight = Weight { nodes: 1, bytes };
            let anchored =
                Anchored { value: value.clone(), track: track.clone(), weight, height: 0 };
            self.anchors.close(name, anchored);
        }
        Ok((value, track))
    }

    /// A list or map that fills the place of a scalar.
    fn inserted(
        &mut self,
        value: Value,
        anchor: Option<&'t str>,
        span: Range<usize>,
        at: Position,
    ) -> Result<(Value, T), YamlFault> {
        let (height, nodes) = extent(&value);
        self.check_depth(at.depth + height, &span)?;
        self.deepest = self.deepest.max(at.depth + height);
        let weight = Weight { nodes, bytes: 0 };
        self.read.add(weight);
        let track = T::scalar(span);
        if let Some(name) = anchor {
            let anchored = Anchored { value: value.clone(), track: track.clone(), weight, height };
            self.anchors.close(name, anchored);
        }
        Ok((value, track))
    }

    /// kustomize: `{a: }` is `{a: ""}`, because it prints and reads flow maps again on the way.
    fn is_kustomize_blank(&self, scalar: &Scalar<'_>, at: Position) -> bool {
        at.flow
            && self.options.scalars == ScalarTable::V3
            && scalar.is_plain()
            && matches!(scalar.properties.tag.as_deref(), None | Some("!"))
    }

    fn list(&mut self, span: Range<usize>, at: Position) -> Result<(Value, T), YamlFault> {
        let first = self.elements.len();
        let first_track = self.element_tracks.len();
        let inside = Position { depth: at.depth + 1, flow: at.flow };
        self.end = span.end;
        loop {
            let (event, event_span) = self.event()?;
            if matches!(event, YamlEvent::ListEnd) {
                self.close(&event_span, at);
                break;
            }
            let (value, track) = self.node(event, event_span, inside)?;
            self.elements.push(value);
            self.element_tracks.push(track);
        }
        let track = T::list(span.start..self.end, &self.element_tracks[first_track..]);
        self.element_tracks.truncate(first_track);
        let elements: Vec<Value> = self.elements.drain(first..).collect();
        Ok((Value::List(List::from(elements)), track))
    }

    fn map(&mut self, span: Range<usize>, at: Position) -> Result<(Value, T), YamlFault> {
        let first = self.entries.len();
        let inside = Position { depth: at.depth + 1, flow: at.flow };
        let mut merges: Vec<Merge<T>> = Vec::new();
        self.end = span.end;
        loop {
            let (event, key_span) = self.event()?;
            let mut from_data = false;
            let key = match event {
                YamlEvent::MapEnd => {
                    self.close(&key_span, at);
                    break;
                }
                YamlEvent::Scalar(scalar) if scalar.text == "<<" => {
                    let is_merge = merge::is_merge_key(&scalar, self.options.scalars);
                    let (event, span) = self.event()?;
                    let list = matches!(event, YamlEvent::ListStart(..));
                    let (value, track) = self.node(event, span.clone(), inside)?;
                    if is_merge && !merges.is_empty() && self.options.scalars == ScalarTable::V3 {
                        let problem = "a map can have one merge key << only";
                        let hint = "merge several maps as a list: <<: [*a, *b]".to_owned();
                        return Err(self.hinted(key_span, problem, hint));
                    }
                    if is_merge {
                        let after = self.entries.len() - first;
                        let merge = Merge::new(&value, &track, after, list)
                            .map_err(|problem| self.merge_fault(span, problem))?;
                        merges.push(merge);
                        continue;
                    }
                    // kustomize: drops a key "<<" that asks for no merge.
                    if self.options.scalars == ScalarTable::V3 {
                        continue;
                    }
                    let key = self.keys.intern("<<");
                    self.entries.push(ComposedEntry {
                        key,
                        key_span,
                        value,
                        track,
                        from_data: false,
                    });
                    continue;
                }
                YamlEvent::Scalar(mut scalar) => {
                    if let Some(content) = self.data.and_then(|data| data.content(&scalar)) {
                        let Content::Text(text) = content else {
                            return Err(self.collection_key_fault(key_span));
                        };
                        (scalar.text, from_data) = (text.into(), true);
                    }
                    self.key(&scalar, &key_span, at)?
                }
                YamlEvent::Alias(name) => self.alias_key(name, &key_span)?,
                YamlEvent::ListStart(..) | YamlEvent::MapStart(..) => {
                    return Err(self.collection_key_fault(key_span));
                }
                YamlEvent::DocumentStart
                | YamlEvent::DocumentEnd
                | YamlEvent::StreamEnd
                | YamlEvent::ListEnd => {
                    return Err(self.fault(key_span, "a key is missing here"));
                }
            };
            let (event, value_span) = self.event()?;
            let (value, track) = self.node(event, value_span, inside)?;
            self.entries.push(ComposedEntry { key, key_span, value, track, from_data });
        }
        self.settle_duplicates(first)?;
        if !merges.is_empty() {
            merge::apply(&mut self.entries, first, merges, self.options.scalars);
        }
        let entries = self.entries[first..].iter();
        let entries = entries.map(|entry| (&entry.key, entry.key_span.clone(), &entry.track));
        let track = T::map(span.start..self.end, entries);
        let entries: Vec<(Key, Value)> =
            self.entries.drain(first..).map(|entry| (entry.key, entry.value)).collect();
        Ok((Value::Map(Map::from_unique(entries)), track))
    }

    /// A block collection ends with its last node, not where the next thing begins.
    fn close(&mut self, end: &Range<usize>, at: Position) {
        if at.flow {
            self.end = end.end;
        }
    }

    fn key(
        &mut self,
        scalar: &Scalar<'t>,
        span: &Range<usize>,
        at: Position,
    ) -> Result<Key, YamlFault> {
        self.read.bytes += scalar.text.len();
        let typed = resolve::typed(scalar, self.options.scalars)
            .map_err(|problem| self.fault(span.clone(), problem))?;
        let key = match (self.options.scalars, &typed) {
            (_, Typed::Text) => self.keys.intern(&scalar.text),
            (_, Typed::Bytes(text)) => self.keys.intern(text),
            // kustomize: reads a key that is not written as an empty one.
            (ScalarTable::V3, Typed::Null) if scalar.text.is_empty() => self.keys.intern(""),
            (_, Typed::Null) => return Err(self.null_key_fault(span.clone())),
            // kustomize: the top level is read into a map of strings, which takes keys as written.
            (ScalarTable::V3, _) if at.depth == 0 => self.keys.intern(&scalar.text),
            (ScalarTable::V3, _) => {
                return Err(self.untyped_key_fault(span.clone(), &scalar.text));
            }
            (ScalarTable::V2, Typed::Time(_)) => self.keys.intern(&scalar.text),
            (ScalarTable::V2, Typed::Bool(b)) => {
                self.keys.intern(if *b { "true" } else { "false" })
            }
            (ScalarTable::V2, Typed::Number(Number::Float(f))) => {
                self.keys.intern(&float::key_text(*f))
            }
            (ScalarTable::V2, Typed::Number(number)) => self.keys.intern(&number.to_string()),
        };
        if let Some(name) = scalar.properties.anchor {
            let weight = Weight { nodes: 1, bytes: scalar.text.len() };
            let value = Value::from(&*scalar.text);
            let track = T::scalar(span.clone());
            self.anchors.close(name, Anchored { value, track, weight, height: 0 });
        }
        Ok(key)
    }

    fn alias_key(&mut self, name: &str, span: &Range<usize>) -> Result<Key, YamlFault> {
        let anchored = self.follow(name, span)?;
        match &anchored.value {
            Value::String(text) => Ok(self.keys.intern(text)),
            Value::Bool(_) | Value::Number(_) if self.options.scalars == ScalarTable::V2 => {
                let text = match &anchored.value {
                    Value::Bool(b) => b.to_string(),
                    Value::Number(Number::Float(f)) => float::key_text(*f),
                    Value::Number(number) => number.to_string(),
                    _ => String::new(),
                };
                Ok(self.keys.intern(&text))
            }
            other => {
                let found = other.type_name();
                Err(self.fault(span.clone(), format!("a map key must be a string, not a {found}")))
            }
        }
    }

    fn follow(&mut self, name: &str, span: &Range<usize>) -> Result<Anchored<T>, YamlFault> {
        self.anchors.follow(name, &self.options.limits).map_err(|bad| match bad {
            BadAlias::Unknown => {
                let meant = did_you_mean(name, self.anchors.names());
                let hint = meant.map_or_else(
                    || {
                        "anchors are written &name, before the alias and in the same document; \
                        text that begins with * needs quotes"
                            .to_owned()
                    },
                    |meant| format!("did you mean *{meant}?"),
                );
                self.hinted(span.clone(), format!("unknown anchor {name:?}"), hint)
            }
            BadAlias::Recursive => {
                self.fault(span.clone(), format!("the anchor {name:?} contains itself"))
            }
            BadAlias::TooMuch(most) => self.hinted(
                span.clone(),
                format!("the aliases of this document stand for {most}"),
                "write the values out, or use fewer levels of aliases".to_owned(),
            ),
        })
    }

    fn check_depth(&self, depth: usize, span: &Range<usize>) -> Result<(), YamlFault> {
        let most = self.options.limits.depth;
        if depth <= most {
            return Ok(());
        }
        Err(self.fault(
            span.start..span.start + 1,
            format!("lists and maps nest deeper than {most} levels"),
        ))
    }

    /// Makes the keys from `first` on unique, or says which is there twice.
    fn settle_duplicates(&mut self, first: usize) -> Result<(), YamlFault> {
        let Some((earlier, later)) = find_duplicate(&self.entries[first..]) else {
            return Ok(());
        };
        if self.options.duplicate_keys == DuplicateKeys::Refuse {
            let (earlier, later) = (&self.entries[first + earlier], &self.entries[first + later]);
            let problem = format!("the key {:?} is already defined", later.key.as_str());
            return Err(Box::new(
                self.diagnostic(later.key_span.clone(), problem)
                    .related("first defined", self.place(earlier.key_span.clone()))
                    .hint("remove or rename one of them"),
            ));
        }
        let mut positions: HashMap<Key, usize> = HashMap::new();
        let mut unique: Vec<ComposedEntry<T>> = Vec::new();
        let drained: Vec<ComposedEntry<T>> = self.entries.drain(first..).collect();
        for entry in drained {
            match positions.get(&entry.key) {
                Some(&at) if unique[at].from_data != entry.from_data => {
                    let problem = format!(
                        "the key {:?} is written, and a value says it, too",
                        entry.key.as_str()
                    );
                    let hint =
                        "a value cannot take the place of what is written: leave that key out";
                    return Err(self.hinted(entry.key_span, problem, hint.to_owned()));
                }
                Some(&at) => unique[at] = entry,
                None => {
                    positions.insert(entry.key.clone(), unique.len());
                    unique.push(entry);
                }
            }
        }
        self.entries.append(&mut unique);
        Ok(())
    }

    fn place(&self, span: Range<usize>) -> SourceLocation {
        SourceLocation::new(Arc::clone(self.source), span)
    }

    fn diagnostic(&self, span: Range<usize>, problem: impl Into<String>) -> Diagnostic {
        Diagnostic::error(problem).at(self.place(span))
    }

    #[cold]
    fn fault(&self, span: Range<usize>, problem: impl Into<String>) -> YamlFault {
        Box::new(self.diagnostic(span, problem))
    }

    #[cold]
    fn hinted(&self, span: Range<usize>, problem: impl Into<String>, hint: String) -> YamlFault {
        Box::new(self.diagnostic(span, problem).hint(hint))
    }

    #[cold]
    fn merge_fault(&self, span: Range<usize>, problem: &'static str) -> YamlFault {
        let hint = "<< takes a map, an alias of a map, or a list of those".to_owned();
        self.hinted(span, problem, hint)
    }

    #[cold]
    fn collection_key_fault(&self, span: Range<usize>) -> YamlFault {
        let hint = "a value that begins with { or [ needs quotes if it is meant as text, \
                    as in \"{{ x }}\"";
        self.hinted(span, "a map key must be a string", hint.to_owned())
    }

    #[cold]
    fn null_key_fault(&self, span: Range<usize>) -> YamlFault {
        let hint = "put the key in quotes".to_owned();
        self.hinted(span, "a map key must be a string, not null", hint)
    }

    #[cold]
    fn untyped_key_fault(&self, span: Range<usize>, text: &str) -> YamlFault {
        self.hinted(span, "a map key must be a string", format!("put it in quotes: {text:?}"))
    }
}

/// How many levels of lists and maps a value has, and how many values are in it.
fn extent(value: &Value) -> (usize, usize) {
    let below = |extents: &mut dyn Iterator<Item = (usize, usize)>| {
        extents.fold((1, 1), |(height, nodes), (below, more)| (height.max(below + 1), nodes + more))
    };
    match value {
        Value::List(list) => below(&mut list.iter().map(extent)),
        Value::Map(map) => below(&mut map.values().map(extent)),
        _ => (0, 1),
    }
}

/// The positions of the first key that occurs twice.
fn find_duplicate<T>(entries: &[ComposedEntry<T>]) -> Option<(usize, usize)> {
    // Looking at every pair beats hashing for as many fields as objects have.
    const FEW: usize = 16;
    if entries.len() <= FEW {
        return (1..entries.len()).find_map(|later| {
            let key = &entries[later].key;
            (0..later).find(|&earlier| entries[earlier].key == *key).map(|at| (at, later))
        });
    }
    let mut seen: HashMap<&str, usize> = HashMap::with_capacity(entries.len());
    entries
        .iter()
        .enumerate()
        .find_map(|(later, entry)| seen.insert(&entry.key, later).map(|earlier| (earlier, later)))
}
