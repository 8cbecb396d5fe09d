//! `kustomize cfg cat|count|grep|tree` and `kustomize fn run`: documents with their comments and styles, printed,
//! counted, searched and handed to functions.
//!
//! ```text
//! stream or directory ── read ──▶ nodes, with where they come from in annotations
//!                                │
//!            local-config, format, comments, search, functions
//!                                │
//!                                ▼
//!                         text, counts, a tree, files
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `stream` | texts to nodes and back, lists unwrapped |
//! | `package` | directories: which files count, and packages in packages |
//! | `meta` | what kyaml keeps in annotations |
//! | `matching` | paths through nodes |
//! | `format` | the order of fields |
//! | `search`, `tree` | `grep`, `tree` |
//! | `functions`, `function_output` | `fn run` |

mod format;
mod function_output;
mod functions;
mod matching;
mod meta;
mod package;
mod search;
mod stream;
mod tree;

use std::collections::BTreeMap;

use kiln_yaml::{Node, NodeStyle};

pub use functions::{Files, FunctionRun, FunctionsFrom};
pub use search::Search;
pub use tree::{Structure, Tree};

use crate::error::{Error, Result};
use crate::load::fs::FileSystem;
use meta::{PATH, Pipeline};
use package::Packages;
use stream::NodeOutput;

/// Where documents come from.
#[derive(Clone, Copy)]
pub enum From<'a> {
    /// What was read from standard input.
    Stream(&'a [u8]),
    /// A directory or a file, as it was typed.
    Directory {
        /// As it was typed.
        path: &'a str,
        /// Whether packages in it (directories with a `Krmfile`) count, too.
        recurse: bool,
    },
}

/// The commands, over these files.
#[derive(Clone, Copy)]
pub struct Config<'a> {
    pub files: &'a dyn FileSystem,
    /// What relative paths begin at.
    pub working_directory: &'a str,
    /// The largest file that is read, in bytes.
    pub max_file_size: usize,
}

/// Which objects count: those that are only for tools have the annotation `config.kubernetes.io/local-config`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Local {
    /// Those, too.
    pub include: bool,
    /// Leaves out all objects without the annotation.
    pub exclude_others: bool,
}

impl Local {
    fn keeps(self, node: &Node) -> bool {
        let is_local = meta::annotation(node, crate::model::annotations::LOCAL_CONFIG).is_some();
        if is_local { self.include } else { !self.exclude_others }
    }
}

/// `cfg cat`.
#[derive(Clone, Debug, Default)]
pub struct Cat {
    /// Leave the order of fields as it is.
    pub unformatted: bool,
    /// Say in annotations where each object comes from.
    pub annotate: bool,
    /// Wrap everything in a list of this kind.
    pub wrap_kind: String,
    /// The version of that list.
    pub wrap_version: String,
    /// The file with the configuration to put in the list.
    pub function_config: Option<String>,
    /// How to write each object.
    pub styles: Vec<String>,
    /// Without comments.
    pub strip_comments: bool,
    /// Which objects.
    pub local: Local,
}

impl Config<'_> {
    /// Prints objects.
    ///
    /// # Errors
    /// When something cannot be read.
    pub fn cat(&self, from: From<'_>, options: &Cat) -> Result<String> {
        let clear: &[&str] = if options.annotate { &[] } else { &[meta::LEGACY_PATH, PATH] };
        let written = NodeOutput {
            keep_annotations: options.annotate,
            clear,
            wrap: (!options.wrap_kind.is_empty())
                .then_some((options.wrap_kind.as_str(), options.wrap_version.as_str())),
            function_config: self.function_config(options)?,
            style: style(&options.styles),
        };
        self.printed(from, |nodes| {
            let mut pipeline = Pipeline::of(nodes);
            pipeline.filter(|nodes| {
                nodes.retain(|node| options.local.keeps(node));
                Ok(())
            })?;
            if !options.unformatted {
                pipeline.filter(|nodes| nodes.iter_mut().try_for_each(format::format))?;
            }
            if options.strip_comments {
                pipeline.filter(|nodes| {
                    nodes.iter_mut().for_each(|node| node.root_mut().strip_comments());
                    Ok(())
                })?;
            }
            pipeline.written(|nodes| stream::write(nodes, &written))
        })
    }

    fn function_config(&self, options: &Cat) -> Result<Option<Node>> {
        let Some(path) = &options.function_config else { return Ok(None) };
        let mut packages = self.packages();
        packages.annotate = options.annotate;
        let mut found = packages.read(path)?;
        match (found.pop(), found.len()) {
            (Some(config), 0) => Ok(Some(config.root().clone())),
            (last, before) => Err(Error::new(format!(
                "expected exactly 1 functionConfig, found {}",
                before + usize::from(last.is_some())
            ))),
        }
    }

    /// Prints the objects that a search finds.
    ///
    /// # Errors
    /// When something cannot be read or compared.
    pub fn grep(&self, from: From<'_>, search: &Search, annotate: bool) -> Result<String> {
        let written = NodeOutput { keep_annotations: annotate, ..NodeOutput::default() };
        self.printed(from, |nodes| {
            let mut pipeline = Pipeline::of(nodes);
            pipeline.filter(|nodes| search.keep(nodes))?;
            pipeline.written(|nodes| stream::write(nodes, &written))
        })
    }

    /// Counts objects: for each kind, or all together.
    ///
    /// # Errors
    /// When something cannot be read.
    pub fn count(&self, from: From<'_>, by_kind: bool) -> Result<String> {
        let count = |nodes: &[Node]| {
            if !by_kind {
                return format!("{}\n", nodes.len());
            }
            let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
            for node in nodes {
                *kinds.entry(meta::kind(node)).or_default() += 1;
            }
            kinds.iter().map(|(kind, count)| format!("{kind}: {count}\n")).collect()
        };
        let (path, recurse) = match from {
            From::Stream(bytes) => return Ok(count(&self.stream(bytes)?)),
            From::Directory { path, recurse } => (path, recurse),
        };
        let mut parts = Vec::new();
        for package in self.packages().in_directory(path, recurse)? {
            let nodes = self.packages().read_one(&package)?;
            parts.push(format!("{package}/\n{}", count(&nodes)));
        }
        Ok(parts.join("\n"))
    }

    /// Shows objects as a tree.
    ///
    /// # Errors
    /// When something cannot be read, or an owner is missing.
    pub fn tree(&self, from: From<'_>, tree: &Tree, local: Local) -> Result<String> {
        let (nodes, root) = match from {
            From::Stream(bytes) => (self.stream(bytes)?, "."),
            From::Directory { path, .. } => (self.packages().read(path)?, path),
        };
        let root = crate::load::paths::clean(root);
        let mut pipeline = Pipeline::of(nodes);
        pipeline.filter(|nodes| {
            nodes.retain(|node| local.keeps(node));
            Ok(())
        })?;
        let is_package = |directory: &str| {
            let directory = crate::load::paths::join(&root, directory);
            self.packages().is_package(&directory)
        };
        pipeline.written(|nodes| tree.show(nodes, &root, &is_package))
    }

    /// Prints what becomes of one stream, or of each package of a directory.
    fn printed(
        &self,
        from: From<'_>,
        print: impl Fn(Vec<Node>) -> Result<String>,
    ) -> Result<String> {
        let (path, recurse) = match from {
            From::Stream(bytes) => return print(self.stream(bytes)?),
            From::Directory { path, recurse } => (path, recurse),
        };
        let mut parts = Vec::new();
        for package in self.packages().in_directory(path, recurse)? {
            let mut text = print(self.packages().read_one(&package)?)?;
            if !text.is_empty() {
                text.push_str("---");
            }
            parts.push(text);
        }
        let all = parts.join("\n");
        Ok(all.strip_suffix("---").map_or(all.clone(), str::to_owned))
    }

    fn stream(&self, bytes: &[u8]) -> Result<Vec<Node>> {
        stream::read(
            "standard input",
            bytes,
            &stream::Reading {
                unwrap: true,
                limit: self.max_file_size,
                ..stream::Reading::default()
            },
        )
        .map(|read| read.nodes)
    }

    fn packages(&self) -> Packages<'_> {
        Packages { config: self, annotate: true, json: false }
    }
}

fn style(names: &[String]) -> NodeStyle {
    let mut style = NodeStyle::default();
    for name in names {
        style = style.with(match name.as_str() {
            "TaggedStyle" => NodeStyle::TAGGED,
            "DoubleQuotedStyle" => NodeStyle::DOUBLE_QUOTED,
            "SingleQuotedStyle" => NodeStyle::SINGLE_QUOTED,
            "LiteralStyle" => NodeStyle::LITERAL,
            "FoldedStyle" => NodeStyle::FOLDED,
            "FlowStyle" => NodeStyle::FLOW,
            _ => NodeStyle::default(),
        });
    }
    style
}
