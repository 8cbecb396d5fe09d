//! `kiln install`

use std::io::Write;

use clap::ValueEnum;
use kiln_diagnostic::Diagnostic;
use kiln_install::{Grant, Options, manifests};
use kiln_value::{Value, value};
use kiln_yaml::emit_documents;

use crate::args::Format;
use crate::exit::{CommandResult, Outcome};
use crate::ui::Ui;

/// Print what a cluster needs before `kiln run` works in it
///
/// Definitions of custom resources, a namespace, accounts and rights, settings, and a Deployment with its Service.
/// Nothing is changed: pass it on with `kiln install | kubectl apply --server-side -f -`.
///
/// Rules may read what everybody who may view may read. For all else add a ClusterRole with the label
/// `rbac.kyverno.io/aggregate-to-background-controller: "true"`, or take `--grant standard`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The namespace that the engine lives in
    #[arg(long, value_name = "NAME", default_value = "kyverno", value_parser = label)]
    namespace: String,

    /// The image that holds the kiln binary
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,

    /// How many pods run; with --split, how many answer requests
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    replicas: u32,

    /// Two Deployments: kiln-admission answers requests, kiln-controller generates and synchronises
    #[arg(long, conflicts_with = "no_workload")]
    split: bool,

    /// What rules may read and write from the start
    #[arg(long, value_enum, value_name = "RIGHTS", default_value_t = Rights::View)]
    grant: Rights,

    /// The namespaces of which PolicyExceptions hold for all policies, with commas and wildcards; the engine's own unless
    /// given
    #[arg(long, value_name = "NAMESPACES")]
    exceptions: Option<String>,

    /// Leave out the Deployment and what belongs to it, for an engine that runs outside the cluster
    #[arg(long)]
    no_workload: bool,

    /// Also a ServiceMonitor and a PrometheusRule (for the Prometheus operator) and a ConfigMap with a dashboard for Grafana;
    /// with --no-workload there is no Service that a ServiceMonitor could select, so it is left out
    #[arg(long)]
    monitoring: bool,

    /// Print nothing but one thing, for a Prometheus or a Grafana that is set up by hand
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with_all = ["monitoring", "no_workload", "image", "replicas", "split", "grant", "exceptions"])]
    only: Option<Only>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Only {
    /// The rules file with the alerts, in YAML
    Alerts,
    /// The dashboard, in JSON
    Dashboard,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Rights {
    /// What everybody who may view may read
    View,
    /// Also to write ConfigMaps, Secrets, NetworkPolicies, quotas, limits, roles, namespaces, nodes and pods
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
    Ok(Outcome::Done)
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
    Ok(Outcome::Done)
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
