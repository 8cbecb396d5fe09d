//! `kiln explain`

mod made_by;
mod show;

use kiln_admission::Settings;
use kiln_diagnostic::{Diagnostic, Severity};
use kiln_engine::{
    Effect, EvalEnv, Event, HostAllowlist, Ownership, PatchTarget, RuleOutcome as Evaluated,
    RuleSet, Status, TraceStep, User,
};
use kiln_object::{Gvk, ObjectId};
use kiln_offline::blocked_by;
use kiln_rules::RuleId;
use kiln_runtime::provenance::Books;
use kiln_runtime::{LiveReader, RuleEnvironment};
use kiln_studio::{LinkState, SchemasOfServer};
use kiln_value::Value;

use crate::cluster::connection::{Connection, around, stored_policies, stored_rules};
use crate::cluster::policy_status::{PolicyCondition, unmet};
use crate::exit::{CommandFailure, CommandOutcome, CommandResult};
use crate::policy_files::rule_set;
use crate::system_env::SystemEnv;
use crate::ui::Ui;
use made_by::MadeBy;

/// Explain which rules apply to an object, and why
///
/// Reads the policies, exceptions and settings of the cluster. For a generated object, prints its rule, trigger and
/// source, and whether it is synchronized. Then evaluates all rules as if the object were just created, and prints for
/// every matching rule what it wants, whether the cluster has it, and if not, why: the object is older than the rule,
/// the engine created it, a filter or exclusion applies, or an UpdateRequest waits. Changes nothing.
///
/// Exits with code 1 if a rule fails or rejects the object.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The object, as KIND/NAME or KIND NAME; kinds as in kubectl, with plurals and short names
    #[arg(value_name = "KIND/NAME", required = true, num_args = 1..=2)]
    object: Vec<String>,

    /// Namespace of the object [default: that of the kubeconfig's context]
    #[arg(long, short, value_name = "NAME")]
    namespace: Option<String>,

    /// User who sends the request, such as system:serviceaccount:shop:robot
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// Group of that user; repeatable
    #[arg(long, value_name = "NAME", requires = "user")]
    group: Vec<String>,

    /// Also show policies that do not match, and why
    #[arg(long)]
    all: bool,

    /// Show each step of the evaluation
    #[arg(long)]
    trace: bool,

    /// Host that rules may call, such as prices.shop.svc:8080 or *.example.com; in addition to those of the ConfigMap
    #[arg(long, value_name = "HOST", value_parser = HostAllowlist::read)]
    allow_service: Vec<HostAllowlist>,

    /// Namespace of the Kiln installation
    #[arg(long, value_name = "NAME", default_value = "kyverno", env = "KILN_NAMESPACE")]
    engine_namespace: String,

    #[command(flatten)]
    connection: Connection,
}

/// What is said of an object.
struct Explanation {
    object: ObjectId,
    /// The rule that made it.
    made_by: Option<MadeBy>,
    /// Why no rule sees it at all.
    unseen: Option<String>,
    /// What policies themselves say that keeps them from acting.
    conditions: Vec<PolicyCondition>,
    rules: Vec<RuleExplanation>,
    /// Why the API server would not store the object as rules change it.
    refused: Option<String>,
    /// Requests about it that wait or failed.
    requests: Vec<ExplainedRequest>,
}

/// What is said of one rule.
struct RuleExplanation {
    rule: RuleId,
    status: Status,
    why: Option<String>,
    /// The rule is about objects of this kind, whatever else keeps it from matching.
    about_kind: bool,
    /// What the rule wants, and how that stands.
    targets: Vec<(ObjectId, String)>,
    trace: Option<TraceStep>,
}

/// An UpdateRequest.
struct ExplainedRequest {
    name: String,
    policy: String,
    /// Those that it is about.
    rules: Vec<String>,
    state: String,
    message: String,
    retries: usize,
}

impl Explanation {
    /// Whether a rule, or the API server because of one, keeps the object from being written.
    fn is_no(&self) -> bool {
        let fails = |rule: &RuleExplanation| matches!(rule.status, Status::Fail | Status::Error);
        self.refused.is_some() || self.rules.iter().any(fails)
    }
}

pub(crate) fn run(ui: &Ui, args: &Args) -> CommandResult {
    ui.has_formats_of("explain")?;
    let reader = args.connection.reader()?;
    let id = meant(&reader, args)?;
    let object = reader
        .object(&id)
        .map_err(|error| Diagnostic::error(format!("cannot read {id}: {error}")))?
        .ok_or_else(|| {
            let kind = id.gvk.kind.to_lowercase();
            let hint = match (id.namespace.as_str(), &args.namespace) {
                ("", _) => format!("`kubectl get {kind}` lists the existing ones"),
                (namespace, Some(_)) => {
                    format!("`kubectl get {kind} -n {namespace}` lists the existing ones")
                }
                (_, None) => "give its namespace with --namespace".to_owned(),
            };
            Diagnostic::error(format!("there is no {id}")).hint(hint)
        })?;
    let services = super::run::all(&args.allow_service);
    let around = around(&reader, &args.engine_namespace, &services)?;
    let rules = rule_set(&stored_rules(ui, &reader, &around.settings, Severity::Error)?);
    let looking = Looking { reader: &reader, args, rules: &rules, around: &around };
    let mut explanation = looking.explain(&id, &object)?;
    explanation.conditions =
        stored_policies(&reader)?.iter().flat_map(|policy| unmet(policy.value())).collect();
    show::explanation(ui, args, &explanation)?;
    Ok(if explanation.is_no() { CommandOutcome::Negative } else { CommandOutcome::Done })
}

/// What is explained for another command.
impl Args {
    fn for_object(connection: &Connection, engine_namespace: &str) -> Self {
        Args {
            object: Vec::new(),
            namespace: None,
            user: None,
            group: Vec::new(),
            all: false,
            trace: false,
            allow_service: Vec::new(),
            engine_namespace: engine_namespace.to_owned(),
            connection: connection.clone(),
        }
    }
}

/// The explanation of an object, as the command prints it.
pub(super) fn explained(
    ui: &Ui,
    reader: &LiveReader,
    args: (&Connection, &str),
    (id, object): (&ObjectId, &Value),
) -> Result<String, CommandFailure> {
    let args = Args::for_object(args.0, args.1);
    let around = around(reader, &args.engine_namespace, &super::run::all(&[]))?;
    let rules = rule_set(&stored_rules(ui, reader, &around.settings, Severity::Error)?);
    let looking = Looking { reader, args: &args, rules: &rules, around: &around };
    let explanation = looking.explain(id, object)?;
    Ok(show::plain_text(&explanation)?)
}

/// How objects that rules made stand to their rules.
pub(super) fn states(
    ui: &Ui,
    reader: &LiveReader,
    args: (&Connection, &str),
    objects: &[&Value],
) -> Result<Vec<(ObjectId, LinkState, String)>, CommandFailure> {
    let args = Args::for_object(args.0, args.1);
    let around = around(reader, &args.engine_namespace, &super::run::all(&[]))?;
    let rules = rule_set(&stored_rules(ui, reader, &around.settings, Severity::Error)?);
    let looking = Looking { reader, args: &args, rules: &rules, around: &around };
    let known = objects.iter().filter_map(|object| {
        let id = ObjectId::of(object).ok()?;
        let made = looking.made_by(&id, object)?;
        Some((id, made.link_state, made.state))
    });
    Ok(known.collect())
}

/// The object that a user means.
fn meant(reader: &LiveReader, args: &Args) -> Result<ObjectId, Diagnostic> {
    let (kind, name) = match args.object.as_slice() {
        [kind, name] => (kind.as_str(), name.as_str()),
        [one] => one.split_once('/').ok_or_else(|| {
            Diagnostic::error(format!("{one:?} is not KIND/NAME"))
                .hint("write namespace/shop, or namespace shop, for example")
        })?,
        // Nothing else can be typed.
        _ => return Err(Diagnostic::error("no object is given").hint("write KIND/NAME")),
    };
    let kind = reader.kinds().find(kind).ok_or_else(|| {
        Diagnostic::error(format!("the cluster does not serve the kind {kind:?}"))
            .hint("`kubectl api-resources` lists the kinds")
    })?;
    let namespace = args.namespace.as_deref().unwrap_or_else(|| reader.namespace());
    let namespace = if kind.is_namespaced() { namespace } else { "" };
    Ok(ObjectId::new(kind.gvk(), namespace, name))
}

/// The rules of a cluster, and what they are asked about.
struct Looking<'a> {
    reader: &'a LiveReader,
    args: &'a Args,
    rules: &'a RuleSet,
    around: &'a RuleEnvironment,
}

impl Looking<'_> {
    /// Lets rules look at something.
    fn with_eval_env<T>(&self, look: impl FnOnce(&EvalEnv<'_>) -> T) -> T {
        let external_data = self.around.external_data();
        look(&EvalEnv {
            view: self.reader,
            kinds: self.reader.kinds(),
            sources: &SystemEnv,
            external_data: &external_data,
            limits: self.around.settings.limits.traced(),
            protected_namespaces: &self.around.settings.protected_namespaces,
            home: &self.around.settings.namespace,
        })
    }

    fn explain(&self, id: &ObjectId, object: &Value) -> Result<Explanation, CommandFailure> {
        let user = self.args.user.as_ref().map(|name| User {
            username: name.as_str().into(),
            groups: self.args.group.iter().map(|group| group.as_str().into()).collect(),
            ..User::default()
        });
        let mut event = Event::created(object.clone());
        event.user.clone_from(&user);
        let (mutated, outcomes) = self.with_eval_env(|eval_env| {
            let mut mutated = self.rules.mutate(&event, eval_env);
            let mut others = self.rules.evaluate(&event, eval_env);
            let schemas = self.schemas(mutated.outcomes.iter().chain(&others));
            mutated.fail_if_not_storable(Some(object), &schemas);
            others.iter_mut().for_each(|outcome| outcome.fail_if_not_storable(&schemas));
            mutated.outcomes.extend(others);
            (mutated.object, mutated.outcomes)
        });
        let requests = self.requests(id, object)?;
        let unseen = unseen(&self.around.settings, self.args, id, user.as_ref());
        let why = WhyNothing {
            rules: self.rules,
            books: self.books(),
            trigger: object,
            requests: &requests,
            unseen: unseen.is_some(),
            user_given: user.is_some(),
        };
        let mut explained: Vec<RuleExplanation> =
            outcomes.into_iter().map(|outcome| about(self.reader, &why, outcome)).collect();
        for rule in self.rules.rules() {
            if !explained.iter().any(|done| done.rule == rule.id) {
                explained.push(RuleExplanation {
                    rule: rule.id.clone(),
                    status: Status::NoMatch,
                    why: Some(format!(
                        "it does not match kind {}/{}",
                        id.gvk.api_version(),
                        id.gvk.kind
                    )),
                    about_kind: false,
                    targets: Vec::new(),
                    trace: None,
                });
            }
        }
        explained.sort_by(|a, b| a.rule.cmp(&b.rule));
        let is_changed = mutated != *object && !mutated.is_null();
        Ok(Explanation {
            object: id.clone(),
            made_by: self.made_by(id, object),
            unseen,
            conditions: Vec::new(),
            refused: is_changed.then(|| self.reader.refuses(&mutated)).flatten(),
            rules: explained,
            requests,
        })
    }

    /// The schemas that the server holds objects to; its definitions are read if a rule writes objects of other kinds
    /// than the built-in ones.
    fn schemas<'o>(&self, mut outcomes: impl Iterator<Item = &'o Evaluated>) -> SchemasOfServer {
        let schemas = SchemasOfServer::given([]);
        let is_unknown = |effect: &Effect| {
            let object = match effect {
                Effect::Ensure(ensure) => &ensure.object,
                Effect::Patch(patch) => &patch.after,
                _ => return false,
            };
            Gvk::of(object).is_some_and(|gvk| !schemas.know(&gvk))
        };
        if !outcomes.any(|outcome| outcome.effects.iter().any(is_unknown)) {
            return schemas;
        }
        let definition = Gvk::new("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        let definitions = self.reader.all(&definition, "").unwrap_or_default();
        SchemasOfServer::given(&definitions)
    }

    /// The records of the engine. Users who may not read them see less.
    fn books(&self) -> Books {
        let namespace = &self.args.engine_namespace;
        let found = self.reader.all(&Gvk::new("v1", "ConfigMap"), namespace).unwrap_or_default();
        Books::read(&found)
    }

    /// The requests about an object that the engine has not carried out.
    fn requests(
        &self,
        id: &ObjectId,
        object: &Value,
    ) -> Result<Vec<ExplainedRequest>, CommandFailure> {
        let uid = object.str_at(["metadata", "uid"]);
        let is_meant = |reference: &Value| {
            let text = |key: &str| reference.str_at([key]).unwrap_or_default();
            text("kind") == id.gvk.kind
                && text("name") == id.name
                && text("namespace") == id.namespace
                && (text("uid").is_empty() || Some(text("uid")) == uid)
        };
        let all = self
            .reader
            .all(&self.reader.names().update_request(), &self.args.engine_namespace)
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
                ExplainedRequest {
                    name: text(["metadata", "name"]),
                    policy: text(["spec", "policy"]),
                    rules: request
                        .get_path(["spec", "ruleContext"])
                        .and_then(Value::as_list)
                        .into_iter()
                        .flatten()
                        .filter_map(|context| context.str_at(["rule"]).map(str::to_owned))
                        .collect(),
                    state: if state.is_empty() { "Pending".to_owned() } else { state },
                    message: text(["status", "message"]),
                    retries: request
                        .get_path(["status", "retryCount"])
                        .and_then(Value::as_i64)
                        .and_then(|count| usize::try_from(count).ok())
                        .unwrap_or(0),
                }
            })
            .collect())
    }
}

/// Why the settings keep the object or the user from all rules.
fn unseen(settings: &Settings, args: &Args, id: &ObjectId, user: Option<&User>) -> Option<String> {
    if settings.filters_out(&id.gvk, "", &id.namespace, &id.name) {
        return Some(format!(
            "a resource filter in the ConfigMap {}/kyverno excludes it from all rules but ModRules",
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

/// Why what a rule wants is not there, as far as the cluster says.
struct WhyNothing<'a> {
    rules: &'a RuleSet,
    books: Books,
    trigger: &'a Value,
    requests: &'a [ExplainedRequest],
    /// Why is said already.
    unseen: bool,
    /// Who sent the request was said.
    user_given: bool,
}

/// Why a rule that asks for the user may have left an object alone.
const SENDER: &str =
    "the rule asks who sent the request, and objects do not say; try --user and --group";

impl WhyNothing<'_> {
    /// The end of a sentence; empty when nothing is known.
    fn said(&self, id: &RuleId) -> String {
        let known = || {
            if self.unseen {
                return None;
            }
            let key = id.policy.key();
            // What has ended says nothing about what is missing.
            let is_about = |request: &&ExplainedRequest| {
                let is_meant = |rule: &String| *rule == *id.rule;
                // Older ones do not say which rules they are about.
                let rules = &request.rules;
                request.policy == key && (rules.is_empty() || rules.iter().any(is_meant))
            };
            let mut about_it = self.requests.iter().filter(is_about);
            if let Some(request) = about_it.find(|request| request.state != "Completed") {
                return Some(format!("UpdateRequest {} says why", request.name));
            }
            let rule = self.rules.rule(id)?;
            let policy = self.rules.policies().iter().find(|policy| policy.id == id.policy)?;
            let document = policy.origin.document();
            let said = self.books.why_nothing(rule, document.value(), self.trigger);
            let asks_user = !self.user_given && rule.asks_for_user();
            said.or_else(|| asks_user.then(|| SENDER.to_owned()))
        };
        known().map(|why| format!(": {why}")).unwrap_or_default()
    }
}

fn about(reader: &LiveReader, why_nothing: &WhyNothing<'_>, outcome: Evaluated) -> RuleExplanation {
    let rule = outcome.rule.clone();
    let status = outcome.status();
    let acts = matches!(status, Status::Pass | Status::Warn | Status::Error);
    let targets = if acts { targets(reader, why_nothing, &outcome) } else { Vec::new() };
    let refused = match outcome.violation() {
        Some(violation) => Some(violation.message.clone()),
        None => outcome.refusal().map(|message| format!("rejected by {message}")),
    };
    let failed = outcome.failures.first().map(|failure| failure.message.clone());
    let why = refused
        .or(failed)
        .or_else(|| outcome.why.as_ref().map(ToString::to_string))
        .or_else(|| outcome.trace.as_ref().filter(|_| !acts).and_then(blocked_by));
    RuleExplanation { rule, status, why, about_kind: true, targets, trace: outcome.trace }
}

/// What a rule wants, and how that stands in the cluster.
fn targets(
    reader: &LiveReader,
    why_nothing: &WhyNothing<'_>,
    outcome: &Evaluated,
) -> Vec<(ObjectId, String)> {
    let mut targets = Vec::new();
    for effect in &outcome.effects {
        match effect {
            Effect::Ensure(ensure) => {
                let state = match reader.object(&ensure.target) {
                    Err(error) => format!("cannot be read: {error}"),
                    Ok(None) => format!("is not there{}", why_nothing.said(&outcome.rule)),
                    Ok(Some(object)) => match Ownership::read(&object) {
                        None => "exists, and no rule created it".to_owned(),
                        Some(claim) if claim.labels.names(&outcome.rule) => {
                            "exists, created by this rule".to_owned()
                        }
                        Some(claim) => format!("exists, created by policy {}", claim.labels.policy),
                    },
                };
                targets.push((ensure.target.clone(), state));
            }
            Effect::Patch(patch) => {
                let state = match &patch.target {
                    _ if patch.before == patch.after => "is as the rule wants it".to_owned(),
                    PatchTarget::Trigger => "would be patched on its next write".to_owned(),
                    PatchTarget::Stored { .. } => {
                        format!("is to be patched{}", why_nothing.said(&outcome.rule))
                    }
                };
                targets.extend(ObjectId::of(&patch.after).ok().map(|id| (id, state)));
            }
            Effect::DeleteObject(delete) => {
                let state = "would be deleted by the next run".to_owned();
                targets.push((delete.target.id.clone(), state));
            }
            Effect::Reject { .. } | Effect::Violation(_) | Effect::Delete(_) | Effect::Warn(_) => {}
        }
    }
    targets
}
