//! `kiln uninstall`

use std::io::Write as _;
use std::path::PathBuf;

use kiln_diagnostic::Diagnostic;
use kiln_install::manifests;
use kiln_live::{Options, Uninstall, uninstall};

use crate::args::Format;
use crate::exit::{CommandResult, Outcome};
use crate::ui::Ui;

/// Take Kiln off a cluster, and leave what rules made
///
/// First whoever acts is ended, then webhooks, rights, settings and the workload go. Policies, their definitions and
/// the namespace with its records stay, so that `kiln install` goes on where it was; with `--all` they go too. What
/// rules made stays in either case, with its labels.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The namespace that the engine lives in
    #[arg(long, value_name = "NAME", default_value = "kyverno", env = "KILN_NAMESPACE")]
    namespace: String,

    /// Delete definitions, and with them all policies, and the namespace as well
    #[arg(long)]
    all: bool,

    /// Only say what would be deleted
    #[arg(long)]
    dry_run: bool,

    /// The kubeconfig; otherwise KUBECONFIG, or ~/.kube/config
    #[arg(long, value_name = "FILE", help_heading = "Connection")]
    kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig, if not the current one
    #[arg(long, value_name = "NAME", help_heading = "Connection")]
    context: Option<String>,
}

pub(crate) fn run(ui: &Ui, args: &Args) -> CommandResult {
    ui.has_forms(&[Format::Text])?;
    let installed = kiln_install::Options {
        namespace: args.namespace.clone(),
        grant: kiln_install::Grant::Standard,
        monitoring: true,
        ..kiln_install::Options::default()
    };
    let options = Options {
        kubeconfig: args.kubeconfig.clone(),
        context: args.context.clone(),
        namespace: args.namespace.clone(),
        ..Options::default()
    };
    let plan = Uninstall { objects: manifests(&installed), all: args.all, dry_run: args.dry_run };
    let mut out = ui.stdout();
    let mut written = Ok(());
    let done = uninstall(&options, &plan, &mut |line| {
        if written.is_ok() {
            written = writeln!(out, "{line}").and_then(|()| out.flush());
        }
    });
    done.map_err(|error| Diagnostic::error(error.message).hint(error.hint))?;
    written?;
    Ok(Outcome::Done)
}
