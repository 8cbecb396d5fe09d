//! `kustomize localize`: a copy of a kustomization with everything that it names beside it.
//!
//! What lies elsewhere is fetched, files and directories of the machine are copied, and every path of the copy
//! leads into the copy. Nothing is written here: the host gets texts by path. Kustomization files
//! change at these paths and nowhere else, so their comments stay.

mod paths_of;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use kiln_diagnostic::Source;
use kiln_value::Value;
use kiln_yaml::ReadOptions;

use crate::build::session::Session;
use crate::edit::FILE_NAMES;
use crate::error::{Context, Error, Result};
use crate::load::loader::{LoadRestrictions, Root};
use crate::load::paths;
use crate::load::remote::Repository;
use crate::model::objects::Purpose;

/// The directory of a copy for what was fetched, beside the kustomization that names it.
const FETCHED: &str = "localized-files";
/// The directory of charts, unless a kustomization says otherwise.
const CHARTS: &str = "charts";

/// A copy, to be written.
#[derive(Clone, Debug, Default)]
pub struct Localized {
    /// The contents of its files by path, relative to the directory that they shall be in.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Where in it the kustomization lies that was asked for.
    pub root: String,
    /// What kustomize would call the directory.
    pub name: String,
}

/// Makes the copy.
///
/// # Errors
/// When something that a kustomization names cannot be had, or lies outside of the scope.
pub(crate) fn localize(
    target: &str,
    scope: Option<&str>,
    session: &Session<'_>,
) -> Result<Localized> {
    let repository = Repository::parse(target);
    if let Some(repository) = &repository {
        refuse_without_revision(repository)?;
    }
    let root = session
        .files
        .top(&session.options.working_directory, target, LoadRestrictions::RootOnly)
        .context(format_args!("unable to establish localize target {target:?}"))?;
    let scope = match (root.clone_directory(), scope) {
        (Some(_), Some(scope)) => {
            return Err(Error::new(format!(
                "scope {scope:?} specified for remote localize target {target:?}"
            ))
            .hint("the scope of a repository is the repository"));
        }
        (Some(top), None) => top.to_owned(),
        (None, None) => root.path().to_owned(),
        (None, Some(scope)) => {
            let found = session.files.system().resolve(scope);
            let found =
                found.map_err(|error| Error::new(format!("invalid localize scope: {error}")))?;
            if !paths::is_within(root.path(), &found.path) {
                return Err(Error::new(format!(
                    "localize scope {scope:?} does not contain target {target:?} at {:?}",
                    root.path()
                )));
            }
            found.path
        }
    };
    let mut copy = Copy { session, files: BTreeMap::new(), done: BTreeSet::new() };
    let place = CopiedKustomization {
        directory: paths::relative(&scope, root.path()),
        root: Rc::clone(&root),
        scope: Some(scope),
    };
    copy.kustomization(&place).context(format_args!("unable to localize target {target:?}"))?;
    Ok(Localized {
        name: name(&root, repository.as_ref()),
        root: place.directory,
        files: copy.files,
    })
}

fn name(root: &Root, repository: Option<&Repository>) -> String {
    let mut directory = paths::base(root.path());
    let Some(repository) = repository else {
        return if directory == "/" {
            "localized".to_owned()
        } else {
            format!("localized-{directory}")
        };
    };
    if root.clone_directory() == Some(root.path()) {
        directory = paths::base(repository.repository());
    }
    format!("localized-{directory}-{}", repository.reference().replace('/', "-"))
}

fn refuse_without_revision(repository: &Repository) -> Result<()> {
    if repository.reference().is_empty() {
        return Err(Error::new(format!(
            "localize remote root {:?} missing ref query string parameter",
            repository.raw()
        ))
        .hint("name a tag or a commit, so that the copy can be made again: ?ref=v1.2.3"));
    }
    Ok(())
}

struct CopiedKustomization {
    root: Rc<Root>,
    /// Its directory in the copy.
    directory: String,
    /// What it may refer to on the machine; nothing for those that were fetched, which are kept in already.
    scope: Option<String>,
}

struct Copy<'s, 'h> {
    session: &'s Session<'h>,
    files: BTreeMap<String, Vec<u8>>,
    /// Directories whose kustomization is copied.
    done: BTreeSet<String>,
}

impl Copy<'_, '_> {
    /// Copies a kustomization with all that it names.
    fn kustomization(&mut self, at: &CopiedKustomization) -> Result<()> {
        if !self.done.insert(at.directory.clone()) {
            return Ok(());
        }
        let (name, contents) = self.find(at)?;
        let shown = self.session.shown(&paths::join(at.root.path(), name));
        let options = self.session.files.limited(ReadOptions::kustomization());
        let documents = kiln_yaml::read_bytes(&shown, &contents, options)
            .map_err(|diagnostic| crate::model::output::yaml_error(&diagnostic))
            .context("invalid Kustomization")?;
        let Some(document) = documents.into_iter().next() else {
            return self.write(&at.directory, name, contents.to_vec());
        };
        let mut value = document.value().clone();
        self.fields(at, &mut value).map_err(|error| error.at(Some(document.place())))?;
        let source = Arc::new(Source::new(&shown, document.source().text()));
        let text = kiln_yaml::rewrite(&source, ReadOptions::kustomization(), &value).map_err(
            |refused| Error::new(refused.message).at(refused.place).maybe_hint(refused.hint),
        )?;
        self.write(&at.directory, name, text.into_bytes())
    }

    fn find(&self, at: &CopiedKustomization) -> Result<(&'static str, Arc<[u8]>)> {
        let mut found = None;
        for name in FILE_NAMES {
            let Ok(contents) = self.session.files.load(&at.root, name) else { continue };
            if found.replace((name, contents)).is_some() {
                return Err(Error::new(format!(
                    "Found multiple kustomization files under: {}\n",
                    at.root.path()
                )));
            }
        }
        found.ok_or_else(|| {
            Error::new(format!(
                "unable to find one of 'kustomization.yaml', 'kustomization.yml' or 'Kustomization' in directory '{}'",
                at.root.path()
            ))
        })
    }

    /// Puts a file into the copy.
    fn write(&mut self, directory: &str, path: &str, contents: Vec<u8>) -> Result<()> {
        let path = paths::join(directory, path);
        // Paths come from addresses and from links that were followed.
        if path.starts_with('/') || path == ".." || path.starts_with("../") {
            return Err(Error::new(format!("{path} would lie outside of the copy")));
        }
        self.files.insert(path, contents);
        Ok(())
    }

    /// Copies a file; the path that leads to it in the copy.
    fn file(&mut self, at: &CopiedKustomization, path: &str) -> Result<String> {
        if path.is_empty() {
            return Ok(String::new());
        }
        let contents = self.session.files.load(&at.root, path).context("invalid file reference")?;
        self.file_with(at, path, contents.to_vec())
    }

    fn file_with(
        &mut self,
        at: &CopiedKustomization,
        path: &str,
        contents: Vec<u8>,
    ) -> Result<String> {
        let copied = match path.split_once("://") {
            Some((_, address)) => {
                self.refuse_taken(at, path)?;
                let address = address.split(['?', '#']).next().unwrap_or(address);
                let (host, path) = address.split_once('/').unwrap_or((address, ""));
                let host = host.rsplit('@').next().unwrap_or(host);
                let host = host.split(':').next().unwrap_or(host);
                format!("{FETCHED}/{host}{}", paths::clean(&format!("/{path}")))
            }
            // Without links: these are not copied.
            None => {
                let within = self.session.files.within(&at.root, path)?;
                let within = within.ok_or_else(|| Error::new(format!("{path} leads out")))?;
                paths::relative(at.root.path(), &within)
            }
        };
        self.write(&at.directory, &copied, contents)?;
        Ok(copied)
    }

    fn refuse_taken(&self, at: &CopiedKustomization, what: &str) -> Result<()> {
        let there = self.session.files.system().resolve(&paths::join(at.root.path(), FETCHED));
        if there.is_ok() {
            return Err(Error::new(format!(
                "{} already contains {FETCHED} needed to store {what:?}",
                at.root.path()
            )));
        }
        Ok(())
    }

    /// Copies another kustomization; the path that leads to it in the copy.
    fn root(&mut self, at: &CopiedKustomization, path: &str) -> Result<String> {
        if path.is_empty() {
            return Ok(String::new());
        }
        let root = self.session.files.enter(&at.root, path).context("invalid root reference")?;
        let (copied, scope) = match (Repository::parse(path), root.clone_directory()) {
            (Some(repository), Some(top)) => {
                refuse_without_revision(&repository)?;
                self.refuse_taken(at, path)?;
                let inside = paths::relative(top, root.path());
                let name = repository.repository().trim_end_matches(".git");
                let directory = format!("/{}/{}/{inside}", name, repository.reference());
                (format!("{FETCHED}/{}{}", repository.host_name(), paths::clean(&directory)), None)
            }
            _ => {
                if let Some(scope) = &at.scope
                    && !paths::is_within(root.path(), scope)
                {
                    return Err(Error::new(format!(
                        "root {:?} outside localize scope {scope:?}",
                        root.path()
                    ))
                    .hint("name a directory that holds both with --scope"));
                }
                (paths::relative(at.root.path(), root.path()), at.scope.clone())
            }
        };
        let inner =
            CopiedKustomization { root, directory: paths::join(&at.directory, &copied), scope };
        self.kustomization(&inner).context(format_args!("unable to localize root {path:?}"))?;
        Ok(copied)
    }

    /// Copies what may be a file with objects, or a kustomization.
    fn resource(&mut self, at: &CopiedKustomization, path: &str) -> Result<String> {
        let objects = self.session.files.load(&at.root, path).and_then(|contents| {
            let read = self.session.read_objects(path, &contents, Purpose::Object);
            read.context(format_args!("invalid resource at file {path:?}")).map(|_| contents)
        });
        let not_a_file = match objects {
            Ok(contents) => return self.file_with(at, path, contents.to_vec()),
            Err(error) => error,
        };
        self.root(at, path).map_err(|error| {
            error.reword(|message| {
                format!(
                    "could not localize path {path:?} as file: {not_a_file}; could not localize path {path:?} as directory: {message}"
                )
            })
        })
    }

    /// Copies a file unless the entry is an object itself.
    fn inline_or_file(&mut self, at: &CopiedKustomization, entry: &str) -> Result<String> {
        match self.session.read_objects("<inline>", entry.as_bytes(), Purpose::Patch) {
            Ok(_) => Ok(entry.to_owned()),
            Err(_) => self.file(at, entry),
        }
    }

    /// Copies a file of a generator, which may name its key.
    fn file_source(&mut self, at: &CopiedKustomization, source: &str) -> Result<String> {
        match source.split_once('=') {
            Some((key, path)) => Ok(format!("{key}={}", self.file(at, path)?)),
            None => self.file(at, source),
        }
    }

    /// Copies a directory of charts, if it is there: helm may be about to make it.
    fn charts(&mut self, at: &CopiedKustomization, home: &str) -> Result<String> {
        let directory = if home.is_empty() { CHARTS } else { home };
        if directory.starts_with('/') {
            return Err(Error::new(format!("absolute path {directory:?} cannot be copied"))
                .hint("write the path relative to this kustomization"));
        }
        if self.session.files.system().resolve(&paths::join(at.root.path(), directory)).is_err() {
            return Ok(home.to_owned());
        }
        let within = self.session.files.within(&at.root, directory)?;
        let within = within.ok_or_else(|| {
            Error::new(format!("the chart home {directory:?} is not below {:?}", at.root.path()))
        })?;
        let copied = paths::relative(at.root.path(), &within);
        self.directory(at, &copied, 0)?;
        Ok(if home.is_empty() { String::new() } else { copied })
    }

    /// Copies a directory as it is, without links.
    fn directory(&mut self, at: &CopiedKustomization, path: &str, depth: usize) -> Result<()> {
        if depth > crate::load::loader::MAX_NESTING {
            return Err(Error::new(format!("{path} is too deep")));
        }
        let absolute = paths::join(at.root.path(), path);
        let entries = self.session.files.system().list(&absolute);
        for entry in entries.map_err(|error| Error::new(error.to_string()))? {
            let path = paths::join(path, &entry.name);
            if entry.is_directory {
                self.directory(at, &path, depth + 1)?;
            } else {
                let contents = self.session.files.load(&at.root, &path)?;
                self.write(&at.directory, &path, contents.to_vec())?;
            }
        }
        Ok(())
    }

    /// Copies what the configuration of a plugin names; an entry is such a text itself, or a path to one.
    fn plugin(&mut self, at: &CopiedKustomization, entry: &str) -> Result<String> {
        let inline = self.session.read_documents("<inline>", entry.as_bytes());
        let inline = inline.ok().filter(|read| read.iter().any(|d| d.value().as_map().is_some()));
        let is_inline = inline.is_some();
        let (documents, contents) = match inline {
            Some(documents) => (documents, entry.as_bytes().to_vec()),
            None => {
                let contents = self
                    .session
                    .files
                    .load(&at.root, entry)
                    .context(format_args!("unable to load resource entry {entry:?}"))?;
                (self.session.read_documents(entry, &contents)?, contents.to_vec())
            }
        };
        let mut changed = false;
        let mut texts = Vec::new();
        for document in documents {
            let mut value: Value = document.value().clone();
            self.plugin_fields(at, &mut value)?;
            changed |= value != *document.value();
            texts.push(kiln_yaml::emit(&value));
        }
        let contents = if changed { texts.join("---\n").into_bytes() } else { contents };
        if is_inline {
            return Ok(String::from_utf8_lossy(&contents).into_owned());
        }
        self.file_with(at, entry, contents)
    }
}
