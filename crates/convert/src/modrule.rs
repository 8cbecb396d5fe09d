//! ModRules as MutatingPolicies, and those that reject as ValidatingPolicies.

use kiln_object::Kinds;
use kiln_value::{Map, Path, Value, value};
use kiln_yaml::{Document, ReadOptions, read_bytes};

use crate::Conversion;
use crate::cel::Cel;
use crate::cel_printer::print;
use crate::documents::{self, ConvertedDocument};
use crate::shape::Shape;
use crate::term::{Place, Term};
use crate::to_cel::API_VERSION;
use crate::verdict::{ConvertedRule, CoveredRequests, Difference, Obstacle};

/// The namespace whose rules are about the whole cluster.
const CLUSTER_NAMESPACE: &str = "kubemod-system";

/// Converts a ModRule.
pub(crate) fn convert(document: &Document, kinds: &Kinds) -> Conversion {
    let rule = document.value();
    let name = rule.str_at(["metadata", "name"]).unwrap_or_default().to_owned();
    let kind = rule.str_at(["spec", "type"]).unwrap_or_default();
    let mut converted = ConvertedRule {
        policy: name.clone(),
        rule: name,
        form: format!("ModRule.{}", kind.to_ascii_lowercase()),
        documents: Vec::new(),
        differences: Vec::new(),
        possible: Vec::new(),
        obstacle: None,
    };
    let mut conversion = Conversion::default();
    match one(rule, kind, kinds) {
        Ok((found, differences)) => {
            let mut found = found;
            found.head = documents::comments(document).head;
            converted.documents.push(0);
            converted.differences = differences;
            conversion.documents.push(found);
        }
        Err(obstacle) => converted.obstacle = Some(obstacle),
    }
    conversion.rules.push(converted);
    conversion
}

fn one(
    rule: &Value,
    kind: &str,
    kinds: &Kinds,
) -> Result<(ConvertedDocument, Vec<Difference>), Obstacle> {
    let spec = rule.get("spec").unwrap_or(&Value::Null);
    let path = Path::root().join("spec");
    let items = spec.get("match").or_else(|| spec.get("matches")).and_then(Value::as_list);
    let items: Vec<&Value> = items.into_iter().flat_map(|items| items.iter()).collect();
    let named = |field: &str| {
        items.iter().find_map(|item| {
            let is_field =
                item.str_at(["select"]).map(str::trim) == Some(format!("$.{field}").as_str());
            let is_plain = item.get("negate").is_none() && item.get("matchRegex").is_none();
            (is_field && is_plain).then(|| texts_of(item)).filter(|texts| !texts.is_empty())
        })
    };
    let Some(named_kinds) = named("kind") else {
        return Err(Obstacle::new(
            "a ModRule that names no kind",
            "add a match item with select: '$.kind'",
        )
        .at(&path.join("match")));
    };
    let versions = named("apiVersion");
    let (resources, shapes) = resources(&named_kinds, versions.as_deref(), kinds);
    let object = Place::of(Cel::name("object"), shapes);
    let mut conditions = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let select = item.str_at(["select"]).unwrap_or_default().trim();
        if matches!(select, "$.kind" | "$.apiVersion")
            && item.get("negate").is_none()
            && item.get("matchRegex").is_none()
        {
            continue;
        }
        let path = path.join("match").join(at);
        conditions.push((format!("match-{}", at + 1), item_condition(item, &object, &path)?));
    }
    let namespace = rule.str_at(["metadata", "namespace"]).unwrap_or_default();
    let is_wide = namespace == CLUSTER_NAMESPACE;
    let regex = spec.str_at(["targetNamespaceRegex"]).filter(|regex| !regex.is_empty());
    // KubeMod: without the expression it is about objects that live in no namespace.
    let scope = if is_wide && regex.is_none() { "Cluster" } else { "*" };
    if is_wide && let Some(regex) = regex {
        let namespace = Cel::name("request").select("namespace");
        conditions
            .insert(0, ("namespace".to_owned(), namespace.call("matches", vec![Cel::text(regex)])));
    }
    let operations = spec
        .get("admissionOperations")
        .and_then(Value::as_list)
        .map(|list| list.iter().cloned().collect::<Vec<_>>());
    let operations = operations
        .filter(|list| !list.is_empty())
        .unwrap_or_else(|| ["CREATE", "UPDATE"].map(Value::from).to_vec());
    let rules: Value = resources
        .iter()
        .map(|(group, version, plural)| {
            let mut rule = value!({
                "apiGroups": [group.as_str()], "apiVersions": [version.as_str()],
                "operations": Value::List(operations.clone().into()), "resources": [plural.as_str()],
            });
            if scope != "*" {
                let _ = rule.set(["scope"], scope);
            }
            rule
        })
        .collect();
    let mut out = Map::new();
    let mut differences = Vec::new();
    if spec.get("executionTier").and_then(Value::as_i64).is_some_and(|tier| tier != 0) {
        differences.push(Difference::other(
            "objects that rules of several execution tiers change",
            "policies run in the order of their names: name them so that the order is that of the tiers",
            CoveredRequests::Untried,
        ));
    }
    if scope == "Cluster" {
        differences.push(Difference::other(
            format!("objects in the namespace {CLUSTER_NAMESPACE} itself"),
            "the ModRule is about them, too; the new policy is about objects that live in no namespace",
            CoveredRequests::Untried,
        ));
    }
    let policy_kind = match (kind, is_wide) {
        ("Reject", true) => "ValidatingPolicy",
        ("Reject", false) => "NamespacedValidatingPolicy",
        (_, true) => "MutatingPolicy",
        (_, false) => "NamespacedMutatingPolicy",
    };
    out.insert("matchConstraints", value!({"resourceRules": rules}));
    if kind == "Reject" {
        let all = Cel::all(conditions.into_iter().map(|(_, cel)| cel));
        let message = spec.str_at(["rejectMessage"]).unwrap_or("the object is rejected");
        if message.contains("{{") {
            return Err(Obstacle::new("a template in rejectMessage", "write a messageExpression")
                .at(&path.join("rejectMessage")));
        }
        out.insert("validationActions", value!(["Deny"]));
        out.insert(
            "validations",
            value!([{"expression": print(&all.negate()), "message": message}]),
        );
        out.insert("autogen", value!({"podControllers": {"controllers": []}}));
    } else {
        let list: Vec<Value> = conditions
            .iter()
            .map(|(name, cel)| value!({"name": name.as_str(), "expression": print(cel)}))
            .collect();
        if !list.is_empty() {
            out.insert("matchConditions", Value::List(list.into()));
        }
        let patches = patches(spec.get("patch"), &object, &path.join("patch"))?;
        out.insert(
            "mutations",
            value!([{"patchType": "JSONPatch", "jsonPatch": {"expression": print(&patches)}}]),
        );
        out.insert("autogen", value!({"podControllers": {"controllers": []}}));
    }
    let name = rule.str_at(["metadata", "name"]).unwrap_or_default();
    let mut document = documents::envelope(rule, API_VERSION, policy_kind, name);
    if is_wide && let Some(Value::Map(metadata)) = document.get_mut("metadata") {
        metadata.remove("namespace");
    }
    document.insert("spec", out);
    Ok((ConvertedDocument::of(Value::Map(document)), differences))
}

fn texts_of(item: &Value) -> Vec<String> {
    let one = item.str_at(["matchValue"]).map(str::to_owned);
    let many =
        item.get("matchValues").and_then(Value::as_list).into_iter().flat_map(|list| list.iter());
    one.into_iter().chain(many.filter_map(Value::as_str).map(str::to_owned)).collect()
}

fn resources(
    names: &[String],
    versions: Option<&[String]>,
    kinds: &Kinds,
) -> (Vec<(String, String, String)>, Shape) {
    let mut found = Vec::new();
    let mut shapes = Vec::new();
    for name in names {
        for kind in kinds.by_kind(name) {
            let api_version = kind.gvk().api_version();
            if versions.is_none_or(|versions| versions.contains(&api_version)) {
                found.push((
                    kind.group().to_owned(),
                    kind.version().to_owned(),
                    kind.plural().to_owned(),
                ));
                shapes.push((api_version, name.clone()));
            }
        }
        if shapes.iter().all(|(_, known)| known != name) {
            found.push(("*".to_owned(), "*".to_owned(), kiln_object::kinds::usual_plural(name)));
        }
    }
    let shape =
        Shape::of_kinds(shapes.iter().map(|(version, kind)| (version.as_str(), kind.as_str())));
    (found, shape)
}

/// A step of a JSONPath that leads to a value.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    Each,
    /// `[? @.field == "text"]`
    Where(Vec<String>, String, bool),
}

/// The steps of a path such as `$.spec.containers[*].image`; none for what is more than a path.
fn steps(select: &str) -> Option<Vec<Step>> {
    let mut rest = select.trim().strip_prefix('$')?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            if let Some(after) = after.strip_prefix('*') {
                let _ = after;
                return None;
            }
            let end = after.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(after.len());
            if end == 0 {
                return None;
            }
            steps.push(Step::Field(after[..end].to_owned()));
            rest = &after[end..];
            continue;
        }
        let inner = rest.strip_prefix('[')?;
        let end = inner.find(']')?;
        let (inside, after) = (inner[..end].trim(), &inner[end + 1..]);
        steps.push(if inside == "*" {
            Step::Each
        } else if let Ok(index) = inside.parse::<i64>() {
            Step::Index(index)
        } else if inside.starts_with(['"', '\'']) {
            Step::Field(inside.trim_matches(['"', '\'']).to_owned())
        } else {
            let condition = inside
                .strip_prefix('?')?
                .trim()
                .trim_start_matches('(')
                .trim_end_matches(')')
                .trim();
            let (left, right, equal) = match condition.split_once("==") {
                Some((left, right)) => (left, right, true),
                None => {
                    let (left, right) = condition.split_once("!=")?;
                    (left, right, false)
                }
            };
            let fields = left.trim().strip_prefix("@.")?.split('.').map(str::to_owned).collect();
            let text = right.trim();
            if !text.starts_with('"') {
                return None;
            }
            Step::Where(fields, text.trim_matches('"').to_owned(), equal)
        });
        rest = after;
    }
    Some(steps)
}

/// What an item asks for.
fn item_condition(item: &Value, object: &Place, path: &Path) -> Result<Cel, Obstacle> {
    let select = item.str_at(["select"]).unwrap_or_default();
    let unknown = || {
        Obstacle::new(format!("select {select:?}"), "write the condition in CEL: only paths with [*], an index or a comparison are converted").at(&path.join("select"))
    };
    let negated = item.get("negate").and_then(Value::as_bool).unwrap_or(false);
    if let Some(compared) = comparison(select, object) {
        return Ok(if negated { compared.negate() } else { compared });
    }
    let steps = steps(select).ok_or_else(unknown)?;
    let compare = |value: Cel, shape: &Shape| -> Result<Cel, Obstacle> {
        let texts = texts_of(item);
        let text = match shape {
            Shape::Text => value,
            _ => Cel::function("string", vec![value]),
        };
        if !texts.is_empty() {
            return Ok(Cel::any(texts.iter().map(|wanted| text.clone().equals(Cel::text(wanted)))));
        }
        Ok(match item.str_at(["matchRegex"]) {
            Some(regex) => text.call("matches", vec![Cel::text(regex)]),
            None => Cel::bool(true),
        })
    };
    let all = item.str_at(["matchFor"]) == Some("All");
    let held =
        held(&Term::Place(object.clone()), &steps, all, &compare, 0).ok_or_else(unknown)??;
    Ok(if negated { held.negate() } else { held })
}

/// `$.a.b == true`: a path that is compared with a constant.
fn comparison(select: &str, object: &Place) -> Option<Cel> {
    let (left, right, equal) = match select.split_once("==") {
        Some((left, right)) => (left, right, true),
        None => {
            let (left, right) = select.split_once("!=")?;
            (left, right, false)
        }
    };
    if left.contains('?') {
        return None;
    }
    let constant = kiln_value::json::parse(right.trim()).ok()?;
    if !matches!(constant, Value::Bool(_) | Value::Number(_) | Value::String(_)) {
        return None;
    }
    let mut place = object.clone();
    for step in steps(left.trim())? {
        let Step::Field(name) = step else { return None };
        place = place.field(&name);
    }
    let same = place.or(crate::jmespath_to_cel::unlike(&constant)).equals(Cel::Literal(constant));
    Some(if equal { same } else { same.negate() })
}

type Compare<'c> = &'c dyn Fn(Cel, &Shape) -> Result<Cel, Obstacle>;

/// Whether what the steps lead to is as wanted; none for steps that cannot be said in CEL.
fn held(
    term: &Term,
    steps: &[Step],
    all: bool,
    compare: Compare<'_>,
    depth: usize,
) -> Option<Result<Cel, Obstacle>> {
    let Some((step, rest)) = steps.split_first() else {
        if term.shape() == Shape::Bool {
            return Some(Ok(term.or(Cel::bool(false)).equals(Cel::bool(true))));
        }
        if let Shape::List(element) = term.shape() {
            // A path to a list means its members.
            return each(term, &element, &[], all, compare, depth, Cel::bool(true));
        }
        let compared = match compare(term.strict(), &term.shape()) {
            Ok(compared) => compared,
            Err(obstacle) => return Some(Err(obstacle)),
        };
        return Some(Ok(Cel::all([term.has(), compared])));
    };
    match step {
        Step::Field(name) => held(&term.field(name), rest, all, compare, depth),
        Step::Index(at) => {
            let Term::Place(place) = term else { return None };
            if *at < 0 {
                return None;
            }
            held(
                &Term::Place(place.at(Cel::int(*at), place.shape.element())),
                rest,
                all,
                compare,
                depth,
            )
        }
        Step::Each => {
            let element = term.shape().element();
            each(term, &element, rest, all, compare, depth, Cel::bool(true))
        }
        Step::Where(fields, text, equal) => {
            let element = term.shape().element();
            let name = variable(depth);
            let place =
                fields.iter().fold(Place::of(Cel::name(name), element.clone()), |place, field| {
                    place.field(field)
                });
            let same = place.or(Cel::text("")).equals(Cel::text(text));
            let condition = if *equal { same } else { same.negate() };
            each(term, &element, rest, all, compare, depth, condition)
        }
    }
}

fn variable(depth: usize) -> &'static str {
    ["item", "inner", "innermost"].get(depth).copied().unwrap_or("deepest")
}

fn each(
    term: &Term,
    element: &Shape,
    rest: &[Step],
    all: bool,
    compare: Compare<'_>,
    depth: usize,
    condition: Cel,
) -> Option<Result<Cel, Obstacle>> {
    let name = variable(depth);
    let inner = Term::Place(Place::of(Cel::name(name), element.clone()));
    let held = match held(&inner, rest, all, compare, depth + 1)? {
        Ok(held) => held,
        Err(obstacle) => return Some(Err(obstacle)),
    };
    let list = term.list();
    let list = if condition.is_bool(true) { list } else { list.each("filter", name, condition) };
    Some(Ok(match all {
        true => {
            let some = Cel::binary(
                crate::cel::Operator::More,
                Cel::function("size", vec![list.clone()]),
                Cel::int(0),
            );
            Cel::all([some, list.each("all", name, held)])
        }
        false if held.is_bool(true) => {
            Cel::binary(crate::cel::Operator::More, Cel::function("size", vec![list]), Cel::int(0))
        }
        false => list.each("exists", name, held),
    }))
}

/// The patches of a rule.
fn patches(patch: Option<&Value>, object: &Place, path: &Path) -> Result<Cel, Obstacle> {
    let mut parts: Vec<Cel> = Vec::new();
    let mut parents: Vec<String> = Vec::new();
    for (at, item) in
        patch.and_then(Value::as_list).into_iter().flat_map(|list| list.iter()).enumerate()
    {
        let path = path.join(at);
        let (op, pointer) =
            (item.str_at(["op"]).unwrap_or_default(), item.str_at(["path"]).unwrap_or_default());
        if item.get("select").is_some() || pointer.contains('#') {
            return Err(Obstacle::new(
                "a patch with select",
                "write the JSON patches with lists.range in CEL",
            )
            .at(&path.join("select")));
        }
        let mut place = object.clone();
        let keys: Vec<String> = pointer
            .split('/')
            .skip(1)
            .map(|key| key.replace("~1", "/").replace("~0", "~"))
            .collect();
        let mut written = String::new();
        for (at, key) in keys.iter().enumerate() {
            if at + 1 == keys.len() || place.shape.is_list() || key.parse::<i64>().is_ok() {
                break;
            }
            place = place.field(key);
            written.push('/');
            written.push_str(&key.replace('~', "~0").replace('/', "~1"));
            if op == "add" && !place.is_present() && !parents.contains(&written) {
                parents.push(written.clone());
                let is_list =
                    keys.get(at + 1).is_some_and(|next| next == "-" || next.parse::<i64>().is_ok());
                let empty = if is_list { Cel::empty_list() } else { Cel::Map(Vec::new()) };
                let make = operation("add", &written, Some(empty));
                parts.push(Cel::choose(place.has(), Cel::empty_list(), Cel::List(vec![make])));
            }
        }
        let value = match (op, item.str_at(["value"])) {
            ("remove", _) => None,
            (_, Some(text)) if text.contains("{{") => {
                return Err(Obstacle::new("a template in value", "write the value in CEL")
                    .at(&path.join("value")));
            }
            (_, Some(text)) => {
                let read = read_bytes("value", text.as_bytes(), ReadOptions::kubernetes());
                let read = read
                    .ok()
                    .and_then(|read| read.first().map(|document| document.value().clone()));
                let read = read.unwrap_or_else(|| Value::from(text));
                Some(crate::mutate::dynamic(&Term::Literal(read)))
            }
            (_, None) => Some(Cel::Literal(Value::Null)),
        };
        let one = Cel::List(vec![operation(op, pointer, value)]);
        let is_gone = op == "remove" && !keys.is_empty();
        parts.push(match is_gone {
            true => {
                let place = keys.iter().fold(object.clone(), |place, key| place.field(key));
                Cel::choose(place.has(), one, Cel::empty_list())
            }
            false => one,
        });
    }
    Ok(parts.into_iter().reduce(Cel::plus).unwrap_or_else(Cel::empty_list))
}

fn operation(op: &str, path: &str, value: Option<Cel>) -> Cel {
    let mut fields = vec![("op".to_owned(), Cel::text(op)), ("path".to_owned(), Cel::text(path))];
    fields.extend(value.map(|value| ("value".to_owned(), value)));
    Cel::Struct("JSONPatch".to_owned(), fields)
}
