//! `kiln ui`

mod assets;
mod cluster;
mod health;
mod http;
mod server;

use std::io::Write as _;
use std::net::SocketAddr;

use kiln_diagnostic::Diagnostic;
use kiln_value::{Map, Value};

use crate::args::{Global, separated};
use crate::cluster::connection::Connection;
use crate::exit::{CommandFailure, CommandResult};
use crate::input::{self, Links};
use crate::interrupt;
use crate::ui::Ui;
pub(super) use cluster::{ClusterWrite, ServedCluster};
pub(super) use server::{Studio, StudioServer};

/// Open Kiln Studio: a playground for policies and a view of a cluster
///
/// Serves a web application on this machine and prints its address; open it in a browser. Policies and resources are
/// evaluated as you type, with results, diffs, traces and lineage; nothing is written to the files.
///
/// With --kubeconfig or --context it also shows that cluster, read only: objects, what rules made of them, and what
/// `kiln doctor` says. `kiln up --ui` shows a sandbox, which can be changed.
///
/// Only browsers of this machine that have the printed address are answered. Ctrl-C stops it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Policies: files or directories [default: an example]
    #[arg(value_name = "RULES")]
    rules: Vec<String>,

    /// Resources: files or directories; repeat or separate with commas
    #[arg(long, short, value_name = "FILES", visible_alias = "resources")]
    resource: Vec<String>,

    /// Objects that rules can read but that do not trigger them (clone sources, ConfigMaps)
    #[arg(long, value_name = "FILES", visible_alias = "target-resources")]
    target_resource: Vec<String>,

    /// File of kind Values, with values of the cluster or the request
    #[arg(long, short = 'f', value_name = "FILE")]
    values_file: Option<String>,

    /// Listen address; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// Namespace of the Kiln installation
    #[arg(long, value_name = "NAME", default_value = "kyverno", env = "KILN_NAMESPACE")]
    engine_namespace: String,

    #[command(flatten)]
    connection: Connection,
}

pub(crate) fn run(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    ui.has_formats_of("ui")?;
    let workspace = workspace(args, global)?;
    let cluster = match args.connection.is_given() {
        true => {
            let cluster = ServedCluster::live(args.connection.clone(), &args.engine_namespace);
            // Bad credentials are an error now, not in the page.
            cluster.connect()?;
            Some(cluster)
        }
        false => None,
    };
    let cluster = cluster.map(|cluster| -> Box<dyn server::ShownCluster> { Box::new(cluster) });
    let server = StudioServer::start(args.listen, Studio { workspace, cluster })?;
    let mut out = ui.stdout();
    writeln!(out, "Kiln Studio: {}", server.url())?;
    writeln!(out, "Ctrl-C stops it.")?;
    out.flush()?;
    drop(out);
    interrupt::before_ending(|| {})?;
    loop {
        std::thread::park();
    }
}

/// The files as the application has them; none when none are given.
fn workspace(args: &Args, global: &Global) -> Result<Option<Value>, CommandFailure> {
    let mut files = Vec::new();
    let mut add = |role: &'static str, paths: &[String]| -> Result<(), CommandFailure> {
        for path in paths {
            for file in input::expand(path, Links::Follow)? {
                let read = input::read(&file, global.max_input_size)?;
                let text = String::from_utf8(read.bytes).map_err(|_| {
                    Diagnostic::error(format!("{file} is not text")).hint("give YAML or JSON files")
                })?;
                files.push((file, role, text));
            }
        }
        Ok(())
    };
    add("policies", &args.rules)?;
    add("resources", &separated(&args.resource))?;
    add("cluster", &separated(&args.target_resource))?;
    add("values", args.values_file.as_slice())?;
    if files.is_empty() {
        return Ok(None);
    }
    let shared = shared_directory(files.iter().map(|(path, ..)| path.as_str()));
    let files = files.iter().map(|(path, role, text)| {
        let path = &path[shared..];
        Value::from(Map::from_iter([("path", path), ("role", *role), ("text", text.as_str())]))
    });
    Ok(Some(Value::from(Map::from_iter([("files", files.collect::<Value>())]))))
}

/// How much of their beginnings paths share, in whole directories: the application shows what tells files apart.
fn shared_directory<'p>(mut paths: impl Iterator<Item = &'p str>) -> usize {
    let directory = |path: &str| path.rfind('/').map_or(0, |at| at + 1);
    let Some(first) = paths.next() else { return 0 };
    paths.fold(directory(first), |shared, path| {
        let same = first.bytes().zip(path.bytes()).take_while(|(a, b)| a == b).count();
        directory(&first[..first.floor_char_boundary(same.min(shared))])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_directories_are_shared() {
        let shared = |paths: &[&str]| shared_directory(paths.iter().copied());
        assert_eq!(shared(&["/a/b/p.yaml", "/a/b/q.yaml"]), "/a/b/".len());
        assert_eq!(shared(&["/a/b1/p.yaml", "/a/b2/p.yaml"]), "/a/".len());
        assert_eq!(shared(&["/a/ö/p.yaml", "/a/ä/p.yaml"]), "/a/".len());
        assert_eq!(shared(&["p.yaml", "/a/p.yaml"]), 0);
        assert_eq!(shared(&["/a/p.yaml"]), "/a/".len());
        assert_eq!(shared(&[]), 0);
    }
}
