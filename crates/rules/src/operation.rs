//! What a request does to an object.

use std::fmt;
use std::str::FromStr;

/// What a request does to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// The object is new.
    Create,
    /// The object changes.
    Update,
    /// The object goes away.
    Delete,
    /// A connection to a subresource, such as `pods/exec`.
    Connect,
}

impl Operation {
    /// All of them, in the order users list them.
    pub const ALL: [Operation; 4] =
        [Operation::Create, Operation::Update, Operation::Delete, Operation::Connect];

    /// The word in an admission request.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that is not an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownOperation(pub String);

impl fmt::Display for UnknownOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown operation {:?}: use CREATE, UPDATE, DELETE or CONNECT", self.0)
    }
}

impl std::error::Error for UnknownOperation {}

impl FromStr for Operation {
    type Err = UnknownOperation;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Operation::ALL
            .into_iter()
            .find(|operation| operation.as_str() == word)
            .ok_or_else(|| UnknownOperation(word.to_owned()))
    }
}

/// A set of operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Operations(u8);

impl Operations {
    /// The set with nothing in it.
    pub const NONE: Operations = Operations(0);
    /// The set of every operation.
    pub const ALL: Operations = Operations(0b1111);

    /// Whether the set has nothing in it.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether an operation is in the set.
    pub fn contains(self, operation: Operation) -> bool {
        self.0 & (1 << operation as u8) != 0
    }

    /// What is in this set or in the other.
    #[must_use]
    pub fn union(self, other: Operations) -> Operations {
        Operations(self.0 | other.0)
    }

    /// The members, in the order of [`Operation::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Operation> {
        Operation::ALL.into_iter().filter(move |operation| self.contains(*operation))
    }
}

impl FromIterator<Operation> for Operations {
    fn from_iter<I: IntoIterator<Item = Operation>>(operations: I) -> Self {
        Operations(operations.into_iter().fold(0, |set, operation| set | 1 << operation as u8))
    }
}

impl fmt::Display for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self.iter().map(Operation::as_str).collect();
        f.write_str(&words.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_hold_what_they_were_given() {
        let set: Operations = [Operation::Delete, Operation::Create].into_iter().collect();
        assert!(set.contains(Operation::Delete));
        assert!(!set.contains(Operation::Update));
        assert_eq!(set.to_string(), "CREATE, DELETE");
        assert_eq!(set.union(Operations::ALL), Operations::ALL);
        assert!(Operations::NONE.is_empty());
    }

    #[test]
    fn words_are_read_exactly() {
        assert_eq!("UPDATE".parse(), Ok(Operation::Update));
        assert!("update".parse::<Operation>().is_err());
    }
}
