//! `kiln run`

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use kiln_diagnostic::Diagnostic;
use kiln_engine::HostAllowlist;
use kiln_object::EngineNames;
use kiln_runtime::options::{
    DEFAULT_LEASE_DURATION, DEFAULT_SHUTDOWN_GRACE_PERIOD, MIN_LEASE_DURATION,
};
use kiln_runtime::serve::ClientAuthority;
use kiln_runtime::{Only, RuntimeOptions};

use crate::cluster::connection::installation_name;
use crate::exit::{CommandOutcome, CommandResult};
use crate::ui::Ui;

/// Run the controller and admission webhooks for a cluster
///
/// Answers admission requests and reconciles generated objects, until SIGTERM or Ctrl-C. Connects with a kubeconfig,
/// or with the service account of its pod. On a developer's machine, give `--webhook-url` a URL at which the API
/// server reaches this machine.
///
/// Kyverno has a service account for each of its controllers. With `--as-controller`, `--as-admission` and
/// `--as-cleanup` Kiln impersonates them (the credentials must allow it); without, it acts as itself.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Path of the kubeconfig [default: KUBECONFIG, ~/.kube/config, or the service account of the pod]
    #[arg(long, value_name = "FILE", help_heading = "Connection")]
    kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME", help_heading = "Connection")]
    context: Option<String>,

    /// User that the controller impersonates, such as system:serviceaccount:kyverno:kyverno-background-controller
    #[arg(long, value_name = "USER", help_heading = "Connection")]
    as_controller: Option<String>,

    /// User that the admission webhooks impersonate, such as system:serviceaccount:kyverno:kyverno-admission-controller
    #[arg(long, value_name = "USER", help_heading = "Connection")]
    as_admission: Option<String>,

    /// User that scheduled deletion impersonates, such as system:serviceaccount:kyverno:kyverno-cleanup-controller
    /// [default: the user of the controller]
    #[arg(long, value_name = "USER", help_heading = "Connection")]
    as_cleanup: Option<String>,

    /// Run only the admission webhooks, or only the controller
    #[arg(long, value_enum, value_name = "PART")]
    only: Option<RunPart>,

    /// Namespace of the Kiln installation, with its ConfigMap, records and UpdateRequests
    #[arg(
        long = "engine-namespace",
        visible_alias = "namespace",
        value_name = "NAME",
        default_value = "kyverno",
        env = "KILN_NAMESPACE"
    )]
    namespace: String,

    /// Prefix of object names; with another one, Kiln runs beside Kyverno, on policies of kiln.dev
    #[arg(long, value_name = "NAME", default_value = "kyverno", env = "KILN_NAME", value_parser = installation_name)]
    name: String,

    /// Write Reports and ClusterReports of openreports.io in the place of PolicyReports
    #[arg(long)]
    openreports: bool,

    /// Serve metrics also under Kyverno's names, so that its dashboards keep working
    #[arg(long)]
    kyverno_metrics: bool,

    /// Name of the ConfigMap with the configuration [default: the name of the installation]
    #[arg(long, value_name = "NAME")]
    config_map: Option<String>,

    /// Listen address of the HTTPS server
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:9443", help_heading = "Webhook")]
    listen: SocketAddr,

    /// URL at which the API server reaches the webhook, such as https://192.168.1.5:9443
    #[arg(long, value_name = "URL", help_heading = "Webhook")]
    webhook_url: Option<String>,

    /// Service through which the API server reaches the webhook [default: kyverno-svc, or as the installation is called]
    #[arg(long, value_name = "NAME", help_heading = "Webhook")]
    service: Option<String>,

    /// PEM file of certificate authorities; only clients with a certificate of them are answered
    #[arg(long, value_name = "FILE", help_heading = "Webhook")]
    client_ca: Option<PathBuf>,

    /// Keep the webhook configurations on exit, because other replicas answer at the same --webhook-url
    #[arg(long, help_heading = "Webhook")]
    leave_webhooks: bool,

    /// Seconds to keep serving after SIGTERM
    #[arg(
        long,
        alias = "linger",
        value_name = "SECONDS",
        default_value_t = DEFAULT_SHUTDOWN_GRACE_PERIOD.as_secs(),
        help_heading = "Webhook"
    )]
    shutdown_grace_period: u64,

    /// Host that rules may call, such as prices.shop.svc:8080 or *.example.com; in addition to those of the ConfigMap
    #[arg(long, value_name = "HOST", value_parser = HostAllowlist::read)]
    allow_service: Vec<HostAllowlist>,

    /// Leader-election lease duration, in seconds; at least 2
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = DEFAULT_LEASE_DURATION.as_secs(),
        help_heading = "Limits"
    )]
    lease: u64,

    /// Maximum concurrent calls to the API server
    #[arg(long, value_name = "NUMBER", default_value_t = 16, help_heading = "Limits")]
    calls_at_once: usize,

    /// Restart a watch that received nothing for this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 180, help_heading = "Limits")]
    stale_after: u64,

    /// Write logs as JSON, one object per line
    #[arg(long, help_heading = "Output")]
    log_json: bool,

    /// Log level: error, warn, info, debug, or levels per part such as kiln_runtime=debug
    #[arg(
        long,
        value_name = "LEVEL",
        default_value = "info",
        env = "KILN_LOG",
        help_heading = "Output"
    )]
    log: String,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum RunPart {
    Admission,
    Controller,
}

pub(crate) fn run(ui: &Ui, args: &Args) -> CommandResult {
    ui.has_formats_of("run")?;
    crate::logging::begin(&args.log, args.log_json)?;
    let names = EngineNames::new(&args.name);
    let options = RuntimeOptions {
        kubeconfig: args.kubeconfig.clone(),
        context: args.context.clone(),
        only: args.only.map(|part| match part {
            RunPart::Admission => Only::Admission,
            RunPart::Controller => Only::Controller,
        }),
        as_controller: args.as_controller.clone(),
        as_admission: args.as_admission.clone(),
        as_cleanup: args.as_cleanup.clone(),
        namespace: args.namespace.clone(),
        config_map: args.config_map.clone().unwrap_or_else(|| names.config_map()),
        listen: args.listen,
        webhook_url: args.webhook_url.clone(),
        service: args.service.clone().unwrap_or_else(|| names.service()),
        names,
        open_reports: args.openreports,
        kyverno_metrics: args.kyverno_metrics,
        client_ca: args.client_ca.as_deref().map(authority).transpose()?,
        leave_webhooks: args.leave_webhooks,
        linger: Duration::from_secs(args.shutdown_grace_period),
        services: all(&args.allow_service),
        lease: Duration::from_secs(args.lease).max(MIN_LEASE_DURATION),
        calls_at_once: args.calls_at_once.max(1),
        stale_after: Duration::from_secs(args.stale_after.max(1)),
    };
    kiln_runtime::run_blocking(options)
        .map_err(|error| Diagnostic::error(error.message).hint(error.hint))?;
    Ok(CommandOutcome::Done)
}

/// The authorities of clients in a file.
fn authority(file: &Path) -> Result<ClientAuthority, Diagnostic> {
    let wrong = |why: String| {
        Diagnostic::error(format!("--client-ca {}: {why}", file.display()))
            .hint("give a file with certificates of authorities in PEM")
    };
    let pem = std::fs::read(file).map_err(|error| wrong(error.to_string()))?;
    ClientAuthority::read(&pem).map_err(|error| wrong(error.to_string()))
}

/// The hosts of several lists.
pub(crate) fn all(lists: &[HostAllowlist]) -> HostAllowlist {
    lists.iter().fold(HostAllowlist::default(), HostAllowlist::and)
}
