//! Reading files and entering directories, confined to the root of each kustomization.
//!
//! A [`Root`] is a directory that holds a kustomization, with the roots that led to it. Files must
//! lie in or below it once links are followed; other roots may lie anywhere, but never at or above
//! one on the way, so no chain of bases ends in itself. Everything read is counted, so that a
//! small tree that refers to itself in many ways ends with an error instead of the machine.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::error::{Context, Error, Result};
use crate::host::{ChartSource, Fetch};
use crate::load::fs::{FileError, FileSystem};
use crate::load::paths;
use crate::load::remote::Repository;

/// How deep kustomizations may refer to each other.
pub(crate) const MAX_NESTING: usize = 200;
/// How many kustomizations one build may enter, counting each visit.
pub(crate) const MAX_ROOTS: usize = 50_000;
/// How many bytes one build may read, counting each visit.
pub(crate) const MAX_BYTES: usize = 1 << 30;

/// Which files a kustomization may read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadRestrictions {
    /// Only files in or below its own directory.
    #[default]
    RootOnly,
    /// Any file.
    None,
}

/// The doors of one build to the outside, and what came through them so far.
pub(crate) struct Files<'h> {
    system: &'h dyn FileSystem,
    fetch: &'h dyn Fetch,
    max_file: usize,
    /// Whether a base with dots inside a part of its path is refused.
    refuses_ambiguous: bool,
    roots: Cell<usize>,
    bytes: Cell<usize>,
    /// Bases used by several overlays are read once.
    cache: RefCell<FxHashMap<String, Arc<[u8]>>>,
}

/// A directory with a kustomization, and how the build came to it.
pub(crate) struct Root {
    path: String,
    restrictions: LoadRestrictions,
    parent: Option<Rc<Root>>,
    depth: usize,
    /// The clone this root is the top of, if it came from a repository.
    repository: Option<Clone_>,
}

struct Clone_ {
    raw: String,
    is_local: bool,
    directory: String,
}

impl<'h> Files<'h> {
    pub(crate) fn new(
        system: &'h dyn FileSystem,
        fetch: &'h dyn Fetch,
        options: &crate::BuildOptions,
    ) -> Self {
        Files {
            system,
            fetch,
            max_file: options.max_file_size,
            refuses_ambiguous: options.behavior.ambiguous_paths_are_refused,
            roots: Cell::new(0),
            bytes: Cell::new(0),
            cache: RefCell::default(),
        }
    }

    /// How to read YAML: with the limit that files have.
    pub(crate) fn limited(&self, options: kiln_yaml::ReadOptions) -> kiln_yaml::ReadOptions {
        options.max_input_size(self.max_file)
    }

    pub(crate) fn system(&self) -> &dyn FileSystem {
        self.system
    }

    /// How many kustomizations were entered.
    pub(crate) fn roots_entered(&self) -> usize {
        self.roots.get()
    }

    /// How many bytes were read.
    pub(crate) fn bytes_read(&self) -> usize {
        self.bytes.get()
    }

    /// The root a build starts at, as the user named it in a directory.
    pub(crate) fn top(
        &self,
        here: &str,
        path: &str,
        restrictions: LoadRestrictions,
    ) -> Result<Rc<Root>> {
        if let Some(repository) = Repository::parse(path) {
            return self.clone_root(&repository, None);
        }
        let path = self
            .confirm_directory(&paths::absolute(here, path), path)
            .context("must build at directory")?;
        self.count_root()?;
        Ok(Rc::new(Root { path, restrictions, parent: None, depth: 0, repository: None }))
    }

    /// The root that a kustomization names as base or component.
    pub(crate) fn enter(&self, from: &Rc<Root>, path: &str) -> Result<Rc<Root>> {
        if path.is_empty() {
            return Err(Error::new("new root cannot be empty"));
        }
        if let Some(repository) = Repository::parse(path) {
            from.refuse_repository_cycle(&repository)?;
            from.refuse_coming_back(&repository)?;
            return self.clone_root(&repository, Some(from));
        }
        if path.starts_with('/') {
            return Err(Error::new(format!("new root '{path}' cannot be absolute"))
                .hint("write the path relative to this kustomization"));
        }
        if self.refuses_ambiguous && is_ambiguous(path) {
            // kustomize: two entries of a list, the second too far to the right, are one text.
            return Err(Error::new(format!(
                "path {path:?} is ambiguous: resolves to {:?} after normalization, which is likely not the intended \
                 target; check for YAML indentation errors in your kustomization file",
                paths::clean(path)
            ))
            .hint("put each entry on a line of its own, with its dash below the dash above"));
        }
        let directory = paths::join(&from.path, path);
        let directory =
            self.confirm_directory(&directory, &directory).context("must build at directory")?;
        from.refuse_leaving_clone(&directory)?;
        from.refuse_cycle(&directory)?;
        self.count_root()?;
        from.check_depth()?;
        Ok(Rc::new(Root {
            path: directory,
            restrictions: from.restrictions,
            parent: Some(Rc::clone(from)),
            depth: from.depth + 1,
            repository: None,
        }))
    }

    fn clone_root(&self, repository: &Repository, from: Option<&Rc<Root>>) -> Result<Rc<Root>> {
        self.count_root()?;
        if let Some(from) = from {
            from.check_depth()?;
        }
        let directory = self.fetch.clone_repository(repository)?;
        let top = self.resolve(&directory)?.path;
        let wanted = paths::join(&directory, repository.path());
        let root = self.resolve(&wanted)?;
        if !root.is_directory {
            let file = paths::base(&root.path);
            return Err(Error::new(format!(
                "'{wanted}' refers to file '{file}'; expecting directory"
            )));
        }
        if !paths::is_within(&root.path, &top) {
            return Err(Error::new(format!(
                "{wanted:?} refers to directory outside of repo {top:?}"
            )));
        }
        Ok(Rc::new(Root {
            path: root.path,
            restrictions: LoadRestrictions::RootOnly,
            parent: from.map(Rc::clone),
            depth: from.map_or(0, |from| from.depth + 1),
            repository: Some(Clone_ {
                raw: repository.raw().to_owned(),
                is_local: repository.is_local(),
                directory: top,
            }),
        }))
    }

    /// Reads a file that a kustomization names: a path relative to its root, or a URL.
    pub(crate) fn load(&self, root: &Root, path: &str) -> Result<Arc<[u8]>> {
        if path.starts_with("http://") || path.starts_with("https://") {
            let contents = self.fetch.get(path).map_err(|error| {
                if error.is_http() && Repository::parse(path).is_some() {
                    Error::new("URL is a git repository")
                } else {
                    error
                }
            })?;
            self.count_bytes(contents.len())?;
            return Ok(contents.into());
        }
        let path = paths::absolute(&root.path, path);
        match root.restrictions {
            LoadRestrictions::None => self.read(path, |path| self.system.read(path, self.max_file)),
            LoadRestrictions::RootOnly => {
                let resolved = self.resolve(&path)?;
                if resolved.is_directory {
                    return Err(Error::new(format!("'{path}' must resolve to a file")));
                }
                if !paths::is_within(paths::parent(&resolved.path), &root.path) {
                    return Err(root.refuse_outside(&path));
                }
                self.read(resolved.path, |path| self.system.read_resolved(path, self.max_file))
            }
        }
    }

    /// Where a path leads that a kustomization names, without links; nowhere if that is outside of its root.
    pub(crate) fn within(&self, root: &Root, path: &str) -> Result<Option<String>> {
        let path = paths::absolute(&root.path, path);
        let resolved = self.system.resolve(&path).map_err(|error| Error::new(error.to_string()))?;
        Ok(paths::is_within(&resolved.path, &root.path).then_some(resolved.path))
    }

    /// A packaged chart that lies elsewhere.
    ///
    /// # Errors
    /// When it cannot be had.
    pub(crate) fn chart(&self, source: &ChartSource<'_>) -> Result<Vec<u8>> {
        self.fetch.chart(source)
    }

    /// The path to give to a program for one that a kustomization names: without links, so far as it exists.
    ///
    /// # Errors
    /// When it leads out of the root and files there are not allowed.
    pub(crate) fn confined(&self, root: &Root, path: &str) -> Result<String> {
        let path = paths::clean(&paths::absolute(&root.path, path));
        if root.restrictions == LoadRestrictions::None {
            return Ok(path);
        }
        let resolved = match self.system.resolve(&path) {
            Ok(resolved) => resolved.path,
            // What is not there yet will be made below the last directory that is; through a link to nowhere, nothing can.
            Err(missing) if !missing.path.is_empty() && paths::is_within(&path, &missing.path) => {
                let directory = paths::parent(&missing.path);
                paths::join(&self.resolve(directory)?.path, &path[directory.len()..])
            }
            Err(error) => return Err(Error::new(error.to_string())),
        };
        if paths::is_within(&resolved, &root.path) {
            Ok(resolved)
        } else {
            Err(root.refuse_outside(&path))
        }
    }

    fn read(
        &self,
        path: String,
        from_system: impl FnOnce(&str) -> std::result::Result<Vec<u8>, FileError>,
    ) -> Result<Arc<[u8]>> {
        let cached = self.cache.borrow().get(&path).cloned();
        let contents = match cached {
            Some(contents) => contents,
            None => {
                let contents: Arc<[u8]> = from_system(&path)
                    .map_err(|error| {
                        let too_large =
                            error.operation == "read" && error.reason.contains("larger");
                        let hint = "raise the limit with --max-input-size".to_owned();
                        Error::new(error.to_string()).maybe_hint(too_large.then_some(hint))
                    })?
                    .into();
                self.cache.borrow_mut().insert(path, Arc::clone(&contents));
                contents
            }
        };
        self.count_bytes(contents.len())?;
        Ok(contents)
    }

    fn resolve(&self, path: &str) -> Result<crate::load::fs::Resolved> {
        self.resolve_shown(path, path)
    }

    fn resolve_shown(&self, path: &str, shown: &str) -> Result<crate::load::fs::Resolved> {
        self.system
            .resolve(path)
            .map_err(|error| Error::new(format!("evalsymlink failure on '{shown}' : {error}")))
    }

    /// The directory of a path, which messages show as it was written.
    fn confirm_directory(&self, path: &str, shown: &str) -> Result<String> {
        if shown.is_empty() {
            return Err(Error::new("directory path cannot be empty"));
        }
        let found = self.resolve_shown(path, shown).context("not a valid directory")?;
        if !found.is_directory {
            return Err(Error::new("file is not directory").context(format_args!("'{shown}'")));
        }
        Ok(found.path)
    }

    fn count_root(&self) -> Result<()> {
        self.roots.set(self.roots.get() + 1);
        if self.roots.get() > MAX_ROOTS {
            return Err(Error::new(format!("more than {MAX_ROOTS} kustomizations in one build"))
                .hint("look for bases that name the same directories again and again"));
        }
        Ok(())
    }

    fn count_bytes(&self, bytes: usize) -> Result<()> {
        self.bytes.set(self.bytes.get().saturating_add(bytes));
        if self.bytes.get() > MAX_BYTES {
            return Err(Error::new(format!("more than {MAX_BYTES} bytes read in one build"))
                .hint("look for bases that name the same directories again and again"));
        }
        Ok(())
    }
}

impl Root {
    /// The absolute path of the directory.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The top of the clone, if this root came from a repository.
    pub(crate) fn clone_directory(&self) -> Option<&str> {
        self.repository.as_ref().map(|clone| clone.directory.as_str())
    }

    /// Which files this kustomization may use.
    pub(crate) fn restrictions(&self) -> LoadRestrictions {
        self.restrictions
    }

    fn refuse_outside(&self, path: &str) -> Error {
        Error::new(format!("security; file '{path}' is not in or below '{}'", self.path)).hint(
            "move the file below this kustomization, make it a base, or build with --load-restrictor LoadRestrictionsNone",
        )
    }

    fn ancestors(&self) -> impl Iterator<Item = &Root> {
        std::iter::successors(Some(self), |root| root.parent.as_deref())
    }

    fn check_depth(&self) -> Result<()> {
        if self.depth + 1 >= MAX_NESTING {
            return Err(Error::new(format!(
                "kustomizations refer to each other more than {MAX_NESTING} levels deep"
            )));
        }
        Ok(())
    }

    fn refuse_cycle(&self, candidate: &str) -> Result<()> {
        match self.ancestors().find(|visited| paths::is_within(&visited.path, candidate)) {
            None => Ok(()),
            Some(visited) => Err(Error::new(format!(
                "cycle detected: candidate root '{candidate}' contains visited root '{}'",
                visited.path
            ))
            .hint("a kustomization cannot use itself or a directory above it")),
        }
    }

    fn refuse_repository_cycle(&self, candidate: &Repository) -> Result<()> {
        let visited = self.ancestors().filter_map(|root| root.repository.as_ref());
        for earlier in visited {
            if earlier.raw.starts_with(candidate.raw()) {
                return Err(Error::new(format!(
                    "cycle detected: URI '{}' referenced by previous URI '{}'",
                    candidate.raw(),
                    earlier.raw
                )));
            }
        }
        Ok(())
    }

    /// What was fetched from elsewhere names no repository of this machine: it would see what its author may not.
    fn refuse_coming_back(&self, candidate: &Repository) -> Result<()> {
        let mut visited = self.ancestors().filter_map(|root| root.repository.as_ref());
        match visited.find(|clone| !clone.is_local) {
            Some(clone) if candidate.is_local() => Err(Error::new(format!(
                "security; '{}' is a repository of this machine, and '{}', which names it, came from elsewhere",
                candidate.raw(),
                clone.raw
            ))
            .hint("name it in a kustomization of your own")),
            _ => Ok(()),
        }
    }

    fn refuse_leaving_clone(&self, candidate: &str) -> Result<()> {
        let clone = self.ancestors().find_map(|root| root.repository.as_ref());
        match clone {
            Some(clone) if !paths::is_within(candidate, &clone.directory) => {
                Err(Error::new(format!(
                    "security; bases in kustomizations found in cloned git repos must be within the repo, but base '{candidate}' is outside '{}'",
                    clone.directory
                )))
            }
            _ => Ok(()),
        }
    }
}

/// Whether a part of a path has two dots besides other characters.
fn is_ambiguous(path: &str) -> bool {
    path.split('/').any(|part| !matches!(part, "" | "." | "..") && part.contains(".."))
}
