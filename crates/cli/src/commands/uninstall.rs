//! `kiln uninstall`

use std::collections::BTreeMap;
use std::io::Write as _;

use kiln_diagnostic::Diagnostic;
use kiln_object::{EngineNames, Gvk, ObjectId};
use kiln_runtime::{Uninstall, uninstall, webhook_configurations};
use kiln_value::Value;

use crate::cluster::competing_engines::{
    CompetingEngine, KUBEMOD, KYVERNO, installed, sharing_engine,
};
use crate::cluster::connection::Connection;
use crate::exit::{CommandFailure, CommandOutcome, CommandResult};
use crate::ui::Ui;

/// Remove Kiln from a cluster, and keep the generated objects
///
/// Stops the replicas first, then deletes webhook configurations, roles, the ConfigMap and the workload. Policies,
/// CustomResourceDefinitions and the namespace with its records are kept, so that `kiln install` continues from there;
/// `--all` deletes them too. Generated objects are always kept, with their labels; so are the
/// CustomResourceDefinitions of reports, which other tools use, and objects that `kiln install` did not create.
/// Webhook configurations are deleted by name, whichever engine created them.
///
/// Exits with code 2, and deletes nothing, while a replica runs elsewhere, or while Kyverno or KubeMod runs.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Namespace of the Kiln installation
    #[arg(
        long = "engine-namespace",
        visible_alias = "namespace",
        value_name = "NAME",
        default_value = "kyverno",
        env = "KILN_NAMESPACE"
    )]
    namespace: String,

    /// Also delete CustomResourceDefinitions, and with them all policies, and the namespace
    #[arg(long)]
    all: bool,

    /// Only stop the replicas and delete the webhook configurations
    ///
    /// For what was installed by Helm, whose chart calls it before everything else is deleted.
    #[arg(long, conflicts_with = "all")]
    stop: bool,

    /// Print what would be deleted, and delete nothing
    #[arg(long)]
    dry_run: bool,

    /// Continue although Kyverno or KubeMod runs, and keep what it uses
    ///
    /// With Kyverno that is everything that has its names: definitions, webhooks, accounts, roles, settings and its
    /// namespace. With KubeMod it is the definition of ModRules.
    #[arg(long)]
    keep_shared: bool,

    #[command(flatten)]
    connection: Connection,
}

pub(crate) fn run(ui: &Ui, args: &Args) -> CommandResult {
    ui.has_formats_of("uninstall")?;
    let mut engines = engines(&args.connection)?;
    if !args.connection.names().stands_for_kyverno() {
        // Under another name nothing is shared with it.
        engines.retain(|(_, engine)| *engine != KYVERNO);
    }
    if !engines.is_empty() && !args.keep_shared {
        return Err(refusal(&engines).into());
    }
    let mut objects = installed(&args.namespace, &args.connection.names());
    if args.stop {
        objects.retain(|object| object.str_at(["kind"]) == Some("Deployment"));
    }
    let plan =
        Uninstall { kept: kept(&objects, &engines), objects, all: args.all, dry_run: args.dry_run };
    let options = kiln_runtime::RuntimeOptions {
        namespace: args.namespace.clone(),
        ..args.connection.options()
    };
    let mut out = ui.stdout();
    let mut written = Ok(());
    let done = uninstall(&options, &plan, &mut |line| {
        if written.is_ok() {
            written = writeln!(out, "{line}").and_then(|()| out.flush());
        }
    });
    done.map_err(|error| Diagnostic::error(error.message).hint(error.hint))?;
    written?;
    Ok(CommandOutcome::Done)
}

/// The Deployments that run other engines which use the same definitions.
fn engines(connection: &Connection) -> Result<Vec<CompetingEngine>, CommandFailure> {
    let deployments = connection.reader()?.all(&Gvk::new("apps/v1", "Deployment"), "");
    let deployments = deployments.map_err(|error| {
        Diagnostic::error(format!("cannot find out whether another engine runs: {error}"))
            .hint("uninstalling needs the same permissions as installing")
    })?;
    Ok(deployments.iter().filter_map(sharing_engine).collect())
}

fn refusal(engines: &[CompetingEngine]) -> Vec<Diagnostic> {
    let one = |(name, engine): &CompetingEngine| {
        let (namespace, deployment) = name.split_once('/').unwrap_or(("", name));
        let hint = format!(
            "stop it first: kubectl scale deployment {deployment} -n {namespace} --replicas=0; or give --keep-shared, \
             which leaves what {engine} uses as well"
        );
        let message = format!(
            "{engine} runs, and would lose what it shares with Kiln: Deployment {name}; nothing is deleted"
        );
        Diagnostic::error(message).hint(hint)
    };
    engines.iter().map(one).collect()
}

/// What stays, and why.
fn kept(objects: &[Value], engines: &[CompetingEngine]) -> BTreeMap<ObjectId, String> {
    let runs = |engine: &str| engines.iter().any(|(_, running)| *running == engine);
    let mut kept = BTreeMap::new();
    for object in objects {
        let Ok(id) = ObjectId::of(object) else { continue };
        let group = object.str_at(["spec", "group"]).unwrap_or_default();
        let lives_there = |(name, _): &&CompetingEngine| {
            id.gvk.kind == "Namespace" && name.split('/').next() == Some(&id.name)
        };
        let why = match group {
            "wgpolicyk8s.io" => "other tools report with it too".to_owned(),
            "kyverno.io" | "policies.kyverno.io" if runs(KYVERNO) => "Kyverno uses it".to_owned(),
            "api.kubemod.io" if runs(KUBEMOD) => "KubeMod uses it".to_owned(),
            _ if runs(KYVERNO) && is_named_as_kyverno(&id.name) => "Kyverno uses it".to_owned(),
            _ => match engines.iter().find(lives_there) {
                Some((_, engine)) => format!("{engine} lives in it"),
                None => continue,
            },
        };
        kept.insert(id, why);
    }
    if runs(KYVERNO) {
        kept.extend(
            webhook_configurations(&EngineNames::default())
                .map(|id| (id, "Kyverno uses it".to_owned())),
        );
    }
    kept
}

/// Whether an object of Kyverno's own installation may be called so.
fn is_named_as_kyverno(name: &str) -> bool {
    name.strip_prefix("kyverno").is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '-']))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many objects of some kinds go, and which stay.
    fn stays(engines: &[CompetingEngine]) -> Vec<String> {
        let objects = installed("kyverno", &EngineNames::default());
        let all = kept(&objects, engines);
        all.keys().map(|id| format!("{}/{}", id.gvk.kind, id.name)).collect()
    }

    #[test]
    fn what_others_use_stays() {
        let reports = [
            "CustomResourceDefinition/clusterpolicyreports.wgpolicyk8s.io",
            "CustomResourceDefinition/policyreports.wgpolicyk8s.io",
        ];
        assert_eq!(stays(&[]), reports, "other tools have reports too");

        let kubemod = stays(&[("kubemod-system/kubemod-operator".to_owned(), KUBEMOD)]);
        assert_eq!(kubemod.len(), 3);
        assert!(kubemod.contains(&"CustomResourceDefinition/modrules.api.kubemod.io".to_owned()));

        let kyverno = stays(&[("kyverno/kyverno-cleanup-controller".to_owned(), KYVERNO)]);
        for shared in [
            "CustomResourceDefinition/clusterpolicies.kyverno.io",
            "CustomResourceDefinition/generatingpolicies.policies.kyverno.io",
            "ClusterRole/kyverno:background-controller",
            "ClusterRoleBinding/kyverno:admission-controller",
            "ServiceAccount/kyverno-admission-controller",
            "ConfigMap/kyverno",
            "Service/kyverno-svc",
            "Namespace/kyverno",
            "MutatingWebhookConfiguration/kyverno-resource-mutating-webhook-cfg",
        ] {
            assert!(kyverno.contains(&shared.to_owned()), "{shared} in {kyverno:?}");
        }
        let own = ["Deployment/kiln", "Deployment/kiln-controller", "Role/kiln:act-as"];
        for own in own {
            assert!(!kyverno.contains(&own.to_owned()), "{own}");
        }
        assert!(!kyverno.contains(&"CustomResourceDefinition/modrules.api.kubemod.io".to_owned()));
    }
}
