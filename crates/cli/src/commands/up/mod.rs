//! `kiln up`

pub(super) mod command;
pub(super) mod config;
mod demo;
pub(super) mod engine;
mod input;
mod limits;
mod signals;
pub(super) mod temp_dir;

use std::ffi::OsString;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use kiln_apiserver::Authorization;
use kiln_diagnostic::Diagnostic;
use kiln_object::ObjectId;
use kiln_sandbox::{Sandbox, SandboxOptions};
use kiln_text::names;
use kiln_value::value;

use super::ui::{ClusterWrite, ServedCluster, Studio, StudioServer};
use crate::args::{Global, separated};
use crate::cluster::connection::Connection;
use crate::exit::{CommandFailure, CommandOutcome, CommandResult};
use crate::logging;
use crate::ui::{Ui, counted};
use engine::{SandboxEngine, View};
use input::{Given, Item, called};
use signals::Signals;
use temp_dir::{PrivateDir, private_dir};

/// Start a local sandbox API server with policies running
///
/// One process on this machine: an API server that keeps its objects in memory, and the engine of `kiln run`. There
/// are no nodes: pods are stored and stay Pending. For development and tests, not for production.
///
/// Writes a kubeconfig, and prints the commands to use it. Ctrl-C stops it. With a COMMAND it stops when the command
/// ends, with its exit code.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Policies: files or directories; they run before anything else is stored
    #[arg(value_name = "RULES")]
    rules: Vec<String>,

    /// Files or directories with objects to store when the policies run; repeat or separate with commas
    #[arg(long = "resource", short = 'r', value_name = "FILES")]
    resources: Vec<String>,

    /// Directory that keeps the objects across restarts
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// Load an example, and narrate what happens
    #[arg(long, conflicts_with = "bare")]
    demo: bool,

    /// Print the limits of the sandbox, and exit
    #[arg(long)]
    limits: bool,

    /// Authorization mode
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Permissions::AlwaysAllow)]
    authorization: Permissions,

    /// Listen address; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// Path of the kubeconfig to write [default: in --data, or in a temporary directory]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Namespace of the kubeconfig's context, and of objects that name none
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = namespace)]
    namespace: String,

    /// Run only the API server, without policies
    #[arg(long)]
    bare: bool,

    /// Open Kiln Studio on the sandbox: prints the address of a web application that shows and changes it
    #[arg(long, conflicts_with = "command")]
    ui: bool,

    /// Log level: error, warn, info, debug
    #[arg(long, value_name = "LEVEL", default_value = "error", env = "KILN_LOG")]
    log: String,

    /// Command to run with KUBECONFIG set when everything is ready; the sandbox ends with it
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Permissions {
    /// Every client may do everything
    AlwaysAllow,
    /// By the stored roles and bindings
    Rbac,
}

/// The name of a namespace.
fn namespace(name: &str) -> Result<String, String> {
    match names::dns1123_label(name).as_slice() {
        [] => Ok(name.to_owned()),
        problems => Err(problems.join("; ")),
    }
}

pub(crate) fn run(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    ui.has_formats_of("up")?;
    if args.limits {
        let mut out = ui.stdout();
        out.write_all(limits::TEXT.as_bytes())?;
        out.flush()?;
        return Ok(CommandOutcome::Done);
    }
    logging::begin(&args.log, false)?;
    if !args.listen.ip().is_loopback() {
        return Err(Diagnostic::error(format!(
            "{} is not an address of this machine alone",
            args.listen
        ))
        .hint("the sandbox is for development: listen on 127.0.0.1")
        .into());
    }
    let mut given =
        Given::read(ui, global, &args.rules, &separated(&args.resources), has_data(args))?;
    if args.demo {
        given.rules.push(Item::own(demo::rule()));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Diagnostic::error(format!("cannot start: {error}")))?;
    let outcome = runtime.block_on(serve(ui, args, &given));
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

/// Whether a sandbox goes on with what an earlier one kept.
fn has_data(args: &Args) -> bool {
    let entries = args.data.as_ref().and_then(|data| std::fs::read_dir(data).ok());
    entries.is_some_and(|mut entries| entries.next().is_some())
}

/// Says something, at once: a script that waits for the line may start.
fn say(text: &str) -> Result<(), CommandFailure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()?;
    Ok(())
}

async fn serve(ui: &Ui, args: &Args, given: &Given) -> CommandResult {
    let began = Instant::now();
    // From here on nothing ends the process before it has tidied up.
    let mut signals = Signals::listen()?;
    let directory = private_dir()?;
    let kubeconfig =
        config::place(args.kubeconfig.as_deref(), args.data.as_deref(), directory.path())?;
    // Data that is not a directory is explained below.
    if args.kubeconfig.is_some() || !args.data.as_ref().is_some_and(|data| data.is_file()) {
        config::keep_foreign(&kubeconfig)?;
    }
    let options = SandboxOptions {
        listen: args.listen,
        data: args.data.clone(),
        authorization: match args.authorization {
            Permissions::AlwaysAllow => Authorization::AlwaysAllow,
            Permissions::Rbac => Authorization::Rbac,
        },
        namespace: args.namespace.clone(),
        hold: true,
    };
    let sandbox = Sandbox::start(&options)
        .await
        .map_err(|problem| Diagnostic::error(problem.message).hint(problem.hint))?;
    let mut up = Up {
        ui,
        args,
        sandbox: Arc::new(sandbox),
        engine: None,
        directory,
        kubeconfig,
        refused: 0,
    };
    let outcome = up.live(given, began, &mut signals).await;
    if let Some(engine) = up.engine {
        engine.end().await;
    }
    up.sandbox.end().await;
    outcome
}

/// A sandbox, from its beginning to its end.
struct Up<'a> {
    ui: &'a Ui,
    args: &'a Args,
    sandbox: Arc<Sandbox>,
    engine: Option<SandboxEngine>,
    /// For the engine, and for a kubeconfig that goes with the sandbox.
    directory: PrivateDir,
    kubeconfig: PathBuf,
    /// How many objects were not stored.
    refused: usize,
}

impl Up<'_> {
    async fn live(
        &mut self,
        given: &Given,
        began: Instant,
        signals: &mut Signals,
    ) -> CommandResult {
        let args = self.args;
        let alone = args.command.is_empty();
        let ended = |signal| match alone {
            true => CommandOutcome::Done,
            false => CommandOutcome::Code(command::ended_by(signal)),
        };
        let work = async {
            self.begin(given).await?;
            self.tell_ready(given, began)?;
            if args.ui {
                self.serve_studio()?;
            }
            if args.demo {
                demo::narrate(&self.sandbox, say).await?;
            }
            Ok::<_, CommandFailure>(())
        };
        tokio::select! {
            done = work => done?,
            signal = signals.next() => return Ok(ended(signal)),
        }
        if alone {
            say("Ctrl-C stops it. What it does not do: kiln up --limits")?;
            return tokio::select! {
                signal = signals.next() => Ok(ended(signal)),
                failure = self.engine_fails() => Err(failure),
            };
        }
        command::run(self.ui, &args.command, &self.kubeconfig, signals).await
    }

    /// Stores everything in its turn. Rules are at work before other clients are served.
    async fn begin(&mut self, given: &Given) -> Result<(), CommandFailure> {
        engine::forget_killed(&self.sandbox, self.args.bare);
        let [definitions, rules, more_rules, resources] = given.turns(&self.args.namespace);
        let objects = more_rules.len() + resources.len();
        self.store(&definitions).await?;
        let view = self.begin_engine().await?;
        self.store(&rules).await?;
        self.at_work(view.as_ref()).await;
        config::write(&self.kubeconfig, self.sandbox.kubeconfig())?;
        self.sandbox.open();
        self.store(&more_rules).await?;
        self.at_work(view.as_ref()).await;
        self.store(&resources).await?;
        for (policy, why) in self.at_work(view.as_ref()).await {
            let name = called(&policy);
            self.ui.problem(
                &Diagnostic::warning(format!("{name} does not run: {why}"))
                    .hint("fix it, and apply it with kubectl"),
            );
        }
        if let Some(view) = view.filter(|_| objects > 0) {
            view.rests(&self.sandbox).await;
        }
        Ok(())
    }

    async fn begin_engine(&mut self) -> Result<Option<View>, CommandFailure> {
        if self.args.bare {
            return Ok(None);
        }
        let path = self.directory.path().join("engine");
        config::write(&path, self.sandbox.inner_kubeconfig())?;
        let (engine, shown) =
            SandboxEngine::begin(&self.sandbox, &path, None, engine::Reached::ByAddress)?;
        self.engine = Some(engine);
        engine::connected(shown).await.map(Some)
    }

    /// Comes when the engine has ended without being asked to. Its webhooks would refuse what people write.
    async fn engine_fails(&mut self) -> CommandFailure {
        match &mut self.engine {
            Some(engine) => engine.fails().await,
            None => std::future::pending().await,
        }
        self.engine = None;
        Diagnostic::error("the engine has stopped: policies do not run any more")
            .hint("start `kiln up` again, and please report what it said")
            .into()
    }

    /// Waits until rules are at work; those that are not.
    async fn at_work(&self, view: Option<&View>) -> Vec<(ObjectId, String)> {
        match view {
            Some(view) => view.at_work(&self.sandbox).await,
            None => Vec::new(),
        }
    }

    /// Stores objects. One that is refused keeps no other out.
    async fn store(&mut self, items: &[&Item]) -> Result<(), CommandFailure> {
        for item in items {
            let (sandbox, object) = (Arc::clone(&self.sandbox), item.object.clone());
            let namespace = self.args.namespace.clone();
            // Webhooks take their time: signals are heard meanwhile.
            let stored =
                tokio::task::spawn_blocking(move || sandbox.apply(&object, &namespace)).await;
            let stored = stored
                .map_err(|error| Diagnostic::error(format!("cannot store an object: {error}")))?;
            if let Err(why) = stored {
                self.refused += 1;
                self.ui.problem(&item.refused(&why, &self.args.namespace));
            }
        }
        Ok(())
    }

    /// Serves Kiln Studio beside the sandbox, until the process ends.
    fn serve_studio(&self) -> Result<(), CommandFailure> {
        let (sandbox, namespace) = (Arc::clone(&self.sandbox), self.args.namespace.clone());
        let writer = move |write: ClusterWrite| -> Result<(), String> {
            let told = |refusal: kiln_sandbox::Refusal| refusal.message;
            match write {
                ClusterWrite::Apply(object) => {
                    sandbox.apply(&object, &namespace).map(drop).map_err(told)
                }
                ClusterWrite::Delete(id) => {
                    let object = value!({
                        "apiVersion": id.gvk.api_version(), "kind": id.gvk.kind.as_str(),
                        "metadata": {"name": id.name.as_str(), "namespace": id.namespace.as_str()},
                    });
                    sandbox.delete(&object, &namespace).map_err(told)
                }
            }
        };
        let connection = Connection::of_kubeconfig(self.kubeconfig.clone());
        let cluster = ServedCluster::sandbox(connection, Arc::new(writer));
        let studio = Studio { workspace: None, cluster: Some(Box::new(cluster)) };
        let server = StudioServer::start(SocketAddr::from(([127, 0, 0, 1], 0)), studio)?;
        say(&format!("Kiln Studio: {}", server.url()))
    }

    /// Tells that everything is ready; with a command only what is wrong, so that its output stays clean.
    fn tell_ready(&self, given: &Given, began: Instant) -> Result<(), CommandFailure> {
        let own = usize::from(self.args.demo);
        let (rules, objects) = (given.rules.len() - own, given.resources.len());
        let refused = counted(self.refused, "object was", "objects were");
        let refused = format!("{refused} refused");
        if !self.args.command.is_empty() {
            if self.refused > 0 {
                self.ui.status(&refused);
            }
            return Ok(());
        }
        let took = began.elapsed().as_millis();
        say(&format!("kiln up: https://{} is ready after {took} ms", self.sandbox.address()))?;
        say(&format!("  export KUBECONFIG={}", config::quoted(&self.kubeconfig)))?;
        say("  kubectl get all --all-namespaces")?;
        say("  kubectl create namespace team-a")?;
        if rules + objects > 0 {
            let given = format!(
                "{} and {}",
                counted(rules, "rule", "rules"),
                counted(objects, "object", "objects")
            );
            match self.refused {
                0 => say(&format!("stored {given}"))?,
                _ => say(&format!("of {given}, {refused}"))?,
            }
        }
        Ok(())
    }
}
