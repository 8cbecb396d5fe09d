//! What a user gives to a sandbox: rules and resources, where they stand in files, and in which order they can be
//! stored.

use std::collections::BTreeSet;
use std::sync::Arc;

use kiln_diagnostic::{Diagnostic, SourceLocation};
use kiln_dialects::{PolicyHost, is_not_run};
use kiln_object::policy_kinds::is_policy_group;
use kiln_object::{Gvk, Kinds, ObjectId, identity, list, metadata};
use kiln_sandbox::Refusal;
use kiln_value::{Path, Value};
use kiln_yaml::Document;

use crate::args::Global;
use crate::exit::CommandFailure;
use crate::policy_files::{compile_for_stored, compile_rules, more_kinds, read_all};
use crate::ui::Ui;

/// An object, and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) object: Value,
    /// The document that holds it and the way to it; none for objects of our own.
    origin: Option<(Arc<Document>, Path)>,
}

impl Item {
    /// An object that stands in no file.
    pub(super) fn own(object: Value) -> Self {
        Item { object, origin: None }
    }

    /// Where a field stands, or what is nearest to it.
    fn place(&self, field: &str) -> Option<SourceLocation> {
        let (document, way) = self.origin.as_ref()?;
        let mut path = way.clone();
        for part in field.split(['.', '[']).filter(|part| !part.is_empty()) {
            match part.strip_suffix(']').map(str::parse::<usize>) {
                Some(Ok(index)) => path.push(index),
                // Keys in brackets and the like: as near as this is near enough.
                Some(Err(_)) => break,
                None => path.push(part),
            }
        }
        Some(document.locate(&path))
    }

    fn name(&self) -> String {
        ObjectId::of(&self.object)
            .map_or_else(|_| identity::describe(&self.object), |id| called(&id))
    }

    /// Why it is not stored, where, and what to do next.
    pub(super) fn refused(&self, why: &Refusal, namespace: &str) -> Diagnostic {
        let field = if why.field.is_empty() { "metadata.name" } else { &why.field };
        let problem = Diagnostic::error(format!("{} is not stored: {why}", self.name()))
            .maybe_hint(self.hint(why, namespace));
        match self.place(field) {
            Some(place) => problem.at(place),
            None => problem,
        }
    }

    fn hint(&self, why: &Refusal, namespace: &str) -> Option<String> {
        let api_version = self.object.str_at(["apiVersion"]).unwrap_or_default();
        let group = api_version.split('/').next().unwrap_or_default();
        let of_engine = is_policy_group(group) || group == "api.kubemod.io";
        match why.reason.as_str() {
            "NotServed" if of_engine => {
                Some("--bare leaves out the engine and its kinds".to_owned())
            }
            "NotServed" => Some(
                "give its CustomResourceDefinition along, in RULES or with --resource".to_owned(),
            ),
            "NotFound" if why.message.starts_with("namespaces ") => {
                let missing = metadata::namespace(&self.object).unwrap_or(namespace);
                Some(format!("give the Namespace {missing} along, or another metadata.namespace"))
            }
            "BadRequest" if why.message.starts_with("it has no") => {
                Some("a resource has apiVersion, kind and metadata.name".to_owned())
            }
            "BadRequest" | "Invalid" => Some("fix it, and apply it with kubectl".to_owned()),
            _ if why.message.contains("denied the request") => {
                Some("change the rule or policy that denies it, or the object".to_owned())
            }
            _ => None,
        }
    }

    fn is(&self, api_version: &str, kind: &str) -> bool {
        let text = |field| self.object.str_at([field]).unwrap_or_default();
        text("kind") == kind && text("apiVersion").starts_with(api_version)
    }

    fn is_namespace(&self) -> bool {
        self.is("v1", "Namespace")
    }

    fn is_definition(&self) -> bool {
        self.is("apiextensions.k8s.io/", "CustomResourceDefinition")
    }
}

/// An object as users call it: `Pod shop/web`.
pub(super) fn called(id: &ObjectId) -> String {
    let (kind, name) = (&id.gvk.kind, &id.name);
    match id.namespace.as_str() {
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}

/// Rules and resources.
#[derive(Debug, Default)]
pub(super) struct Given {
    pub(super) rules: Vec<Item>,
    pub(super) resources: Vec<Item>,
    kinds: Kinds,
}

impl Given {
    /// Reads files, and checks the policies in them as `kiln check` does.
    ///
    /// # Errors
    /// When something cannot be read, or a policy is not valid: that has been shown then.
    pub(super) fn read(
        ui: &Ui,
        global: &Global,
        rules: &[String],
        resources: &[String],
        has_data: bool,
    ) -> Result<Self, CommandFailure> {
        let rules = read_all(rules, global)?;
        let resources = read_all(resources, global)?;
        let mut kinds = Kinds::builtin();
        let own = kiln_install::own_definitions();
        for definition in kiln_install::definitions().into_iter().chain(own) {
            // Definitions of our own.
            kinds = kinds.clone().with_crd(&definition).unwrap_or(kinds);
        }
        let kinds = more_kinds(kinds, rules.iter().chain(&resources))?;
        let all: Vec<Document> = rules.iter().chain(&resources).cloned().collect();
        let compiled = if has_data {
            compile_for_stored(ui, &all, &kinds)
        } else {
            compile_rules(ui, PolicyHost::Cluster, &all, &[], &kinds)
        };
        if compiled.has_errors() {
            return Err(CommandFailure::BadInput(Vec::new()));
        }
        // Of a policy that is not run a note said so; its kind is not served unless a definition is given.
        let is_served = |document: &Document| {
            !is_not_run(document)
                || Gvk::of(document.value()).is_some_and(|gvk| kinds.get(&gvk).is_some())
        };
        let [rules, resources] = [rules, resources]
            .map(|documents| items(documents.into_iter().filter(&is_served).collect()));
        Ok(Given { rules, resources, kinds })
    }

    /// What is to be stored, in turns: definitions of kinds before the engine begins, then rules, then more rules
    /// with the Namespaces that they need, then the rest. Rules are at work before the next turn begins.
    ///
    /// Namespaces come before what is in them, whatever the order of the files. A Namespace among the resources
    /// comes after all rules that are not in such a one: it may set them off.
    pub(super) fn turns(&self, namespace: &str) -> [Vec<&Item>; 4] {
        let names = |items: &[Item]| -> BTreeSet<String> {
            let namespaces = items.iter().filter(|item| item.is_namespace());
            namespaces.filter_map(|item| metadata::name(&item.object)).map(str::to_owned).collect()
        };
        let (early, late) = (names(&self.rules), names(&self.resources));
        let waits = |item: &&Item| {
            let place = metadata::namespace(&item.object).unwrap_or_else(|| {
                let kind = Gvk::of(&item.object).and_then(|gvk| self.kinds.get(&gvk).cloned());
                if kind.is_some_and(|kind| kind.is_namespaced()) { namespace } else { "" }
            });
            late.contains(place) && !early.contains(place)
        };
        let definitions = self.rules.iter().chain(&self.resources).filter(|it| it.is_definition());
        let (first, rest): (Vec<&Item>, Vec<&Item>) =
            self.rules.iter().filter(|it| !it.is_definition()).partition(|it| it.is_namespace());
        let (waiting, at_once): (Vec<&Item>, Vec<&Item>) = rest.into_iter().partition(waits);
        let (namespaces, objects): (Vec<&Item>, Vec<&Item>) = self
            .resources
            .iter()
            .filter(|it| !it.is_definition())
            .partition(|it| it.is_namespace());
        [
            definitions.collect(),
            first.into_iter().chain(at_once).collect(),
            namespaces.into_iter().chain(waiting).collect(),
            objects,
        ]
    }
}

/// The objects of documents, lists taken apart.
fn items(documents: Vec<Document>) -> Vec<Item> {
    let mut found = Vec::new();
    for document in documents {
        let document = Arc::new(document);
        let mut waiting = vec![(Path::root(), document.value().clone())];
        while let Some((path, object)) = waiting.pop() {
            match list::items(&object) {
                Some(items) => {
                    let way = path.join("items");
                    let inner = items.into_iter().enumerate();
                    waiting.extend(inner.map(|(at, item)| (way.join(at), item)).rev());
                }
                None if object.is_null() => {}
                None => {
                    found.push(Item { object, origin: Some((Arc::clone(&document), path)) });
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use kiln_yaml::{ReadOptions, read_bytes};

    use super::*;

    fn given(rules: &str, resources: &str) -> Given {
        let read = |name: &str, text: &str| {
            items(read_bytes(name, text.as_bytes(), ReadOptions::kubernetes()).unwrap())
        };
        Given {
            rules: read("rules.yaml", rules),
            resources: read("resources.yaml", resources),
            kinds: Kinds::builtin(),
        }
    }

    fn names(items: &[&Item]) -> Vec<String> {
        items.iter().map(|item| item.name()).collect()
    }

    #[test]
    fn what_others_need_comes_first() {
        let rules = "
{apiVersion: v1, kind: ConfigMap, metadata: {name: here, namespace: shop}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: there, namespace: sources}}
---
{apiVersion: kyverno.io/v1, kind: ClusterPolicy, metadata: {name: all}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: sources}}
";
        let resources = "
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}}
- {apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: carts.example.com}}
";
        let given = given(rules, resources);
        let [kinds, first, second, third] = given.turns("default");
        assert_eq!(names(&kinds), ["CustomResourceDefinition carts.example.com"]);
        assert_eq!(
            names(&first),
            ["Namespace sources", "ConfigMap sources/there", "ClusterPolicy all"]
        );
        assert_eq!(names(&second), ["Namespace shop", "ConfigMap shop/here"]);
        assert_eq!(names(&third), ["Pod shop/web"]);
    }

    #[test]
    fn objects_without_a_namespace_wait_for_the_one_they_get() {
        let given = given(
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n---\n{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: b}}",
            "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}",
        );
        let [_, first, second, _] = given.turns("shop");
        assert_eq!(names(&first), ["ClusterRole b"]);
        assert_eq!(names(&second), ["Namespace shop", "ConfigMap a"]);
    }

    #[test]
    fn refusals_point_at_the_field_that_the_server_names() {
        let given = given(
            "",
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n  containers:\n  - name: A\n    image: web\n",
        );
        let refusal = |reason: &str, field: &str| Refusal {
            reason: reason.to_owned(),
            message: "no".to_owned(),
            field: field.to_owned(),
        };
        let at = |reason: &str, field: &str| {
            given.resources[0].refused(&refusal(reason, field), "default").to_string()
        };
        assert_eq!(
            at("Invalid", "spec.containers[0].name"),
            "resources.yaml:7:11: Pod web is not stored: no (fix it, and apply it with kubectl)"
        );
        assert_eq!(at("Forbidden", ""), "resources.yaml:4:9: Pod web is not stored: no");
        let own = Item::own(given.resources[0].object.clone());
        assert_eq!(
            own.refused(&refusal("Conflict", ""), "default").to_string(),
            "Pod web is not stored: no"
        );
    }
}
