//! Triggers whose latest change is ignored because its author is excluded.

use std::collections::{BTreeMap, BTreeSet};

use kiln_value::Str;

/// How many are remembered. The oldest is the least likely to be looked at again, and goes first.
const MOST: usize = 2_000;

/// Triggers by UID, and up to which revision their changes are ignored.
#[derive(Clone, Debug, Default)]
pub(crate) struct PassedOver {
    upto: BTreeMap<Str, u64>,
    by_age: BTreeSet<(u64, Str)>,
}

impl PassedOver {
    pub(crate) fn get(&self, uid: &str) -> Option<u64> {
        self.upto.get(uid).copied()
    }

    pub(crate) fn insert(&mut self, uid: &Str, revision: u64) {
        self.remove(uid);
        self.upto.insert(uid.clone(), revision);
        self.by_age.insert((revision, uid.clone()));
        if self.upto.len() > MOST
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.upto.remove(&oldest);
        }
    }

    /// Forgets a trigger; whether it was known.
    pub(crate) fn remove(&mut self, uid: &Str) -> bool {
        let known = self.upto.remove(uid);
        known.is_some_and(|revision| self.by_age.remove(&(revision, uid.clone())))
    }

    /// Forgets what is remembered of an object that is gone; whether something was.
    pub(crate) fn remove_of(&mut self, uid: &str) -> bool {
        let names = self.upto.range(Str::from(uid)..).map(|(name, _)| name);
        let names: Vec<Str> = names.take_while(|name| name.starts_with(uid)).cloned().collect();
        let known = names.iter().filter(|name| self.remove(name)).count();
        known > 0
    }

    pub(crate) fn to_map(&self) -> BTreeMap<Str, u64> {
        self.upto.clone()
    }
}

impl FromIterator<(Str, u64)> for PassedOver {
    fn from_iter<T: IntoIterator<Item = (Str, u64)>>(known: T) -> Self {
        let mut passed_over = PassedOver::default();
        for (uid, revision) in known {
            passed_over.insert(&uid, revision);
        }
        passed_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_remembered_and_no_more() {
        let uid = |number: u64| Str::from(format!("u{number}"));
        let mut passed_over: PassedOver =
            (0..100_000).map(|number| (uid(number), number)).collect();
        assert_eq!((passed_over.upto.len(), passed_over.by_age.len()), (MOST, MOST));
        assert_eq!(passed_over.get("u99999"), Some(99_999));
        assert_eq!(passed_over.get("u97999"), None);
        // What changes again is new again.
        passed_over.insert(&uid(98_000), 200_000);
        passed_over.insert(&uid(1), 200_001);
        assert_eq!(passed_over.get("u98000"), Some(200_000));
        assert_eq!(passed_over.get("u98001"), None, "it was the oldest");
        assert!(passed_over.remove(&uid(1)) && !passed_over.remove(&uid(1)));
        assert_eq!(passed_over.to_map().len(), MOST - 1);
        assert_eq!(passed_over.by_age.len(), MOST - 1);
    }
}
