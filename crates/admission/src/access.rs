//! The rights that a policy needs, as questions for the API server, and what to tell users who lack them.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use kiln_engine::User;
use kiln_engine::author::{is_policy, refusal_of_policy};
use kiln_object::{EngineNames, Gvk, ObjectId};
use kiln_rules::PolicyId;
use kiln_value::{Map, Str, Value};

pub use crate::needs::{UnknownKind, needs, needs_of_author};
use crate::settings::Settings;

/// Verbs, in the order in which roles list them.
const VERBS: [&str; 9] =
    ["get", "list", "watch", "create", "update", "patch", "delete", "bind", "escalate"];
/// The most single rights of a role that are asked about one by one.
const MOST_HANDED_OUT: usize = 256;

/// Rights that a user needs on one resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Need {
    /// The part of the policy that needs them.
    pub path: String,
    /// Who needs them.
    pub account: Account,
    pub kind: Gvk,
    /// The plural of the kind.
    pub resource: String,
    /// The subresource; empty for the object itself.
    pub subresource: String,
    /// The namespace; empty for all.
    pub namespace: String,
    pub(crate) written_namespace: String,
    /// The name; empty for all.
    pub name: String,
    /// What is to be done with it.
    pub verbs: Vec<&'static str>,
    /// The words that users of mutate rules know.
    pub(crate) changes: bool,
    /// What becomes of the policy without them.
    pub without: Without,
    /// It is how the engine works, and no author has to have it.
    pub(crate) of_engine_alone: bool,
    /// For `bind` and `escalate`: the rules of the role, where they are known before the policy acts. A user who has all of
    /// these rights hands them out without the verb.
    pub(crate) hands_out: Option<Value>,
}

/// What becomes of a policy whose account lacks a right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    /// It is not stored.
    Refused,
    /// It is stored, and cannot do its work.
    Fails,
    /// It is stored, and whether it needs the right is known when it has run.
    Doubtful,
}

/// One of the engine's users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Account {
    /// Answers requests.
    Admission,
    /// Makes and changes objects.
    Background,
    /// Deletes objects whose time has come.
    Cleanup,
}

impl Account {
    fn component(self) -> &'static str {
        match self {
            Account::Admission => "admission-controller",
            Account::Background => "background-controller",
            Account::Cleanup => "cleanup-controller",
        }
    }

    /// Its user name.
    pub fn user(self, settings: &Settings) -> String {
        match self {
            Account::Admission => settings.admission_user(),
            Account::Background => settings.background_user(),
            Account::Cleanup => settings.cleanup_user(),
        }
    }
}

/// The path at which questions are asked.
pub const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// The question whether a user may do something, as the API server takes it. Its answer is at
/// `status.allowed`.
pub fn access_review(user: &str, groups: &[Str], attributes: Map) -> Value {
    let mut spec = Map::new();
    spec.insert("resourceAttributes", attributes);
    spec.insert("user", user);
    spec.insert("groups", Value::from_iter(groups.iter().cloned()));
    let mut review = Map::new();
    review.insert("apiVersion", "authorization.k8s.io/v1");
    review.insert("kind", "SubjectAccessReview");
    review.insert("spec", spec);
    Value::Map(review)
}

/// One question for the API server.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessQuestion<'n> {
    need: &'n Need,
    verb: &'static str,
    /// Whom it is about; none for the account that needs it.
    author: Option<&'n User>,
}

impl AccessQuestion<'_> {
    /// The SubjectAccessReview to create. Its answer is at `status.allowed`.
    pub fn to_value(&self, settings: &Settings) -> Value {
        let need = self.need;
        let mut attributes = Map::new();
        let mut add = |key: &'static str, text: &str| {
            if !text.is_empty() {
                attributes.insert(key, text);
            }
        };
        add("verb", self.verb);
        add("group", &need.kind.group);
        add("version", &need.kind.version);
        add("resource", &need.resource);
        add("subresource", &need.subresource);
        add("namespace", &need.namespace);
        add("name", &need.name);
        if let Some(author) = self.author {
            return access_review(&author.username, &author.groups, attributes);
        }
        about_account(need.account, attributes, settings)
    }

    /// The role that is bound, as far as its place is known: what it hands out is to be read when the answer is no.
    pub fn role(&self) -> Option<ObjectId> {
        let need = self.need;
        let place = match need.kind.kind.as_str() {
            "Role" if need.namespace.is_empty() => return None,
            "Role" => need.namespace.as_str(),
            _ => "",
        };
        let binds = self.verb == "bind" && need.hands_out.is_none() && !need.name.is_empty();
        (binds && self.author.is_none())
            .then(|| ObjectId::new(need.kind.clone(), place, &need.name))
    }

    /// The questions that may be answered with yes instead, all of them: a user who has the permissions of a role may
    /// hand them out. None when they are not known, or too many.
    // Kubernetes: as the API server does when it is asked to store a role or a binding.
    pub fn instead(&self, role: Option<&Value>, settings: &Settings) -> Option<Vec<Value>> {
        let need = self.need;
        let rules = match (&need.hands_out, role) {
            _ if !matches!(self.verb, "bind" | "escalate") || self.author.is_some() => return None,
            (Some(rules), _) => rules,
            (None, Some(role)) => role.get("rules").unwrap_or(&Value::Null),
            (None, None) => return None,
        };
        let mut reviews = Vec::new();
        let mut ask = |parts: [&str; 4]| {
            let [group, resource, verb, name] = parts;
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let mut attributes = Map::new();
            for (key, text) in [
                ("verb", verb),
                ("group", group),
                ("resource", resource),
                ("subresource", subresource),
                ("namespace", need.namespace.as_str()),
                ("name", name),
            ] {
                if !text.is_empty() {
                    attributes.insert(key, text);
                }
            }
            reviews.push(about_account(need.account, attributes, settings));
        };
        let mut asked = 0;
        for rule in rules.as_list().into_iter().flatten() {
            let texts = |field: &str| -> Vec<String> {
                let list = rule.get(field).and_then(Value::as_list).into_iter().flatten();
                list.filter_map(|text| text.as_str().map(str::to_owned)).collect()
            };
            let (groups, resources) = (texts("apiGroups"), texts("resources"));
            let (verbs, mut names) = (texts("verbs"), texts("resourceNames"));
            if names.is_empty() {
                names.push(String::new());
            }
            let many =
                [&groups, &resources, &verbs, &names].map(Vec::len).iter().product::<usize>();
            asked += many;
            // What is not a resource is not asked about.
            if many == 0 || asked > MOST_HANDED_OUT {
                return None;
            }
            for group in &groups {
                for resource in &resources {
                    for verb in &verbs {
                        for name in &names {
                            ask([group, resource, verb, name]);
                        }
                    }
                }
            }
        }
        Some(reviews)
    }
}

/// The question whether an account of the engine may do something.
fn about_account(account: Account, attributes: Map, settings: &Settings) -> Value {
    let groups = [
        Str::from("system:serviceaccounts"),
        format!("system:serviceaccounts:{}", settings.namespace).into(),
        "system:authenticated".into(),
    ];
    access_review(&account.user(settings), &groups, attributes)
}

/// The questions whether an author may do what the engine is to do for them: to write.
pub fn questions_about<'n>(author: &'n User, needs: &'n [Need]) -> Vec<AccessQuestion<'n>> {
    let mut questions = questions(needs);
    questions.retain(|question| !question.need.of_engine_alone);
    for question in &mut questions {
        question.author = Some(author);
    }
    questions
}

/// The message for an author who may not do it themselves.
pub fn refusal_to(author: &User, needs: &[Need], allowed: &[bool]) -> Option<String> {
    let writes = |need: &&Need| need.verbs.iter().any(|verb| ["create", "update"].contains(verb));
    if let Some(need) = needs.iter().filter(writes).find(|need| is_policy(&need.kind)) {
        return Some(format!("path: {}: {}", need.path, refusal_of_policy(author, &need.kind)));
    }
    let questions = questions_about(author, needs);
    let mut answers = allowed.iter().copied();
    let lacks: Vec<&AccessQuestion<'_>> =
        questions.iter().filter(|_| !answers.next().unwrap_or(false)).collect();
    let first = lacks.first()?.need;
    let same = lacks.iter().filter(|question| question.need == first);
    let verbs: Vec<&str> = same.map(|question| question.verb).collect();
    let place = match first.namespace.as_str() {
        "" => "in all namespaces".to_owned(),
        namespace => format!("in namespace {namespace}"),
    };
    Some(format!(
        "path: {}: {} may not {} {} {place}, so a policy of theirs may not either; grant them the permission, or \
         let a user who has it store the policy",
        first.path,
        author.username,
        verbs.join(", "),
        first.shown(),
    ))
}

/// The questions behind needs, need after need and verb after verb.
pub fn questions(needs: &[Need]) -> Vec<AccessQuestion<'_>> {
    needs
        .iter()
        .flat_map(|need| {
            need.verbs.iter().map(move |verb| AccessQuestion { need, verb, author: None })
        })
        .collect()
}

/// Needs with the verbs of each that are lacking.
#[derive(Debug)]
pub struct Lacking<'n>(Vec<(&'n Need, Vec<&'static str>)>);

/// What is lacking by the answers to all questions; an answer that did not come is not a yes.
pub fn lacking<'n>(needs: &'n [Need], allowed: &[bool]) -> Lacking<'n> {
    let mut answers = allowed.iter().copied();
    let mut missing: Vec<(&Need, Vec<&'static str>)> = Vec::new();
    for need in needs {
        let lacks =
            need.verbs.iter().copied().filter(|_| !answers.next().unwrap_or(false)).collect();
        missing.push((need, lacks));
    }
    missing.retain(|(_, verbs)| !verbs.is_empty());
    Lacking(missing)
}

impl Lacking<'_> {
    /// What the worst of it means for the policy; none when nothing is lacking.
    pub fn without(&self) -> Option<Without> {
        let worst = [Without::Refused, Without::Fails, Without::Doubtful];
        worst.into_iter().find(|worst| self.0.iter().any(|(need, _)| need.without == *worst))
    }

    /// The verbs with what they are about, each in a few words.
    pub fn verbs_and_kinds(&self) -> Vec<String> {
        let shown = |(need, verbs): &(&Need, Vec<&'static str>)| {
            let place = match need.written_namespace.as_str() {
                "" => String::new(),
                namespace => format!(" in namespace {namespace}"),
            };
            format!("{} {}{place}", verbs.join(","), need.resource)
        };
        self.0.iter().map(shown).collect()
    }

    /// The same in one line, for a policy that is stored all the same: warnings have no more.
    pub fn warned(&self, settings: &Settings) -> String {
        let complaints = self.0.iter().map(|(need, verbs)| need.complaint(verbs, settings));
        let complaints = complaints.collect::<Vec<_>>().join("; ");
        format!("{complaints} (kiln doctor prints the ClusterRole to apply)")
    }

    /// The message for users: what is lacking, and the roles that give it.
    pub fn told(&self, policy: &PolicyId, settings: &Settings) -> String {
        let complaints = self.0.iter().map(|(need, verbs)| need.complaint(verbs, settings));
        let mut message = complaints.collect::<Vec<_>>().join("; ");
        message.push_str("\nto grant them, apply:\n");
        let accounts: BTreeSet<Account> = self.0.iter().map(|(need, _)| need.account).collect();
        for (at, account) in accounts.into_iter().enumerate() {
            if at > 0 {
                message.push_str("---\n");
            }
            let of_account = self.0.iter().filter(|(need, _)| need.account == account);
            message.push_str(&cluster_role(policy, account, of_account, &settings.names));
        }
        message
    }
}

impl Need {
    /// A subresource is read and written; it comes and goes, and is listed, with its object.
    pub(crate) fn by_part(self) -> Vec<Need> {
        if self.subresource.is_empty() {
            return vec![self];
        }
        let (of_part, of_object) =
            self.verbs.iter().partition(|verb| matches!(**verb, "get" | "update" | "patch"));
        vec![
            Need { verbs: of_object, subresource: String::new(), ..self.clone() },
            Need { verbs: of_part, ..self },
        ]
    }

    /// The kind, with the part of it.
    fn shown(&self) -> String {
        let mut kind = self.kind.to_string();
        if !self.subresource.is_empty() {
            let _ = write!(kind, "/{}", self.subresource);
        }
        kind
    }

    fn complaint(&self, verbs: &[&str], settings: &Settings) -> String {
        let user = self.account.user(settings);
        let mut kind = self.shown();
        if self.verbs == ["bind"] && !self.name.is_empty() {
            let _ = write!(kind, " {}", self.name);
        }
        let place = match self.written_namespace.as_str() {
            "" => String::new(),
            namespace => format!(" in namespace {namespace}"),
        };
        if self.account == Account::Cleanup {
            // Kyverno's words.
            let lacks = verbs.iter().map(|verb| format!("to {verb} kind {}", self.kind.kind));
            let lacks: Vec<String> = lacks.collect();
            return format!("cleanup controller has no permission {}{place}", lacks.join(", "));
        }
        let (path, verbs) = (&self.path, verbs.join(","));
        if self.changes {
            return format!(
                "path: {path}: auth check fails, additional privileges are required for the service \
                 account '{user}': {verbs} on {kind}{place}"
            );
        }
        format!("path: {path}: {user} requires permissions {verbs} for resource {kind}{place}")
    }
}

/// What a rule of a role is about: the group, the resource, and the role that may be bound.
type RulePlace = (String, String, String);

/// A ClusterRole with what is missing, which the account gets by its label.
fn cluster_role<'m>(
    policy: &PolicyId,
    account: Account,
    missing: impl Iterator<Item = &'m (&'m Need, Vec<&'static str>)>,
    names: &EngineNames,
) -> String {
    // One rule for each resource, and for each role that is bound by its name.
    let mut rules: Vec<(RulePlace, BTreeSet<&str>)> = Vec::new();
    for (need, verbs) in missing {
        let resource = match need.subresource.as_str() {
            "" => need.resource.clone(),
            sub => format!("{}/{sub}", need.resource),
        };
        let is_named = verbs.contains(&"bind") || need.account == Account::Cleanup;
        let bound = if is_named { need.name.clone() } else { String::new() };
        let place = (need.kind.group.to_string(), resource, bound);
        match rules.iter_mut().find(|(known, _)| *known == place) {
            Some((_, known)) => known.extend(verbs),
            None => rules.push((place, verbs.iter().copied().collect())),
        }
    }
    let rules = rules.into_iter().map(|((group, resource, bound), verbs)| {
        let mut rule = Map::new();
        rule.insert("apiGroups", Value::from_iter([group]));
        if !bound.is_empty() {
            rule.insert("resourceNames", Value::from_iter([bound]));
        }
        rule.insert("resources", Value::from_iter([resource]));
        let verbs = VERBS.into_iter().filter(|verb| verbs.contains(verb));
        rule.insert("verbs", Value::from_iter(verbs));
        Value::Map(rule)
    });
    let component = account.component();
    let mut labels = Map::new();
    labels.insert(names.aggregation_label(component), "true");
    let mut metadata = Map::new();
    metadata.insert("name", role_name(&names.role(component), policy));
    metadata.insert("labels", labels);
    let mut role = Map::new();
    role.insert("apiVersion", "rbac.authorization.k8s.io/v1");
    role.insert("kind", "ClusterRole");
    role.insert("metadata", metadata);
    role.insert("rules", Value::from_iter(rules));
    kiln_yaml::emit(&Value::Map(role))
}

/// The name of the role with what a policy needs: roles of policies of other namespaces have other names.
fn role_name(role: &str, policy: &PolicyId) -> String {
    match &policy.namespace {
        Some(namespace) => format!("{role}:{namespace}:{}", policy.name),
        None => format!("{role}:{}", policy.name),
    }
}

#[cfg(test)]
mod tests {
    use kiln_object::Kinds;
    use kiln_yaml::{ReadOptions, read_bytes};

    use super::*;

    /// What a user who stores a policy with one rule needs, and the message for one who may do anything.
    fn of_author(kinds: &str, action: &str) -> (Vec<String>, Option<String>) {
        let policy = format!(
            "apiVersion: kyverno.io/v1\nkind: Policy\nmetadata: {{name: p, namespace: shop}}\nspec:\n  rules:\n  - name: r\n    match: {{any: [{{resources: {{kinds: [{kinds}]}}}}]}}\n    {action}\n"
        );
        let documents = read_bytes("p", policy.as_bytes(), ReadOptions::kubernetes()).unwrap();
        let known = Kinds::builtin();
        let compiled = kiln_dialects::compile(&documents, &known);
        let policy = compiled.policies.first().unwrap_or_else(|| panic!("{compiled:?}"));
        let mut all = needs(policy, &known).unwrap_or_default();
        let found = needs_of_author(policy, &known);
        let shown = |need: &Need| {
            let verbs = need.verbs.join(",");
            format!("{verbs} {} in {}", need.shown(), need.namespace)
        };
        let jane = User { username: "jane".into(), ..User::default() };
        all.extend(found.iter().cloned());
        let told = refusal_to(&jane, &all, &vec![true; questions_about(&jane, &all).len()]);
        (found.iter().map(shown).collect(), told)
    }

    #[test]
    fn authors_need_rights_for_what_their_rules_do_to_what_is_sent() {
        let changes = "mutate: {patchStrategicMerge: {metadata: {labels: {a: b}}}}";
        let makes = "generate: {apiVersion: v1, kind: ConfigMap, name: m, namespace: shop, data: {data: {a: b}}}";
        let rbac = "rbac.authorization.k8s.io/v1";
        let (bind, escalate) = (
            ["Role", "ClusterRole"].map(|kind| format!("bind {rbac}/{kind} in shop")),
            format!("escalate {rbac}/Role in shop"),
        );
        for (kinds, action, wanted) in [
            ("Secret", makes, vec!["get v1/Secret in shop".to_owned()]),
            ("Secret", changes, vec!["get,update v1/Secret in shop".to_owned()]),
            ("Pod/exec", makes, vec!["get v1/Pod/exec in shop".to_owned()]),
            ("Pod/status", changes, vec!["get,update v1/Pod/status in shop".to_owned()]),
            ("RoleBinding", makes, vec![format!("get {rbac}/RoleBinding in shop")]),
            (
                "RoleBinding",
                changes,
                [format!("get,update {rbac}/RoleBinding in shop")]
                    .into_iter()
                    .chain(bind)
                    .collect(),
            ),
            ("Role", changes, vec![format!("get,update {rbac}/Role in shop"), escalate]),
        ] {
            let (asked, told) = of_author(kinds, action);
            assert_eq!(asked, wanted, "{kinds}: {action}");
            assert_eq!(told, None, "{kinds}: {action}");
        }
    }
    #[test]
    fn authors_make_no_policies_by_policies() {
        let jane = User { username: "jane".into(), ..User::default() };
        let need = |kind: Gvk, verbs: &[&'static str]| Need {
            path: "spec.rules[0].generate..".to_owned(),
            account: Account::Background,
            resource: "policies".to_owned(),
            kind,
            subresource: String::new(),
            namespace: "shop".to_owned(),
            written_namespace: "shop".to_owned(),
            name: String::new(),
            verbs: verbs.to_vec(),
            changes: false,
            without: Without::Refused,
            of_engine_alone: false,
            hands_out: None,
        };
        let told = |need: Need| {
            let needs = [need];
            refusal_to(&jane, &needs, &vec![true; questions_about(&jane, &needs).len()])
        };
        let policy = || Gvk::new("kyverno.io/v1", "Policy");
        for verbs in [&["get", "create"][..], &["get", "update"]] {
            let told = told(need(policy(), verbs)).unwrap_or_default();
            assert!(told.contains("author, jane, may not write objects of kind Policy"), "{told}");
        }
        // To look at them is fine.
        assert_eq!(told(need(policy(), &["get"])), None);
        assert_eq!(told(need(Gvk::new("v1", "ConfigMap"), &["get", "create"])), None);
    }
}
