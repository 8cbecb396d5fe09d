//! Writes a changed YAML text again in the style it was written in.
//!
//! kustomize edits YAML that stands in a field as a tree of nodes that remember their style and their
//! comments. The same comes out here: quotes, flow collections, comments and the order of keys stay,
//! indentation becomes the usual one, and blank lines go.

use kiln_value::{Path, Value};
use kiln_yaml::{Document, Places};

use comments::Comments;

mod comments;

/// The text of a document whose value has become `new`, with other values at the places `replaced`. `None` when
/// it has a comment that belongs to nothing in particular, or scalars over several lines in a form that
/// is not kept.
pub(crate) fn restyle(document: &Document, new: &Value, replaced: &[&Path]) -> Option<String> {
    let places = document.places();
    let text = document.source().text();
    let comments = Comments::of(text, document.value(), &places, replaced)?;
    let mut writer = StyleWriter {
        text,
        places: &places,
        original: document.value(),
        out: String::new(),
        comments,
    };
    for line in writer.comments.take_top() {
        writer.out.push_str(line);
        writer.out.push('\n');
    }
    writer.block(new, &mut Path::root(), 0, Begun::Line)?;
    writer.comments.are_written().then_some(writer.out)
}

struct StyleWriter<'d> {
    text: &'d str,
    places: &'d Places,
    original: &'d Value,
    out: String,
    comments: Comments<'d>,
}

/// What stands on the line already.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begun {
    /// Nothing.
    Line,
    /// `key:`
    Key,
    /// `- `
    Item,
}

impl<'d> StyleWriter<'d> {
    /// How a value was written, if it was there before.
    fn written(&self, path: &Path) -> Option<&'d str> {
        self.original.get_path(path)?;
        self.text.get(self.places.value(path).span())
    }

    fn is_flow(&self, path: &Path) -> bool {
        self.written(path).is_some_and(|text| text.starts_with(['{', '[']))
    }

    fn block(&mut self, value: &Value, path: &mut Path, indent: usize, begun: Begun) -> Option<()> {
        let is_empty = match value {
            Value::Map(map) => map.is_empty(),
            Value::List(list) => list.is_empty(),
            _ => true,
        };
        if is_empty || self.is_flow(path) {
            if begun == Begun::Key {
                self.out.push(' ');
            }
            self.flow(value, path, indent)?;
            if self.original.get_path(&*path).is_some() {
                self.comment_after(self.places.value(path).span().end);
            }
            self.out.push('\n');
            return Some(());
        }
        if begun == Begun::Key {
            if self.original.get_path(&*path).is_some() {
                self.comment_after(self.places.key(path).span().end);
            }
            self.out.push('\n');
        }
        match value {
            Value::Map(map) => {
                for (at, (key, inner)) in map.iter().enumerate() {
                    path.push(key);
                    if at > 0 || begun != Begun::Item {
                        self.comments_before(path, indent);
                        self.out.push_str(&" ".repeat(indent));
                    }
                    self.key(key, path);
                    let inner_indent = match inner {
                        // Lists are not indented below their key.
                        Value::List(_) => indent,
                        _ => indent + 2,
                    };
                    self.block(inner, path, inner_indent, Begun::Key)?;
                    path.pop();
                }
            }
            Value::List(list) => {
                for (at, inner) in list.iter().enumerate() {
                    path.push(at);
                    if at > 0 || begun != Begun::Item {
                        self.comments_before(path, indent);
                        self.out.push_str(&" ".repeat(indent));
                    }
                    self.out.push_str("- ");
                    self.block(inner, path, indent + 2, Begun::Item)?;
                    path.pop();
                }
            }
            _ => {}
        }
        Some(())
    }

    /// The comments on the lines above a key or an element.
    fn comments_before(&mut self, path: &Path, indent: usize) {
        if self.original.get_path(path).is_none() {
            return;
        }
        for line in self.comments.take_above(self.places.key(path).span().start) {
            self.out.push_str(&" ".repeat(indent));
            self.out.push_str(line);
            self.out.push('\n');
        }
    }

    /// The comment behind something on its line.
    fn comment_after(&mut self, end: usize) {
        if let Some(comment) = self.comments.take_behind(end) {
            self.out.push(' ');
            self.out.push_str(comment);
        }
    }

    fn key(&mut self, key: &str, path: &Path) {
        let written = self
            .original
            .get_path(path)
            .and_then(|_| self.text.get(self.places.key(path).span()))
            .map(|text| text.trim_end_matches([':', ' ']).to_owned());
        let shown = written.unwrap_or_else(|| plain(&Value::from(key)));
        self.out.push_str(&shown);
        self.out.push(':');
    }

    /// A scalar, or a collection on one line.
    fn flow(&mut self, value: &Value, path: &mut Path, indent: usize) -> Option<()> {
        match value {
            Value::Map(map) => {
                self.out.push('{');
                for (at, (key, inner)) in map.iter().enumerate() {
                    if at > 0 {
                        self.out.push_str(", ");
                    }
                    path.push(key);
                    self.key(key, path);
                    self.out.push(' ');
                    self.flow(inner, path, indent)?;
                    path.pop();
                }
                self.out.push('}');
            }
            Value::List(list) => {
                self.out.push('[');
                for (at, inner) in list.iter().enumerate() {
                    if at > 0 {
                        self.out.push_str(", ");
                    }
                    path.push(at);
                    self.flow(inner, path, indent)?;
                    path.pop();
                }
                self.out.push(']');
            }
            scalar => {
                let text = self.scalar(scalar, path, indent)?;
                self.out.push_str(&text);
            }
        }
        Some(())
    }

    fn scalar(&self, value: &Value, path: &Path, indent: usize) -> Option<String> {
        let Some(written) = self.written(path) else { return single_line(plain(value)) };
        let unchanged = self.original.get_path(path) == Some(value);
        if unchanged && written.starts_with(['|', '>']) {
            return block_scalar(written, indent);
        }
        if unchanged {
            return single_line(written.to_owned());
        }
        styled(value, written)
    }
}

/// A scalar in the quotes of the one it replaces; `None` when it needs several lines.
pub(crate) fn styled(value: &Value, replaced: &str) -> Option<String> {
    match (replaced.chars().next(), value) {
        (Some('|' | '>'), _) => None,
        (Some('"'), Value::String(text)) => {
            Some(kiln_value::json::to_string(&Value::from(text.clone())))
        }
        (Some('\''), Value::String(text)) => single_line(format!("'{}'", text.replace('\'', "''"))),
        _ => single_line(plain(value)),
    }
}

fn plain(value: &Value) -> String {
    kiln_yaml::emit(value).trim_end().to_owned()
}

fn single_line(text: String) -> Option<String> {
    (!text.contains('\n')).then_some(text)
}

/// A block scalar with its lines moved to a new indentation.
fn block_scalar(written: &str, indent: usize) -> Option<String> {
    let (header, body) = written.split_once('\n')?;
    if header.bytes().any(|b| b.is_ascii_digit()) {
        return None;
    }
    let lines = || body.lines().filter(|line| !line.trim().is_empty());
    let margin = lines().map(|line| line.len() - line.trim_start_matches(' ').len()).min()?;
    let mut text = header.to_owned();
    for line in body.trim_end_matches(['\n', ' ']).lines() {
        text.push('\n');
        if !line.trim().is_empty() {
            text.push_str(&" ".repeat(indent));
            text.push_str(&line[margin.min(line.len())..]);
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use kiln_diagnostic::Source;
    use kiln_yaml::ReadOptions;

    fn changed(text: &str, at: &[&str], new: &str) -> Option<String> {
        let source = Arc::new(Source::new("text", text));
        let document =
            kiln_yaml::read(&source, ReadOptions::kustomize_resource()).unwrap().remove(0);
        let mut value = document.value().clone();
        *value.get_path_mut(at.iter().copied()).unwrap() = new.into();
        restyle(&document, &value, &[])
    }

    #[test]
    fn indentation_is_the_usual_one_and_styles_stay() {
        let text =
            "a:\n    - b: \"x\"\n      c: [1,  {d: e}]\n'k': |\n    line\n      more\nz: old\n";
        assert_eq!(
            changed(text, &["z"], "new").unwrap(),
            "a:\n- b: \"x\"\n  c: [1, {d: e}]\n'k': |\n  line\n    more\nz: new\n"
        );
        assert_eq!(changed("a: \"x\"\n", &["a"], "y").unwrap(), "a: \"y\"\n");
        assert_eq!(changed("a: 'x'\n", &["a"], "it's").unwrap(), "a: 'it''s'\n");
        assert_eq!(changed("a: {\n  b: x,\n}\n", &["a", "b"], "z").unwrap(), "a: {b: z}\n");
    }

    #[test]
    fn comments_stay_where_they_belong() {
        let text = "# top\n\n# of a\na: x   # why\n\nb: # of b\n    # of c\n    c: 1\n    # of d\n    d: [1]  # list\n\nl:\n  # first\n  - a # one\n  - \"#b\"\n";
        assert_eq!(
            changed(text, &["a"], "new").unwrap(),
            "# top\n\n# of a\na: new # why\nb: # of b\n  # of c\n  c: 1\n  # of d\n  d: [1] # list\nl:\n# first\n- a # one\n- \"#b\"\n"
        );
        // What belongs to nothing in particular.
        for text in ["a: x\n# end\n", "a: x\n# of a\n\nb: y\n", "a: x\nb: [1, # one\n  2]\n"] {
            assert_eq!(changed(text, &["a"], "y"), None, "{text}");
        }
    }
}
