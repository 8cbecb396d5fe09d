//! The rights that a policy needs, as questions for the API server, and what to tell users who lack them.
//!
//! Only what is known before the rules run is asked: a kind with variables in it is passed over.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use kiln_controller::author::{is_policy, refusal_of_policy};
use kiln_engine::{User, Wish};
use kiln_object::{Gvk, Kinds, ObjectId};
use kiln_rules::{Generate, Mutate, Policy, PolicyId, Program, Rule, TargetNamespace, What};
use kiln_text::wildcard;
use kiln_value::{Map, Path, Str, Value};
use kiln_variables::Template;

use crate::settings::Settings;

/// Rights that somebody needs on one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// The part of the policy that needs them.
    pub path: String,
    /// Who needs them.
    pub account: Account,
    /// The kind.
    pub kind: Gvk,
    /// The plural of the kind.
    pub resource: String,
    /// The subresource; empty for the object itself.
    pub subresource: String,
    /// The namespace; empty for all.
    pub namespace: String,
    /// The namespace as it is written.
    written_namespace: String,
    /// The name; empty for all.
    pub name: String,
    /// What is to be done with it.
    pub verbs: Vec<&'static str>,
    /// The words that users of mutate rules know.
    changes: bool,
}

/// One of the engine's users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Account {
    /// Answers requests.
    Admission,
    /// Makes and changes objects.
    Background,
}

impl Account {
    /// The name of its ServiceAccount.
    pub fn name(self) -> &'static str {
        match self {
            Account::Admission => "kyverno-admission-controller",
            Account::Background => "kyverno-background-controller",
        }
    }

    fn component(self) -> &'static str {
        match self {
            Account::Admission => "admission-controller",
            Account::Background => "background-controller",
        }
    }

    /// Its user name.
    pub fn user(self, settings: &Settings) -> String {
        match self {
            Account::Admission => settings.admission_user(),
            Account::Background => settings.background_user(),
        }
    }
}

/// The path at which questions are asked.
pub const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// The question whether somebody may do something, as the API server takes it. Its answer is at
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
pub struct Question<'n> {
    need: &'n Need,
    verb: &'static str,
    /// Whom it is about; none for the account that needs it.
    author: Option<&'n User>,
}

impl Question<'_> {
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
        let groups = [
            Str::from("system:serviceaccounts"),
            format!("system:serviceaccounts:{}", settings.namespace).into(),
            "system:authenticated".into(),
        ];
        access_review(&need.account.user(settings), &groups, attributes)
    }
}

/// The questions whether an author may do what the engine is to do for them: to write.
pub fn questions_about<'n>(author: &'n User, needs: &'n [Need]) -> Vec<Question<'n>> {
    let mut questions = questions(needs);
    questions.retain(|question| question.need.account == Account::Background);
    for question in &mut questions {
        question.author = Some(author);
    }
    questions
}

/// What an author is told who may not do it themselves.
pub fn refusal_to(author: &User, needs: &[Need], allowed: &[bool]) -> Option<String> {
    let writes = |need: &&Need| need.verbs.iter().any(|verb| ["create", "update"].contains(verb));
    if let Some(need) = needs.iter().filter(writes).find(|need| is_policy(&need.kind)) {
        return Some(format!("path: {}: {}", need.path, refusal_of_policy(author, &need.kind)));
    }
    let questions = questions_about(author, needs);
    let mut answers = allowed.iter().copied();
    let lacks: Vec<&Question<'_>> =
        questions.iter().filter(|_| !answers.next().unwrap_or(false)).collect();
    let first = lacks.first()?.need;
    let same = lacks.iter().filter(|question| question.need == first);
    let verbs: Vec<&str> = same.map(|question| question.verb).collect();
    let place = match first.namespace.as_str() {
        "" => "in all namespaces".to_owned(),
        namespace => format!("in namespace {namespace}"),
    };
    Some(format!(
        "path: {}: {} may not {} {} {place}, so a policy of theirs may not either; grant them the right, or \
         let somebody who has it store the policy",
        first.path,
        author.username,
        verbs.join(", "),
        first.shown(),
    ))
}

/// The questions behind needs, need after need and verb after verb.
pub fn questions(needs: &[Need]) -> Vec<Question<'_>> {
    needs
        .iter()
        .flat_map(|need| need.verbs.iter().map(move |verb| Question { need, verb, author: None }))
        .collect()
}

/// What users are told when some answers are no; none when all are yes.
pub fn refusal(
    policy: &PolicyId,
    needs: &[Need],
    allowed: &[bool],
    settings: &Settings,
) -> Option<String> {
    let mut answers = allowed.iter().copied();
    let mut missing: Vec<(&Need, Vec<&'static str>)> = Vec::new();
    for need in needs {
        // An answer that did not come is no yes.
        let lacks =
            need.verbs.iter().copied().filter(|_| !answers.next().unwrap_or(false)).collect();
        missing.push((need, lacks));
    }
    missing.retain(|(_, verbs)| !verbs.is_empty());
    if missing.is_empty() {
        return None;
    }
    let mut message = String::new();
    for (at, (need, verbs)) in missing.iter().enumerate() {
        if at > 0 {
            message.push_str("; ");
        }
        message.push_str(&need.complaint(verbs, settings));
    }
    message.push_str("\nto grant them, apply:\n");
    let accounts: BTreeSet<Account> = missing.iter().map(|(need, _)| need.account).collect();
    for (at, account) in accounts.into_iter().enumerate() {
        if at > 0 {
            message.push_str("---\n");
        }
        let of_account = missing.iter().filter(|(need, _)| need.account == account);
        message.push_str(&cluster_role(policy, account, of_account));
    }
    Some(message)
}

impl Need {
    /// A subresource is read and written; it comes and goes, and is listed, with its object.
    fn by_part(self) -> Vec<Need> {
        if self.subresource.is_empty() {
            return vec![self];
        }
        let (of_part, of_object) =
            self.verbs.iter().partition(|verb| matches!(**verb, "get" | "update"));
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
        let kind = self.shown();
        let place = match self.written_namespace.as_str() {
            "" => String::new(),
            namespace => format!(" in namespace {namespace}"),
        };
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

/// A ClusterRole with what is missing, which the account gets by its label.
fn cluster_role<'m>(
    policy: &PolicyId,
    account: Account,
    missing: impl Iterator<Item = &'m (&'m Need, Vec<&'static str>)>,
) -> String {
    let mut rules: Vec<Value> = Vec::new();
    for (need, verbs) in missing {
        let resource = match need.subresource.as_str() {
            "" => need.resource.clone(),
            sub => format!("{}/{sub}", need.resource),
        };
        let mut rule = Map::new();
        rule.insert("apiGroups", Value::from_iter([need.kind.group.clone()]));
        rule.insert("resources", Value::from_iter([resource]));
        rule.insert("verbs", Value::from_iter(verbs.iter().copied()));
        let rule = Value::Map(rule);
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    let component = account.component();
    let mut labels = Map::new();
    labels.insert(format!("rbac.kyverno.io/aggregate-to-{component}"), "true");
    let mut metadata = Map::new();
    metadata.insert("name", role_name(component, policy));
    metadata.insert("labels", labels);
    let mut role = Map::new();
    role.insert("apiVersion", "rbac.authorization.k8s.io/v1");
    role.insert("kind", "ClusterRole");
    role.insert("metadata", metadata);
    role.insert("rules", Value::from_iter(rules));
    kiln_yaml::emit(&Value::Map(role))
}

/// The name of the role with what a policy needs: roles of policies of other namespaces have other names.
fn role_name(component: &str, policy: &PolicyId) -> String {
    match &policy.namespace {
        Some(namespace) => format!("kyverno:{component}:{namespace}:{}", policy.name),
        None => format!("kyverno:{component}:{}", policy.name),
    }
}

/// The rights that a policy needs.
///
/// # Errors
/// When a kind is not known.
pub fn needs(policy: &Policy, kinds: &Kinds) -> Result<Vec<Need>, String> {
    let mut needs = Vec::new();
    for rule in &policy.rules {
        match &rule.program {
            Program::Generate(program) => of_generate(rule, program, kinds, &mut needs)?,
            Program::Mutate(program) => of_mutate(rule, program, kinds, &mut needs)?,
            // What is sent is patched or refused on its way; nothing is written.
            Program::Modify(_) => {}
        }
    }
    needs.dedup();
    Ok(needs)
}

/// The rights that an author needs besides those of the engine: to see what fires the rules, or to change it. Whoever
/// changes roles and bindings hands rights out.
pub fn needs_of_author(policy: &Policy, kinds: &Kinds) -> Vec<Need> {
    let mut needs = Vec::new();
    for rule in &policy.rules {
        let changes = rule.program.changes_trigger();
        let verbs = if changes { vec!["get", "update"] } else { vec!["get"] };
        let namespace = rule.scope.namespace().unwrap_or_default();
        let need = |kind: Gvk, subresource: &str, verbs: Vec<&'static str>| {
            Some(Need {
                path: format!("{}.match.", rule.origin.path()),
                account: Account::Background,
                resource: plural(&kind, kinds).ok()?,
                kind,
                subresource: subresource.to_owned(),
                namespace: namespace.to_owned(),
                written_namespace: namespace.to_owned(),
                name: String::new(),
                verbs,
                changes: true,
            })
        };
        let patterns = rule.trigger.include.filters().iter().flat_map(|filter| &filter.kinds);
        for pattern in patterns {
            let parts = [&pattern.group, &pattern.version, &pattern.kind];
            let [group, version, kind] = parts.map(Clone::clone);
            let asked = Gvk { group, version, kind };
            // What rules for any kind, or any part of one, fire on is asked when they fire.
            let any = wildcard::contains_wildcard(&asked.kind) || pattern.plural.is_some();
            let exact = !wildcard::contains_wildcard(&pattern.subresource);
            let subresource = if exact { pattern.subresource.as_str() } else { "" };
            for kind in if any { Vec::new() } else { meant(&asked, kinds) } {
                let changed = ObjectId::new(kind.clone(), namespace, "");
                needs.extend(need(kind, subresource, verbs.clone()));
                let roles = if changes { Wish::for_roles(&changed, None) } else { Vec::new() };
                needs.extend(
                    roles.into_iter().filter_map(|(verb, role)| need(role.gvk, "", vec![verb])),
                );
            }
        }
    }
    needs.dedup();
    needs
}

fn of_generate(
    rule: &Rule,
    program: &Generate,
    kinds: &Kinds,
    needs: &mut Vec<Need>,
) -> Result<(), String> {
    let synchronize = rule.lifecycle.synchronize;
    for (block, _, emitter) in program.emitters() {
        let path = rule.origin.path().join("generate");
        let inner = if program.blocks[block].foreach.is_some() { "foreach" } else { "" };
        let path = format!("{path}.{inner}.");
        let (made, namespace): (Vec<(Gvk, String)>, Option<&Template>) = match &emitter.what {
            What::Data { target, .. } | What::Clone { target, .. } => {
                let made = plain(&target.api_version).zip(plain(&target.kind));
                let namespace = match &target.namespace {
                    TargetNamespace::Written(template) => Some(template),
                    _ => None,
                };
                (made.map(|(version, kind)| split(version, kind)).into_iter().collect(), namespace)
            }
            // What expressions make is known when they have run.
            What::Asked { .. } | What::Documents(_) => (Vec::new(), None),
            What::CloneSelect(select) => {
                let made = emitter.target_kinds().into_iter().map(|kind| (kind, String::new()));
                (made.collect(), select.target_namespace.as_ref())
            }
        };
        for (kind, subresource) in made {
            let need = Need {
                path: path.clone(),
                account: Account::Background,
                resource: plural(&kind, kinds)?,
                kind,
                subresource,
                namespace: namespace.and_then(plain).unwrap_or_default().to_owned(),
                written_namespace: namespace.map(written).unwrap_or_default(),
                name: String::new(),
                verbs: if synchronize {
                    vec!["get", "create", "update", "delete"]
                } else {
                    vec!["get", "create"]
                },
                changes: false,
            };
            if synchronize {
                let account = Account::Admission;
                let reads = Need { account, verbs: vec!["list", "get"], ..need.clone() };
                needs.extend(reads.by_part());
            }
            needs.extend(need.by_part());
        }
    }
    Ok(())
}

fn of_mutate(
    rule: &Rule,
    program: &Mutate,
    kinds: &Kinds,
    needs: &mut Vec<Need>,
) -> Result<(), String> {
    for target in program.named_targets() {
        let Some(kind) = plain(&target.kind) else { continue };
        let version = match &target.api_version {
            Some(version) => plain(version),
            None => Some("*"),
        };
        let Some(version) = version else { continue };
        let path: Path = rule.origin.path().join("mutate").join("targets");
        let literal = |template: Option<&Template>| {
            let text = template.and_then(plain).unwrap_or_default();
            if wildcard::contains_wildcard(text) { String::new() } else { text.to_owned() }
        };
        let (asked, subresource) = split(version, kind);
        for kind in meant(&asked, kinds) {
            needs.push(Need {
                path: format!("{path}."),
                account: Account::Background,
                resource: plural(&kind, kinds)?,
                kind,
                subresource: subresource.clone(),
                namespace: literal(target.namespace.as_ref()),
                written_namespace: target.namespace.as_ref().map(written).unwrap_or_default(),
                name: literal(target.name.as_ref()),
                verbs: vec!["get", "update"],
                changes: true,
            });
        }
    }
    Ok(())
}

/// The kinds behind one that may have wildcards.
fn meant(asked: &Gvk, kinds: &Kinds) -> Vec<Gvk> {
    let parts = [&asked.group, &asked.version, &asked.kind];
    if kinds.get(asked).is_some() || !parts.iter().any(|part| wildcard::contains_wildcard(part)) {
        return vec![asked.clone()];
    }
    // `*` alone as apiVersion stands for every group as well.
    let any_group = asked.group.is_empty();
    let fits = |kind: &&kiln_object::Kind| {
        (any_group || wildcard::matches(&asked.group, kind.group()))
            && wildcard::matches(&asked.version, kind.version())
            && wildcard::matches(&asked.kind, kind.kind())
    };
    let mut found: Vec<Gvk> = kinds.iter().filter(fits).map(kiln_object::Kind::gvk).collect();
    found.dedup_by(|a, b| a.group == b.group && a.kind == b.kind);
    found
}

fn split(api_version: &str, kind: &str) -> (Gvk, String) {
    let (kind, subresource) = kind.split_once('/').unwrap_or((kind, ""));
    (Gvk::new(api_version, kind), subresource.to_owned())
}

fn plural(kind: &Gvk, kinds: &Kinds) -> Result<String, String> {
    let known = kinds.get(kind).or_else(|| kinds.preferred(&kind.group, &kind.kind));
    let known = known.ok_or_else(|| format!("failed to get GVR for kind {kind}"))?;
    Ok(known.plural().to_owned())
}

/// The text of a template without variables.
fn plain(template: &Template) -> Option<&str> {
    template.is_plain().then(|| template.document().as_str()).flatten()
}

fn written(template: &Template) -> String {
    template.document().as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use kiln_yaml::{ReadOptions, read_bytes};

    use super::*;

    /// What is asked of somebody who stores a policy with one rule, and what they are told who may do anything.
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
