//! Directories of documents. A directory with a `Krmfile` is a package; one inside of another is read by itself.

use kiln_yaml::Node;

use super::{Config, stream};
use crate::edit::glob;
use crate::error::{Error, Result};
use crate::load::paths;

const PACKAGE_FILE: &str = "Krmfile";
const IGNORE_FILE: &str = ".krmignore";

/// Reads directories.
pub(super) struct Packages<'a> {
    pub(super) config: &'a Config<'a>,
    /// Whether objects say where they come from.
    pub(super) annotate: bool,
    /// Whether JSON counts, besides YAML.
    pub(super) json: bool,
}

impl Packages<'_> {
    fn absolute(&self, path: &str) -> String {
        paths::absolute(self.config.working_directory, path)
    }

    pub(super) fn is_package(&self, directory: &str) -> bool {
        let file = format!("{}/{PACKAGE_FILE}", self.absolute(directory));
        self.config.files.resolve(&file).is_ok()
    }

    /// The packages of a directory in the order in which they are found, at least the directory itself, and first.
    pub(super) fn in_directory(&self, path: &str, recurse: bool) -> Result<Vec<String>> {
        let resolved =
            self.config.files.resolve(&self.absolute(path)).map_err(|error| not_there(&error))?;
        let mut found = Vec::new();
        if recurse && resolved.is_directory {
            self.gather(&paths::clean(path), &mut found)?;
        }
        if !found.contains(&paths::clean(path)) {
            found.insert(0, path.to_owned());
        }
        Ok(found)
    }

    fn gather(&self, directory: &str, found: &mut Vec<String>) -> Result<()> {
        for entry in
            self.config.files.list(&self.absolute(directory)).map_err(|error| not_there(&error))?
        {
            if entry.is_directory {
                self.gather(&paths::join(directory, &entry.name), found)?;
            } else if entry.name == PACKAGE_FILE {
                found.push(directory.to_owned());
            }
        }
        Ok(())
    }

    /// Reads a package, without those in it.
    pub(super) fn read_one(&self, path: &str) -> Result<Vec<Node>> {
        self.all(path, false)
    }

    /// Reads a directory with all that is in it, or one file.
    pub(super) fn read(&self, path: &str) -> Result<Vec<Node>> {
        self.all(path, true)
    }

    fn all(&self, path: &str, packages: bool) -> Result<Vec<Node>> {
        let root =
            self.config.files.resolve(&self.absolute(path)).map_err(|error| not_there(&error))?;
        let mut nodes = Vec::new();
        if root.is_directory {
            let ignored = self.ignored(&root.path)?;
            let walk = Walk { packages, ignored, root: &root.path };
            self.walk(&root.path, &walk, &mut nodes)?;
        } else if self.counts(paths::base(&root.path)) {
            nodes = self.file(&root.path, paths::base(&root.path))?;
        }
        Ok(nodes)
    }

    fn walk(&self, directory: &str, walk: &Walk<'_>, nodes: &mut Vec<Node>) -> Result<()> {
        for entry in self.config.files.list(directory).map_err(|error| not_there(&error))? {
            let path = paths::join(directory, &entry.name);
            let relative = paths::relative(walk.root, &path);
            if walk.ignored.iter().any(|ignore| ignore.matches(&relative, entry.is_directory))
                && !walk.is_kept(&relative, entry.is_directory)
            {
                continue;
            }
            if entry.is_directory {
                if walk.packages || !self.is_package(&path) {
                    self.walk(&path, walk, nodes)?;
                }
            } else if self.counts(&entry.name) {
                nodes.extend(self.file(&path, &relative)?);
            }
        }
        Ok(())
    }

    fn counts(&self, name: &str) -> bool {
        let endings: &[&str] =
            if self.json { &[".yaml", ".yml", ".json"] } else { &[".yaml", ".yml"] };
        endings.iter().any(|ending| name.ends_with(ending))
    }

    fn file(&self, path: &str, relative: &str) -> Result<Vec<Node>> {
        let bytes = self
            .config
            .files
            .read(path, self.config.max_file_size)
            .map_err(|error| not_there(&error))?;
        let shown = paths::relative(self.config.working_directory, path);
        let reading = stream::Reading {
            path: self.annotate.then_some(relative),
            bare: !self.annotate,
            limit: self.config.max_file_size,
            ..stream::Reading::default()
        };
        let read = stream::read(&shown, &bytes, &reading);
        read.map(|read| read.nodes).map_err(|error| error.context(path))
    }

    fn ignored(&self, directory: &str) -> Result<Vec<Ignore>> {
        let file = paths::join(directory, IGNORE_FILE);
        if self.config.files.resolve(&file).is_err() {
            return Ok(Vec::new());
        }
        let bytes = self
            .config
            .files
            .read(&file, self.config.max_file_size)
            .map_err(|error| not_there(&error))?;
        let text = String::from_utf8_lossy(&bytes);
        let lines = text.lines().map(|line| line.trim_matches(' '));
        Ok(lines
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(Ignore::parse)
            .collect())
    }
}

struct Walk<'a> {
    packages: bool,
    ignored: Vec<Ignore>,
    root: &'a str,
}

impl Walk<'_> {
    /// Whether a line with `!` takes something back in.
    fn is_kept(&self, path: &str, is_directory: bool) -> bool {
        self.ignored.iter().any(|ignore| ignore.keeps && ignore.fits(path, is_directory))
    }
}

/// A line of `.krmignore`.
struct Ignore {
    pattern: String,
    keeps: bool,
    anchored: bool,
    directories_only: bool,
}

impl Ignore {
    fn parse(line: &str) -> Self {
        let (keeps, line) = match line.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, line.strip_prefix('\\').filter(|l| l.starts_with('#')).unwrap_or(line)),
        };
        Ignore {
            pattern: line.trim_matches('/').to_owned(),
            keeps,
            anchored: line.starts_with('/'),
            directories_only: line.ends_with('/'),
        }
    }

    fn matches(&self, path: &str, is_directory: bool) -> bool {
        !self.keeps && self.fits(path, is_directory)
    }

    fn fits(&self, path: &str, is_directory: bool) -> bool {
        if self.directories_only && !is_directory {
            return false;
        }
        // One that does not begin with a slash fits at any depth.
        let parts = self.pattern.matches('/').count() + 1;
        let end = match path.rmatch_indices('/').nth(parts - 1) {
            Some((at, _)) if !self.anchored => &path[at + 1..],
            _ => path,
        };
        glob::matches(&self.pattern, end).unwrap_or(false)
    }
}

fn not_there(error: &crate::load::fs::FileError) -> Error {
    Error::new(error.to_string())
}
