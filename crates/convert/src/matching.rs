//! `match` and `exclude` of Kyverno's rules as `matchConstraints` and `matchConditions`.

use kiln_object::Kinds;
use kiln_object::kinds::usual_plural;
use kiln_rules::KindPattern;
use kiln_text::wildcard;
use kiln_value::{Map, Path, Value, value};

use crate::cel::Cel;
use crate::shape::Shape;
use crate::verdict::Obstacle;
use crate::wildcards;

/// What a rule is about.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Matching {
    /// Kinds as resources: API groups, versions and plurals.
    pub(crate) resources: Vec<ResourceRule>,
    pub(crate) namespace_selector: Option<Value>,
    pub(crate) object_selector: Option<Value>,
    /// What else must hold, each under a name.
    pub(crate) conditions: Vec<(String, Cel)>,
    /// The operations that the filters name; none when they name none.
    pub(crate) operations: Vec<String>,
    /// Operations that the rule leaves out, whatever the object is.
    pub(crate) excluded_operations: Vec<String>,
    /// The kinds, with their API versions, as far as they are known.
    pub(crate) kinds: Vec<(String, String)>,
    /// Subresources that are connected to, such as `exec`.
    pub(crate) is_connection: bool,
}

/// Resources of one API group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResourceRule {
    pub(crate) group: String,
    pub(crate) versions: Vec<String>,
    pub(crate) resources: Vec<String>,
}

impl Matching {
    /// The types of the objects.
    pub(crate) fn shape(&self) -> Shape {
        Shape::of_kinds(self.kinds.iter().map(|(version, kind)| (version.as_str(), kind.as_str())))
    }

    /// `matchConstraints` for operations.
    pub(crate) fn constraints(&self, operations: &[String]) -> Value {
        let texts = |texts: &[String]| -> Value { texts.iter().map(String::as_str).collect() };
        let rules: Value = self
            .resources
            .iter()
            .map(|rule| {
                value!({
                    "apiGroups": [rule.group.as_str()],
                    "apiVersions": texts(&rule.versions),
                    "operations": texts(operations),
                    "resources": texts(&rule.resources),
                })
            })
            .collect();
        let mut constraints = Map::new();
        constraints.insert("resourceRules", rules);
        if let Some(selector) = &self.namespace_selector {
            constraints.insert("namespaceSelector", selector.clone());
        }
        if let Some(selector) = &self.object_selector {
            constraints.insert("objectSelector", selector.clone());
        }
        Value::Map(constraints)
    }
}

/// A block of filters as it is written.
struct Block<'b> {
    filters: Vec<(&'b Value, Path)>,
    /// One of them suffices.
    any: bool,
}

fn block<'b>(block: Option<&'b Value>, path: &Path) -> Block<'b> {
    let Some(block) = block else { return Block { filters: Vec::new(), any: true } };
    for (word, any) in [("any", true), ("all", false)] {
        if let Some(Value::List(list)) = block.get(word) {
            let path = path.join(word);
            let filters =
                list.iter().enumerate().map(|(at, filter)| (filter, path.join(at))).collect();
            return Block { filters, any };
        }
    }
    Block { filters: vec![(block, path.clone())], any: false }
}

fn texts(value: Option<&Value>) -> Vec<String> {
    let list = value.and_then(Value::as_list);
    list.into_iter()
        .flat_map(|list| list.iter())
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

fn kinds_of(filter: &Value) -> Vec<String> {
    texts(filter.get_path(["resources", "kinds"]))
}

/// Translates what a rule is about. `object` is what conditions read.
pub(crate) fn matching(
    rule: &Value,
    kinds: &Kinds,
    object: &Cel,
    path: &Path,
) -> Result<Matching, Obstacle> {
    let include = block(rule.get("match"), &path.join("match"));
    let exclude = block(rule.get("exclude"), &path.join("exclude"));
    let mut matching = Matching {
        resources: Vec::new(),
        namespace_selector: None,
        object_selector: None,
        conditions: Vec::new(),
        operations: Vec::new(),
        excluded_operations: Vec::new(),
        kinds: Vec::new(),
        is_connection: false,
    };
    let mut named: Vec<String> = Vec::new();
    for (filter, _) in &include.filters {
        for kind in kinds_of(filter) {
            if !named.contains(&kind) {
                named.push(kind);
            }
        }
        for operation in texts(filter.get_path(["resources", "operations"])) {
            if !matching.operations.contains(&operation) {
                matching.operations.push(operation);
            }
        }
    }
    for kind in &named {
        matching.add_kind(kind, kinds).map_err(|obstacle| obstacle.at(&path.join("match")))?;
    }
    if matching.resources.is_empty() {
        matching.add_kind("*", kinds).map_err(|obstacle| obstacle.at(&path.join("match")))?;
    }
    matching.include(&include, &named, object)?;
    for (number, (filter, path)) in exclude.filters.iter().enumerate() {
        if let Some(operations) = operations_alone(filter, &named)
            && (exclude.any || exclude.filters.len() == 1)
        {
            matching.excluded_operations.extend(operations);
            continue;
        }
        let held = filter_condition(filter, object, &named, true, path)?;
        if held.is_bool(false) {
            continue;
        }
        if !exclude.any && exclude.filters.len() > 1 {
            continue;
        }
        let name = match exclude.filters.len() {
            1 => "exclude".to_owned(),
            _ => format!("exclude-{}", number + 1),
        };
        matching.conditions.push((name, held.negate()));
    }
    if !exclude.any && exclude.filters.len() > 1 {
        let each: Result<Vec<Cel>, Obstacle> = exclude
            .filters
            .iter()
            .map(|(filter, path)| filter_condition(filter, object, &named, true, path))
            .collect();
        matching.conditions.push(("exclude".to_owned(), Cel::all(each?).negate()));
    }
    Ok(matching)
}

impl Matching {
    fn include(
        &mut self,
        include: &Block<'_>,
        named: &[String],
        object: &Cel,
    ) -> Result<(), Obstacle> {
        let selectors =
            |filter: &Value, field: &str| filter.get_path(["resources", field]).cloned();
        if let [(filter, path)] = include.filters.as_slice() {
            let plain = |selector: &Value| !has_wildcards(selector);
            let mut filter = (*filter).clone();
            if let Some(selector) = selectors(&filter, "selector").filter(plain) {
                self.object_selector = Some(selector);
                filter.remove(["resources", "selector"]);
            }
            if let Some(selector) = selectors(&filter, "namespaceSelector").filter(plain) {
                self.namespace_selector = Some(selector);
                filter.remove(["resources", "namespaceSelector"]);
            }
            filter.remove(["resources", "operations"]);
            let held = filter_condition(&filter, object, named, false, path)?;
            if !held.is_bool(true) {
                self.conditions.push(("match".to_owned(), held));
            }
            return Ok(());
        }
        let mut each = Vec::new();
        for (filter, path) in &include.filters {
            each.push(filter_condition(filter, object, named, false, path)?);
        }
        let same_operations = include.filters.windows(2).all(|pair| {
            pair[0].0.get_path(["resources", "operations"])
                == pair[1].0.get_path(["resources", "operations"])
        });
        let held = if include.any { Cel::any(each) } else { Cel::all(each) };
        let held = match (include.any, same_operations) {
            (true, false) => {
                let mut each = Vec::new();
                for (filter, path) in &include.filters {
                    let held = filter_condition(filter, object, named, true, path)?;
                    each.push(held);
                }
                Cel::any(each)
            }
            _ => held,
        };
        if !held.is_bool(true) {
            self.conditions.push(("match".to_owned(), held));
        }
        Ok(())
    }

    fn add_kind(&mut self, written: &str, kinds: &Kinds) -> Result<(), Obstacle> {
        let Some(pattern) = KindPattern::parse(written) else {
            return Err(Obstacle::new(format!("kind {written:?}"), "write group/version/Kind"));
        };
        let subresource = pattern.subresource.as_str();
        if matches!(subresource, "exec" | "attach" | "portforward" | "proxy") {
            self.is_connection = true;
        }
        let resource = |plural: &str| match subresource {
            "" => plural.to_owned(),
            sub => format!("{plural}/{sub}"),
        };
        if pattern.kind.as_str() == "*" {
            let any = |text: &str| if text.is_empty() { "*".to_owned() } else { text.to_owned() };
            self.add(&any(&pattern.group), &any(&pattern.version), resource("*"));
            return Ok(());
        }
        let found: Vec<_> = kinds
            .iter()
            .filter(|kind| pattern.matches(kind.group(), kind.version(), kind.kind(), subresource))
            .collect();
        // What a server only takes, and never stores, is not what a rule means.
        for kind in &found {
            self.add(kind.group(), kind.version(), resource(kind.plural()));
            let api_version = kind.gvk().api_version();
            self.kinds.push((api_version, kind.kind().to_owned()));
        }
        if found.is_empty() {
            if wildcard::contains_wildcard(&pattern.kind) {
                return Err(Obstacle::new(
                    format!("kind {written:?}, which no known kind meets"),
                    "name the kinds, or give their CustomResourceDefinitions",
                ));
            }
            let plural = usual_plural(&pattern.kind);
            self.add(&pattern.group, &pattern.version, resource(&plural));
            let api_version = match (pattern.group.as_str(), pattern.version.as_str()) {
                ("*" | "", version) => version.to_owned(),
                (group, version) => format!("{group}/{version}"),
            };
            self.kinds.push((api_version, pattern.kind.to_string()));
        }
        Ok(())
    }

    fn add(&mut self, group: &str, version: &str, resource: String) {
        if let Some(known) = self.resources.iter_mut().find(|known| {
            known.group == group
                && (known.versions == [version] || known.resources == [resource.clone()])
        }) {
            if !known.versions.iter().any(|known| known == version) {
                known.versions.push(version.to_owned());
            }
            if !known.resources.contains(&resource) {
                known.resources.push(resource);
            }
            return;
        }
        self.resources.push(ResourceRule {
            group: group.to_owned(),
            versions: vec![version.to_owned()],
            resources: vec![resource],
        });
    }
}

/// The operations of a filter that says nothing else.
fn operations_alone(filter: &Value, named: &[String]) -> Option<Vec<String>> {
    let only = filter.as_map()?;
    let resources = filter.get("resources")?.as_map()?;
    let says_more = only.len() > 1
        || resources.keys().any(|key| !matches!(key.as_str(), "operations" | "kinds"));
    let own = kinds_of(filter);
    let covers = own.is_empty() || named.iter().all(|kind| own.contains(kind));
    let operations = texts(resources.get("operations"));
    (!says_more && covers && !operations.is_empty()).then_some(operations)
}

fn has_wildcards(selector: &Value) -> bool {
    match selector {
        Value::String(text) => wildcard::contains_wildcard(text),
        Value::List(list) => list.iter().any(has_wildcards),
        Value::Map(map) => {
            map.iter().any(|(key, value)| wildcard::contains_wildcard(key) || has_wildcards(value))
        }
        _ => false,
    }
}

/// Whether a `match` block of an exception matches.
pub(crate) fn excepted(
    written: Option<&Value>,
    object: &Cel,
    path: &Path,
) -> Result<Cel, Obstacle> {
    let block = block(written, path);
    // No kind is named by anything else.
    let nothing = [String::new()];
    let mut each = Vec::new();
    for (filter, path) in &block.filters {
        each.push(filter_condition(filter, object, &nothing, false, path)?);
    }
    Ok(if block.any { Cel::any(each) } else { Cel::all(each) })
}

/// Whether a filter matches; true where it only names what the constraints say already.
fn filter_condition(
    filter: &Value,
    object: &Cel,
    named: &[String],
    with_operations: bool,
    path: &Path,
) -> Result<Cel, Obstacle> {
    let mut parts = Vec::new();
    let own = kinds_of(filter);
    let covers = own.is_empty()
        || named.iter().all(|kind| own.contains(kind))
        || own.iter().any(|kind| kind == "*");
    if !covers {
        let mut each = Vec::new();
        for kind in &own {
            each.push(kind_condition(kind, path)?);
        }
        parts.push(Cel::any(each));
    }
    if with_operations {
        let operations = texts(filter.get_path(["resources", "operations"]));
        if !operations.is_empty() {
            let operation = Cel::name("request").select("operation");
            parts.push(wildcards::matches_any(&operation, operations.iter().map(String::as_str)));
        }
    }
    if let Some(Value::Map(resources)) = filter.get("resources") {
        let mut names = texts(resources.get("names"));
        names.extend(resources.get("name").and_then(Value::as_str).map(str::to_owned));
        if !names.is_empty() {
            let name = object.clone().select("metadata").maybe("name").or_value(Cel::text(""));
            parts.push(wildcards::matches_any(&name, names.iter().map(String::as_str)));
        }
        let namespaces = texts(resources.get("namespaces"));
        if !namespaces.is_empty() {
            let namespace = Cel::name("request").select("namespace");
            parts.push(wildcards::matches_any(&namespace, namespaces.iter().map(String::as_str)));
        }
        if let Some(Value::Map(annotations)) = resources.get("annotations") {
            let place = object.clone().select("metadata").maybe("annotations");
            parts.extend(annotations.iter().map(|(key, value)| pair(&place, key, value)));
        }
        if let Some(selector) = resources.get("selector") {
            let labels = object.clone().select("metadata").maybe("labels");
            parts.push(selected(selector, &labels, path)?);
        }
        if let Some(selector) = resources.get("namespaceSelector") {
            let labels = Cel::name("namespaceObject").maybe("metadata").maybe("labels");
            parts.push(selected(selector, &labels, path)?);
        }
    }
    parts.extend(user_conditions(filter, path)?);
    let is_empty = parts.is_empty() && own.is_empty();
    // A filter that says nothing matches nothing.
    Ok(if is_empty && filter.get("resources").is_none() {
        Cel::bool(false)
    } else {
        Cel::all(parts)
    })
}

fn kind_condition(written: &str, path: &Path) -> Result<Cel, Obstacle> {
    let Some(pattern) = KindPattern::parse(written) else {
        return Err(Obstacle::new(format!("kind {written:?}"), "write group/version/Kind").at(path));
    };
    let request = || Cel::name("request").select("kind");
    let mut parts = vec![wildcards::matches(request().select("kind"), &pattern.kind)];
    if pattern.group.as_str() != "*" {
        parts.push(wildcards::matches(request().select("group"), &pattern.group));
    }
    if !pattern.subresource.is_empty() {
        let sub = Cel::name("request").select("subResource");
        parts.push(wildcards::matches(sub, &pattern.subresource));
    }
    Ok(Cel::all(parts))
}

/// Whether a label or annotation is there, both sides with wildcards.
fn pair(place: &Cel, key: &str, value: &Value) -> Cel {
    let text = match value {
        Value::String(text) => text.to_string(),
        other => kiln_value::json::to_string(other),
    };
    if wildcard::contains_wildcard(key) {
        let map = place.clone().or_value(Cel::Map(Vec::new()));
        let found = map.clone().index(Cel::name("key"), false);
        let both =
            Cel::all([wildcards::matches(Cel::name("key"), key), wildcards::matches(found, &text)]);
        return map.each("exists", "key", both);
    }
    match text.as_str() {
        "*" => place.clone().maybe(key).call("hasValue", vec![]),
        text => wildcards::matches(place.clone().maybe(key).or_value(Cel::text("")), text),
    }
}

/// Whether labels meet a selector.
fn selected(selector: &Value, labels: &Cel, path: &Path) -> Result<Cel, Obstacle> {
    let mut parts = Vec::new();
    if let Some(Value::Map(wanted)) = selector.get("matchLabels") {
        parts.extend(wanted.iter().map(|(key, value)| pair(labels, key, value)));
    }
    if let Some(Value::List(expressions)) = selector.get("matchExpressions") {
        for expression in expressions {
            let key = expression.str_at(["key"]).unwrap_or_default();
            let values = texts(expression.get("values"));
            let label = labels.clone().maybe(key);
            let listed = || Cel::texts(values.iter().map(String::as_str));
            parts.push(match expression.str_at(["operator"]) {
                Some("Exists") => label.call("hasValue", vec![]),
                Some("DoesNotExist") => label.call("hasValue", vec![]).negate(),
                Some("In") => label.or_value(Cel::text("")).within(listed()),
                Some("NotIn") => label.or_value(Cel::text("")).within(listed()).negate(),
                other => {
                    let operator = other.unwrap_or_default();
                    return Err(Obstacle::new(
                        format!("operator {operator} in a selector"),
                        "use In, NotIn, Exists or DoesNotExist",
                    )
                    .at(path));
                }
            });
        }
    }
    Ok(Cel::all(parts))
}

/// What a filter asks of who sent the request.
fn user_conditions(filter: &Value, path: &Path) -> Result<Vec<Cel>, Obstacle> {
    let user = || Cel::name("request").select("userInfo");
    let username = || user().maybe("username").or_value(Cel::text(""));
    let groups = || user().maybe("groups").or_value(Cel::empty_list());
    let mut parts = Vec::new();
    if let Some(Value::List(subjects)) = filter.get("subjects") {
        let mut each = Vec::new();
        for subject in subjects {
            let name = subject.str_at(["name"]).unwrap_or_default();
            each.push(match subject.str_at(["kind"]) {
                Some("User") => wildcards::matches(username(), name),
                Some("Group") => match wildcard::contains_wildcard(name) {
                    true => groups().each(
                        "exists",
                        "group",
                        wildcards::matches(Cel::name("group"), name),
                    ),
                    false => Cel::text(name).within(groups()),
                },
                Some("ServiceAccount") => {
                    let namespace = subject.str_at(["namespace"]).unwrap_or("*");
                    wildcards::matches(
                        username(),
                        &format!("system:serviceaccount:{namespace}:{name}"),
                    )
                }
                other => {
                    let kind = other.unwrap_or_default();
                    return Err(Obstacle::new(
                        format!("a subject of kind {kind:?}"),
                        "use User, Group or ServiceAccount",
                    )
                    .at(path));
                }
            });
        }
        parts.push(Cel::any(each));
    }
    for (field, resource, is_cluster) in
        [("roles", "rolebindings", false), ("clusterRoles", "clusterrolebindings", true)]
    {
        let roles = texts(filter.get(field));
        if roles.is_empty() {
            continue;
        }
        let each = roles.iter().map(|role| {
            let (namespace, name) = match role.split_once(':') {
                Some((namespace, name)) if !is_cluster => (namespace, name),
                _ => ("", role.as_str()),
            };
            bound_to(resource, namespace, name, is_cluster)
        });
        parts.push(Cel::any(each));
    }
    Ok(parts)
}

/// Whether a binding gives the user a role.
fn bound_to(resource: &str, namespace: &str, role: &str, is_cluster: bool) -> Cel {
    let user = || Cel::name("request").select("userInfo");
    let subject = |field: &str| Cel::name("subject").select(field);
    let of_kind = |kind: &str| subject("kind").equals(Cel::text(kind));
    let username = || user().select("username");
    let account = Cel::text("system:serviceaccount:")
        .plus(Cel::name("subject").maybe("namespace").or_value(Cel::text("")))
        .plus(Cel::text(":"))
        .plus(subject("name"));
    let is_user = Cel::any([
        Cel::all([of_kind("User"), subject("name").equals(username())]),
        Cel::all([
            of_kind("Group"),
            subject("name").within(user().maybe("groups").or_value(Cel::empty_list())),
        ]),
        Cel::all([of_kind("ServiceAccount"), account.equals(username())]),
    ]);
    let kind = if is_cluster { "ClusterRole" } else { "Role" };
    let role_ref = || Cel::name("binding").select("roleRef");
    let given = Cel::all([
        role_ref().select("kind").equals(Cel::text(kind)),
        role_ref().select("name").equals(Cel::text(role)),
        Cel::name("binding")
            .maybe("subjects")
            .or_value(Cel::empty_list())
            .each("exists", "subject", is_user),
    ]);
    let args =
        vec![Cel::text("rbac.authorization.k8s.io/v1"), Cel::text(resource), Cel::text(namespace)];
    let list = Cel::name("resource").call("List", args).select("items");
    list.each("exists", "binding", given)
}
