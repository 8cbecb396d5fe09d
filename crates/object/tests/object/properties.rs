//! Laws that hold for any selector and object.

use kiln_object::{Gvk, Selector, list};
use kiln_value::{Value, value};
use proptest::prelude::*;

proptest! {
    #[test]
    fn selectors_survive_printing(text in "[ab]{1,2}( in \\(a,b?\\)| notin \\(b\\)|=a|!=b|==|>1|<2)?(,!?[cd])?") {
        let selector = Selector::parse(&text).unwrap();
        prop_assert_eq!(Selector::parse(&selector.to_string()).unwrap(), selector);
    }

    #[test]
    fn any_text_is_a_selector_or_refused(text in "[ab,=!()<> \té]{0,12}|(in|notin|a|\\(|\\)|,|=| ){0,8}") {
        if let Ok(selector) = Selector::parse(&text) {
            prop_assert_eq!(Selector::parse(&selector.to_string()).unwrap(), selector);
        }
    }

    #[test]
    fn negated_requirements_are_opposites(key in "[ab]", value in "[xy]?", label in "[ab]", has in "[xy]?") {
        let labels = value!({label: has});
        let matches = |text: String| Selector::parse(&text).unwrap().matches(labels.as_map());
        prop_assert_ne!(matches(format!("{key}={value}")), matches(format!("{key}!={value}")));
        prop_assert_ne!(matches(format!("{key} in ({value})")), matches(format!("{key} notin ({value})")));
        prop_assert_ne!(matches(key.clone()), matches(format!("!{key}")));
    }

    #[test]
    fn kinds_survive_printing(group in "[a-z.]{0,5}", version in "v[1-9]", kind in "[A-Z][a-z]{0,5}") {
        let gvk = Gvk { group: group.into(), version: version.into(), kind: kind.into() };
        prop_assert_eq!(Gvk::parse(&gvk.to_string()), Some(gvk));
    }

    #[test]
    fn lists_hold_what_was_put_in(names in prop::collection::vec("[a-z]{1,3}", 0..6), depth in 0_usize..40) {
        let objects: Vec<Value> = names.iter().map(|name| value!({"kind": "A", "name": name})).collect();
        let mut nested = value!({"kind": "List"});
        nested.set(["items"], objects.clone()).unwrap();
        for _ in 0..depth {
            let mut outer = value!({"kind": "List"});
            outer.set(["items"], vec![nested]).unwrap();
            nested = outer;
        }
        prop_assert_eq!(list::flatten(nested), objects);
    }
}
