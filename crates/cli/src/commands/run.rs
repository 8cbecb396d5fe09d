//! `kiln run`

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use kiln_diagnostic::Diagnostic;
use kiln_live::serve::ClientAuthority;
use kiln_live::{Only, Options};
use kiln_services::Allowed;

use crate::args::Format;
use crate::exit::{CommandResult, Outcome};
use crate::ui::Ui;

/// Run rules on a live cluster
///
/// Answers admission requests and keeps what rules generate in step, until it is told to end (SIGTERM or Ctrl-C).
/// It connects with a kubeconfig, or with the account of its pod. From a developer's machine give
/// `--webhook-url` an address at which the API server reaches this machine.
///
/// The two sides of Kyverno have accounts of their own. With `--as-controller` and `--as-admission` each side
/// acts as its account (the credentials must allow impersonation); without them both act as themselves.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The kubeconfig; otherwise KUBECONFIG, ~/.kube/config, or the account of the pod
    #[arg(long, value_name = "FILE", help_heading = "Connection")]
    kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig, if not the current one
    #[arg(long, value_name = "NAME", help_heading = "Connection")]
    context: Option<String>,

    /// The user that the controller acts as, such as system:serviceaccount:kyverno:kyverno-background-controller
    #[arg(long, value_name = "USER", help_heading = "Connection")]
    as_controller: Option<String>,

    /// The user that the admission side acts as, such as system:serviceaccount:kyverno:kyverno-admission-controller
    #[arg(long, value_name = "USER", help_heading = "Connection")]
    as_admission: Option<String>,

    /// Do only a part of the work: answer admission requests, or generate and synchronise
    #[arg(long, value_enum, value_name = "PART")]
    only: Option<Part>,

    /// The namespace with the configuration, records and UpdateRequests
    #[arg(long, value_name = "NAME", default_value = "kyverno", env = "KILN_NAMESPACE")]
    namespace: String,

    /// The ConfigMap with the configuration
    #[arg(long, value_name = "NAME", default_value = "kyverno")]
    config_map: String,

    /// The address that the HTTPS server listens on
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:9443", help_heading = "Webhook")]
    listen: SocketAddr,

    /// The address at which the API server reaches the webhook, such as https://192.168.1.5:9443
    #[arg(long, value_name = "URL", help_heading = "Webhook")]
    webhook_url: Option<String>,

    /// The Service through which the API server reaches the webhook
    #[arg(long, value_name = "NAME", default_value = "kyverno-svc", help_heading = "Webhook")]
    service: String,

    /// Answer reviews only of clients whose certificate is from an authority in this PEM file
    #[arg(long, value_name = "FILE", help_heading = "Webhook")]
    client_ca: Option<PathBuf>,

    /// Leave the webhook configurations when the process ends: others answer at the same --webhook-url
    #[arg(long, help_heading = "Webhook")]
    leave_webhooks: bool,

    /// Go on answering for so many seconds when told to end, until nobody asks any more
    #[arg(long, value_name = "SECONDS", default_value_t = 5, help_heading = "Webhook")]
    linger: u64,

    /// A service that rules may ask, such as prices.shop.svc:8080 or *.example.com; besides those of the ConfigMap
    #[arg(long, value_name = "HOST", value_parser = Allowed::read)]
    allow_service: Vec<Allowed>,

    /// Take over from a replica that acted and has not been heard of for so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, help_heading = "Limits")]
    lease: u64,

    /// The most calls to the API server at once
    #[arg(long, value_name = "NUMBER", default_value_t = 16, help_heading = "Limits")]
    calls_at_once: usize,

    /// Begin a watch anew that tells nothing for so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 180, help_heading = "Limits")]
    stale_after: u64,

    /// Write logs as JSON, one object per line
    #[arg(long, help_heading = "Output")]
    log_json: bool,

    /// What is logged: error, warn, info, debug, or levels per part such as kiln_live=debug
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
enum Part {
    Admission,
    Controller,
}

pub(crate) fn run(ui: &Ui, args: &Args) -> CommandResult {
    ui.has_forms(&[Format::Text, Format::Json])?;
    super::logs::begin(&args.log, args.log_json)?;
    let options = Options {
        kubeconfig: args.kubeconfig.clone(),
        context: args.context.clone(),
        only: args.only.map(|part| match part {
            Part::Admission => Only::Admission,
            Part::Controller => Only::Controller,
        }),
        as_controller: args.as_controller.clone(),
        as_admission: args.as_admission.clone(),
        namespace: args.namespace.clone(),
        config_map: args.config_map.clone(),
        listen: args.listen,
        webhook_url: args.webhook_url.clone(),
        service: args.service.clone(),
        client_ca: args.client_ca.as_deref().map(authority).transpose()?,
        leave_webhooks: args.leave_webhooks,
        linger: Duration::from_secs(args.linger),
        services: all(&args.allow_service),
        lease: Duration::from_secs(args.lease.max(2)),
        calls_at_once: args.calls_at_once.max(1),
        stale_after: Duration::from_secs(args.stale_after.max(1)),
    };
    kiln_live::run_blocking(options)
        .map_err(|error| Diagnostic::error(error.message).hint(error.hint))?;
    Ok(Outcome::Done)
}

/// The authorities of clients in a file.
fn authority(file: &Path) -> Result<ClientAuthority, Diagnostic> {
    let wrong = |why: String| {
        Diagnostic::error(format!("--client-ca {}: {why}", file.display()))
            .hint("give a file with certificates of authorities in PEM")
    };
    let pem = std::fs::read(file).map_err(|error| wrong(error.to_string()))?;
    ClientAuthority::read(&pem).map_err(wrong)
}

/// The hosts of several lists.
pub(crate) fn all(lists: &[Allowed]) -> Allowed {
    lists.iter().fold(Allowed::default(), Allowed::and)
}
