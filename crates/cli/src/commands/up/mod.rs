//! `kiln up`

mod demo;
mod limits;

use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use kiln_apiserver::{Authorization, Request};
use kiln_diagnostic::Diagnostic;
use kiln_install::Grant;
use kiln_sandbox::{Options, Sandbox};
use kiln_value::Value;
use kiln_yaml::ReadOptions;

use crate::args::{Format, Global};
use crate::exit::{CommandResult, Failure, Outcome};
use crate::input;
use crate::ui::{Ui, counted};

/// How long the engine may take to register its webhooks before resources are stored.
const REGISTERS: Duration = Duration::from_secs(10);

/// Start a sandbox cluster that kubectl speaks to, with rules at work inside
///
/// One process on this machine: an API server that keeps its objects in memory, and what `kiln run` does. There are
/// no nodes: pods are stored and stay Pending. It is for development and tests; for production there is Kubernetes.
///
/// A kubeconfig is written, and the commands to go on with are printed. Ctrl-C stops it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files or folders with rules, stored before anything else
    #[arg(value_name = "RULES")]
    rules: Vec<String>,

    /// Files or folders with objects to store when the rules are at work
    #[arg(long = "resource", short = 'r', value_name = "FILES", num_args = 1..)]
    resources: Vec<String>,

    /// Keep objects in this folder across restarts
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// Load an example, and tell what happens as it happens
    #[arg(long)]
    demo: bool,

    /// Print what the sandbox does not do, and end
    #[arg(long)]
    limits: bool,

    /// How permissions are decided
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Permissions::AlwaysAllow)]
    authorization: Permissions,

    /// The address to listen on; port 0 takes any that is free
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// Where the kubeconfig is written; otherwise into --data, or a folder for temporary files
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The namespace of the kubeconfig's context
    #[arg(long, value_name = "NAME", default_value = "default")]
    namespace: String,

    /// Only the API server, without the engine
    #[arg(long)]
    bare: bool,

    /// What is logged to standard error: error, warn, info, debug
    #[arg(long, value_name = "LEVEL", default_value = "error", env = "KILN_LOG")]
    log: String,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Permissions {
    /// Everybody may do everything
    AlwaysAllow,
    /// By the stored roles and bindings
    Rbac,
}

pub(crate) fn run(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    ui.has_forms(&[Format::Text])?;
    if args.limits {
        let mut out = ui.stdout();
        out.write_all(limits::TEXT.as_bytes())?;
        out.flush()?;
        return Ok(Outcome::Done);
    }
    kiln_live::logs(&args.log, false)
        .map_err(|problem| Diagnostic::error(format!("--log {:?}: {problem}", args.log)))?;
    if !args.listen.ip().is_loopback() {
        return Err(Diagnostic::error(format!(
            "{} is not an address of this machine alone",
            args.listen
        ))
        .hint("the sandbox is for development: listen on 127.0.0.1")
        .into());
    }
    let rules = documents(&args.rules, global)?;
    let resources = documents(&args.resources, global)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Diagnostic::error(format!("cannot begin: {error}")))?;
    let outcome = runtime.block_on(serve(args, &rules, &resources));
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

/// The objects in files and folders.
fn documents(paths: &[String], global: &Global) -> Result<Vec<Value>, Failure> {
    let mut objects = Vec::new();
    for path in paths {
        for file in input::expand(path)? {
            let read = input::read(&file, global.max_input_size)?;
            for document in
                kiln_yaml::read_bytes(&read.name, &read.bytes, ReadOptions::kubernetes())?
            {
                let value = document.into_value();
                match value.get("items").and_then(Value::as_list) {
                    Some(items) => objects.extend(items.iter().cloned()),
                    None if value.is_null() => {}
                    None => objects.push(value),
                }
            }
        }
    }
    Ok(objects)
}

/// Says something, at once: whoever waits for the line may start.
fn say(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()?;
    Ok(())
}

async fn serve(args: &Args, rules: &[Value], resources: &[Value]) -> CommandResult {
    let began = Instant::now();
    let options = Options {
        listen: args.listen,
        data: args.data.clone(),
        authorization: match args.authorization {
            Permissions::AlwaysAllow => Authorization::AlwaysAllow,
            Permissions::Rbac => Authorization::Rbac,
        },
        namespace: args.namespace.clone(),
    };
    let sandbox = Sandbox::start(&options)
        .await
        .map_err(|problem| Diagnostic::error(problem).hint("choose another --listen or --data"))?;
    let ready = began.elapsed();
    let path = kubeconfig_path(args)?;
    write_secret(&path, sandbox.kubeconfig())?;
    say(&format!(
        "kiln up: https://{} is ready after {} ms",
        sandbox.address(),
        ready.as_millis()
    ))?;
    say(&format!("  export KUBECONFIG={}", path.display()))?;
    say("  kubectl get all --all-namespaces")?;
    say("  kubectl create namespace shop")?;
    let engine = if args.bare { None } else { Some(begin_engine(&sandbox, &path)?) };
    store(&sandbox, rules, &args.namespace)?;
    if engine.is_some() && (args.demo || !rules.is_empty()) {
        store(&sandbox, &demo::rules(args.demo), &args.namespace)?;
        registered(&sandbox).await;
    }
    store(&sandbox, resources, &args.namespace)?;
    if !rules.is_empty() || !resources.is_empty() {
        let (rules, objects) =
            (counted(rules.len(), "rule", "rules"), counted(resources.len(), "object", "objects"));
        say(&format!("stored {rules} and {objects}"))?;
    }
    if args.demo {
        demo::narrate(&sandbox, say).await?;
    }
    say("Ctrl-C stops it. What it does not do: kiln up --limits")?;
    told_to_end().await;
    if let Some((end, engine)) = engine {
        let _ = end.send(());
        let _ = tokio::time::timeout(Duration::from_secs(2), engine).await;
    }
    sandbox.stop().await;
    if args.kubeconfig.is_none() && args.data.is_none() {
        let _ = path.parent().map(fs::remove_dir_all);
    }
    Ok(Outcome::Done)
}

type Engine = (tokio::sync::oneshot::Sender<()>, tokio::task::JoinHandle<()>);

/// What `kiln run` does, in this process, at this server.
fn begin_engine(sandbox: &Sandbox, kubeconfig: &Path) -> Result<Engine, Failure> {
    let needed = kiln_install::manifests(&kiln_install::Options {
        workload: false,
        grant: Grant::Standard,
        ..kiln_install::Options::default()
    });
    store(sandbox, &needed, "kyverno")?;
    // The port is free now, and taken a moment later.
    let free =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    let listen = free.map_err(|error| Diagnostic::error(format!("no port is free: {error}")))?;
    let options = kiln_live::Options {
        kubeconfig: Some(kubeconfig.to_path_buf()),
        listen,
        webhook_url: Some(format!("https://{listen}")),
        ..kiln_live::Options::default()
    };
    let (end, ended) = tokio::sync::oneshot::channel();
    let engine = tokio::spawn(async move {
        let ended = async move {
            let _ = ended.await;
        };
        if let Err(error) = kiln_live::run(options, ended).await {
            let _ = writeln!(std::io::stderr(), "the engine ended: {error}");
        }
    });
    Ok((end, engine))
}

fn store(sandbox: &Sandbox, objects: &[Value], namespace: &str) -> Result<(), Failure> {
    let mut problems = Vec::new();
    for object in objects {
        if let Err(why) = sandbox.apply(object, namespace) {
            let what = kiln_object::identity::describe(object);
            problems.push(Diagnostic::error(format!("{what} cannot be stored: {why}")));
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.into()) }
}

/// Waits until the engine is asked about what is stored.
async fn registered(sandbox: &Sandbox) {
    let began = Instant::now();
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    while began.elapsed() < REGISTERS {
        let list = sandbox.send(Request::new("GET", path)).value();
        let items = list.get("items").and_then(Value::as_list);
        if items.is_some_and(|items| {
            items.iter().any(|item| {
                item.str_at(["metadata", "name"]).is_some_and(|name| name.contains("resource"))
            })
        }) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn kubeconfig_path(args: &Args) -> Result<PathBuf, Failure> {
    if let Some(path) = &args.kubeconfig {
        return Ok(path.clone());
    }
    let folder = match &args.data {
        Some(data) => data.clone(),
        None => std::env::temp_dir().join(format!("kiln-up-{}", std::process::id())),
    };
    fs::create_dir_all(&folder)
        .and_then(|()| fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)))
        .map_err(|error| input::cannot("make", &folder.display().to_string(), &error))?;
    Ok(folder.join("kubeconfig"))
}

/// Writes what only this user may read.
fn write_secret(path: &Path, text: &str) -> Result<(), Failure> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let written = options.open(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| input::cannot("write", &path.display().to_string(), &error).into())
}

/// Comes when the process is told to end.
async fn told_to_end() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}
