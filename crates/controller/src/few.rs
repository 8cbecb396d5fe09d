//! Sets that mostly have one member.
//!
//! A `BTreeSet` of one has room for eleven: with keys of 100 bytes that is more than 1 kB for each downstream, and one
//! rule and trigger want most of them.

use std::collections::{BTreeSet, btree_set};

/// A set in order, that takes no memory of its own for one member.
#[derive(Debug)]
pub(crate) enum FewOf<T> {
    One(T),
    Many(BTreeSet<T>),
}

impl<T> Default for FewOf<T> {
    fn default() -> Self {
        FewOf::Many(BTreeSet::new())
    }
}

impl<T: Ord> FewOf<T> {
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, FewOf::Many(members) if members.is_empty())
    }

    pub(crate) fn insert(&mut self, member: T) {
        *self = match std::mem::take(self) {
            FewOf::One(one) if one == member => FewOf::One(one),
            FewOf::One(one) => FewOf::Many(BTreeSet::from([one, member])),
            FewOf::Many(members) if members.is_empty() => FewOf::One(member),
            FewOf::Many(mut members) => {
                members.insert(member);
                FewOf::Many(members)
            }
        };
    }

    pub(crate) fn remove(&mut self, member: &T) {
        match self {
            FewOf::One(one) if one == member => *self = FewOf::default(),
            FewOf::One(_) => {}
            FewOf::Many(members) => {
                members.remove(member);
            }
        }
    }

    /// The members in order.
    pub(crate) fn iter(&self) -> FewIter<'_, T> {
        match self {
            FewOf::One(one) => FewIter::One(Some(one)),
            FewOf::Many(members) => FewIter::Many(members.iter()),
        }
    }
}

pub(crate) enum FewIter<'s, T> {
    One(Option<&'s T>),
    Many(btree_set::Iter<'s, T>),
}

impl<'s, T> Iterator for FewIter<'s, T> {
    type Item = &'s T;

    fn next(&mut self) -> Option<&'s T> {
        match self {
            FewIter::One(one) => one.take(),
            FewIter::Many(members) => members.next(),
        }
    }
}

impl<'s, T: Ord> IntoIterator for &'s FewOf<T> {
    type Item = &'s T;
    type IntoIter = FewIter<'s, T>;

    fn into_iter(self) -> FewIter<'s, T> {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_one_set_whatever_its_size() {
        let mut set = FewOf::default();
        let members = |set: &FewOf<u8>| set.iter().copied().collect::<Vec<_>>();
        assert!(set.is_empty() && members(&set).is_empty());
        for (member, wanted) in [(5, &[5][..]), (5, &[5]), (3, &[3, 5]), (9, &[3, 5, 9])] {
            set.insert(member);
            assert_eq!(members(&set), wanted);
        }
        for (member, wanted) in [(4, &[3, 5, 9][..]), (5, &[3, 9]), (3, &[9]), (9, &[])] {
            set.remove(&member);
            assert_eq!(members(&set), wanted);
        }
        assert!(set.is_empty());
        set.insert(1);
        set.remove(&2);
        assert_eq!(members(&set), [1]);
        set.remove(&1);
        assert!(set.is_empty());
    }
}
