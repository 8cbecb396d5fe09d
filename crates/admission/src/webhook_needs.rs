//! What a policy asks of its webhooks: when they are called, how long they may take, what a failure means.
//!
//! None of this changes what a rule does, so it is not part of the model of rules: it is read from the policy's
//! document, where the languages write it in different places.

use std::fmt;

use kiln_cel::{Env, Type};
use kiln_dialects::pod_controllers::{self, Variant};
use kiln_rules::{Dialect, Policy, Program, Rule};
use kiln_value::{Str, Value, value};

/// What it means for a request when rules fail, or no replica answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FailurePolicy {
    /// The request goes on.
    Ignore,
    /// The request is refused.
    Fail,
}

impl FailurePolicy {
    /// The word in paths and names.
    pub fn word(self) -> &'static str {
        match self {
            FailurePolicy::Ignore => "ignore",
            FailurePolicy::Fail => "fail",
        }
    }
}

impl fmt::Display for FailurePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FailurePolicy::Ignore => "Ignore",
            FailurePolicy::Fail => "Fail",
        })
    }
}

/// Which part of a policy a webhook is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// Rules that change the object of the request.
    Mutate,
    /// Rules that only need to know of the request.
    Observe,
    /// Rules that check the object of the request.
    Validate,
}

/// What a webhook may do with the object of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Purpose {
    /// It changes it.
    Mutate,
    /// It looks at it: it may refuse it, or pass it on to the controller.
    Observe,
}

impl Part {
    /// All of them.
    pub const ALL: [Part; 3] = [Part::Mutate, Part::Observe, Part::Validate];

    /// The part that a rule belongs to.
    pub fn of(rule: &Rule) -> Self {
        match rule.program {
            Program::Validate(_) => Part::Validate,
            _ if rule.program.acts_at_admission() => Part::Mutate,
            _ => Part::Observe,
        }
    }

    /// What its webhook is for.
    pub fn purpose(self) -> Purpose {
        match self {
            Part::Mutate => Purpose::Mutate,
            Part::Observe | Part::Validate => Purpose::Observe,
        }
    }
}

/// What a policy asks of its webhooks.
#[derive(Clone, Debug, PartialEq)]
pub struct WebhookNeeds {
    /// Its rules are not to see requests at all.
    pub off: bool,
    /// What a failure means, if the policy says.
    pub failure: Option<FailurePolicy>,
    /// How many seconds an answer may take, if the policy says.
    pub timeout: Option<u8>,
    /// What must hold of a request: each with name and expression, checked by the API server.
    pub match_conditions: Vec<Value>,
    /// Requests in other versions of a kind are not converted.
    pub exact: bool,
    /// The resources that the policy itself names, as a webhook names them.
    pub resource_rules: Option<Vec<Value>>,
    /// Namespaces of the objects, as a label selector.
    pub namespace_selector: Option<Value>,
    /// Labels of the objects, as a label selector.
    pub object_selector: Option<Value>,
    /// Users get a warning about what rules changed.
    pub warns: bool,
    /// Some rule wants to know the roles of the user.
    pub asks_for_roles: bool,
    /// Some rule wants to know who sent a request, or decides by something else that only requests know.
    pub asks_for_request: bool,
    /// Some rule wants to know what an object was before.
    pub asks_for_old: bool,
}

impl WebhookNeeds {
    /// What a policy asks.
    ///
    /// Everything here narrows which requests the API server sends, so a mistake towards less loses triggers silently,
    /// while one towards more only costs a call: the engine matches again in any case. In doubt it asks for more. That is
    /// why `asks_for_request` and `asks_for_old` go by the words of the document and not by compiled expressions: a word
    /// in a comment asks for a request too many, but no spelling of a variable can be overlooked.
    ///
    /// Conditions of the policy are copied into the webhook, where the API server evaluates them, only if they mean the
    /// same there. With `synchronize` they are widened by the old object: an object that stops matching has to be seen, or
    /// its downstreams would stay.
    pub fn of(policy: &Policy) -> Self {
        let document = policy.origin.document().value();
        let spec = document.get("spec").unwrap_or(&Value::Null);
        let hook = spec.get("webhookConfiguration").unwrap_or(&Value::Null);
        let either = |new: &str, old: &str| {
            hook.get(new).or_else(|| spec.get(old)).filter(|value| !value.is_null())
        };
        let failure = either("failurePolicy", "failurePolicy").and_then(Value::as_str);
        let timeout = either("timeoutSeconds", "webhookTimeoutSeconds").and_then(Value::as_i64);
        let constraints = spec.get("matchConstraints").filter(|value| !value.is_null());
        let conditions = match constraints {
            Some(_) => spec.get("matchConditions"),
            None => hook.get("matchConditions"),
        };
        let conditions: Vec<Value> =
            conditions.and_then(Value::as_list).map(|list| list.to_vec()).unwrap_or_default();
        let synchronize = spec.get_path(["evaluation", "synchronize", "enabled"]);
        let enabled = |path: [&str; 3]| spec.get_path(path).and_then(Value::as_bool);
        let of_constraints = |key: &str| constraints.and_then(|c| c.get(key)).cloned();
        // What cannot be rewritten has been said when the policy was read.
        let variants = match policy.id.dialect {
            Dialect::MutatingPolicy => pod_controllers::variants(spec).unwrap_or_default(),
            Dialect::ValidatingPolicy => pod_controllers::validating_variants(spec),
            _ => Vec::new(),
        };
        let admission = spec.get("admission").and_then(Value::as_bool);
        let switched = enabled(["evaluation", "admission", "enabled"]);
        let own_rules = constraints.and_then(resource_rules);
        WebhookNeeds {
            off: admission == Some(false) || switched == Some(false),
            failure: failure.and_then(|word| match word {
                "Ignore" => Some(FailurePolicy::Ignore),
                "Fail" => Some(FailurePolicy::Fail),
                _ => None,
            }),
            timeout: timeout.map(|seconds| seconds.clamp(1, 30) as u8),
            match_conditions: match constraints {
                Some(_) if !variants.is_empty() => match policy.id.dialect {
                    Dialect::ValidatingPolicy if own_rules.as_deref().is_some_and(have_objects) => {
                        by_object(&conditions, &variants)
                    }
                    _ => by_kind(&conditions, &variants),
                },
                Some(_) => copied(&conditions, synchronize.and_then(Value::as_bool) == Some(true)),
                None => conditions,
            },
            exact: constraints.and_then(|c| c.str_at(["matchPolicy"])) == Some("Exact"),
            resource_rules: own_rules.map(|mut rules| {
                rules.extend(variants.iter().flat_map(Variant::joined_resource_rules));
                rules
            }),
            namespace_selector: match policy.id.dialect {
                Dialect::ModRule => Some(unless_ignored()),
                _ => of_constraints("namespaceSelector"),
            },
            object_selector: of_constraints("objectSelector"),
            warns: spec.get("emitWarning").and_then(Value::as_bool) == Some(true),
            asks_for_roles: mentions_roles(spec),
            asks_for_request: policy.rules.iter().any(|rule| rule.asks_for_user())
                || mentions(spec, &["userInfo", "serviceAccount", "request.roles", "clusterRoles"])
                || hook.get("matchConditions").is_some_and(|c| mentions(c, &["request"])),
            asks_for_old: mentions(spec, &["oldObject"]),
        }
    }

    /// Whether the policy needs a webhook of its own.
    pub fn is_fine_grained(&self) -> bool {
        let of_constraints = self.resource_rules.is_some();
        // Kyverno: rules share the longest time; a policy with constraints keeps its own.
        !self.match_conditions.is_empty()
            || (of_constraints && (self.exact || self.timeout.is_some()))
    }

    /// What a failure means for a part of the policy.
    pub fn failure_of(&self, policy: &Policy, part: Part) -> FailurePolicy {
        match (part, policy.id.dialect) {
            // Kyverno: generating policies have no say in this. KubeMod: its webhook never blocks.
            (_, Dialect::GeneratingPolicy | Dialect::ModRule) => FailurePolicy::Ignore,
            (Part::Mutate | Part::Validate, _) => self.failure.unwrap_or(FailurePolicy::Fail),
            // What a request would have told is found out from what the server stored, too: no reason to
            // block users, unless the policy asks for it.
            (Part::Observe, _) => self.failure.unwrap_or(FailurePolicy::Ignore),
        }
    }
}

/// KubeMod: namespaces can be kept from all ModRules by a label.
fn unless_ignored() -> Value {
    value!({"matchExpressions": [
        {"key": "admission.kubemod.io/ignore", "operator": "NotIn", "values": ["true"]},
    ]})
}

fn resource_rules(constraints: &Value) -> Option<Vec<Value>> {
    constraints.get("resourceRules").and_then(Value::as_list).map(|rules| rules.to_vec())
}

/// Whether every request that rules name has an object, which conditions may then look at.
fn have_objects(rules: &[Value]) -> bool {
    rules.iter().all(|rule| {
        let operations = rule.get("operations").and_then(Value::as_list);
        operations.is_some_and(|list| {
            list.iter().all(|word| matches!(word.as_str(), Some("CREATE" | "UPDATE")))
        })
    })
}

/// The conditions of a policy for Pods and of its variants, each with what its expression is about: all of them, or none.
fn of_each<'v>(
    conditions: &[Value],
    variants: &'v [Variant],
) -> Vec<(Option<&'v Variant>, Vec<Value>)> {
    let of_variants = variants.iter().map(|variant| {
        let list = variant.spec.get("matchConditions").and_then(Value::as_list);
        let list = list.map(|list| list.to_vec()).unwrap_or_default();
        (Some(variant), copied(&list, false))
    });
    let all: Vec<_> =
        std::iter::once((None, copied(conditions, false))).chain(of_variants).collect();
    // An API server takes so many.
    const MOST: usize = 64;
    let count: usize = all.iter().map(|(_, list)| list.len()).sum();
    let is_whole = all.iter().all(|(_, list)| list.len() == conditions.len()) && count <= MOST;
    if is_whole { all } else { Vec::new() }
}

/// The conditions of a policy for Pods and of its variants, each for its own kinds.
fn by_kind(conditions: &[Value], variants: &[Variant]) -> Vec<Value> {
    let all = of_each(conditions, variants);
    let guarded = all.iter().flat_map(|(variant, list)| {
        let kinds = variant.map_or(&["Pod"][..], |variant| &variant.kinds[..]);
        let kinds: Vec<String> = kinds.iter().map(|kind| format!("\"{kind}\"")).collect();
        let prefix = variant.map_or("", |variant| variant.prefix);
        list.iter().map(move |condition| {
            let text = |key: &str| condition.str_at([key]).unwrap_or_default().to_owned();
            let (name, expression) = (text("name"), text("expression"));
            let kinds = kinds.join(", ");
            value!({
                "name": format!("{prefix}{name}"),
                "expression": format!("!(request.kind.kind in [{kinds}]) || ({expression}\n)"),
            })
        })
    });
    guarded.collect()
}

/// The same in Kyverno's words, which look at the object: for requests that have one.
fn by_object(conditions: &[Value], variants: &[Variant]) -> Vec<Value> {
    let all = of_each(conditions, variants);
    let guarded = all.iter().flat_map(|(variant, list)| {
        let kinds: Vec<(String, &str)> = match variant {
            None => vec![("v1".to_owned(), "Pod")],
            Some(variant) => {
                let versions = variant.groups.iter().map(|group| format!("{group}/v1"));
                versions.zip(variant.kinds.iter().copied()).collect()
            }
        };
        let kinds = kinds.into_iter().map(|(version, kind)| {
            format!("(object.apiVersion == '{version}' && object.kind =='{kind}')")
        });
        let kinds = kinds.collect::<Vec<_>>().join(" || ");
        let config = match variant {
            None => "",
            Some(variant) if variant.kinds == ["CronJob"] => "cronjobs-",
            Some(_) => "defaults-",
        };
        list.iter().map(move |condition| {
            let text = |key: &str| condition.str_at([key]).unwrap_or_default().to_owned();
            let (name, expression) = (text("name"), text("expression"));
            // A comment would swallow what follows.
            let end = if expression.contains("//") { "\n" } else { "" };
            value!({
                "name": format!("autogen-{config}{name}"),
                "expression": format!("!({kinds}) || ({expression}{end})"),
            })
        })
    });
    let mut guarded: Vec<Value> = guarded.collect();
    guarded.sort_by(|a, b| a.str_at(["name"]).cmp(&b.str_at(["name"])));
    guarded
}

/// The conditions that an API server can check itself: all of them, or none.
fn copied(conditions: &[Value], synchronize: bool) -> Vec<Value> {
    let env = Env::suite()
        .extend()
        .variable("object", Type::Dyn)
        .variable("oldObject", Type::Dyn)
        .variable("request", Type::Dyn)
        .build();
    let text = |condition: &Value| condition.str_at(["expression"]).map(str::to_owned);
    // The rest of a request's world is known to the engine alone.
    let foreign = ["namespaceObject", "variables.", "exceptions.", "images."];
    let plain = |condition: &Value| {
        text(condition).is_some_and(|text| {
            !foreign.iter().any(|word| text.contains(word))
                && env.compile_as(&text, &[Type::Bool]).is_ok()
        })
    };
    if !conditions.iter().all(plain) {
        return Vec::new();
    }
    let mut conditions = conditions.to_vec();
    if synchronize {
        for condition in &mut conditions {
            // Kyverno: a trigger that stops matching must still be heard of.
            if let Some(old) = text(condition)
                && let Some(map) = condition.as_map_mut()
            {
                map.insert("expression", format!("request.operation != 'CREATE' || ({old})"));
            }
        }
    }
    conditions
}

/// Whether roles are asked for, in filters or in variables.
fn mentions_roles(spec: &Value) -> bool {
    any(spec, &|key| matches!(key, "roles" | "clusterRoles"), &|text| {
        text.contains("request.roles") || text.contains("clusterRoles")
    })
}

/// Whether some text has one of these words in it.
fn mentions(value: &Value, words: &[&str]) -> bool {
    any(value, &|_| false, &|text| words.iter().any(|word| text.contains(word)))
}

/// Whether some key or text somewhere is one that is looked for.
fn any(value: &Value, key: &dyn Fn(&str) -> bool, text: &dyn Fn(&str) -> bool) -> bool {
    match value {
        Value::Map(map) => {
            map.iter().any(|(name, value)| key(name.as_str()) || any(value, key, text))
        }
        Value::List(list) => list.iter().any(|value| any(value, key, text)),
        Value::String(found) => text(found),
        _ => false,
    }
}

/// The family of ModRules, which share one webhook whatever their namespace: tiers order them all.
pub(crate) const MODRULES: &str = "modrule";

/// The words that stand in a webhook's name for the kind of policies that it serves: those in front, and the
/// family in its path.
pub(crate) fn family(policy: &Policy) -> Option<&'static str> {
    let namespaced = policy.id.namespace.is_some();
    match (policy.id.dialect, namespaced) {
        (Dialect::GeneratingPolicy, false) => Some("gpol"),
        (Dialect::GeneratingPolicy, true) => Some("ngpol"),
        (Dialect::MutatingPolicy, false) => Some("mpol"),
        (Dialect::MutatingPolicy, true) => Some("nmpol"),
        (Dialect::ModRule, _) => Some(MODRULES),
        (Dialect::ValidatingPolicy, false) => Some("vpol"),
        (Dialect::ValidatingPolicy, true) => Some("nvpol"),
        (
            Dialect::Kyverno
            | Dialect::CleanupPolicy
            | Dialect::DeletingPolicy
            | Dialect::MutatingAdmissionPolicy
            | Dialect::ValidatingAdmissionPolicy,
            _,
        ) => None,
    }
}

/// The name of a policy as a part of names: `name`, or `namespace-name`.
pub(crate) fn dashed(policy: &Policy) -> Str {
    policy.id.key().replace('/', "-").into()
}
