//! `kiln explain`

mod show;

use kiln_admission::Settings;
use kiln_diagnostic::Diagnostic;
use kiln_engine::{
    ClaimLabels, Effect, Event, Outcome as Evaluated, RuleSet, Step, User, Verdict, World,
};
use kiln_live::{Around, Reader};
use kiln_object::{Gvk, ObjectId};
use kiln_offline::blocking_step;
use kiln_rules::RuleId;
use kiln_services::Allowed;
use kiln_value::Value;

use super::conditions::{PolicyCondition, unmet};
use super::connection::{Connection, around, stored_policies, stored_rules};
use super::eval::Surroundings;
use super::rules::rule_set;
use crate::args::Format;
use crate::exit::{CommandResult, Failure, Outcome};
use crate::ui::Ui;

/// Say of an object in a cluster what each rule makes of it, and why
///
/// Reads the policies, exceptions and settings of the cluster, takes the object as just created, and says for
/// every rule whether it acts: the first thing that does not match, the filter or exclusion that applies, what it
/// wants, whether that is there and whose it is, and what UpdateRequests say. Nothing is changed.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The object, as KIND/NAME; kinds have all the names that kubectl knows
    #[arg(value_name = "KIND/NAME")]
    object: String,

    /// The namespace of the object
    #[arg(long, short, value_name = "NAME", default_value = "default")]
    namespace: String,

    /// Who sent the request, such as system:serviceaccount:shop:robot
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// A group of that user
    #[arg(long, value_name = "NAME", requires = "user")]
    group: Vec<String>,

    /// Show everything that was asked and answered
    #[arg(long)]
    trace: bool,

    /// A service that rules may ask, such as prices.shop.svc:8080 or *.example.com; besides those of the ConfigMap
    #[arg(long, value_name = "HOST", value_parser = Allowed::read)]
    allow_service: Vec<Allowed>,

    /// The namespace that the engine lives in
    #[arg(long, value_name = "NAME", default_value = "kyverno", env = "KILN_NAMESPACE")]
    engine_namespace: String,

    #[command(flatten)]
    connection: Connection,
}

/// What is said of an object.
struct Explanation {
    object: ObjectId,
    /// Why no rule sees it at all.
    unseen: Option<String>,
    /// What policies themselves say that keeps them from acting.
    conditions: Vec<PolicyCondition>,
    rules: Vec<RuleExplanation>,
    /// Requests about it that wait or failed.
    requests: Vec<Request>,
}

/// What is said of one rule.
struct RuleExplanation {
    rule: RuleId,
    /// `pass`, `skip`, `no match` or `error`.
    verdict: &'static str,
    why: Option<String>,
    /// What the rule wants, and how that stands.
    targets: Vec<(ObjectId, String)>,
    trace: Option<Step>,
}

/// An UpdateRequest.
struct Request {
    name: String,
    policy: String,
    state: String,
    message: String,
    retries: i64,
}

pub(crate) fn run(ui: &Ui, args: &Args) -> CommandResult {
    ui.has_forms(&[Format::Text, Format::Json])?;
    let reader = args.connection.reader()?;
    let id = meant(&reader, args)?;
    let object = reader
        .object(&id)
        .map_err(|error| Diagnostic::error(format!("cannot read {id}: {error}")))?
        .ok_or_else(|| {
            let hint = if id.namespace.is_empty() {
                format!("`kubectl get {}` lists those that there are", id.gvk.kind.to_lowercase())
            } else {
                "give its namespace with --namespace".to_owned()
            };
            Diagnostic::error(format!("there is no {id}")).hint(hint)
        })?;
    let services = super::run::all(&args.allow_service);
    let around = around(&reader, &args.engine_namespace, &services)?;
    let rules = rule_set(&stored_rules(ui, &reader, &around.settings)?);
    let mut explanation = explain(&reader, args, &id, &object, &rules, &around)?;
    explanation.conditions =
        stored_policies(&reader)?.iter().flat_map(|policy| unmet(policy.value())).collect();
    show::explanation(ui, args.trace, &explanation)?;
    Ok(Outcome::Done)
}

/// The object that a user means.
fn meant(reader: &Reader, args: &Args) -> Result<ObjectId, Diagnostic> {
    let (kind, name) = args.object.split_once('/').ok_or_else(|| {
        Diagnostic::error(format!("{:?} is not KIND/NAME", args.object))
            .hint("write namespace/shop, for example")
    })?;
    let kind = reader.kinds().find(kind).ok_or_else(|| {
        Diagnostic::error(format!("the cluster does not serve the kind {kind:?}"))
            .hint("`kubectl api-resources` lists the kinds")
    })?;
    let namespace = if kind.is_namespaced() { args.namespace.as_str() } else { "" };
    Ok(ObjectId::new(kind.gvk(), namespace, name))
}

fn explain(
    reader: &Reader,
    args: &Args,
    id: &ObjectId,
    object: &Value,
    rules: &RuleSet,
    around: &Around,
) -> Result<Explanation, Failure> {
    let user = args.user.as_ref().map(|name| User {
        username: name.as_str().into(),
        groups: args.group.iter().map(|group| group.as_str().into()).collect(),
        ..User::default()
    });
    let mut event = Event::created(object.clone());
    event.user.clone_from(&user);
    let outside = around.outside();
    let world = World {
        view: reader,
        kinds: reader.kinds(),
        sources: &Surroundings,
        outside: &outside,
        limits: around.settings.limits.traced(),
        protected: &around.settings.protected,
    };
    let mut outcomes = rules.mutate(&event, &world).outcomes;
    outcomes.extend(rules.evaluate(&event, &world));
    let mut explained: Vec<RuleExplanation> =
        outcomes.into_iter().map(|outcome| about(reader, outcome)).collect();
    for rule in rules.rules() {
        if !explained.iter().any(|done| done.rule == rule.id) {
            explained.push(RuleExplanation {
                rule: rule.id.clone(),
                verdict: "no match",
                why: Some(format!(
                    "it is not about objects like {}/{}",
                    id.gvk.api_version(),
                    id.gvk.kind
                )),
                targets: Vec::new(),
                trace: None,
            });
        }
    }
    explained.sort_by(|a, b| a.rule.cmp(&b.rule));
    Ok(Explanation {
        object: id.clone(),
        unseen: unseen(&around.settings, args, id, user.as_ref()),
        conditions: Vec::new(),
        rules: explained,
        requests: requests(reader, args, id, object)?,
    })
}

/// Why the settings keep the object or the user from all rules.
fn unseen(settings: &Settings, args: &Args, id: &ObjectId, user: Option<&User>) -> Option<String> {
    if settings.filters_out(&id.gvk, "", &id.namespace, &id.name) {
        return Some(format!(
            "a resource filter in the ConfigMap {}/kyverno keeps it from all rules but ModRules",
            args.engine_namespace
        ));
    }
    user.filter(|user| settings.excluded.holds(user)).map(|user| {
        format!(
            "the ConfigMap {}/kyverno excludes the user {}",
            args.engine_namespace, user.username
        )
    })
}

fn about(reader: &Reader, outcome: Evaluated) -> RuleExplanation {
    let rule = outcome.rule.clone();
    let (verdict, targets) = match outcome.verdict {
        Verdict::Pass => ("pass", targets(reader, &outcome)),
        Verdict::NoMatch => ("no match", Vec::new()),
        Verdict::Skip | Verdict::Lapsed => ("skip", Vec::new()),
        Verdict::Error => ("error", targets(reader, &outcome)),
    };
    let failed = outcome.failures.first().map(|failure| failure.message.clone());
    let why = failed
        .or_else(|| outcome.why.as_ref().map(ToString::to_string))
        .or_else(|| outcome.trace.as_ref().filter(|_| verdict != "pass").and_then(reason));
    RuleExplanation { rule, verdict, why, targets, trace: outcome.trace }
}

/// What a rule wants, and how that stands in the cluster.
fn targets(reader: &Reader, outcome: &Evaluated) -> Vec<(ObjectId, String)> {
    let mut targets = Vec::new();
    for effect in &outcome.effects {
        match effect {
            Effect::Ensure(ensure) => {
                let state = match reader.object(&ensure.target) {
                    Err(error) => format!("cannot be read: {error}"),
                    Ok(None) => "is not there".to_owned(),
                    Ok(Some(object)) => match ClaimLabels::read(&object) {
                        None => "is there, and no rule made it".to_owned(),
                        Some(claim) if claim.names(&outcome.rule) => {
                            "is there, made by this rule".to_owned()
                        }
                        Some(claim) => format!("is there, made by policy {}", claim.policy),
                    },
                };
                targets.push((ensure.target.clone(), state));
            }
            Effect::Patch(patch) => {
                let state = if patch.before == patch.after {
                    "is as the rule wants it"
                } else {
                    "is to be patched"
                };
                targets.extend(ObjectId::of(&patch.after).ok().map(|id| (id, state.to_owned())));
            }
            Effect::Reject { .. } | Effect::Delete(_) | Effect::Warn(_) => {}
        }
    }
    targets
}

/// What kept a rule from running, in words: an exclusion that applied, or else what was not met.
fn reason(trace: &Step) -> Option<String> {
    let step = blocking_step(trace)?;
    Some(match &step.why {
        Some(why) => format!("{}: {why}", step.what),
        None => step.what.clone(),
    })
}

/// The requests about an object that the engine has not carried out.
fn requests(
    reader: &Reader,
    args: &Args,
    id: &ObjectId,
    object: &Value,
) -> Result<Vec<Request>, Failure> {
    let uid = object.str_at(["metadata", "uid"]);
    let is_meant = |reference: &Value| {
        let text = |key: &str| reference.str_at([key]).unwrap_or_default();
        text("kind") == id.gvk.kind
            && text("name") == id.name
            && text("namespace") == id.namespace
            && (text("uid").is_empty() || Some(text("uid")) == uid)
    };
    let all = reader
        .all(&Gvk::new("kyverno.io/v2", "UpdateRequest"), &args.engine_namespace)
        .map_err(|error| Diagnostic::error(format!("cannot list UpdateRequests: {error}")))?;
    let about_it = all.iter().filter(|request| {
        let of_rules = request.get_path(["spec", "ruleContext"]).and_then(Value::as_list);
        let triggers = of_rules
            .into_iter()
            .flat_map(|rules| rules.iter())
            .filter_map(|rule| rule.get("trigger"));
        request.get_path(["spec", "resource"]).into_iter().chain(triggers).any(is_meant)
    });
    Ok(about_it
        .map(|request| {
            let text = |path: [&str; 2]| request.str_at(path).unwrap_or_default().to_owned();
            let state = text(["status", "state"]);
            Request {
                name: text(["metadata", "name"]),
                policy: text(["spec", "policy"]),
                state: if state.is_empty() { "Pending".to_owned() } else { state },
                message: text(["status", "message"]),
                retries: request
                    .get_path(["status", "retryCount"])
                    .and_then(Value::as_i64)
                    .unwrap_or(0),
            }
        })
        .collect())
}
