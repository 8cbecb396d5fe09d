//! Histories of what holds others: namespaces that end, kinds that are defined.

use kiln_value::{json, value};

use super::{JSON, MERGE, Maker};
use crate::compare::apiserver::history::{Action, Body};
use crate::compare::apiserver::objects::definition;

impl Maker {
    /// A namespace that ends with something in it.
    pub(super) fn ending_namespace(&mut self) {
        let (namespaces, place) = ("/api/v1/namespaces", "/api/v1/namespaces/${ns}-end");
        let inside = format!("{place}/configmaps");
        let object = |name: &str| {
            Body::Value(
                value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}),
            )
        };
        let mut namespace =
            value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "${ns}-end"}});
        if self.dice.once_in(3) {
            let _ = namespace.set(["metadata", "finalizers"], value!(["example.com/hold"]));
        }
        if self.dice.once_in(4) {
            let _ = namespace.set(["spec"], value!({"finalizers": ["example.com/other"]}));
        }
        self.send("POST", namespaces.to_owned(), JSON, Body::Value(namespace));
        self.send("POST", inside.clone(), JSON, object("a"));
        if self.dice.once_in(2) {
            self.push(Action::Watch, inside.clone(), JSON, Body::Nothing);
        }
        let (query, body) = self.delete_options(place);
        self.send("DELETE", place.to_owned(), JSON, body).query = query;
        for _ in 0..3 + self.dice.roll(4) {
            match self.dice.roll(7) {
                0 | 1 => drop(self.send("POST", inside.clone(), JSON, object("b"))),
                2 => drop(self.send("DELETE", place.to_owned(), JSON, Body::Nothing)),
                3 => drop(self.send("DELETE", inside.clone(), JSON, Body::Nothing)),
                4 => {
                    let finalizers = if self.dice.once_in(2) {
                        value!([])
                    } else {
                        value!(["kubernetes", "example.com/x"])
                    };
                    let edit = value!({"spec": {"finalizers": finalizers}});
                    self.send(
                        "PUT",
                        format!("{place}/finalize"),
                        JSON,
                        Body::Seen(place.to_owned(), edit),
                    );
                }
                5 => drop(self.send(
                    "PATCH",
                    place.to_owned(),
                    MERGE,
                    Body::Value(value!({"metadata": {"finalizers": null}})),
                )),
                _ => drop(self.send("GET", place.to_owned(), JSON, Body::Nothing)),
            }
        }
        // Whatever it holds goes, so that nothing is left behind.
        let edit = value!({"metadata": {"finalizers": null}});
        self.send("PATCH", place.to_owned(), MERGE, Body::Value(edit));
    }

    /// A kind that is defined, used and goes.
    pub(super) fn definition(&mut self) {
        let group = "${ns}.example.com";
        let mut body = definition(
            "things",
            "Thing",
            "Namespaced",
            &value!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {"a": {"type": "integer", "default": 2}, "b": {"type": "string"}}}}}),
        );
        let _ = body.set(["metadata", "name"], format!("things.{group}"));
        let _ = body.set(["spec", "group"], group);
        match self.dice.roll(6) {
            0 => drop(body.set(["spec", "names", "kind"], "thing")),
            1 => drop(body.set(["spec", "names", "shortNames"], value!(["th"]))),
            2 => drop(body.set(["spec", "versions", "0", "storage"], false)),
            _ => {}
        }
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let place = format!("{definitions}/things.{group}");
        let things = format!("/apis/{group}/v1/namespaces/${{ns}}/things");
        self.push(Action::Define, definitions.to_owned(), JSON, Body::Value(body));
        self.send("GET", place, JSON, Body::Nothing);
        for name in ["a", "b"] {
            let spec = json::parse(self.dice.one(&[r#"{"b":"x"}"#, r#"{"a":"x"}"#, r#"{"c":1}"#]))
                .unwrap_or_default();
            let thing = value!({"apiVersion": (format!("{group}/v1")), "kind": "Thing", "metadata": {"name": name}, "spec": spec});
            let query = self.write_options();
            self.send("POST", things.clone(), JSON, Body::Value(thing)).query = query;
        }
        self.send("GET", things, JSON, Body::Nothing);
    }
}
