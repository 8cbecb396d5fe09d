//! `kiln fn`

use std::fs;
use std::io::Write;
use std::path::{Component, Path, PathBuf};

use clap::builder::FalseyValueParser;
use kiln_diagnostic::Diagnostic;
use kiln_kustomize::cfg::{Files, From, FunctionRun, FunctionsFrom};
use kiln_kustomize::fs::Disk;
use kiln_kustomize::{Build, BuildOptions};

use crate::args::Global;
use crate::exit::{CommandFailure, CommandOutcome, CommandResult};
use crate::plugin_options::FunctionArgs;
use crate::ui::Ui;
use crate::{input, interrupt};

/// Run KRM functions on files
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Run(RunArgs),
}

/// Run the functions that files declare, and rewrite the files of their directory
///
/// An object with the annotation config.kubernetes.io/function configures a function: an executable (--enable-exec) or
/// a container (--enable-alpha-plugins). It gets the objects of its directory, and of the parent directory if its own
/// is named functions; those of deeper directories run first. Comments are kept. Without DIR, standard input is read
/// and the result is printed.
#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Directory with the objects and the functions
    #[arg(value_name = "DIR")]
    directory: Option<String>,

    /// Print the result instead of writing files
    #[arg(long)]
    dry_run: bool,

    /// Directory with the functions to run, in place of those that DIR declares; they see all objects
    #[arg(long, value_delimiter = ',', value_name = "DIR", conflicts_with_all = ["image", "exec_path"])]
    fn_path: Vec<String>,

    /// Image to run as the only function
    #[arg(long, value_name = "IMAGE", conflicts_with = "exec_path")]
    image: Option<String>,

    /// Executable to run as the only function, with --enable-exec
    #[arg(long, value_name = "PROGRAM")]
    exec_path: Option<String>,

    /// Pass all objects to functions
    #[arg(long)]
    global_scope: bool,

    /// Directory for the results that functions report
    #[arg(long, value_name = "DIR")]
    results_dir: Option<String>,

    /// Log each function that runs
    #[arg(long)]
    log_steps: bool,

    /// Taken because kustomize has it: packages inside of a directory always count
    #[arg(long, hide = true)]
    include_subpackages: bool,

    /// For --image and --exec-path: the kind of the configuration, and NAME=VALUE for its data
    #[arg(last = true, value_name = "CONFIG")]
    config: Vec<String>,

    /// Deny images that a container runtime would pull
    #[arg(long, env = "KILN_OFFLINE", value_parser = FalseyValueParser::new())]
    offline: bool,

    #[command(flatten)]
    functions: FunctionArgs,
}

pub(crate) fn run(ui: &Ui, global: &Global, args: &Args) -> CommandResult {
    ui.has_formats_of("fn")?;
    let Command::Run(args) = &args.command;
    let functions = functions(args)?;
    let here = std::env::current_dir()?.display().to_string();
    let mut options = BuildOptions {
        max_file_size: usize::try_from(global.max_input_size).unwrap_or(usize::MAX),
        working_directory: here,
        offline: args.offline,
        ..BuildOptions::default()
    };
    args.functions.set(&mut options);
    let programs = args.functions.programs(true);
    let running = programs.running.clone();
    let to_end = running.clone();
    interrupt::before_ending(move || to_end.end())?;
    let bytes = match &args.directory {
        None => input::read("-", global.max_input_size)?.bytes,
        Some(_) => Vec::new(),
    };
    let run = FunctionRun {
        from: match args.directory.as_deref() {
            None => From::Stream(&bytes),
            Some(path) => From::Directory { path, recurse: true },
        },
        functions: &functions,
        global_scope: args.global_scope,
        print: args.dry_run,
        containers: options.enable_plugins,
        log_steps: args.log_steps,
    };
    let root = root(args)?;
    let ran = Build::new(&Disk, &options).programs(&programs).run_functions(&run);
    while running.is_over() {
        // The signal that ended the run ends the process.
        std::thread::park();
    }
    let files = ran.map_err(|failed| {
        for warning in &failed.warnings {
            ui.problem(warning);
        }
        CommandFailure::BadInput(vec![failed.error.into()])
    })?;
    for warning in &files.warnings {
        ui.problem(warning);
    }
    if self::root(args)? != root {
        let what = format!("{} is another directory than before the functions ran", root.display());
        return Err(Diagnostic::error(what).hint("a function moved it: nothing is written").into());
    }
    write(ui, args, &root, &files)?;
    for error in &files.failed {
        ui.problem(&error.clone().into());
    }
    Ok(if files.failed.is_empty() { CommandOutcome::Done } else { CommandOutcome::Negative })
}

fn functions(args: &RunArgs) -> Result<FunctionsFrom, CommandFailure> {
    let config = args.config.clone();
    match (&args.image, &args.exec_path) {
        (Some(image), _) => {
            Ok(FunctionsFrom::Image(image.clone(), args.functions.network(), config))
        }
        (None, Some(_)) if !args.functions.allows_programs() => {
            Err(Diagnostic::error("must specify --enable-exec with --exec-path").into())
        }
        (None, Some(path)) => Ok(FunctionsFrom::Program(path.clone(), config)),
        (None, None) if !config.is_empty() => {
            let hint = "what stands behind -- configures the function of --image or --exec-path";
            Err(Diagnostic::error("must specify --image").hint(hint).into())
        }
        (None, None) if args.fn_path.is_empty() => Ok(FunctionsFrom::Input),
        (None, None) => Ok(FunctionsFrom::Directories(args.fn_path.clone())),
    }
}

/// The directory that is read and written, without links, so that no function can put another into its place.
fn root(args: &RunArgs) -> Result<PathBuf, CommandFailure> {
    let directory = Path::new(args.directory.as_deref().unwrap_or("."));
    let shown = directory.display().to_string();
    let found = directory.canonicalize().map_err(|error| input::cannot("read", &shown, &error))?;
    let above = if found.is_dir() { None } else { found.parent().map(Path::to_path_buf) };
    Ok(above.unwrap_or(found))
}

fn write(ui: &Ui, args: &RunArgs, root: &Path, files: &Files) -> Result<(), CommandFailure> {
    if let Some(directory) = &args.results_dir {
        for (number, results) in &files.results {
            let file = format!("{directory}/results-{number}.yaml");
            fs::write(&file, results).map_err(|error| input::cannot("write", &file, &error))?;
        }
    }
    if let Some(text) = &files.printed {
        let mut out = ui.data();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        return Ok(());
    }
    // The core has refused every path that leaves the directory; this holds it to that.
    let inside = |path: &str| {
        let parts = Path::new(path).components();
        match parts.clone().all(|part| matches!(part, Component::Normal(_))) {
            true => Ok(root.join(path)),
            false => Err(Diagnostic::error(format!("{path} is not a file of the directory"))),
        }
    };
    // Before the first file is touched: a link that leads nowhere yet would be written through.
    for path in files.write.keys() {
        let file = inside(path)?;
        let link = file
            .ancestors()
            .take_while(|part| *part != root)
            .find(|part| fs::symlink_metadata(part).is_ok_and(|found| found.is_symlink()));
        if let Some(link) = link {
            let what = format!("cannot write {}: {} is a link", file.display(), link.display());
            return Err(Diagnostic::error(what).into());
        }
    }
    for (path, text) in &files.write {
        let file = inside(path)?;
        let shown = file.display().to_string();
        if let Some(directory) = file.parent() {
            fs::create_dir_all(directory).map_err(|error| input::cannot("make", &shown, &error))?;
        }
        if !file.exists() {
            let new = fs::OpenOptions::new().write(true).create_new(true).open(&file);
            new.and_then(|mut new| new.write_all(text.as_bytes()))
                .map_err(|error| input::cannot("write", &shown, &error))?;
        } else if fs::read(&file).ok().as_deref() != Some(text.as_bytes()) {
            input::Replacement::prepare(&shown, text)?.put()?;
        }
    }
    for path in &files.delete {
        let file = inside(path)?;
        fs::remove_file(&file)
            .map_err(|error| input::cannot("remove", &file.display().to_string(), &error))?;
    }
    Ok(())
}
