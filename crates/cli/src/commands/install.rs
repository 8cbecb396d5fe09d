//! `kiln install`

use std::io::Write;

use clap::ValueEnum;
use kiln_diagnostic::Diagnostic;
use kiln_install::{Grant, Image, InstallOptions, Monitoring, manifests, published_image};
use kiln_value::{Value, value};
use kiln_yaml::{ReadOptions, emit_documents, read_bytes};

use crate::args::OutputFormat;
use crate::cluster::connection::installation_name;
use crate::exit::{CommandOutcome, CommandResult};
use crate::input;
use crate::ui::Ui;

/// The largest file of values.
const MOST_BYTES: u64 = 4 << 20;

/// Print the manifests to install Kiln in a cluster
///
/// CustomResourceDefinitions, a namespace, service accounts and roles, a ConfigMap, and a Deployment with its Service.
/// Changes nothing: apply it with `kiln install --image IMAGE | kubectl apply --server-side -f -`.
///
/// Rules may read everything that the ClusterRole view covers. For more, add a ClusterRole with the label
/// `rbac.kyverno.io/aggregate-to-background-controller: "true"`, or use `--grant standard`.
///
/// `--values` reads the values of the Helm chart, which has the same options and more; other options take precedence.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Namespace of the Kiln installation
    #[arg(long = "engine-namespace", visible_alias = "namespace", value_name = "NAME", default_value = "kyverno", value_parser = label)]
    namespace: String,

    /// Prefix of object names [default: kyverno]; with another one, Kiln runs beside Kyverno
    #[arg(long, value_name = "NAME", value_parser = installation_name)]
    name: Option<String>,

    /// Also define the kinds of policies under Kiln's own API group, kiln.dev
    #[arg(long)]
    own_group: bool,

    /// Also define PolicyReports under another name than kyverno, for a cluster without Kyverno
    #[arg(long)]
    report_crds: bool,

    /// Values of the Helm chart; - for standard input
    #[arg(long, short = 'f', value_name = "FILE")]
    values: Option<String>,

    /// Image that pods run; needed unless this build names a published one, or with --no-workload
    #[arg(long, value_name = "IMAGE", conflicts_with = "no_workload", value_parser = image)]
    image: Option<String>,

    /// Number of replicas; with --split, of those that answer admission requests [default: 2]
    #[arg(long, value_name = "NUMBER")]
    replicas: Option<u32>,

    /// Two Deployments: kiln-admission answers admission requests, kiln-controller generates and synchronizes
    #[arg(long, conflicts_with = "no_workload")]
    split: bool,

    /// Permissions of rules from the start [default: view]
    #[arg(long, value_enum, value_name = "RIGHTS")]
    grant: Option<Rights>,

    /// An address of an API server in CIDR notation, such as 10.0.0.1/32; only these may connect to the webhook then
    #[arg(long, value_name = "CIDR", conflicts_with = "no_workload", value_parser = cidr)]
    api_server: Vec<String>,

    /// The PriorityClass of the pods, such as system-cluster-critical
    #[arg(long, value_name = "NAME", conflicts_with = "no_workload")]
    priority_class: Option<String>,

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

    /// Metrics also under Kyverno's names, so that its dashboards keep working
    #[arg(long, conflicts_with = "no_workload")]
    kyverno_metrics: bool,

    /// The address of the page about alerts, for their annotation runbook_url
    #[arg(long, value_name = "URL")]
    runbooks: Option<String>,

    /// Print only one part: the definitions, or what a Prometheus or Grafana that is set up by hand needs
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with_all = ["monitoring", "no_workload", "image", "replicas", "split", "grant", "exceptions", "api_server", "priority_class"])]
    only: Option<Only>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Only {
    /// CustomResourceDefinitions
    Crds,
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
    ui.has_formats_of("install")?;
    let options = options(args)?;
    match args.only {
        Some(Only::Alerts) => {
            let alerts = kiln_install::alerts(&options.monitoring.runbook_url);
            return print(ui, &alerts, ui.format());
        }
        Some(Only::Crds) => {
            let mut objects = manifests(&options);
            objects.retain(|object| object.str_at(["kind"]) == Some("CustomResourceDefinition"));
            return print_objects(ui, &objects);
        }
        Some(Only::Dashboard) => return print(ui, &kiln_install::dashboard(), OutputFormat::Json),
        None => {}
    }
    let objects = manifests(&options);
    if options.monitoring.service_monitor && args.no_workload {
        ui.problem(
            &Diagnostic::warning(
                "no ServiceMonitor is printed: without a workload there is no Service to select",
            )
            .hint("configure Prometheus to scrape /metrics at the engine's listen address"),
        );
    }
    print_objects(ui, &objects)
}

fn print_objects(ui: &Ui, objects: &[Value]) -> CommandResult {
    if ui.format() == OutputFormat::Json {
        let items: Value = objects.iter().cloned().collect();
        let list = value!({"apiVersion": "v1", "kind": "List", "items": items});
        return print(ui, &list, OutputFormat::Json);
    }
    let mut out = ui.stdout();
    out.write_all(emit_documents(objects).as_bytes())?;
    out.flush()?;
    Ok(CommandOutcome::Done)
}

/// The values of the file, and the options that take precedence.
fn options(args: &Args) -> Result<InstallOptions, Diagnostic> {
    let mut options = match &args.values {
        Some(path) => values(path)?,
        None => InstallOptions::default(),
    };
    options.namespace = args.namespace.clone();
    if let Some(name) = &args.name {
        options.name.clone_from(name);
    }
    options.crds.own_group |= args.own_group;
    options.crds.reports |= args.report_crds;
    options.monitoring.kyverno_metrics |= args.kyverno_metrics;
    options.workload = !args.no_workload;
    if options.workload && args.only.is_none() {
        options.image = image_to_run(args, options.image)?;
    }
    options.replicas = args.replicas.unwrap_or(options.replicas);
    options.split |= args.split;
    if let Some(rights) = args.grant {
        options.permissions.grant = match rights {
            Rights::View => Grant::View,
            Rights::Standard => Grant::Standard,
        };
    }
    if let Some(namespaces) = &args.exceptions {
        options.exception_namespaces = Some(kiln_install::words(namespaces));
    }
    if !args.api_server.is_empty() {
        options.network_policy.enabled = true;
        options.network_policy.api_servers.clone_from(&args.api_server);
    }
    if let Some(name) = &args.priority_class {
        options.priority_class_name.clone_from(name);
    }
    if args.monitoring {
        let Monitoring { labels, interval, runbook_url, .. } = options.monitoring;
        options.monitoring = Monitoring { labels, interval, runbook_url, ..Monitoring::all() };
    }
    if let Some(url) = &args.runbooks {
        options.monitoring.runbook_url.clone_from(url);
    }
    if let Err(why) = options.check() {
        return Err(Diagnostic::error(why).hint("leave one of them as it is"));
    }
    Ok(options)
}

/// The image that is given, or the one that is published for this version. A name that was made up would end as
/// ImagePullBackOff, or as an image of strangers.
fn image_to_run(args: &Args, valued: Image) -> Result<Image, Diagnostic> {
    let given = args.image.as_deref().map(Image::named);
    let valued = Some(valued).filter(|image| !image.repository.is_empty() || given.is_some());
    let pull_policy = valued.as_ref().map(|image| image.pull_policy.clone());
    let named = given.or(valued).or_else(|| published_image().as_deref().map(Image::named));
    let image = named.ok_or_else(|| {
        Diagnostic::error("no image for the Deployment: none is published for this build of kiln")
            .hint(
                "build and push one: `cargo xtask dist`, `skopeo copy --all oci:dist/image \
             docker://REGISTRY/kiln:TAG`, then `kiln install --image REGISTRY/kiln:TAG`; \
             for an engine outside the cluster, give --no-workload",
            )
    })?;
    Ok(match pull_policy {
        Some(pull_policy) => Image { pull_policy, ..image },
        None => image,
    })
}

/// Values of the Helm chart.
fn values(path: &str) -> Result<InstallOptions, Diagnostic> {
    let input = input::read(path, MOST_BYTES)?;
    let documents = read_bytes(&input.name, &input.bytes, ReadOptions::kubernetes())?;
    match documents.as_slice() {
        [] => Ok(InstallOptions::default()),
        [values] if values.value().is_null() => Ok(InstallOptions::default()),
        [values] => {
            InstallOptions::from_values(values.value()).map_err(|error| values.explain(&error))
        }
        [_, second, ..] => Err(Diagnostic::error("a file of values has one document")
            .at(second.place())
            .hint("keep the values of one release in it")),
    }
}

/// Prints one document.
fn print(ui: &Ui, document: &Value, form: OutputFormat) -> CommandResult {
    let mut out = ui.stdout();
    match form {
        OutputFormat::Json => {
            serde_json::to_writer_pretty(&mut out, document)
                .map_err(|error| Diagnostic::error(format!("cannot write: {error}")))?;
            writeln!(out)?;
        }
        _ => out.write_all(emit_documents(std::slice::from_ref(document)).as_bytes())?,
    }
    out.flush()?;
    Ok(CommandOutcome::Done)
}

/// A name of an image, which has no spaces.
fn image(text: &str) -> Result<String, String> {
    match text {
        "" => Err("an image has a name, such as registry.example.com/kiln:0.2.0".to_owned()),
        text if text.contains(char::is_whitespace) => Err("an image has no spaces".to_owned()),
        text => Ok(text.to_owned()),
    }
}

/// A range of addresses.
fn cidr(text: &str) -> Result<String, String> {
    let (address, bits) =
        text.split_once('/').ok_or("an address with a number of bits: 10.0.0.1/32")?;
    let address: std::net::IpAddr = address.parse().map_err(|_| "not an address")?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    if bits.parse::<u8>().is_ok_and(|bits| bits <= most) {
        return Ok(text.to_owned());
    }
    Err(format!("the number of bits is 0 to {most}"))
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
