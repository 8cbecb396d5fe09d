//! `kiln install`

use std::io::Write;

use clap::ValueEnum;
use kiln_diagnostic::Diagnostic;
use kiln_install::{Grant, Options, manifests};
use kiln_value::{Value, value};
use kiln_yaml::emit_documents;

use crate::args::Format;
use crate::exit::{CommandOutcome, CommandResult};
use crate::ui::Ui;

/// Print the manifests to install Kiln in a cluster
///
/// CustomResourceDefinitions, a namespace, service accounts and roles, a ConfigMap, and a Deployment with its Service.
/// Changes nothing: apply it with `kiln install | kubectl apply --server-side -f -`.
///
/// Rules may read everything that the ClusterRole view covers. For more, add a ClusterRole with the label
/// `rbac.kyverno.io/aggregate-to-background-controller: "true"`, or use `--grant standard`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Namespace of the Kiln installation
    #[arg(long = "engine-namespace", visible_alias = "namespace", value_name = "NAME", default_value = "kyverno", value_parser = label)]
    namespace: String,

    /// Container image with the kiln binary
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,

    /// Number of replicas; with --split, of those that answer admission requests
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    replicas: u32,

    /// Two Deployments: kiln-admission answers admission requests, kiln-controller generates and synchronizes
    #[arg(long, conflicts_with = "no_workload")]
    split: bool,

    /// Permissions of rules from the start
    #[arg(long, value_enum, value_name = "RIGHTS", default_value_t = Rights::View)]
    grant: Rights,

    /// Namespaces whose PolicyExceptions apply to all policies, with wildcards, separated by commas [default: that of the
    /// installation]
    #[arg(long, value_name = "NAMESPACES")]
    exceptions: Option<String>,

    /// Leave out the Deployment and its Service, for an engine that runs outside the cluster
    #[arg(long)]
    no_workload: bool,

    /// Add a ServiceMonitor and a PrometheusRule (for the Prometheus operator) and a ConfigMap with a Grafana dashboard; with
    /// --no-workload there is no ServiceMonitor, since there is no Service
    #[arg(long)]
    monitoring: bool,

    /// Print only one part, for a Prometheus or Grafana that is set up by hand
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with_all = ["monitoring", "no_workload", "image", "replicas", "split", "grant", "exceptions"])]
    only: Option<Only>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Only {
    /// Prometheus rules file with the alerts, in YAML
    Alerts,
    /// Grafana dashboard, in JSON
    Dashboard,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Rights {
    /// Read everything that the ClusterRole view covers
    View,
    /// Also write ConfigMaps, Secrets, NetworkPolicies, quotas, limits, roles, namespaces, nodes and pods
    Standard,
}

pub(crate) fn run(ui: &Ui, args: &Args) -> CommandResult {
    ui.has_forms(&[Format::Text, Format::Yaml, Format::Json])?;
    match args.only {
        Some(Only::Alerts) => return print(ui, &kiln_install::alerts(), ui.format()),
        Some(Only::Dashboard) => return print(ui, &kiln_install::dashboard(), Format::Json),
        None => {}
    }
    let mut options = Options {
        namespace: args.namespace.clone(),
        replicas: args.replicas,
        split: args.split,
        exceptions: args.exceptions.clone(),
        grant: match args.grant {
            Rights::View => Grant::View,
            Rights::Standard => Grant::Standard,
        },
        workload: !args.no_workload,
        monitoring: args.monitoring,
        ..Options::default()
    };
    options.image = args.image.clone().unwrap_or(options.image);
    let objects = manifests(&options);
    if args.monitoring && args.no_workload {
        ui.problem(
            &Diagnostic::warning(
                "no ServiceMonitor is printed: without a workload there is no Service to select",
            )
            .hint("let your Prometheus ask for /metrics at the address that the engine listens on"),
        );
    }
    if ui.format() == Format::Json {
        let list = value!({"apiVersion": "v1", "kind": "List", "items": objects});
        return print(ui, &list, Format::Json);
    }
    let mut out = ui.stdout();
    out.write_all(emit_documents(&objects).as_bytes())?;
    out.flush()?;
    Ok(CommandOutcome::Done)
}

/// Prints one document.
fn print(ui: &Ui, document: &Value, form: Format) -> CommandResult {
    let mut out = ui.stdout();
    match form {
        Format::Json => {
            serde_json::to_writer_pretty(&mut out, document)
                .map_err(|error| Diagnostic::error(format!("cannot write: {error}")))?;
            writeln!(out)?;
        }
        _ => out.write_all(emit_documents(std::slice::from_ref(document)).as_bytes())?,
    }
    out.flush()?;
    Ok(CommandOutcome::Done)
}

/// A name that Kubernetes accepts for a namespace.
fn label(text: &str) -> Result<String, String> {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if text.is_empty()
        || text.len() > 63
        || !text.chars().all(good)
        || text.starts_with('-')
        || text.ends_with('-')
    {
        return Err("a namespace is made of at most 63 small letters, digits and dashes".to_owned());
    }
    Ok(text.to_owned())
}
