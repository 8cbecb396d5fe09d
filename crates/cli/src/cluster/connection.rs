//! Which cluster a command asks, and what it finds there.

use std::path::PathBuf;
use std::sync::Arc;

use kiln_admission::Settings;
use kiln_diagnostic::{Diagnostic, Severity};
use kiln_dialects::{Compiled, PolicyHost, compile_for, is_exception, is_policy};
use kiln_engine::HostAllowlist;
use kiln_object::policy_kinds::{OWN_GROUP, is_policy_group};
use kiln_object::{EngineNames, Gvk, ObjectId};
use kiln_rules::Exception;
use kiln_runtime::{LiveReader, RuleEnvironment, RuntimeOptions};
use kiln_value::Value;
use kiln_yaml::{Document, ReadOptions};

use crate::exit::CommandFailure;
use crate::ui::Ui;

/// A name that the names of objects can begin with.
pub(crate) fn installation_name(text: &str) -> Result<String, String> {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let begins = text.starts_with(|c: char| c.is_ascii_lowercase());
    if text.len() > 40 || !begins || text.ends_with('-') || !text.chars().all(good) {
        return Err(
            "at most 40 small letters, digits and dashes, the first of them a letter".to_owned()
        );
    }
    Ok(text.to_owned())
}

/// A cluster, whatever is installed there.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ClusterAddress {
    /// Path of the kubeconfig [default: KUBECONFIG, or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl ClusterAddress {
    fn options(&self) -> RuntimeOptions {
        RuntimeOptions {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            ..RuntimeOptions::default()
        }
    }

    pub(crate) fn reader(&self) -> Result<LiveReader, Diagnostic> {
        connect(&self.options())
    }
}

fn connect(options: &RuntimeOptions) -> Result<LiveReader, Diagnostic> {
    LiveReader::connect(options).map_err(|error| Diagnostic::error(error.message).hint(error.hint))
}

/// An installation of Kiln in a cluster.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    #[command(flatten)]
    cluster: ClusterAddress,

    /// Name of the installation, as given to kiln install
    #[arg(long, value_name = "NAME", default_value = "kyverno", env = "KILN_NAME", value_parser = installation_name)]
    name: String,
}

impl Connection {
    pub(crate) fn options(&self) -> RuntimeOptions {
        RuntimeOptions {
            config_map: self.names().config_map(),
            service: self.names().service(),
            names: self.names(),
            ..self.cluster.options()
        }
    }

    /// The cluster of a kubeconfig, with an installation of the usual name.
    pub(crate) fn of_kubeconfig(path: PathBuf) -> Self {
        let cluster = ClusterAddress { kubeconfig: Some(path), context: None };
        Connection { cluster, name: "kyverno".to_owned() }
    }

    /// Whether the user says which cluster is meant.
    pub(crate) fn is_given(&self) -> bool {
        self.cluster.kubeconfig.is_some() || self.cluster.context.is_some()
    }

    /// What to call the cluster.
    pub(crate) fn shown_name(&self) -> String {
        match (&self.cluster.context, &self.cluster.kubeconfig) {
            (Some(context), _) => context.clone(),
            (None, Some(path)) => path.display().to_string(),
            (None, None) => "the cluster".to_owned(),
        }
    }

    /// What the installation calls its objects.
    pub(crate) fn names(&self) -> EngineNames {
        EngineNames::new(&self.name)
    }

    pub(crate) fn reader(&self) -> Result<LiveReader, Diagnostic> {
        connect(&self.options())
    }
}

/// What the ConfigMap of the engine says.
pub(crate) fn settings_of(
    reader: &LiveReader,
    namespace: &str,
) -> Result<Settings, CommandFailure> {
    let config =
        ObjectId::new(Gvk::new("v1", "ConfigMap"), namespace, &reader.names().config_map());
    let config = reader
        .object(&config)
        .map_err(|error| Diagnostic::error(format!("cannot read the settings: {error}")))?;
    Ok(Settings::named(namespace, reader.names()).read(config.as_ref()).0)
}

/// What rules have around them in a cluster, with these services besides those that its ConfigMap allows.
pub(crate) fn around(
    reader: &LiveReader,
    namespace: &str,
    services: &HostAllowlist,
) -> Result<RuleEnvironment, CommandFailure> {
    let around = reader.around(namespace, services);
    Ok(around.map_err(|error| {
        Diagnostic::error(format!("cannot read the settings and the global context: {error}"))
    })?)
}

/// Every policy that a cluster has, and every exception that applies. Problems are shown that are at least so serious.
pub(crate) fn stored_rules(
    ui: &Ui,
    reader: &LiveReader,
    settings: &Settings,
    least: Severity,
) -> Result<Compiled, CommandFailure> {
    let documents = stored_policies(reader)?;
    let wanted = documents.iter().filter(|found| is_policy(found) || is_exception(found));
    let mut compiled = compile_for(PolicyHost::Cluster, wanted, reader.kinds());
    for problem in compiled.diagnostics.iter().filter(|found| found.severity >= least) {
        ui.problem(&of_stored(problem));
    }
    compiled.exceptions = settings.in_force(&compiled.exceptions);
    Ok(compiled)
}

/// A problem of an object that a server gave: it is named, and lines and columns are left out, since the object has no
/// text of its own.
pub(crate) fn of_stored(problem: &Diagnostic) -> Diagnostic {
    let mut problem = problem.clone();
    if let Some(place) = problem.place.take() {
        problem.message = format!("{}: {}", place.source().name(), problem.message);
    }
    problem.label = None;
    problem.related.clear();
    problem
}

/// The exceptions that a cluster has, but for those whose places these documents take.
pub(crate) fn stored_exceptions(
    ui: &Ui,
    reader: &LiveReader,
    given: &[Document],
) -> Result<Vec<Arc<Exception>>, CommandFailure> {
    let taken: Vec<ObjectId> = given.iter().filter_map(place).collect();
    let mut documents = stored_in(reader, is_kind_of_exceptions)?;
    documents.retain(|document| {
        let place = place(document);
        is_exception(document)
            && !place.is_some_and(|place| taken.iter().any(|taken| taken.same_object(&place)))
    });
    let compiled = compile_for(PolicyHost::Cluster, &documents, reader.kinds());
    for problem in &compiled.diagnostics {
        ui.problem(&of_stored(problem));
    }
    Ok(compiled.exceptions)
}

/// Where a cluster would store an exception.
fn place(document: &Document) -> Option<ObjectId> {
    let mut id = ObjectId::of(document.value()).ok()?;
    if id.namespace.is_empty() {
        id.namespace = "default".into();
    }
    Some(id)
}

fn is_kind_of_exceptions(kind: &str) -> bool {
    kind.ends_with("PolicyException")
}

/// The objects of all kinds that hold rules.
pub(crate) fn stored_policies(reader: &LiveReader) -> Result<Vec<Document>, CommandFailure> {
    let is_wanted =
        |kind: &str| kind.ends_with("Policy") || is_kind_of_exceptions(kind) || kind == "ModRule";
    stored_in(reader, is_wanted)
}

/// The objects of some kinds in the groups that hold rules.
fn stored_in(
    reader: &LiveReader,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Vec<Document>, CommandFailure> {
    let mut documents = Vec::new();
    for gvk in rule_kinds(reader, is_wanted) {
        let found = reader.all(&gvk, "").map_err(|error| {
            Diagnostic::error(format!("cannot list {}: {error}", gvk.kind)).hint(
                "this command needs permission to list policies, exceptions and what rules read",
            )
        })?;
        for policy in found {
            documents.extend(document(policy));
        }
    }
    Ok(documents)
}

/// Kinds of groups that hold rules, each in the version that the server prefers.
fn rule_kinds(reader: &LiveReader, is_wanted: impl Fn(&str) -> bool) -> Vec<Gvk> {
    let kyverno = reader.names().stands_for_kyverno();
    let is_run = |group: &str| {
        group == "api.kubemod.io" || group == OWN_GROUP || (kyverno && is_policy_group(group))
    };
    let mut kinds: Vec<Gvk> = reader
        .kinds()
        .iter()
        .filter(|kind| is_run(kind.group()))
        .filter(|kind| is_wanted(kind.kind()))
        .filter_map(|kind| reader.kinds().preferred(kind.group(), kind.kind()))
        .map(kiln_object::Kind::gvk)
        .collect();
    kinds.sort();
    kinds.dedup();
    kinds
}

/// An object of the cluster as a document, so that problems have places.
fn document(object: Value) -> Option<Document> {
    let name = ObjectId::of(&object).ok()?.to_string();
    Some(Document::from_value(&name, object, ReadOptions::kubernetes()))
}
