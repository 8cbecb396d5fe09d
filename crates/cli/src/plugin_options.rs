//! The options of `kiln build` and `kiln fn run` for plugins, and the host that runs them accordingly.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kiln_kustomize::BuildOptions;
use kiln_kustomize::local::{Confinement, Confiner, Local, ProgramLimits, Running};

use crate::args::parse_size;
use crate::commands::plugin_sandbox;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Plugins")]
pub(crate) struct PluginArgs {
    #[command(flatten)]
    functions: FunctionArgs,

    /// Let transformer plugins add, remove and rename objects
    #[arg(long)]
    unrestricted_transformers: bool,

    /// Run every plugin twice and compare the results
    #[arg(long)]
    check_plugins: bool,
}

/// Those that are about functions, too.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Plugins")]
pub(crate) struct FunctionArgs {
    /// Allow plugins
    #[arg(long)]
    enable_alpha_plugins: bool,

    /// Allow functions that are executables
    #[arg(long)]
    enable_exec: bool,

    /// Allow network access for plugins, and for containers that request it
    #[arg(long)]
    network: bool,

    /// Network of these containers, instead of the host's
    #[arg(long, value_name = "NAME")]
    network_name: Option<String>,

    /// Mount for containers (type=…,src=…,dst=…)
    #[arg(long, value_name = "MOUNT")]
    mount: Vec<String>,

    /// Environment variable for containers, as NAME=VALUE, or NAME for its current value
    #[arg(short, long, value_name = "VARIABLE")]
    env: Vec<String>,

    /// Run containers as the current user
    #[arg(long)]
    as_current_user: bool,

    /// Timeout of a plugin, with the suffix ms, s or m
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "60s")]
    plugin_timeout: Duration,

    /// Maximum output of a plugin, with the suffix K, M or G
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64M")]
    plugin_max_output: u64,

    /// Path that plugins may read, in addition to the kustomization's and the system's directories
    #[arg(long, value_name = "PATH")]
    plugin_read: Vec<PathBuf>,

    /// Path that plugins may read and write, in addition to the kustomization's directory
    #[arg(long, value_name = "PATH")]
    plugin_write: Vec<PathBuf>,

    /// Environment variable to pass to functions; to containers, if they request it
    #[arg(long, value_name = "NAME")]
    plugin_env: Vec<String>,

    /// Run plugins without the plugin sandbox
    #[arg(long)]
    no_plugin_sandbox: bool,
}

impl PluginArgs {
    /// What these options change in a build.
    pub(crate) fn set(&self, options: &mut BuildOptions) {
        self.functions.set(options);
        options.unrestricted_transformers = self.unrestricted_transformers;
        options.check_plugins = self.check_plugins;
    }

    /// The host that runs programs.
    pub(crate) fn programs(&self) -> Local {
        self.functions.programs(self.functions.enable_alpha_plugins)
    }
}

impl FunctionArgs {
    /// Whether functions may use the network.
    pub(crate) fn network(&self) -> bool {
        self.network
    }

    /// Whether functions may be programs.
    pub(crate) fn allows_programs(&self) -> bool {
        self.enable_exec
    }

    /// What these options change in a build.
    pub(crate) fn set(&self, options: &mut BuildOptions) {
        options.enable_plugins = self.enable_alpha_plugins;
        options.enable_exec = self.enable_exec;
        options.network = self.network;
        options.network_name.clone_from(&self.network_name);
        options.mounts.clone_from(&self.mount);
        options.environment.clone_from(&self.env);
        options.as_current_user = self.as_current_user;
        options.plugin_env.clone_from(&self.plugin_env);
    }

    /// The host that runs programs; `confine` if others than helm may run.
    pub(crate) fn programs(&self, confine: bool) -> Local {
        let (plugin_home, absent_plugin_homes) = plugin_home();
        Local {
            plugin_home,
            absent_plugin_homes,
            group_plugin_homes: group_plugin_homes(),
            limits: ProgramLimits { time: self.plugin_timeout, output: self.plugin_max_output },
            confinement: self.confinement(confine),
            running: Running::default(),
        }
    }

    fn confinement(&self, confine: bool) -> Confinement {
        if self.no_plugin_sandbox || !confine {
            return Confinement::Open;
        }
        let (Ok(kiln), Some(not_held)) = (std::env::current_exe(), plugin_sandbox::not_held())
        else {
            return Confinement::Missing(
                "this system cannot keep plugins from files outside of their kustomization, from sockets or from the network"
                    .to_owned(),
            );
        };
        let here = std::env::current_dir().unwrap_or_default();
        // Links count as they are now: a plugin that leads one elsewhere gains nothing.
        let all = |paths: &[PathBuf]| -> Vec<PathBuf> {
            let named = paths.iter().map(|path| here.join(path));
            named.map(|path| path.canonicalize().unwrap_or(path)).collect()
        };
        Confinement::Through(Confiner {
            command: vec![kiln.into(), plugin_sandbox::NAME.into()],
            read: all(&self.plugin_read),
            write: all(&self.plugin_write),
            variables: self.plugin_env.clone(),
            network: self.network,
            not_held,
        })
    }
}

fn below(variable: &str, path: &str) -> Option<String> {
    let directory = std::env::var(variable).ok().filter(|directory| !directory.is_empty())?;
    // Plugins run in other directories than this one.
    let directory = std::path::absolute(format!("{directory}{path}")).ok()?;
    directory.to_str().map(str::to_owned)
}

/// Where kustomize looks for exec plugins, the first that exists, and those before it that do not.
fn plugin_home() -> (Option<String>, Vec<String>) {
    let homes = [
        below("KUSTOMIZE_PLUGIN_HOME", ""),
        below("XDG_CONFIG_HOME", "/kustomize/plugin"),
        below("HOME", "/.config/kustomize/plugin"),
        below("HOME", "/kustomize/plugin"),
    ];
    let mut absent = Vec::new();
    for home in homes.into_iter().flatten() {
        if Path::new(&home).is_dir() {
            return (Some(home), absent);
        }
        absent.push(home);
    }
    (None, absent)
}

/// Where executables named after API groups lie.
fn group_plugin_homes() -> Vec<String> {
    [below("XDG_CONFIG_HOME", "/kustomize/plugins"), below("HOME", "/.config/kustomize/plugins")]
        .into_iter()
        .flatten()
        .collect()
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[number.len()..] {
        "ms" => Some(1),
        "" | "s" => Some(1000),
        "m" => Some(60_000),
        _ => None,
    };
    number
        .parse::<u32>()
        .ok()
        .zip(unit)
        .filter(|(count, _)| *count > 0)
        .map(|(count, unit)| Duration::from_millis(u64::from(count) * unit))
        .ok_or_else(|| {
            "a time is a number of seconds, or one with the suffix ms, s or m".to_owned()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_suffixes() {
        for (text, milliseconds) in [("1", 1000), ("250ms", 250), ("60s", 60_000), ("2m", 120_000)]
        {
            assert_eq!(parse_time(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "s", "0", "-1s", "1.5s", "1h", "99999999999"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
