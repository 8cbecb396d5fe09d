//! How a function runs: what may run, what a container sees of the machine, and its command line.

use kiln_diagnostic::Diagnostic;

use super::{ContainerSpec, ExecSpec, FunctionRuntime, Mount, Spec, Who};
use crate::build::session::Session;
use crate::error::{Error, Result};
use crate::host::Argument;
use crate::load::loader::{LoadRestrictions, Root};

impl FunctionRuntime {
    /// Finds out how the function of a configuration object is to be run.
    pub(super) fn configured(
        spec: Spec,
        who: &Who,
        root: &Root,
        session: &Session<'_>,
    ) -> Result<Self> {
        let Spec { exec, mut container, .. } = spec;
        for mount in &mut container.mounts {
            mount.src = source(mount, who, root, session)?;
        }
        if !exec.path.is_empty() {
            return program(exec, who, root, session);
        }
        let image = &container.image;
        if image.is_empty() || image.starts_with('-') || image.contains(char::is_whitespace) {
            return Err(Error::new(format!(
                "the function {} names neither a program nor an image: '{image}'",
                who.id
            ))
            .hint("write exec.path or container.image in its annotation"));
        }
        refuse_variables(&container, who, session)?;
        match session.programs.container_runtime() {
            Some(runtime) => Ok(FunctionRuntime::Container { runtime, spec: container }),
            None => Err(Error::new(format!(
                "cannot run the function {} in a container: neither docker nor podman nor nerdctl is in PATH",
                who.id
            ))
            .hint("install one of them, or use a function that is a program")),
        }
    }
}

fn program(
    exec: ExecSpec,
    who: &Who,
    root: &Root,
    session: &Session<'_>,
) -> Result<FunctionRuntime> {
    if !session.options.enable_exec {
        let mut warning = Diagnostic::warning(format!(
            "the function {} was not run: programs are not allowed",
            who.id
        ))
        .hint("give --enable-exec to allow it");
        warning.place.clone_from(&who.place);
        session.warn(warning);
        return Ok(FunctionRuntime::NotAllowed);
    }
    // It runs under the name that was written, which some programs look at.
    let path = crate::load::paths::absolute(root.path(), &exec.path);
    match (session.files.within(root, &exec.path), root.restrictions()) {
        (Ok(Some(_)), _) => {
            Ok(FunctionRuntime::Program { exec: ExecSpec { path, ..exec }, elsewhere: None })
        }
        (Ok(None), LoadRestrictions::None) => {
            let elsewhere = session.files.system().resolve(&path).ok().map(|found| found.path);
            Ok(FunctionRuntime::Program { exec: ExecSpec { path, ..exec }, elsewhere })
        }
        (Ok(None), LoadRestrictions::RootOnly) => Err(Error::new(format!(
            "the program '{}' of the function {} is not in or below '{}'",
            exec.path,
            who.id,
            root.path()
        ))
        .hint(
            "copy it below the kustomization, or build with --load-restrictor LoadRestrictionsNone",
        )),
        (Err(error), _) => Err(error.context(format_args!(
            "cannot find the program '{}' of the function {}",
            exec.path, who.id
        ))),
    }
}

/// Refuses what a container runtime would fill in from the environment of the user who builds.
fn refuse_variables(container: &ContainerSpec, who: &Who, session: &Session<'_>) -> Result<()> {
    let allowed = &session.options.plugin_env;
    let asked = container.envs.iter().find(|text| !text.contains('=') && !allowed.contains(text));
    match asked {
        None => Ok(()),
        Some(name) => Err(Error::new(format!(
            "the function {} asks for your variable '{name}'",
            who.id
        ))
        .hint(format!(
            "write {name}=VALUE in its annotation, or build with --plugin-env {name} to give it yours"
        ))),
    }
}

/// What of the machine a mount shows, without links: something of the kustomization, or nothing.
fn source(mount: &Mount, who: &Who, root: &Root, session: &Session<'_>) -> Result<String> {
    let refused = |why: String| Error::new(format!("plugin {} with mount {why}", who.original_id));
    // Container runtimes read the fields of a mount as a line of CSV.
    for (field, text) in [("type", &mount.kind), ("src", &mount.src), ("dst", &mount.dst)] {
        if text.contains([',', '"']) || text.contains(char::is_control) {
            return Err(refused(format!("{field} {text:?} is not permitted"))
                .hint("commas, double quotes and control characters would say more than a mount says: rename the directory"));
        }
    }
    match mount.kind.as_str() {
        "bind" => {}
        "tmpfs" if mount.src.is_empty() => return Ok(String::new()),
        other => {
            return Err(refused(format!("type '{other}' is not permitted"))
                .hint("bind something below the kustomization, or give --mount to the build; a tmpfs has no src"));
        }
    }
    let cleaned = crate::load::paths::clean(&mount.src);
    let outside = |place: &str| {
        refused(format!(
            "path '{}' is not permitted; mount paths must be {place} the current kustomization directory",
            mount.src
        ))
    };
    if mount.src.starts_with('/') {
        return Err(outside("relative to"));
    }
    if cleaned == ".." || cleaned.starts_with("../") {
        return Err(outside("under"));
    }
    let resolved = session.files.within(root, &mount.src);
    let resolved = resolved.map_err(|error| refused(format!("path '{}': {error}", mount.src)))?;
    resolved.ok_or_else(|| outside("under").hint("it is a link that leads elsewhere"))
}

/// The words that run a container, as kustomize gives them to docker.
pub(super) fn run_arguments(spec: &ContainerSpec, session: &Session<'_>) -> Vec<Argument> {
    let options = session.options;
    let network = match &options.network_name {
        _ if !spec.network || !options.network => "none",
        None => "host",
        Some(name) => name,
    };
    let user = options.as_current_user.then(|| session.programs.user()).flatten();
    let user = user.unwrap_or_else(|| "nobody".to_owned());
    let mut words: Vec<Argument> =
        ["run", "--rm", "-i", "-a", "STDIN", "-a", "STDOUT", "-a", "STDERR", "--name"]
            .map(Argument::from)
            .to_vec();
    words.push(Argument::Name);
    words.extend(["--network", network, "--user", &user].map(Argument::from));
    words.push("--security-opt=no-new-privileges".into());
    if options.offline {
        words.push("--pull=never".into());
    }
    let mounts = spec.mounts.iter().map(|mount| {
        let source = match mount.src.as_str() {
            "" => String::new(),
            source => format!("source={source},"),
        };
        let mode = if mount.rw { "" } else { ",readonly" };
        format!("type={},{source}target={}{mode}", mount.kind, mount.dst)
    });
    for mount in mounts.chain(options.mounts.iter().cloned()) {
        words.extend(["--mount".into(), mount.into()]);
    }
    let fixed = ["LOG_TO_STDERR=true", "STRUCTURED_RESULTS=true"].map(str::to_owned);
    for variable in fixed.iter().chain(&options.environment).chain(&spec.envs) {
        words.extend(["-e".into(), variable.into()]);
    }
    words.push(spec.image.as_str().into());
    words
}
