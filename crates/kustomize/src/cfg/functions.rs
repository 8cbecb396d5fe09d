//! `fn run`: hands the objects of a directory or a stream to functions, and reads their results.
//!
//! The functions run as those of kustomizations do ([`crate::plugins`]), from the working directory.

use std::collections::BTreeMap;

use kiln_diagnostic::{Diagnostic, Severity};
use kiln_value::Value;
use kiln_yaml::{Node, YamlLimits};

use super::function_output::take_over;
use super::meta::{self, ID, INDEX, LEGACY_ID, LEGACY_PATH, PATH, Pipeline};
use super::package::Packages;
use super::stream::{self, NodeOutput};
use super::{Config, From};
use crate::build::session::Session;
use crate::error::{Error, Result};
use crate::load::loader::LoadRestrictions;
use crate::load::paths;
use crate::plugins::PluginFunction;
use crate::{Build, Failed};

/// What to run, and over what.
#[derive(Clone, Copy)]
pub struct FunctionRun<'a> {
    /// The objects.
    pub from: From<'a>,
    pub functions: &'a FunctionsFrom,
    /// Whether functions see all objects, not only those of their own directory.
    pub global_scope: bool,
    /// Whether to print the result instead of writing files.
    pub print: bool,
    /// Whether functions that files declare may be containers.
    pub containers: bool,
    /// Whether to say which function runs.
    pub log_steps: bool,
}

/// Where functions come from.
#[derive(Clone, Debug)]
pub enum FunctionsFrom {
    /// The objects that declare one in an annotation.
    Input,
    /// The files of these directories.
    Directories(Vec<String>),
    Program(String, Vec<String>),
    /// This image; whether it may use the network; the words that configure it.
    Image(String, bool, Vec<String>),
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Files {
    /// What to print, if that was asked for.
    pub printed: Option<String>,
    /// Files to write, by their paths in the directory.
    pub write: BTreeMap<String, String>,
    /// Files whose objects are all gone.
    pub delete: Vec<String>,
    /// What functions reported, by their number.
    pub results: Vec<(usize, String)>,
    /// Functions that failed and were allowed to.
    pub failed: Vec<Error>,
    /// What was odd, but no error.
    pub warnings: Vec<Diagnostic>,
}

impl Build<'_> {
    /// Runs functions over documents.
    ///
    /// # Errors
    /// When something cannot be read, a function fails, or what it made cannot be written where it says.
    pub fn run_functions(&self, run: &FunctionRun<'_>) -> std::result::Result<Files, Box<Failed>> {
        let session = self.session();
        let config = Config {
            files: self.files,
            working_directory: &self.options.working_directory,
            max_file_size: self.options.max_file_size,
        };
        match run_all(run, &config, &session) {
            Ok(mut files) => {
                files.warnings = session.take_warnings();
                Ok(files)
            }
            Err(error) => Err(Box::new(Failed { error, warnings: session.take_warnings() })),
        }
    }
}

fn run_all(run: &FunctionRun<'_>, config: &Config<'_>, session: &Session<'_>) -> Result<Files> {
    let packages = Packages { config, annotate: true, json: true };
    let nodes = match run.from {
        From::Stream(bytes) => config.stream(bytes)?,
        From::Directory { path, .. } => packages.read(path)?,
    };
    let before: Vec<String> = nodes.iter().map(|node| meta::path(node).to_owned()).collect();
    let mut files = Files::default();
    let mut pipeline = Pipeline::of(nodes);
    let declared = declarations(run, config, pipeline.nodes())?;
    for declaration in &declared {
        let Some(function) = function(declaration, run, config, session)? else { continue };
        let Some(shown) = function.to_run() else { continue };
        if run.log_steps {
            session.warn(Diagnostic::new(Severity::Note, format!("Running {shown}")));
        }
        let explicit = !matches!(run.functions, FunctionsFrom::Input);
        let scope = if explicit || run.global_scope { "" } else { scope(declaration) };
        let number = files.results.len();
        pipeline.filter(|nodes| {
            let ran = hand_over(nodes, scope, declaration, &function, config, session)?;
            files.failed.extend(ran.failed);
            files.results.extend(ran.results.map(|results| (number, results)));
            Ok(())
        })?;
    }
    let root = match run.from {
        From::Directory { path, .. } if !run.print => path,
        _ => {
            let text = pipeline.written(|nodes| stream::write(nodes, &NodeOutput::default()))?;
            files.printed = Some(text);
            return Ok(files);
        }
    };
    let ended = pipeline.has_ended();
    files.write = pipeline.written(|nodes| by_file(nodes, root, config))?;
    if !ended {
        let gone = |path: &String| !path.is_empty() && !files.write.contains_key(path);
        files.delete = before.into_iter().filter(gone).collect();
        files.delete.dedup();
    }
    Ok(files)
}

/// The objects that declare functions, in the order in which these run.
fn declarations(run: &FunctionRun<'_>, config: &Config<'_>, nodes: &[Node]) -> Result<Vec<Node>> {
    let directories = match run.functions {
        FunctionsFrom::Program(path, words) => {
            return Ok(vec![typed(&format!("exec: {{path: {}}}\n", quoted(path)), words)?]);
        }
        FunctionsFrom::Image(image, network, words) => {
            let network = if *network { ", network: true" } else { "" };
            let how = format!("container: {{image: {}{network}}}\n", quoted(image));
            return Ok(vec![typed(&how, words)?]);
        }
        FunctionsFrom::Directories(directories) => directories,
        FunctionsFrom::Input => {
            let mut found: Vec<Node> =
                nodes.iter().filter(|node| declares(node)).cloned().collect();
            // Those of deeper directories run first.
            found.sort_by_key(|node| {
                let directory = scope(node);
                let depth = if directory == "." { 0 } else { directory.split('/').count() };
                let index = meta::annotation(node, INDEX).and_then(|index| index.parse().ok());
                let file = meta::path(node).to_owned();
                (std::cmp::Reverse(depth), directory.to_owned(), file, index.unwrap_or(0_usize))
            });
            return Ok(found);
        }
    };
    let packages = Packages { config, annotate: true, json: false };
    let mut found = Vec::new();
    for directory in directories {
        found.extend(packages.read(directory)?.into_iter().filter(declares));
    }
    Ok(found)
}

fn quoted(text: &str) -> String {
    kiln_yaml::emit(&Value::from(text)).trim_end().to_owned()
}

/// Whether an object says that it is a function's configuration.
fn declares(node: &Node) -> bool {
    let annotated = [
        "config.kubernetes.io/function",
        "config.k8s.io/function",
        "config.kubernetes.io/container",
    ];
    let in_metadata = || Some(node.root().get("metadata")?.get("configFn")?.is_null());
    annotated.iter().any(|key| meta::annotation(node, key).is_some_and(|text| !text.is_empty()))
        || in_metadata() == Some(false)
}

/// The configuration of a function that was typed: a kind, and then names with values.
fn typed(how: &str, words: &[String]) -> Result<Node> {
    let source = kiln_diagnostic::Source::new(
        "",
        "metadata:\n  name: function-input\ndata: {}\n".to_owned(),
    );
    let read = kiln_yaml::read_nodes(&source.into(), &YamlLimits::default());
    let mut node = read.ok().flatten().unwrap_or_default();
    let mut kind = "ConfigMap";
    for (at, word) in words.iter().enumerate() {
        match word.split_once('=') {
            Some((key, value)) => {
                if let Some(data) = node.root_mut().get_mut("data") {
                    data.remove(key);
                    data.push(key, Node::scalar(value));
                }
            }
            None if at == 0 => kind = word,
            None => {
                return Err(Error::new("args must have keys and values separated by =").hint(
                    format!(
                        "{word} has no value: write NAME=VALUE, only the first word may be a kind"
                    ),
                ));
            }
        }
    }
    let root = node.root_mut();
    let mut annotations = Node::map();
    annotations.push("config.kubernetes.io/function", Node::scalar(how));
    if let Some(metadata) = root.get_mut("metadata") {
        metadata.push("annotations", annotations);
    }
    root.push("kind", Node::scalar(kind));
    root.push("apiVersion", Node::scalar("v1"));
    Ok(node)
}

fn function(
    declaration: &Node,
    run: &FunctionRun<'_>,
    config: &Config<'_>,
    session: &Session<'_>,
) -> Result<Option<PluginFunction>> {
    // A program that a user types is trusted, wherever it lies.
    let typed = matches!(run.functions, FunctionsFrom::Program(..) | FunctionsFrom::Image(..));
    let restrictions = if typed { LoadRestrictions::None } else { LoadRestrictions::RootOnly };
    let root = session.files.top("", config.working_directory, restrictions)?;
    PluginFunction::declared(&stream::value(declaration)?, &root, typed || run.containers, session)
}

/// The directory whose objects a function sees: its own, or the one above a directory `functions`.
fn scope(declaration: &Node) -> &str {
    let path = meta::path(declaration);
    let directory = |path: &'_ str| path.rfind('/').unwrap_or(0);
    match &path[..directory(path)] {
        "" | "functions" => ".",
        own if paths::base(own) == "functions" => &own[..directory(own)],
        own => own,
    }
}

#[derive(Default)]
struct HandedBack {
    failed: Option<Error>,
    results: Option<String>,
}

/// Hands objects to a function, and takes in what it writes.
fn hand_over(
    nodes: &mut Vec<Node>,
    scope: &str,
    declaration: &Node,
    function: &PluginFunction,
    config: &Config<'_>,
    session: &Session<'_>,
) -> Result<HandedBack> {
    let everything = scope.is_empty() || scope == ".";
    let sees = |node: &Node| {
        everything || !meta::path(node).is_empty() && paths::is_within(self::scope(node), scope)
    };
    let (mut seen, others): (Vec<Node>, Vec<Node>) = nodes.drain(..).partition(sees);
    for (at, node) in seen.iter_mut().enumerate() {
        let id = (at + 1).to_string();
        meta::set_annotation(node, ID, &id)?;
        meta::set_annotation(node, LEGACY_ID, &id)?;
    }
    let written = NodeOutput {
        keep_annotations: true,
        wrap: Some(("ResourceList", "config.kubernetes.io/v1")),
        function_config: Some(declaration.root().clone()),
        ..NodeOutput::default()
    };
    let input = stream::write(seen.clone(), &written)?;
    let Some(ran) = function.run(input.into_bytes(), session)? else {
        nodes.extend(seen.into_iter().chain(others));
        return Ok(HandedBack::default());
    };
    let reading =
        stream::Reading { unwrap: true, limit: config.max_file_size, ..stream::Reading::default() };
    let read = stream::read("the output of a function", &ran.output, &reading)
        .map_err(|error| error.context(function.what()).nowhere())?;
    if let Some(results) = &read.results
        && let Value::List(results) = stream::value(results)?
    {
        for result in &results {
            session.warn(function.shown(result));
        }
    }
    let mut made = read.nodes;
    for node in &mut made {
        let id = meta::annotation(node, ID).or_else(|| meta::annotation(node, LEGACY_ID));
        let id = id.and_then(|id| id.parse::<usize>().ok()).and_then(|id| id.checked_sub(1));
        if let Some(old) = id.and_then(|id| seen.get(id)) {
            take_over(old, node);
            meta::clear_annotation(node, ID);
            meta::clear_annotation(node, LEGACY_ID);
        }
        give_path(node, if everything { "" } else { scope })?;
    }
    nodes.extend(made.into_iter().chain(others));
    Ok(HandedBack { failed: ran.failed, results: read.results.as_ref().map(kiln_yaml::emit_node) })
}

/// Says in which file something belongs that comes from none.
fn give_path(node: &mut Node, directory: &str) -> Result<()> {
    meta::copy_legacy(node)?;
    if meta::annotation(node, PATH).is_some() {
        return Ok(());
    }
    let file = format!("{}_{}.yaml", meta::kind(node).to_lowercase(), meta::name(node));
    let parts = [directory, meta::namespace(node), &file];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let path = paths::clean(&parts.join("/"));
    meta::set_annotation(node, PATH, &path)?;
    meta::set_annotation(node, LEGACY_PATH, &path)
}

/// The texts of files, by their paths.
fn by_file(
    mut nodes: Vec<Node>,
    root: &str,
    config: &Config<'_>,
) -> Result<BTreeMap<String, String>> {
    let root = paths::absolute(config.working_directory, root);
    let found = config.files.resolve(&root).map_err(|error| Error::new(error.to_string()))?;
    let directory = if found.is_directory { &found.path } else { paths::parent(&found.path) };
    let mut files: BTreeMap<String, Vec<(usize, Node)>> = BTreeMap::new();
    let mut next: BTreeMap<String, usize> = BTreeMap::new();
    for node in &mut nodes {
        give_path(node, "")?;
        let index = meta::annotation(node, INDEX).and_then(|index| index.parse::<usize>().ok());
        let last = next.entry(paths::clean(meta::path(node))).or_default();
        *last = (*last).max(index.unwrap_or(0));
    }
    for node in nodes {
        check_path(meta::path(&node), directory, config)?;
        let path = paths::clean(meta::path(&node));
        let index = meta::annotation(&node, INDEX).and_then(|index| index.parse::<usize>().ok());
        let index = index.unwrap_or_else(|| {
            let next = next.entry(path.clone()).or_default();
            *next += 1;
            *next - 1
        });
        files.entry(path).or_default().push((index, node));
    }
    let mut texts = BTreeMap::new();
    for (path, mut nodes) in files {
        nodes.sort_by_key(|(index, _)| *index);
        let nodes = nodes.into_iter().map(|(_, node)| node).collect();
        let written = NodeOutput { clear: &[PATH, LEGACY_PATH], ..NodeOutput::default() };
        let text = stream::write(nodes, &written)?;
        texts.insert(path, text);
    }
    Ok(texts)
}

/// What a function names as a file has to be one of the directory.
fn check_path(path: &str, directory: &str, config: &Config<'_>) -> Result<()> {
    if path.starts_with('/') {
        return Err(Error::new(format!("package paths may not be absolute paths: {path}")));
    }
    let clean = paths::clean(path);
    if clean.split('/').any(|part| part == "..") || clean == "." {
        return Err(Error::new(format!(
            "resource must be written under package {directory}: {clean}"
        )));
    }
    // Each part that is there has to be what it seems: a link may lead anywhere.
    let mut part = directory.to_owned();
    for name in clean.split('/') {
        part = format!("{part}/{name}");
        match config.files.resolve(&part) {
            Ok(found) if found.path != part => {
                return Err(Error::new(format!("cannot write {clean}: {part} is a link")));
            }
            Ok(found) if found.is_directory && part == format!("{directory}/{clean}") => {
                return Err(Error::new(format!(
                    "config.kubernetes.io/path cannot be a directory: {path}"
                )));
            }
            _ => {}
        }
    }
    Ok(())
}
