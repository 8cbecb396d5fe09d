//! `cfg` commands as cases have them: words in, text out.

use kiln_kustomize::Result;
use kiln_kustomize::cfg::{Cat, Config, From, Local, Search, Structure, Tree};
use kiln_kustomize::fs::Memory;

/// The words of a command: what is not an option, and the options with their values.
struct Words<'w> {
    plain: Vec<&'w str>,
    options: Vec<(&'w str, &'w str)>,
}

impl<'w> Words<'w> {
    fn of(words: &[&'w str]) -> Self {
        const SWITCHES: [&str; 13] = [
            "--annotate",
            "--include-local",
            "--exclude-non-local",
            "--strip-comments",
            "--invert-match",
            "--all",
            "--image",
            "--name",
            "--replicas",
            "--ports",
            "--resources",
            "--env",
            "--args",
        ];
        let mut found = Words { plain: Vec::new(), options: Vec::new() };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if !word.starts_with('-') || *word == "-" {
                found.plain.push(word);
            } else if let Some(option) = word.split_once('=') {
                found.options.push(option);
            } else if SWITCHES.contains(word) {
                found.options.push((word, "true"));
            } else {
                found.options.push((word, words.next().expect("an option has a value")));
            }
        }
        found
    }

    fn get(&self, name: &str) -> Option<&'w str> {
        self.options.iter().find(|(option, _)| *option == name).map(|(_, value)| *value)
    }

    fn is(&self, name: &str, otherwise: bool) -> bool {
        self.get(name).map_or(otherwise, |value| value == "true")
    }
}

/// Runs a command over a tree.
pub(crate) fn run(
    tree: &Memory,
    folder: &str,
    words: &[&str],
    input: Option<&str>,
) -> Result<String> {
    let words = Words::of(words);
    let config = Config { files: tree, working_directory: folder, max_file_size: 1 << 20 };
    let (name, arguments) = match words.plain.as_slice() {
        ["cfg", name, arguments @ ..] => (*name, arguments),
        other => panic!("no command of kustomize: {other:?}"),
    };
    let recurse = words.is("--recurse-subpackages", words.is("-R", true));
    let source = |path: Option<&str>| match (path, input) {
        (Some(path), None) => FromOwned::Folder(path.to_owned()),
        (_, Some(text)) => FromOwned::Stream(text.as_bytes().to_vec()),
        (None, None) => panic!("a command reads a folder or a stream"),
    };
    let local = Local {
        include: words.is("--include-local", false),
        exclude_others: words.is("--exclude-non-local", false),
    };
    match name {
        "cat" => {
            let cat = Cat {
                unformatted: !words.is("--format", true),
                annotate: words.is("--annotate", false),
                wrap_kind: words.get("--wrap-kind").unwrap_or_default().to_owned(),
                wrap_version: words.get("--wrap-version").unwrap_or_default().to_owned(),
                function_config: words.get("--function-config").map(str::to_owned),
                styles: words.get("--style").into_iter().map(str::to_owned).collect(),
                strip_comments: words.is("--strip-comments", false),
                local,
            };
            config.cat(source(arguments.first().copied()).borrow(recurse), &cat)
        }
        "count" => {
            let by_kind = words.is("--kind", true);
            config.count(source(arguments.first().copied()).borrow(recurse), by_kind)
        }
        "grep" => {
            let search = Search::parse(arguments[0], words.is("--invert-match", false))?;
            let annotate = words.is("--annotate", true);
            config.grep(source(arguments.get(1).copied()).borrow(recurse), &search, annotate)
        }
        "tree" => {
            let structure = words.get("--graph-structure").map(|word| match word {
                "owners" => Structure::Owners,
                _ => Structure::Directory,
            });
            let mut tree = Tree::new(structure);
            for path in words.get("--field").into_iter().flat_map(|paths| paths.split(',')) {
                tree.field(path)?;
            }
            let all = words.is("--all", false);
            for field in ["name", "image", "command", "args", "env", "resources", "ports"] {
                if words.is(&format!("--{field}"), all) {
                    tree.container_field(field);
                }
            }
            if words.is("--replicas", all) {
                tree.field("spec.replicas")?;
            }
            if words.is("--ports", all) {
                tree.field("spec.ports")?;
            }
            config.tree(source(arguments.first().copied()).borrow(recurse), &tree, local)
        }
        other => panic!("no command of kustomize: cfg {other}"),
    }
}

enum FromOwned {
    Folder(String),
    Stream(Vec<u8>),
}

impl FromOwned {
    fn borrow(&self, recurse: bool) -> From<'_> {
        match self {
            FromOwned::Folder(path) => From::Directory { path, recurse },
            FromOwned::Stream(bytes) => From::Stream(bytes),
        }
    }
}
