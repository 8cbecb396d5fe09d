//! Changing values in a text, and nothing else: comments, quotes, order and blank lines stay.
//!
//! [`rewrite`] compares the value of a text with the one it shall have and changes the text at the
//! places that differ. What was written is read again and compared, so a text is never damaged:
//! where the small change does not give the wanted value (anchors, unusual layout), the whole field is
//! written anew, and where that does not help either, it is an error.
//!
//! | module | holds |
//! |---|---|
//! | `block` | maps and lists with one entry on each line |
//! | `flow` | maps and lists in brackets |
//! | `pairing` | which old element became which new one |

mod block;
mod flow;
mod pairing;

use std::ops::Range;
use std::sync::Arc;

use kiln_diagnostic::{Diagnostic, Source};
use kiln_value::Value;

use crate::document::{Document, read};
use crate::emitter::emit::emit;
use crate::options::ReadOptions;
use crate::span::{Parts, Spot};

/// The text of a source with another value as its first document.
///
/// # Errors
/// When the source cannot be read, or cannot be changed without damage.
pub fn rewrite(
    source: &Arc<Source>,
    options: ReadOptions,
    to: &Value,
) -> Result<String, Diagnostic> {
    let documents = read(source, options)?;
    let text = source.text();
    let is_right = |text: &String| {
        let source = Arc::new(Source::new(source.name(), text.as_str()));
        read(&source, options)
            .is_ok_and(|read| read.len() == documents.len().max(1) && read[0].value() == to)
    };
    let refused = || {
        let hint =
            "anchors, aliases and unusual layout stand in the way: write the field out plainly";
        Diagnostic::error("the file cannot be changed in place").hint(hint)
    };
    let Some(document) = documents.first() else {
        return Some(appended(text, &emit(to))).filter(is_right).ok_or_else(refused);
    };
    if document.value() == to {
        return Ok(text.to_owned());
    }
    let places = document.places();
    let careful = [Care::Entry, Care::Field].into_iter().find_map(|care| {
        let mut rewriter = Rewriter::new(document, care, documents.len() == 1);
        rewriter.change(places.root(), document.value(), to, &Around::Document).ok()?;
        Some(rewriter.finish()).filter(is_right)
    });
    careful.ok_or_else(|| refused().at(document.place()))
}

fn appended(text: &str, more: &str) -> String {
    let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{text}{gap}{more}")
}

/// A change that this way of writing cannot express: the node around it must be written anew.
struct Unclear;

type RewriteResult = Result<(), Unclear>;

/// How small changes may be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Care {
    /// Each entry of each list and map by itself.
    Entry,
    /// Whole fields of the document.
    Field,
}

/// What a value stands in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Around {
    Document,
    Block,
    Flow,
}

struct Rewriter<'t> {
    text: &'t str,
    care: Care,
    /// Whether nothing follows the document.
    alone: bool,
    /// Whether the document is written as JSON.
    json: bool,
    /// How far below a key the dashes of its list stand.
    list_step: usize,
    splices: Vec<(Range<usize>, String)>,
}

impl<'t> Rewriter<'t> {
    fn new(document: &'t Document, care: Care, alone: bool) -> Self {
        let text = document.source().text();
        let places = document.places();
        let span = places.root().span();
        let mut rewriter = Rewriter {
            text,
            care,
            alone,
            json: text[span.start..].starts_with('{'),
            list_step: 0,
            splices: Vec::new(),
        };
        rewriter.list_step = rewriter.usual_list_step(places.root());
        rewriter
    }

    /// Changes the text of a value.
    fn change(&mut self, spot: &Spot, from: &Value, to: &Value, around: &Around) -> RewriteResult {
        if from == to {
            return Ok(());
        }
        let is_flow = self.text[spot.span().start..].starts_with(['{', '[']);
        let below = *around != Around::Document;
        if below && self.care == Care::Field {
            return Err(Unclear);
        }
        match (spot.parts(), from, to) {
            (Parts::Map(entries), Value::Map(from), Value::Map(to)) if is_flow => {
                self.flow_map(spot, entries, from, to)
            }
            (Parts::List(elements), Value::List(from), Value::List(to)) if is_flow => {
                self.flow_list(spot, elements, from, to)
            }
            (Parts::Map(entries), Value::Map(from), Value::Map(to)) if !to.is_empty() => {
                self.block_map(spot, entries, from, to, !below)
            }
            (Parts::List(elements), Value::List(from), Value::List(to)) if !to.is_empty() => {
                self.block_list(elements, from, to)
            }
            (Parts::Scalar, ..) if below => self.scalar(spot, to, around),
            _ => Err(Unclear),
        }
    }

    /// Does all of a change or nothing of it.
    fn attempt(&mut self, change: impl FnOnce(&mut Self) -> RewriteResult) -> RewriteResult {
        let before = self.splices.len();
        change(self).inspect_err(|_| self.splices.truncate(before))
    }

    fn scalar(&mut self, spot: &Spot, to: &Value, around: &Around) -> RewriteResult {
        let span = spot.span();
        let written = &self.text[span.clone()];
        let text = match (written.chars().next(), to) {
            (None | Some('|' | '>' | '&' | '*' | '!'), _) | (_, Value::List(_) | Value::Map(_)) => {
                return Err(Unclear);
            }
            (Some('"'), Value::String(_)) => kiln_value::json::to_string(to),
            (Some('\''), Value::String(text)) if !text.contains(char::is_control) => {
                format!("'{}'", text.replace('\'', "''"))
            }
            _ if *around == Around::Flow => self.flow_text(to),
            _ => emit(to).trim_end().to_owned(),
        };
        if text.contains('\n') {
            return Err(Unclear);
        }
        self.splice(span, text);
        Ok(())
    }

    fn splice(&mut self, range: Range<usize>, text: String) {
        self.splices.push((range, text));
    }

    /// The whole text with all changes.
    fn finish(mut self) -> String {
        // What is put before a place comes before what changes there; otherwise the order in which they were made.
        self.splices.sort_by_key(|(range, _)| (range.start, range.end));
        let windows = self.text.contains("\r\n");
        let mut out = String::with_capacity(self.text.len());
        let mut at = 0;
        for (range, new) in self.splices {
            out.push_str(self.text.get(at..range.start).unwrap_or_default());
            if windows {
                out.push_str(&new.replace('\n', "\r\n"));
            } else {
                out.push_str(&new);
            }
            at = at.max(range.end);
        }
        out.push_str(&self.text[at..]);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;
    use proptest::prelude::*;

    fn rewritten(text: &str, change: impl FnOnce(&mut Value)) -> Result<String, Diagnostic> {
        let source = Arc::new(Source::new("f.yaml", text));
        let options = ReadOptions::kustomization();
        let documents = read(&source, options)?;
        let mut value = documents.into_iter().next().map_or_else(Value::map, Document::into_value);
        change(&mut value);
        rewrite(&source, options, &value)
    }

    #[test]
    fn only_what_changes_is_touched() {
        type Edit = fn(&mut Value);
        let push: Edit = |v| {
            v.get_mut("r").and_then(Value::as_list_mut).unwrap().push("c".into());
        };
        let remove: Edit = |v| {
            v.get_mut("r").and_then(Value::as_list_mut).unwrap().remove(0);
        };
        let set: Edit = |v| {
            v.set(["k"], "new").unwrap();
        };
        let drop_k: Edit = |v| {
            v.remove(["k"]);
        };
        let first: Edit = |v| {
            let list = v.get_mut("l").and_then(Value::as_list_mut).unwrap();
            list[0].set(["t"], "2").unwrap();
        };
        let cases: &[(&str, Edit, &str)] = &[
            (
                "r:\n- a # one\n# two\n- b # three\n",
                push,
                "r:\n- a # one\n# two\n- b # three\n- c\n",
            ),
            ("r:\n  - a\nk: 1\n", push, "r:\n  - a\n  - c\nk: 1\n"),
            ("r: [a, \"b\"]  # x\n", push, "r: [a, \"b\", c]  # x\n"),
            ("r: [\n  a,\n  b,\n]\n", push, "r: [\n  a,\n  b,\n  c\n]\n"),
            ("r: []\n", push, "r:\n- c\n"),
            ("{\"r\": [\"a\"]}", push, "{\"r\": [\"a\",\"c\"]}"),
            ("r:\n- a # one\n# two\n- b\n", remove, "r:\n# two\n- b\n"),
            ("r: [a, b]\n", remove, "r: [b]\n"),
            ("r:\n- - x\n  - y\n- b", remove, "r:\n- b"),
            ("k: \"old\" # why\nz: 1\n", set, "k: \"new\" # why\nz: 1\n"),
            ("k: 'old'\n", set, "k: 'new'\n"),
            ("k: |\n  old\n  text\n# end\n", set, "k: new\n# end\n"),
            ("k:\nz: 1\n", set, "k: new\nz: 1\n"),
            ("# only\n", set, "# only\nk: new\n"),
            ("a: 1\n# - c\n", set, "a: 1\n# - c\nk: new\n"),
            ("a: 1", set, "a: 1\nk: new"),
            ("a: 1\n---\nb: 2\n", set, "a: 1\nk: new\n---\nb: 2\n"),
            ("a: 1\r\nb: 2\r\n", set, "a: 1\r\nb: 2\r\nk: new\r\n"),
            ("k: |+\n  old\n\nz: 1\n", drop_k, "z: 1\n"),
            ("z: 1\nk:\n  m: |2+\n\n# end\n", drop_k, "z: 1\n# end\n"),
            ("a: 1\n# why\nk: # x\n  m: 1\n  n: 2\nz: 1\n", drop_k, "a: 1\n# why\nz: 1\n"),
            ("l:\n- n: x # c\n  t: \"1\"\n- n: y\n", first, "l:\n- n: x # c\n  t: \"2\"\n- n: y\n"),
            ("l:\n- n: x\n- n: y\n", first, "l:\n- n: x\n  t: \"2\"\n- n: y\n"),
            ("l: [{n: x, t: '1'}]\n", first, "l: [{n: x, t: '2'}]\n"),
        ];
        for (text, edit, wanted) in cases {
            assert_eq!(rewritten(text, edit).unwrap(), *wanted, "{text:?}");
        }
    }

    #[test]
    fn a_field_with_another_name_keeps_its_text() {
        let text = "# old\nbases: # these\n- ../a # one\n";
        let renamed = rewritten(text, |v| *v = value!({"resources": ["../a"]})).unwrap();
        assert_eq!(renamed, "# old\nresources: # these\n- ../a # one\n");
        let behind = rewritten("d: {}\n", |v| *v = value!({"c": "new", "a": {}})).unwrap();
        assert_eq!(behind, "c: new\na: {}\n");
    }

    #[test]
    fn aliases_are_written_out_or_refused() {
        let text = "a: &x [1]\nb: *x\n";
        let changed = rewritten(text, |v| *v = value!({"a": [1], "b": [1, 2]})).unwrap();
        assert_eq!(changed, "a: &x [1]\nb:\n- 1\n- 2\n");
        let refused = rewritten(text, |v| *v = value!({"a": [2], "b": [1]})).unwrap_err();
        assert!(refused.message.contains("cannot be changed in place"), "{refused}");
    }

    fn value() -> impl Strategy<Value = Value> {
        let text = prop_oneof!["[a-c]{1,3}", "[ -~]{0,12}", "[a\\n ]{0,8}"];
        let leaf = prop_oneof![
            text.prop_map(Value::from),
            (0_i64..20).prop_map(Value::from),
            any::<bool>().prop_map(Value::from),
            Just(Value::Null),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            let list = prop::collection::vec(inner.clone(), 0..4);
            let map = prop::collection::vec(("[a-e]", inner), 0..4);
            prop_oneof![list.prop_map(|list| Value::List(list.into())), map.prop_map(map_of),]
        })
    }

    fn map_of(entries: Vec<(String, Value)>) -> Value {
        let mut map = kiln_value::Map::new();
        for (key, value) in entries {
            map.insert(key.as_str(), value);
        }
        Value::Map(map)
    }

    proptest! {
        #[test]
        fn any_value_can_become_any_other(
            from in prop::collection::vec(("[a-e]", value()), 1..5),
            to in prop::collection::vec(("[a-e]", value()), 1..5),
            flow in any::<bool>(),
        ) {
            let (from, to) = (map_of(from), map_of(to));
            let text = if flow { kiln_value::json::to_string(&from) } else { emit(&from) };
            let source = Arc::new(Source::new("f.yaml", text.as_str()));
            let options = ReadOptions::kustomize_resource();
            let read_back = read(&source, options).unwrap();
            prop_assume!(read_back[0].value() == &from);
            let new = rewrite(&source, options, &to);
            prop_assert!(new.is_ok(), "{text}\n{to:?}");
            let new = Arc::new(Source::new("f.yaml", new.unwrap().as_str()));
            let read_back = read(&new, options).unwrap();
            prop_assert_eq!(read_back[0].value(), &to);
        }
    }
}
