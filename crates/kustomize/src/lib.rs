//! `kustomize build`: the same bytes, without the wait.
//!
//! ```text
//! kustomization.yaml ── load ──▶ resources ─▶ generators ─▶ components ─▶ transformers ─▶ vars
//!        ▲                           │                                                    │
//!        └───── each base, first ────┘              once at the end: hashes, references, ◀┘
//!                                                   vars, order, text
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `build/` | the flow above (`accumulate`, `steps`), the session, budgets, and what runs at the end (`name_reference`, `vars`) |
//! | `load/` | files confined to their root and the trees they come from ([`fs`]), the kustomization file as types, read as Go reads JSON (`decode`) |
//! | `model/` | documents to objects, their identity, history and index, what kustomize's nodes remember besides their value, and their text |
//! | `fields/` | which fields steps change, the way to them, and where they stand in files |
//! | `generators/`, `transformers/` | one file for each step |
//! | `plugins/` | steps configured as objects: built in, functions, programs |
//! | [`edit`] | changes to a kustomization file |
//! | `localize` | a copy with all that a kustomization names |
//! | [`cfg`] | documents printed, counted, searched, handed to functions, with their comments |
//! | `host` | what a build asks of its host ([`Fetch`], [`Programs`]) |
//! | `release` | what differs between releases of kustomize, as named fields |
//!
//! What kustomize keeps in annotations lies in [side tables](crate) here, objects are found by
//! hashed ids, and every document is parsed once and written once.
//!
//! ```
//! use kiln_kustomize::{Build, BuildOptions, fs::Memory};
//! let tree = Memory::new()
//!     .with("app/kustomization.yaml", "namePrefix: x-\nresources: [c.yaml]\n")
//!     .with("app/c.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n");
//! let output = Build::new(&tree, &BuildOptions::default()).run("/app").unwrap();
//! assert_eq!(output.yaml, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x-a\n");
//! ```

mod build;
pub mod cfg;
pub mod edit;
mod error;
mod fields;
mod generators;
mod host;
mod load;
pub mod local;
mod localize;
mod messages;
mod model;
mod plugins;
mod release;
mod transformers;

use std::time::Duration;

use kiln_diagnostic::Diagnostic;
use kiln_value::Value;

pub use build::explain::{Touch, What};
pub use build::stats::{Phase, Stats};
pub use error::{Error, Result};
pub use host::{Argument, ChartSource, Command, Exit, Fetch, Finished, Nothing, Programs, Trust};
pub use load::chart_directory::ChartDirectory;
pub use load::fs::{self, FileSystem};
pub use load::loader::LoadRestrictions;
pub use load::remote::Repository;
pub use localize::Localized;
pub use plugins::BUILTIN_PLUGINS;
pub use release::{DIFFERENCES, KustomizeVersion, ReleaseBehavior, ReleaseDifference};

/// The version of kustomize whose output this gives.
pub const KUSTOMIZE_VERSION: &str = "v5.8.2";

/// What the built-in schema says of itself.
pub const OPENAPI_INFO: &str = "{title:Kubernetes,version:v1.21.2}";

/// The flags of `kustomize build`.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// `--load-restrictor`.
    pub load_restrictions: LoadRestrictions,
    pub reorder: Reorder,
    /// `--enable-alpha-plugins`.
    pub enable_plugins: bool,
    pub enable_exec: bool,
    /// `--enable-helm`, and how.
    pub helm: Option<Helm>,
    /// `--enable-managedby-label`.
    pub managed_by_label: bool,
    /// `--network`, for functions in containers.
    pub network: bool,
    /// `--network-name`: the network of such a function that may use one, instead of the host's.
    pub network_name: Option<String>,
    /// `--mount`, for functions in containers.
    pub mounts: Vec<String>,
    /// `--env`, for functions in containers.
    pub environment: Vec<String>,
    /// `--as-current-user`, for functions in containers.
    pub as_current_user: bool,
    /// `--plugin-env`: the variables of the user that functions in containers may ask for.
    pub plugin_env: Vec<String>,
    /// `--offline`: whether nothing may be fetched, by programs either.
    pub offline: bool,
    /// Whether plugins named after API groups may add, remove and rename objects when they transform.
    pub unrestricted_transformers: bool,
    /// Whether to run plugins again and compare.
    pub check_plugins: bool,
    /// Where paths in messages begin; empty shows them whole.
    pub working_directory: String,
    /// Whether to record which step touched which object.
    pub explain: bool,
    /// The largest file that is read, in bytes.
    pub max_file_size: usize,
    /// `--as kustomize@VERSION`: what is done where releases differ.
    pub behavior: ReleaseBehavior,
}

impl Default for BuildOptions {
    fn default() -> Self {
        BuildOptions {
            load_restrictions: LoadRestrictions::default(),
            reorder: Reorder::default(),
            enable_plugins: false,
            enable_exec: false,
            helm: None,
            managed_by_label: false,
            network: false,
            network_name: None,
            mounts: Vec::new(),
            environment: Vec::new(),
            as_current_user: false,
            plugin_env: Vec::new(),
            offline: false,
            unrestricted_transformers: false,
            check_plugins: false,
            working_directory: String::new(),
            explain: false,
            max_file_size: kiln_yaml::YamlLimits::default().bytes,
            behavior: ReleaseBehavior::default(),
        }
    }
}

/// `--reorder`, which `sortOptions` overrides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reorder {
    /// Not given: the legacy order.
    #[default]
    Unspecified,
    /// The legacy order.
    Legacy,
    /// The order in which objects were found.
    None,
}

/// Who renders charts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChartRenderer {
    /// Kiln itself, as this version of Helm does.
    InProcess(kiln_chart::HelmVersion),
    /// The `helm` program.
    Program,
}

/// How charts are rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Helm {
    /// Who renders charts.
    pub renderer: ChartRenderer,
    /// What random values of charts follow from; without it there are none. Only in the process.
    pub seed: Option<String>,
    /// `--helm-command`.
    pub command: String,
    /// `--helm-api-versions`.
    pub api_versions: Vec<String>,
    /// `--helm-kube-version`.
    pub kube_version: String,
    /// `--helm-debug`.
    pub debug: bool,
}

impl Default for Helm {
    fn default() -> Self {
        Helm {
            renderer: ChartRenderer::InProcess(kiln_chart::HelmVersion::V3),
            seed: None,
            command: "helm".to_owned(),
            api_versions: Vec::new(),
            kube_version: String::new(),
            debug: false,
        }
    }
}

/// A build, ready to run.
#[derive(Clone, Copy)]
pub struct Build<'h> {
    files: &'h dyn FileSystem,
    options: &'h BuildOptions,
    fetch: &'h dyn Fetch,
    programs: &'h dyn Programs,
    lookup: &'h dyn kiln_chart::Lookup,
    now: Option<&'h dyn Fn() -> Duration>,
}

/// What a build gives.
#[derive(Clone, Debug)]
pub struct Output {
    /// The objects, in order.
    pub objects: Vec<Value>,
    /// The name of a file for each object, for builds that write one file each.
    pub file_names: Vec<String>,
    /// The objects as YAML documents.
    pub yaml: String,
    /// What was odd, but no error: old fields, patches that hit nothing, unused vars.
    pub warnings: Vec<Diagnostic>,
    /// What was counted and timed.
    pub stats: Stats,
    /// Which step touched which object, if that was asked for.
    pub touches: Vec<Touch>,
}

/// A build that failed, and what it had to say before.
#[derive(Clone, Debug)]
pub struct Failed {
    /// Why.
    pub error: Error,
    /// What was odd before.
    pub warnings: Vec<Diagnostic>,
}

impl<'h> Build<'h> {
    /// A build that runs no programs and fetches nothing.
    pub fn new(files: &'h dyn FileSystem, options: &'h BuildOptions) -> Self {
        Build {
            files,
            options,
            fetch: &Nothing,
            programs: &Nothing,
            lookup: &kiln_chart::NoLookup,
            now: None,
        }
    }

    /// Lets the build bring in repositories and files from the web.
    #[must_use]
    pub fn fetch(mut self, fetch: &'h dyn Fetch) -> Self {
        self.fetch = fetch;
        self
    }

    /// Lets the build run plugins and charts.
    #[must_use]
    pub fn programs(mut self, programs: &'h dyn Programs) -> Self {
        self.programs = programs;
        self
    }

    /// Lets `lookup` in charts find objects.
    #[must_use]
    pub fn lookup(mut self, lookup: &'h dyn kiln_chart::Lookup) -> Self {
        self.lookup = lookup;
        self
    }

    /// Times phases by this clock.
    #[must_use]
    pub fn clock(mut self, now: &'h dyn Fn() -> Duration) -> Self {
        self.now = Some(now);
        self
    }

    /// Builds the kustomization in a directory: a path, or the address of a repository.
    ///
    /// # Errors
    /// When something in it is wrong.
    pub fn run(&self, directory: &str) -> std::result::Result<Output, Box<Failed>> {
        let session = self.session();
        let built = build::accumulate::build(directory, &session);
        let warnings = session.take_warnings();
        match built {
            Ok(build::accumulate::Built { objects, file_names, yaml }) => Ok(Output {
                stats: Stats {
                    kustomizations: session.files.roots_entered(),
                    documents: session.documents_read(),
                    bytes_read: session.files.bytes_read(),
                    transformers: session.clock.transformers(),
                    objects: objects.len(),
                    bytes_written: yaml.len(),
                    phases: session.clock.spent(),
                },
                objects,
                file_names,
                yaml,
                warnings,
                touches: session.take_touches(),
            }),
            Err(error) => Err(Box::new(Failed { error, warnings })),
        }
    }
}

impl Build<'_> {
    fn session(&self) -> build::session::Session<'_> {
        build::session::Session::new(
            self.options,
            load::loader::Files::new(self.files, self.fetch, self.options),
            self.programs,
            self.lookup,
            build::stats::Clock::new(self.now),
        )
    }

    /// Copies the kustomization in a directory (an absolute path, or the address of a repository) with all that
    /// it names, as long as that lies in `scope`: an absolute path too, or the directory itself.
    ///
    /// # Errors
    /// When something cannot be had, or lies elsewhere.
    pub fn localize(
        &self,
        directory: &str,
        scope: Option<&str>,
    ) -> std::result::Result<Localized, Box<Failed>> {
        let session = self.session();
        localize::localize(directory, scope, &session)
            .map_err(|error| Box::new(Failed { error, warnings: session.take_warnings() }))
    }
}

/// Whether these bytes are Kubernetes objects, at least one, and nothing else.
pub fn are_objects(bytes: &[u8]) -> bool {
    let options = kiln_yaml::ReadOptions::kustomize_resource();
    kiln_yaml::read_bytes("", bytes, options).is_ok_and(|documents| {
        let scopes = model::scope::Scopes::default();
        model::objects::from_documents(documents, model::objects::Purpose::Object, &scopes, |_| {
            None
        })
        .is_ok_and(|objects| !objects.is_empty())
    })
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Failed {}
