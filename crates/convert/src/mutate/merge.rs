//! Strategic merge patches as apply configurations.

use kiln_pattern::{Anchor, AnchorKind};
use kiln_schema::{KubernetesVersion, ListType, Schema};
use kiln_value::{Map, Path, Value};

use super::Changes;
use crate::cel::{Cel, is_identifier};
use crate::conditions_to_cel::conditions;
use crate::context;
use crate::jmespath_to_cel::{Scope, translate};
use crate::patterns_to_cel::{element_pattern, pattern};
use crate::templates;
use crate::term::{Place, Term};
use crate::verdict::Obstacle;

/// A part of a patch on its way down: what the object has there, and what the literal is called.
struct Spot<'s> {
    place: Place,
    /// Such as `Object.spec`.
    name: String,
    scope: &'s Scope,
    path: Path,
}

/// A list that a loop runs over, and the patch of one element.
struct Loop {
    list: Cel,
    variable: String,
    guard: Cel,
}

impl Changes<'_> {
    /// A patch of the whole object.
    pub(super) fn merge(&mut self, patch: &Value, path: &Path) -> Result<Cel, Obstacle> {
        let scope = self.scope.clone();
        let spot = Spot {
            place: self.object.clone(),
            name: "Object".to_owned(),
            scope: &scope,
            path: path.clone(),
        };
        self.value(patch, &spot, None)
    }

    /// A patch for each element of a list.
    pub(super) fn merge_loop(&mut self, entry: &Value, path: &Path) -> Result<Cel, Obstacle> {
        let Some(patch) = entry.get("patchStrategicMerge") else {
            return Err(Obstacle::new("a loop without a patch", "delete the loop").at(path));
        };
        let mut scope = self.scope.clone();
        let list = translate(entry.str_at(["list"]).unwrap_or_default(), &scope)
            .map_err(|obstacle| obstacle.at(&path.join("list")))?;
        let cel = looped(&list);
        let variable = scope.fresh(&cel);
        let element = Term::Value(Cel::name(&variable), list.shape().element());
        scope.set("element", element);
        context::add(entry.get("context"), self.kinds, &mut scope, None, &path.join("context"))?;
        let guard = match entry.get("preconditions") {
            Some(found) => conditions(found, &scope, &path.join("preconditions"))?,
            None => Cel::bool(true),
        };
        let run = Loop { list: cel, variable, guard };
        let spot = Spot {
            place: self.object.clone(),
            name: "Object".to_owned(),
            scope: &scope,
            path: path.join("patchStrategicMerge"),
        };
        self.value(patch, &spot, Some(&run))
    }

    fn value(
        &mut self,
        patch: &Value,
        spot: &Spot<'_>,
        run: Option<&Loop>,
    ) -> Result<Cel, Obstacle> {
        match patch {
            Value::Map(map) => self.map(map, spot, run),
            Value::List(list) => self.list(list.iter(), spot, run),
            Value::Null => Err(Obstacle::new(
                "null, which removes a field",
                "use a JSON patch with op: remove",
            )
            .at(&spot.path)),
            scalar => {
                let cel = templates::term(scalar, spot.scope, &spot.path)?.strict();
                if let Some(run) = run
                    && cel.mentions(&run.variable)
                {
                    return Err(Obstacle::new(
                        "a loop whose patch is not in a list",
                        "write the JSON patches in CEL",
                    )
                    .at(&spot.path));
                }
                Ok(cel)
            }
        }
    }

    fn map(&mut self, map: &Map, spot: &Spot<'_>, run: Option<&Loop>) -> Result<Cel, Obstacle> {
        let is_free = matches!(spot.place.shape, crate::shape::Shape::Map(_))
            || map.keys().any(|key| !is_identifier(plain(key)) || key.contains("{{"))
            || spot.name.ends_with(".labels")
            || spot.name.ends_with(".annotations");
        let (mut entries, mut fields) = (Vec::new(), Vec::new());
        for (key, value) in map {
            let anchor = Anchor::parse(key);
            let name = anchor.map_or(key.as_str(), |anchor| anchor.key);
            let path = spot.path.join(key);
            if name.contains("$patch") || name.contains("$retainKeys") {
                return Err(
                    Obstacle::new(format!("{name} in a patch"), "use a JSON patch").at(&path)
                );
            }
            let place = spot.place.field(name);
            match anchor.map(|anchor| anchor.kind) {
                Some(AnchorKind::Condition | AnchorKind::Global) => {
                    let mut condition = Map::new();
                    let key = if anchor.is_some_and(|anchor| anchor.kind == AnchorKind::Global) {
                        format!("=({name})")
                    } else {
                        name.to_owned()
                    };
                    condition.insert(key, value.clone());
                    let asked = pattern(&Value::Map(condition), &spot.place, spot.scope, &path)?;
                    let asked = asked.guards.into_iter().chain(asked.checks);
                    match self.target {
                        Some(_) => self.conditions.extend(asked),
                        None => self.guards.extend(asked),
                    }
                    continue;
                }
                None | Some(AnchorKind::AddIfNotPresent) => {}
                Some(_) => {
                    return Err(Obstacle::new(
                        format!("anchor {key} in a patch"),
                        "write the patch in CEL",
                    )
                    .at(&path));
                }
            }
            let inner = Spot {
                place: place.clone(),
                name: format!("{}.{name}", spot.name),
                scope: spot.scope,
                path: path.clone(),
            };
            let cel = self.value(value, &inner, run)?;
            // A list that only holds conditions changes nothing.
            if cel == Cel::empty_list() && value.as_list().is_some_and(|list| !list.is_empty()) {
                continue;
            }
            // A list of changes to elements makes no list where there is none.
            let only_changes = value.as_list().is_some_and(|list| {
                list.iter().all(|element| {
                    element.as_map().is_some_and(|map| {
                        map.keys().any(|key| {
                            Anchor::parse(key)
                                .is_some_and(|anchor| anchor.kind == AnchorKind::Condition)
                        })
                    })
                })
            });
            if let Some(optional) = self.optional_text(value, &inner)? {
                let optional = match anchor.is_some() && !place.is_present() {
                    true => {
                        Cel::choose(place.has(), Cel::function("optional.none", vec![]), optional)
                    }
                    false => optional,
                };
                match is_free {
                    true => entries.push((key_of(name, &inner, true)?, optional)),
                    false => fields.push((format!("?{name}"), optional)),
                }
                continue;
            }
            let is_conditional = anchor
                .is_some_and(|anchor| anchor.kind == AnchorKind::AddIfNotPresent)
                && !place.is_present();
            let (optional, cel) = match is_conditional {
                _ if only_changes && run.is_none() && anchor.is_none() && !place.is_present() => {
                    let none = Cel::function("optional.none", vec![]);
                    (true, Cel::choose(place.has(), Cel::function("optional.of", vec![cel]), none))
                }
                true => {
                    let none = Cel::function("optional.none", vec![]);
                    (true, Cel::choose(place.has(), none, Cel::function("optional.of", vec![cel])))
                }
                false if anchor.is_some() => (false, place.plain()),
                false => (false, cel),
            };
            let mark = if optional { "?" } else { "" };
            if is_free {
                entries.push((key_of(name, &inner, optional)?, cel));
            } else {
                fields.push((format!("{mark}{name}"), cel));
            }
        }
        if let Some(run) =
            run.filter(|run| entries.iter().any(|(key, _)| key.mentions(&run.variable)))
        {
            let list = match run.guard.is_bool(true) {
                true => run.list.clone(),
                false => run.list.clone().each("filter", &run.variable, run.guard.clone()),
            };
            let args = vec![Cel::name("index"), Cel::name(&run.variable), Cel::Map(entries)];
            return Ok(list.call("transformMapEntry", args));
        }
        Ok(if is_free { Cel::Map(entries) } else { Cel::Struct(spot.name.clone(), fields) })
    }

    /// A text that is a variable which may be missing.
    fn optional_text(&self, value: &Value, spot: &Spot<'_>) -> Result<Option<Cel>, Obstacle> {
        let Value::String(text) = value else { return Ok(None) };
        match templates::text_term(text, spot.scope).map_err(|obstacle| obstacle.at(&spot.path))? {
            term @ Term::Optional(..) => Ok(Some(term.optional())),
            _ => Ok(None),
        }
    }

    fn list<'l>(
        &mut self,
        list: impl Iterator<Item = &'l Value>,
        spot: &Spot<'_>,
        run: Option<&Loop>,
    ) -> Result<Cel, Obstacle> {
        let is_keyed = merges(&spot.place, &spot.name, &self.kinds_of_object());
        let (mut literal, mut computed) = (Vec::new(), Vec::new());
        for (at, element) in list.enumerate() {
            let path = spot.path.join(at);
            let Value::Map(map) = element else {
                literal.push(templates::term(element, spot.scope, &path)?.strict());
                continue;
            };
            let mut map = self.without_globals(map, spot, &path)?;
            if map.is_empty() {
                continue;
            }
            // `(name): "{{ element.name }}"` finds the element that the loop is at.
            if run.is_some()
                && let Some(name) = map.get("(name)").and_then(Value::as_str)
                && name.replace(' ', "") == "{{element.name}}"
            {
                let name = name.to_owned();
                map.remove("(name)");
                map.insert("name", name);
            }
            let map = &map;
            let conditional: Map = map
                .iter()
                .filter(|(key, _)| {
                    Anchor::parse(key).is_some_and(|anchor| anchor.kind == AnchorKind::Condition)
                })
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            let rest: Map = map
                .iter()
                .filter(|(key, _)| !conditional.contains_key(key))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            if !conditional.is_empty() {
                computed.push(self.each_matching(&conditional, &rest, spot, &path)?);
                continue;
            }
            let of_loop = run.filter(|run| run.list == spot.place.plain());
            let inner = Spot {
                place: match of_loop {
                    Some(run) => Place::of(Cel::name(&run.variable), spot.place.shape.element()),
                    None => element_place(spot),
                },
                name: spot.name.clone(),
                scope: spot.scope,
                path,
            };
            let element = &Value::Map(map.clone());
            if let Some(run) = run {
                let cel = self.value(element, &inner, None)?;
                if cel.mentions(&run.variable) {
                    let list = match run.guard.is_bool(true) {
                        true => run.list.clone(),
                        false => run.list.clone().each("filter", &run.variable, run.guard.clone()),
                    };
                    computed.push(list.each("map", &run.variable, cel));
                    continue;
                }
                literal.push(cel);
                continue;
            }
            literal.push(self.value(element, &inner, None)?);
        }
        if !literal.is_empty() && is_keyed {
            self.reorders = true;
        }
        let is_empty = literal.is_empty() && computed.is_empty();
        if !(is_keyed || is_empty) {
            self.replaces = true;
        }
        let literal = (!literal.is_empty()).then_some(Cel::List(literal));
        let joined = computed.into_iter().chain(literal).reduce(Cel::plus);
        Ok(joined.unwrap_or_else(Cel::empty_list))
    }

    /// An element of a list without `<(key)`, which becomes a condition: some element of the object meets it.
    fn without_globals(
        &mut self,
        map: &Map,
        spot: &Spot<'_>,
        path: &Path,
    ) -> Result<Map, Obstacle> {
        let (mut rest, mut wanted) = (Map::new(), Map::new());
        for (key, value) in map {
            match Anchor::parse(key).filter(|anchor| anchor.kind == AnchorKind::Global) {
                Some(anchor) => wanted.insert(format!("=({})", anchor.key), value.clone()),
                None => rest.insert(key.clone(), value.clone()),
            };
        }
        if wanted.is_empty() {
            return Ok(rest);
        }
        let list = spot.place.or(Cel::empty_list());
        let mut scope = spot.scope.clone();
        let variable = scope.fresh(&list);
        let element = Term::Value(Cel::name(&variable), spot.place.shape.element());
        let met = element_pattern(&Value::Map(wanted), &element, &scope, path)?;
        let some = list.each("exists", &variable, met);
        match self.target {
            Some(_) => self.conditions.push(some),
            None => self.guards.push(some),
        }
        Ok(rest)
    }

    /// `(name): "x*"` in an element of a list: the patch of every element that meets it.
    fn each_matching(
        &mut self,
        conditional: &Map,
        rest: &Map,
        spot: &Spot<'_>,
        path: &Path,
    ) -> Result<Cel, Obstacle> {
        let list = spot.place.or(Cel::empty_list());
        let mut scope = spot.scope.clone();
        let variable = scope.fresh(&list);
        let element = Term::Value(Cel::name(&variable), spot.place.shape.element());
        let mut wanted = Map::new();
        for (key, value) in conditional {
            let name = Anchor::parse(key).map_or(key.as_str(), |anchor| anchor.key);
            wanted.insert(name, value.clone());
        }
        let condition = element_pattern(&Value::Map(wanted), &element, &scope, path)?;
        let inner = Spot {
            place: Place::of(Cel::name(&variable), spot.place.shape.element()),
            name: spot.name.clone(),
            scope: &scope,
            path: path.clone(),
        };
        let mut patch = self.value(&Value::Map(rest.clone()), &inner, None)?;
        // An element is told apart by its name.
        let name = ("name".to_owned(), Cel::name(&variable).select("name"));
        match &mut patch {
            Cel::Struct(_, fields) => fields.insert(0, name),
            Cel::Map(entries) => entries.insert(0, (Cel::text("name"), name.1)),
            _ => {}
        }
        let list =
            if condition.is_bool(true) { list } else { list.each("filter", &variable, condition) };
        Ok(list.each("map", &variable, patch))
    }

    /// The kinds that the rule is about, as far as they are known.
    fn kinds_of_object(&self) -> Vec<(String, String)> {
        match &self.object.shape {
            crate::shape::Shape::Struct(id) => {
                let name = kiln_schema::types::types().get(*id).name;
                let kind = name.rsplit('.').next().unwrap_or_default();
                self.kinds
                    .by_kind(kind)
                    .iter()
                    .map(|kind| (kind.gvk().api_version(), kind.kind().to_owned()))
                    .collect()
            }
            _ => Vec::new(),
        }
    }
}

/// The list of a loop. One that is not there is an error of the rule; what a projection makes of nothing is not.
pub(super) fn looped(list: &Term) -> Cel {
    match list {
        Term::Place(place) => place.plain(),
        other => other.list(),
    }
}

fn element_place(spot: &Spot<'_>) -> Place {
    // What a new element has is not known: nothing.
    Place::of(Cel::Map(Vec::new()), spot.place.shape.element())
}

/// A key of a map, with a mark if its value may be missing.
fn key_of(name: &str, spot: &Spot<'_>, optional: bool) -> Result<Cel, Obstacle> {
    let key = templates::text_term(name, spot.scope)
        .map_err(|obstacle| obstacle.at(&spot.path))?
        .strict();
    Ok(match optional {
        true => Cel::Written(format!("?{}", crate::cel_printer::print_flat(&key))),
        false => key,
    })
}

fn plain(key: &str) -> &str {
    Anchor::parse(key).map_or(key, |anchor| anchor.key)
}

/// Whether elements of a list are merged by keys.
fn merges(place: &Place, name: &str, kinds: &[(String, String)]) -> bool {
    let _ = place;
    let steps: Vec<&str> = name.split('.').skip(1).collect();
    let schema = Schema::builtin(KubernetesVersion::V1_36);
    kinds.iter().any(|(version, kind)| {
        let node = schema.root(version, kind).and_then(|root| {
            let mut node = root;
            for (at, step) in steps.iter().enumerate() {
                if at > 0 && node.list_type().is_some() {
                    node = node.items()?;
                }
                node = node.field(step)?;
            }
            Some(node)
        });
        // Elements that are one value each are replaced as well.
        let is_whole = |node: kiln_schema::SchemaNode<'_>| {
            node.items().is_some_and(|items| items.map_type() == kiln_schema::MapType::Atomic)
        };
        node.is_some_and(|node| {
            matches!(node.list_type(), Some(ListType::Map | ListType::Set)) && !is_whole(node)
        })
    })
}
