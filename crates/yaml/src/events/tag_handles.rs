//! What `%TAG` directives declare: handles and the prefixes that they stand for.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};

/// The longest prefix. Every tag that uses a handle is written out with its prefix, so a long one would
/// make a text cost its length times the number of its tags. Real prefixes are addresses.
const LONGEST_PREFIX: usize = 1024;

/// The handles of one document. A directive costs the same however many there are.
#[derive(Default)]
pub(crate) struct TagHandles<'t> {
    prefixes: HashMap<Handle<'t>, Box<str>>,
}

impl<'t> TagHandles<'t> {
    pub(crate) fn clear(&mut self) {
        // A new map rather than an empty one: clearing costs the room that an earlier document needed.
        if !self.prefixes.is_empty() {
            self.prefixes = HashMap::new();
        }
    }

    /// Takes a directive, or says what is wrong with it.
    pub(crate) fn declare(
        &mut self,
        handle: &'t str,
        prefix: Box<str>,
    ) -> Result<(), &'static str> {
        if prefix.len() > LONGEST_PREFIX {
            return Err("found a %TAG prefix of more than 1024 bytes");
        }
        match self.prefixes.insert(Handle(handle), prefix) {
            Some(_) => Err("found duplicate %TAG directive"),
            None => Ok(()),
        }
    }

    pub(crate) fn prefix<'s>(&'s self, handle: &'s str) -> Option<&'s str> {
        // Most documents declare none, and ask for every tag.
        if self.prefixes.is_empty() {
            return None;
        }
        self.prefixes.get(&Handle(handle)).map(|prefix| &**prefix)
    }
}

/// A handle; tests count how often two are compared.
struct Handle<'t>(&'t str);

impl PartialEq for Handle<'_> {
    fn eq(&self, other: &Self) -> bool {
        #[cfg(test)]
        tests::COMPARED.with(|compared| compared.set(compared.get() + 1));
        self.0 == other.0
    }
}

impl Eq for Handle<'_> {}

impl Hash for Handle<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use crate::{ReadOptions, read_bytes};

    thread_local! {
        pub(super) static COMPARED: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn the_work_for_directives_grows_with_their_number_only() {
        let count = 20_000;
        let mut text: String = (0..count).map(|at| format!("%TAG !t{at}! tag:a\n")).collect();
        text.push_str("---\n");
        text.extend((0..count).map(|at| format!("- !t{at}!s x\n")));
        let before = COMPARED.get();
        read_bytes("f", text.as_bytes(), ReadOptions::kustomization()).unwrap();
        // Each is compared with itself where a tag uses it, and rarely with another.
        let compared = COMPARED.get() - before;
        assert!((count..8 * count).contains(&compared), "{compared} comparisons");
    }
}
