//! Programs that look at an object through paths, and patch or refuse it.
//!
//! The rule's trigger says which kinds and operations concern it; the items here say which objects. They are looked at in
//! tiers: all rules of a tier see the object as it was when the tier began, and the patches follow one another.

use kiln_gotemplate::Template;
use kiln_jsonpath::Expression;
use kiln_text::Regex;
use kiln_value::{Path, Str};

/// Patches or refuses objects that paths describe.
#[derive(Clone, Debug)]
pub struct Modify {
    /// Which namespaces the rule looks at, beyond its scope.
    pub reach: NamespaceReach,
    /// Rules of lower tiers come first.
    pub tier: i16,
    /// What the object must be like: all items must hold.
    pub items: Vec<MatchItem>,
    pub action: ModifyAction,
    /// Whether the rule looks at objects that belong to the object: its namespace, the node of a Pod.
    pub asks_for_references: bool,
}

impl Modify {
    /// Whether it changes the object of the event, before that is stored.
    pub fn changes_trigger(&self) -> bool {
        matches!(self.action, ModifyAction::Patch(_))
    }

    /// Whether an object of this kind can be what the items ask for, as far as those about its kind tell.
    pub fn may_take_kind(&self, kind: &str) -> bool {
        self.items.iter().filter(|item| item.is_about_kind()).all(|item| {
            let held = match &item.test {
                ValueTest::Any => true,
                ValueTest::Values(values) => values.iter().any(|value| value == kind),
                ValueTest::Regex(regex) => regex.is_match(kind),
            };
            held != item.negate
        })
    }

    /// The kinds that an item asks for by name, if one does.
    pub fn named_kinds(&self) -> Option<&[Str]> {
        self.items.iter().filter(|item| item.is_about_kind() && !item.negate).find_map(|item| {
            match &item.test {
                ValueTest::Values(values) => Some(values.as_slice()),
                ValueTest::Any | ValueTest::Regex(_) => None,
            }
        })
    }
}

impl MatchItem {
    fn is_about_kind(&self) -> bool {
        self.select.source().trim() == "$.kind"
    }
}

/// Which namespaces a rule looks at. A Namespace is in none.
#[derive(Clone, Debug)]
pub enum NamespaceReach {
    /// The namespaces of its scope.
    Scope,
    /// Its own, and those whose name matches; that of a cluster-scoped object is the empty text. Without an expression,
    /// its own and cluster-scoped objects.
    Beyond {
        /// The namespace that the rule lives in.
        own: Str,
        /// What names must match.
        names: Option<Regex>,
    },
}

/// A condition on an object.
#[derive(Clone, Debug)]
pub struct MatchItem {
    /// What to look at. A boolean is the verdict itself; null, undefined, an error or an empty list is no.
    pub select: Expression,
    /// What the values must be like, as text.
    pub test: ValueTest,
    /// How many of several values must pass.
    pub quantifier: Quantifier,
    /// Whether the verdict is inverted.
    pub negate: bool,
    /// Where it was written, from the root of the rule's document.
    pub path: Path,
}

/// What a value must be like, as text.
#[derive(Clone, Debug)]
pub enum ValueTest {
    /// Anything.
    Any,
    /// One of these values, exactly.
    Values(Vec<Str>),
    /// It must match, anywhere.
    Regex(Regex),
}

/// How many of several values must pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantifier {
    Any,
    All,
}

/// What to do with an object.
#[derive(Clone, Debug)]
pub enum ModifyAction {
    /// Patch it. All operations are computed from the object before the rule, and apply together or not at all.
    Patch(Vec<PatchItem>),
    /// Refuse it, with a message to fill in.
    Reject(Option<Template>),
}

/// An operation, or one for each selected place.
#[derive(Clone, Debug)]
pub struct PatchItem {
    pub action: PatchAction,
    /// The places to run for; once without it.
    pub select: Option<Expression>,
    /// A JSON Pointer; with `select`, `#0` and so on stand for captured keys.
    pub pointer: Str,
    /// Where something is moved or copied from, in the same form.
    pub from: Option<Str>,
    /// The value: a text to fill in and then to read as YAML; null without it.
    pub value: Option<Template>,
    /// Where it was written, from the root of the rule's document.
    pub path: Path,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchAction {
    /// Sets a member, or inserts an element; missing parents are made.
    Add,
    /// Sets an existing value.
    Replace,
    /// Removes an existing value, if any.
    Remove,
    /// Nothing of the rule is done unless this is there.
    Test,
    /// Takes something away, and puts it elsewhere.
    Move,
    /// Puts something elsewhere as well.
    Copy,
}
