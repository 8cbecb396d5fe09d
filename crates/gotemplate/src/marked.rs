//! Texts that know which of their parts came from the data, and which are the template's own.
//!
//! Readers of a rendering as YAML need to know: the template's text makes structure, what the data says never does.
//! Functions that put texts together keep the marks of each; whatever any other function makes of data is data as a whole,
//! so that no function can forget.

use std::ops::{Deref, Range};
use std::rc::Rc;

use kiln_value::Str;

/// A stretch of a rendering that came from the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataPart {
    /// Where it stands, in bytes.
    pub at: Range<usize>,
    /// What it says, where `quote` or `toJson` wrote it with escapes.
    pub unescaped: Option<Str>,
}

impl DataPart {
    /// How many bytes it counts for.
    pub(crate) const COST: u64 = 32;
}

/// A text with marks.
#[derive(Clone, Debug)]
pub(crate) struct Marked {
    text: Str,
    marks: Marks,
}

#[derive(Clone, Debug)]
enum Marks {
    /// It is the template's own.
    None,
    /// It came from the data.
    Whole,
    /// In order, apart from each other.
    Parts(Rc<[DataPart]>),
}

impl Marked {
    /// A text of the template.
    pub(crate) fn own(text: impl Into<Str>) -> Self {
        Marked { text: text.into(), marks: Marks::None }
    }

    /// A text of the data, be it empty: the result of a function on it is data, too.
    pub(crate) fn data(text: impl Into<Str>) -> Self {
        Marked { text: text.into(), marks: Marks::Whole }
    }

    pub(crate) fn with_parts(text: impl Into<Str>, parts: Vec<DataPart>) -> Self {
        let marks = if parts.is_empty() { Marks::None } else { Marks::Parts(parts.into()) };
        Marked { text: text.into(), marks }
    }

    pub(crate) fn has_data(&self) -> bool {
        !matches!(self.marks, Marks::None)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn into_text(self) -> Str {
        self.text
    }

    /// The same text, all of it data.
    pub(crate) fn as_data(&self) -> Self {
        Marked::data(self.text.clone())
    }

    /// The parts that lie in a range, as they lie in a text that this range begins at `start` of.
    pub(crate) fn parts_of(&self, range: Range<usize>, start: usize) -> Vec<DataPart> {
        let moved = |at: Range<usize>| at.start - range.start + start..at.end - range.start + start;
        match &self.marks {
            Marks::None => Vec::new(),
            Marks::Whole if range.is_empty() => Vec::new(),
            Marks::Whole => vec![DataPart { at: moved(range.clone()), unescaped: None }],
            Marks::Parts(parts) => {
                let first = parts.partition_point(|part| part.at.end <= range.start);
                let near = parts[first..].iter().take_while(|part| part.at.start < range.end);
                let inside = near.filter_map(|part| {
                    let at = part.at.start.max(range.start)..part.at.end.min(range.end);
                    // A piece of an escaped text says what it says.
                    let unescaped = part.unescaped.clone().filter(|_| at == part.at);
                    (at.start < at.end).then(|| DataPart { at: moved(at), unescaped })
                });
                inside.collect()
            }
        }
    }

    /// A stretch of the text, which must be one: what trimming left of it.
    pub(crate) fn stretch(&self, part: &str) -> Self {
        let start = (part.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        Marked::with_parts(Str::new(part), self.parts_of(start..start + part.len(), 0))
    }
}

impl Deref for Marked {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl From<Str> for Marked {
    fn from(text: Str) -> Self {
        Marked::own(text)
    }
}

impl From<String> for Marked {
    fn from(text: String) -> Self {
        Marked::own(text)
    }
}

impl From<&str> for Marked {
    fn from(text: &str) -> Self {
        Marked::own(Str::new(text))
    }
}

/// Whether what a function gives is made of the marked texts it was given, marks kept. What any other function makes of
/// data is data.
pub(crate) fn keeps_marks(function: &str) -> bool {
    matches!(
        function,
        // They hand on what they were given.
        "and" | "append" | "chunk" | "coalesce" | "compact" | "concat" | "deepCopy" | "default" | "dict" | "dig"
            | "first" | "get" | "index" | "initial" | "last" | "list" | "merge" | "mergeOverwrite" | "mustAppend"
            | "mustChunk" | "mustCompact" | "mustDeepCopy" | "mustFirst" | "mustInitial" | "mustLast" | "mustMerge"
            | "mustMergeOverwrite" | "mustPrepend" | "mustPush" | "mustRest" | "mustReverse" | "mustUniq"
            | "mustWithout" | "omit" | "or" | "pick" | "pluck" | "prepend" | "push" | "rest" | "reverse" | "set"
            | "ternary" | "toString" | "tuple" | "uniq" | "unset" | "values" | "without"
            // They put texts together, or take something off the ends.
            | "cat" | "indent" | "join" | "nindent" | "print" | "printf" | "println" | "replace" | "trim" | "trimAll"
            | "trimPrefix" | "trimSuffix" | "trimall"
            // They quote, so that what is inside of the quotes is data.
            | "mustToJson" | "mustToPrettyJson" | "mustToRawJson" | "quote" | "squote" | "toJson" | "toPrettyJson"
            | "toRawJson"
    )
}
