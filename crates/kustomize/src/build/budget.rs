//! What a build may make besides what it reads.
//!
//! Values share their parts, so a small file can ask for more than any machine holds: a value that is copied into
//! itself doubles each time. Every step that copies, repeats or makes something pays for it here, with its size as it would
//! be printed. What is only read is limited by the readers.

use std::cell::Cell;

use kiln_value::{MAX_DEPTH, Value};

use crate::error::{Error, Result};

/// How many values the steps of one build may make.
pub(crate) const MAX_NODES: usize = 10_000_000;
/// How many bytes of text they may make.
pub(crate) const MAX_BYTES: usize = 512 << 20;
/// How many values may be looked at to find out how large something is.
const MAX_MEASURED: usize = 500_000_000;

const HINT: &str = "look for replacements, patches, vars, labels or annotations that copy values into themselves or into very many objects";

/// How large something is, as it would be printed: shared parts count each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) nodes: usize,
    pub(crate) bytes: usize,
    /// How deep lists and maps nest.
    pub(crate) depth: usize,
}

impl Size {
    pub(crate) fn of_text(text: &str) -> Self {
        Size { nodes: 1, bytes: text.len(), depth: 0 }
    }

    /// What one has that the other had not.
    fn beyond(self, before: Size) -> Size {
        Size {
            nodes: self.nodes.saturating_sub(before.nodes),
            bytes: self.bytes.saturating_sub(before.bytes),
            depth: self.depth,
        }
    }
}

/// What the steps of one build have made so far.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    nodes: Cell<usize>,
    bytes: Cell<usize>,
    measured: Cell<usize>,
}

impl Budget {
    /// Pays for something that is made.
    ///
    /// # Errors
    /// When that is more than a build may make.
    pub(crate) fn pay(&self, size: Size) -> Result<()> {
        self.nodes.set(self.nodes.get().saturating_add(size.nodes));
        self.bytes.set(self.bytes.get().saturating_add(size.bytes));
        if self.nodes.get() > MAX_NODES {
            return Err(
                Error::new(format!("one build makes more than {MAX_NODES} values")).hint(HINT)
            );
        }
        if self.bytes.get() > MAX_BYTES {
            return Err(Error::new(format!("one build makes more than {MAX_BYTES} bytes of text"))
                .hint(HINT));
        }
        Ok(())
    }

    /// How large a value is.
    ///
    /// # Errors
    /// When it is larger than a build may make.
    pub(crate) fn measure(&self, value: &Value) -> Result<Size> {
        let mut size = Size::default();
        if !add(value, 0, &mut size) {
            // Says which limit it is.
            self.pay(size)?;
            return Err(too_deep("a value nests"));
        }
        self.measured.set(self.measured.get().saturating_add(size.nodes));
        if self.measured.get() > MAX_MEASURED {
            return Err(Error::new(
                "the steps of one build copy or patch very large values too often",
            )
            .hint(HINT));
        }
        Ok(size)
    }

    /// Lets something change a value, and pays for what the value has grown.
    ///
    /// # Errors
    /// When it fails, or makes more than a build may make.
    pub(crate) fn pay_for_growth<T>(
        &self,
        of: &mut T,
        value: impl Fn(&T) -> &Value,
        change: impl FnOnce(&mut T) -> Result<()>,
    ) -> Result<()> {
        let before = self.measure(value(of))?;
        change(of)?;
        self.pay(self.measure(value(of))?.beyond(before))
    }
}

/// Refuses a path that leads deeper than values may nest, with what is put at its end.
///
/// # Errors
/// When it does.
pub(crate) fn check_path(parts: usize, below: usize) -> Result<()> {
    if parts.saturating_add(below) > MAX_DEPTH {
        return Err(too_deep("a field path leads"));
    }
    Ok(())
}

fn too_deep(what: &str) -> Error {
    Error::new(format!("{what} deeper than {MAX_DEPTH} levels"))
        .hint("no object of Kubernetes nests so deep: shorten the path, or look for values that are copied into themselves")
}

/// Adds the size of a value; stops as soon as it is too large.
fn add(value: &Value, depth: usize, size: &mut Size) -> bool {
    size.nodes += 1;
    size.depth = size.depth.max(depth);
    if size.nodes > MAX_NODES || size.bytes > MAX_BYTES || depth > MAX_DEPTH {
        return false;
    }
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
        Value::String(text) => {
            size.bytes += text.len();
            true
        }
        Value::List(list) => list.iter().all(|element| add(element, depth + 1, size)),
        Value::Map(map) => map.iter().all(|(key, value)| {
            size.bytes += key.len();
            add(value, depth + 1, size)
        }),
    }
}

/// The texts that a value holds itself, not those below.
pub(crate) fn own_size(value: &Value) -> Size {
    let text = |value: &Value| value.as_str().map_or(0, str::len);
    match value {
        Value::Map(map) => Size {
            nodes: map.len() + 1,
            bytes: map.iter().map(|(key, value)| key.len() + text(value)).sum(),
            depth: 0,
        },
        Value::List(list) => {
            Size { nodes: list.len() + 1, bytes: list.iter().map(text).sum(), depth: 0 }
        }
        scalar => Size { nodes: 1, bytes: text(scalar), depth: 0 },
    }
}

/// What the value at a field has grown by.
pub(crate) fn growth(before: Size, now: &Value) -> Size {
    own_size(now).beyond(before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    #[test]
    fn shared_parts_count_each_time() {
        let budget = Budget::default();
        let leaf = value!({"a": "bc"});
        let both = value!([leaf.clone(), leaf]);
        assert_eq!(budget.measure(&both).unwrap(), Size { nodes: 5, bytes: 6, depth: 2 });
        let mut doubled = value!("x");
        for _ in 0..60 {
            doubled = Value::from_iter([doubled.clone(), doubled]);
        }
        assert!(budget.measure(&doubled).unwrap_err().message().contains("values"));
    }

    #[test]
    fn a_build_pays_until_nothing_is_left() {
        let budget = Budget::default();
        budget.pay(Size { nodes: MAX_NODES, bytes: MAX_BYTES, depth: 0 }).unwrap();
        assert!(budget.pay(Size::of_text("x")).is_err());
    }
}
