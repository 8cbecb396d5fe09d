//! `kiln cfg`

use std::io::Write;

use clap::ArgAction;
use clap::builder::BoolishValueParser;
use kiln_kustomize::cfg::{Cat, Config, From, Local, Search, Structure, Tree};
use kiln_kustomize::fs::Disk;

use crate::args::{Global, OutputFormat};
use crate::exit::{CommandFailure, CommandOutcome, CommandResult};
use crate::input;
use crate::ui::Ui;

/// Print, count and search objects in files, with their comments
///
/// Same as the cfg commands of kustomize. A directory with a Krmfile is a package of its own; paths in .krmignore are
/// skipped.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Cat(CatArgs),
    Count(CountArgs),
    Grep(GrepArgs),
    Tree(TreeArgs),
}

/// Which of the objects are for tools alone.
#[derive(Debug, clap::Args)]
struct LocalArgs {
    /// Show objects with the annotation config.kubernetes.io/local-config, too
    #[arg(long)]
    include_local: bool,

    /// Show only those objects
    #[arg(long)]
    exclude_non_local: bool,
}

impl LocalArgs {
    fn chosen(&self) -> Local {
        Local { include: self.include_local, exclude_others: self.exclude_non_local }
    }
}

/// Print objects with sorted fields
#[derive(Debug, clap::Args)]
struct CatArgs {
    /// Directory or file [default: standard input]
    #[arg(value_name = "DIR")]
    path: Option<String>,

    /// Leave the order of fields as it is; kustomize's --format=false means the same
    #[arg(long)]
    unformatted: bool,

    /// Annotate objects with the file that they come from
    #[arg(long)]
    annotate: bool,

    /// Wrap the objects in a list of this kind
    #[arg(long, value_name = "KIND")]
    wrap_kind: Option<String>,

    /// The apiVersion of that list
    #[arg(long, value_name = "VERSION")]
    wrap_version: Option<String>,

    /// Put the object of this file in the list as functionConfig
    #[arg(long, value_name = "FILE")]
    function_config: Option<String>,

    /// Write each object in these styles: TaggedStyle, DoubleQuotedStyle, LiteralStyle, FoldedStyle, FlowStyle
    #[arg(long, value_delimiter = ',', value_name = "STYLES")]
    style: Vec<String>,

    /// Leave out comments
    #[arg(long)]
    strip_comments: bool,

    #[command(flatten)]
    local: LocalArgs,

    /// File to write to
    #[arg(long, value_name = "FILE")]
    dest: Option<String>,

    #[command(flatten)]
    recurse: Recurse,
}

#[derive(Debug, clap::Args)]
struct Recurse {
    /// Include packages inside of the directory
    #[arg(short = 'R', long, value_name = "BOOL", default_value = "true", default_missing_value = "true",
          num_args = 0..=1, require_equals = true, action = ArgAction::Set, value_parser = BoolishValueParser::new())]
    recurse_subpackages: bool,
}

/// Count objects by kind
#[derive(Debug, clap::Args)]
struct CountArgs {
    /// Directory or file [default: standard input]
    #[arg(value_name = "DIR")]
    path: Option<String>,

    /// Count each kind separately
    #[arg(long, value_name = "BOOL", default_value = "true", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, action = ArgAction::Set, value_parser = BoolishValueParser::new())]
    kind: bool,

    #[command(flatten)]
    recurse: Recurse,
}

/// Print the objects with a field that matches
///
/// QUERY is PATH=PATTERN, or PATH with <, <=, > or >= and a quantity: spec.replicas>3,
/// spec.template.spec.containers[name=web].image=nginx, metadata.annotations.app\.example\.com/tier=front.
#[derive(Debug, clap::Args)]
struct GrepArgs {
    /// Query, see above
    query: String,

    /// Directory or file [default: standard input]
    #[arg(value_name = "DIR")]
    path: Option<String>,

    /// Annotate objects with the file that they come from
    #[arg(long, value_name = "BOOL", default_value = "true", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, action = ArgAction::Set, value_parser = BoolishValueParser::new())]
    annotate: bool,

    /// Print the objects that do not match
    #[arg(long)]
    invert_match: bool,

    #[command(flatten)]
    recurse: Recurse,
}

/// Show objects as a tree, by directories or by owners
#[derive(Debug, clap::Args)]
struct TreeArgs {
    /// Directory or file, or - for standard input
    #[arg(default_value = ".", value_name = "DIR")]
    path: String,

    /// Show the names of containers
    #[arg(long)]
    name: bool,

    /// Show images
    #[arg(long)]
    image: bool,

    /// Show commands
    #[arg(long)]
    command: bool,

    /// Show arguments
    #[arg(long)]
    args: bool,

    /// Show environments
    #[arg(long)]
    env: bool,

    /// Show replicas
    #[arg(long)]
    replicas: bool,

    /// Show requests and limits
    #[arg(long)]
    resources: bool,

    /// Show ports
    #[arg(long)]
    ports: bool,

    /// Show all of these
    #[arg(long)]
    all: bool,

    /// Show this field
    #[arg(long, value_delimiter = ',', value_name = "PATH")]
    field: Vec<String>,

    #[command(flatten)]
    local: LocalArgs,

    /// Structure of the tree: directory or owners
    #[arg(long, value_name = "STRUCTURE")]
    graph_structure: Option<String>,
}

pub(crate) fn run(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    ui.has_formats_of("cfg")?;
    let here = std::env::current_dir()?.display().to_string();
    let config = Config {
        files: &Disk,
        working_directory: &here,
        max_file_size: usize::try_from(global.max_input_size).unwrap_or(usize::MAX),
    };
    let (path, recurse) = match &args.command {
        Command::Cat(cat) => (cat.path.as_deref(), cat.recurse.recurse_subpackages),
        Command::Count(count) => (count.path.as_deref(), count.recurse.recurse_subpackages),
        Command::Grep(grep) => (grep.path.as_deref(), grep.recurse.recurse_subpackages),
        Command::Tree(tree) => (Some(tree.path.as_str()).filter(|path| *path != "-"), true),
    };
    let bytes = match path {
        None => input::read("-", global.max_input_size)?.bytes,
        Some(_) => Vec::new(),
    };
    let from = match path {
        None => From::Stream(&bytes),
        Some(path) => From::Directory { path, recurse },
    };
    let (text, dest) = match &args.command {
        Command::Cat(cat) => (config.cat(from, &chosen(cat)), cat.dest.as_deref()),
        Command::Count(count) => (config.count(from, count.kind), None),
        Command::Grep(grep) => {
            let found = Search::parse(&grep.query, grep.invert_match)
                .and_then(|search| config.grep(from, &search, grep.annotate));
            (found, None)
        }
        Command::Tree(tree) => {
            let shown =
                shown(tree).and_then(|fields| config.tree(from, &fields, tree.local.chosen()));
            (shown, None)
        }
    };
    let text = text.map_err(|error| CommandFailure::BadInput(vec![error.into()]))?;
    match dest {
        Some(path) => {
            std::fs::write(path, text).map_err(|error| input::cannot("write", path, &error))?;
        }
        None => {
            let mut out = ui.data();
            out.write_all(text.as_bytes())?;
            out.flush()?;
        }
    }
    Ok(CommandOutcome::Done)
}

fn chosen(args: &CatArgs) -> Cat {
    Cat {
        unformatted: args.unformatted,
        annotate: args.annotate,
        wrap_kind: args.wrap_kind.clone().unwrap_or_default(),
        wrap_version: args.wrap_version.clone().unwrap_or_default(),
        function_config: args.function_config.clone(),
        styles: args.style.clone(),
        strip_comments: args.strip_comments,
        local: args.local.chosen(),
    }
}

fn shown(args: &TreeArgs) -> kiln_kustomize::Result<Tree> {
    let structure = match args.graph_structure.as_deref() {
        None | Some("") => None,
        Some("directory") => Some(Structure::Directory),
        Some("owners") => Some(Structure::Owners),
        Some(other) => {
            return Err(kiln_kustomize::Error::new(format!("unknown graph structure {other}"))
                .hint("it is directory or owners"));
        }
    };
    let mut tree = Tree::new(structure);
    for path in &args.field {
        tree.field(path)?;
    }
    let chosen = |chosen: bool| chosen || args.all;
    for (name, on) in [
        ("name", args.name),
        ("image", args.image),
        ("command", args.command),
        ("args", args.args),
        ("env", args.env),
    ] {
        if chosen(on) {
            tree.container_field(name);
        }
    }
    if chosen(args.replicas) {
        tree.field("spec.replicas")?;
    }
    if chosen(args.resources) {
        tree.container_field("resources");
    }
    if chosen(args.ports) {
        tree.container_field("ports");
        tree.field("spec.ports")?;
    }
    Ok(tree)
}

/// kustomize's `cfg cat --format`, which elsewhere chooses the form of the output, as [`CatArgs`] has it.
pub(crate) fn plain_format(args: Vec<std::ffi::OsString>) -> Vec<std::ffi::OsString> {
    let is_cat = args.get(1).is_some_and(|word| word == "cfg")
        && args.get(2).is_some_and(|word| word == "cat");
    if !is_cat {
        return args;
    }
    let mut rest = args.into_iter().peekable();
    let mut plain = Vec::new();
    while let Some(word) = rest.next() {
        let form = rest.peek().and_then(|next| next.to_str());
        let is_form = form
            .is_some_and(|form| <OutputFormat as clap::ValueEnum>::from_str(form, false).is_ok());
        match word.to_str() {
            Some("--format=false" | "--format=0" | "--format=f" | "--format=F") => {
                plain.push("--unformatted".into());
            }
            Some("--format=true" | "--format=1" | "--format=t" | "--format=T") => {}
            Some("--format") if !is_form => {}
            _ => plain.push(word),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_of_cat_is_that_of_kustomize() {
        for (typed, wanted) in [
            ("kiln cfg cat --format=false .", "kiln cfg cat --unformatted ."),
            ("kiln cfg cat --format .", "kiln cfg cat ."),
            ("kiln cfg cat --format=true", "kiln cfg cat"),
            ("kiln cfg cat --format json .", "kiln cfg cat --format json ."),
            ("kiln fmt --format=false", "kiln fmt --format=false"),
        ] {
            let words = typed.split(' ').map(Into::into).collect();
            let words: Vec<_> = plain_format(words);
            let wanted: Vec<std::ffi::OsString> = wanted.split(' ').map(Into::into).collect();
            assert_eq!(words, wanted, "{typed}");
        }
    }
}
