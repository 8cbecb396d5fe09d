//! Mutate rules as MutatingPolicies: strategic merges become apply configurations, JSON patches stay JSON patches, and
//! loops become comprehensions.

mod json_patch;
mod merge;

pub(crate) use json_patch::dynamic;

use kiln_object::Kinds;
use kiln_object::kinds::usual_plural;
use kiln_rules::Policy;
use kiln_value::{Map, Path, Value, value};

use crate::cel::Cel;
use crate::cel_printer::print;
use crate::conditions_to_cel::conditions;
use crate::context::{self, CelVariable};
use crate::documents::{self, ConvertedDocument};
use crate::jmespath_to_cel::Scope;
use crate::matching::{Matching, matching};
use crate::scope::rule_scope;
use crate::shape::Shape;
use crate::templates;
use crate::term::{Place, Term};
use crate::to_cel::{
    API_VERSION, CONTROLLERS, common_fields, controllers, insert_named, replication_controllers,
};
use crate::validate::operations;
use crate::verdict::{CoveredRequests, Difference, Obstacle};

/// A change, in one of the two forms.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Mutation {
    Apply(Cel),
    Patches(Cel),
}

/// What a rule's changes come to.
pub(crate) struct Changes<'c> {
    pub(crate) kinds: &'c Kinds,
    pub(crate) object: Place,
    pub(crate) scope: Scope,
    pub(crate) mutations: Vec<Mutation>,
    /// What must hold of the trigger for the changes to be made at all.
    pub(crate) guards: Vec<Cel>,
    /// What must hold of a stored object that is changed.
    pub(crate) conditions: Vec<Cel>,
    /// Lists or maps that are one value are replaced.
    pub(crate) replaces: bool,
    /// New elements of lists come last instead of first.
    pub(crate) reorders: bool,
    /// The stored objects that are changed instead of the trigger.
    pub(crate) target: Option<Cel>,
}

/// The stored object that a rule changes, if it is not the trigger.
fn existing_target<'m>(mutate: &'m Value, path: &Path) -> Result<Option<&'m Value>, Obstacle> {
    let Some(Value::List(targets)) = mutate.get("targets") else { return Ok(None) };
    let path = path.join("targets");
    let mut targets = targets.iter();
    let (first, more) = (targets.next(), targets.next());
    if more.is_some() {
        return Err(Obstacle::new("several targets", "write one rule for each").at(&path));
    }
    for field in ["context", "selector"] {
        if first.is_some_and(|target| target.get(field).is_some()) {
            return Err(Obstacle::new(format!("targets[].{field}"), "write targetMatchConditions")
                .at(&path));
        }
    }
    Ok(first)
}

/// The expression that finds the stored objects.
fn target_expression(
    target: &Value,
    kinds: &Kinds,
    scope: &Scope,
    path: &Path,
) -> Result<Cel, Obstacle> {
    let text = |field: &str| -> Result<Cel, Obstacle> {
        let written = target.str_at([field]).unwrap_or_default();
        if kiln_text::wildcard::contains_wildcard(written) {
            return Err(Obstacle::new(
                format!("a wildcard in targets[].{field}"),
                "write targetMatchConstraints",
            )
            .at(path));
        }
        Ok(templates::text_term(written, scope).map_err(|obstacle| obstacle.at(path))?.strict())
    };
    let (api_version, kind) = (
        target.str_at(["apiVersion"]).unwrap_or_default(),
        target.str_at(["kind"]).unwrap_or_default(),
    );
    let gvk = kiln_object::Gvk::new(api_version, kind);
    let plural =
        kinds.get(&gvk).map_or_else(|| usual_plural(kind), |kind| kind.plural().to_owned());
    let mut args = vec![Cel::text(api_version), Cel::text(plural), text("namespace")?];
    let function = match target.get("name") {
        Some(_) => {
            args.push(text("name")?);
            "Get"
        }
        None => "List",
    };
    Ok(Cel::name("resource").call(function, args))
}

/// Converts a mutate rule to a policy of its own.
pub(crate) fn convert(
    policy: &Value,
    rule: &Value,
    compiled: &Policy,
    kinds: &Kinds,
    path: &Path,
) -> Result<(ConvertedDocument, Vec<Difference>), Obstacle> {
    let mutate = rule.get("mutate").unwrap_or(&Value::Null);
    let at = path.join("mutate");
    let target = existing_target(mutate, &at)?;
    // Where stored objects are changed, `object` is one of them, and the trigger is in the request.
    let trigger = match target {
        Some(_) => Cel::name("request").select("object"),
        None => Cel::name("object"),
    };
    let about = matching(rule, kinds, &trigger, path)?;
    let mut found = operations(rule, &about);
    found.operations.retain(|operation| operation != "DELETE");
    if found.operations.is_empty() {
        return Err(
            Obstacle::new("a rule that changes deleted objects", "delete the rule").at(path)
        );
    }
    let mut variables: Vec<CelVariable> = Vec::new();
    let mut scope = rule_scope(&trigger, &about.shape());
    context::add(
        rule.get("context"),
        kinds,
        &mut scope,
        Some(&mut variables),
        &path.join("context"),
    )?;
    let mut guards = Vec::new();
    if let Some(preconditions) = &found.preconditions {
        guards.push(conditions(preconditions, &scope, &path.join("preconditions"))?);
    }
    let mut place = Place::of(Cel::name("object"), about.shape());
    let (mut found_by, mut target_conditions) = (None, Vec::new());
    if let Some(target) = target {
        let text = |field: &str| target.str_at([field]).unwrap_or_default();
        place =
            Place::of(Cel::name("object"), Shape::of_kinds([(text("apiVersion"), text("kind"))]));
        scope.set("target", Term::Place(place.clone()));
        if let Some(found) = target.get("preconditions") {
            let path = at.join("targets").join(0usize).join("preconditions");
            target_conditions.push(conditions(found, &scope, &path)?);
        }
        found_by = Some(target_expression(target, kinds, &scope, &at.join("targets"))?);
    }
    let mut changes = Changes {
        kinds,
        object: place,
        scope,
        mutations: Vec::new(),
        guards,
        conditions: target_conditions,
        replaces: false,
        reorders: false,
        target: found_by,
    };
    changes.add(mutate, &at)?;
    let mut differences = changes.scope.notes();
    if controllers(rule, compiled).contains(&"ReplicationController") {
        differences.push(replication_controllers("their Pods are still changed"));
    }
    if changes.reorders {
        differences.push(Difference::other(
            "lists that get a new element",
            "the rule puts it in front; an apply configuration puts it behind what is there",
            CoveredRequests::Order,
        ));
    }
    let document = document(policy, rule, compiled, &about, &found.operations, &variables, changes);
    Ok((document, differences))
}

impl Changes<'_> {
    fn add(&mut self, mutate: &Value, path: &Path) -> Result<(), Obstacle> {
        if let Some(patch) = mutate.get("patchStrategicMerge") {
            let cel = self.merge(patch, &path.join("patchStrategicMerge"))?;
            self.mutations.push(Mutation::Apply(cel));
        } else if let Some(patches) = mutate.get("patchesJson6902") {
            let scope = self.scope.clone();
            let cel = self.patches(patches, &scope, &path.join("patchesJson6902"))?;
            self.mutations.push(Mutation::Patches(cel));
        } else if let Some(Value::List(loops)) = mutate.get("foreach") {
            for (at, entry) in loops.iter().enumerate() {
                let path = path.join("foreach").join(at);
                if entry.get("foreach").is_some() {
                    return Err(Obstacle::new("a loop in a loop", "write the JSON patches in CEL")
                        .at(&path));
                }
                let mutation = match entry.get("patchesJson6902") {
                    Some(patches) => Mutation::Patches(self.patch_loop(entry, patches, &path)?),
                    None => Mutation::Apply(self.merge_loop(entry, &path)?),
                };
                self.mutations.push(mutation);
            }
        } else {
            return Err(Obstacle::new("a mutate rule without a patch", "delete the rule").at(path));
        }
        Ok(())
    }
}

fn document(
    policy: &Value,
    rule: &Value,
    compiled: &Policy,
    about: &Matching,
    operations: &[String],
    variables: &[CelVariable],
    changes: Changes<'_>,
) -> ConvertedDocument {
    let namespaced = policy.str_at(["metadata", "namespace"]).is_some()
        && policy.str_at(["kind"]) == Some("Policy");
    let kind = if namespaced { "NamespacedMutatingPolicy" } else { "MutatingPolicy" };
    let name = format!(
        "{}-{}",
        policy.str_at(["metadata", "name"]).unwrap_or_default(),
        rule.str_at(["name"]).unwrap_or_default()
    );
    let mut document = documents::envelope(policy, API_VERSION, kind, &name);
    let mut spec = Map::new();
    common_fields(policy, &mut spec, false);
    let mut evaluation = Map::new();
    if changes.target.is_some() {
        evaluation.insert("mutateExisting", value!({"enabled": true}));
    }
    if changes.replaces {
        evaluation.insert("useServerSideApply", true);
    }
    if !evaluation.is_empty() {
        spec.insert("evaluation", evaluation);
    }
    let pods_alone = matches!(about.resources.as_slice(),
        [only] if only.group.is_empty() && only.resources == ["pods"])
        && about.object_selector.is_none();
    if pods_alone {
        let held = controllers(rule, compiled);
        let listed: Vec<&str> = CONTROLLERS
            .iter()
            .filter(|(kind, _)| held.contains(kind))
            .map(|(_, plural)| *plural)
            .collect();
        if listed.len() < CONTROLLERS.len() {
            let listed: Value = listed.into_iter().collect();
            spec.insert("autogen", value!({"podControllers": {"controllers": listed}}));
        }
    }
    spec.insert("matchConstraints", about.constraints(operations));
    if let Some(target) = &changes.target {
        spec.insert("targetMatchConstraints", value!({"expression": print(target)}));
    }
    let Changes { guards, conditions, mutations, .. } = changes;
    let guards: Vec<Cel> = guards
        .into_iter()
        .flat_map(|guard| match guard {
            Cel::All(parts) => parts,
            one => vec![one],
        })
        .filter(|guard| !guard.is_bool(true))
        .collect();
    let several = guards.len() > 1;
    let guards = guards.into_iter().enumerate().map(|(at, guard)| {
        (
            if several { format!("precondition-{}", at + 1) } else { "preconditions".to_owned() },
            guard,
        )
    });
    let all: Vec<(String, Cel)> = about.conditions.iter().cloned().chain(guards).collect();
    insert_named(&mut spec, "matchConditions", all.iter().map(|(name, cel)| (name.as_str(), cel)));
    insert_named(
        &mut spec,
        "variables",
        variables.iter().map(|variable| (variable.name.as_str(), &variable.cel)),
    );
    let condition = Cel::all(conditions);
    let only_if = |cel: Cel, otherwise: Cel| match condition.is_bool(true) {
        true => cel,
        false => Cel::choose(condition.clone(), cel, otherwise),
    };
    let mutations: Value = mutations
        .into_iter()
        .map(|mutation| match mutation {
            Mutation::Apply(cel) => {
                let cel = only_if(cel, Cel::Struct("Object".to_owned(), Vec::new()));
                value!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": print(&cel)}})
            }
            Mutation::Patches(cel) => {
                let cel = only_if(cel, Cel::empty_list());
                value!({"patchType": "JSONPatch", "jsonPatch": {"expression": print(&cel)}})
            }
        })
        .collect();
    spec.insert("mutations", mutations);
    document.insert("spec", spec);
    ConvertedDocument::of(Value::Map(document))
}
