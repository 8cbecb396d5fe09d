//! `cargo xtask dist`: everything that a release consists of.
//!
//! ```text
//! commit ─▶ compile, per target ─▶ archive, with completions and manual pages
//!                       │          SBOM, from the packages that are linked
//!                       └────────▶ image (OCI layout, all Linux targets) ─▶ Helm chart that names it
//!           digests of all of it ─▶ SHA256SUMS, provenance, signatures
//! ```
//!
//! Every byte follows from the commit, the Rust toolchain and the pinned C compiler: no clock, no user, no path of this
//! machine gets in. `--verify` builds a second time, in another directory, and compares. `--smoke` starts the images.

mod archive;
mod chart;
mod compile;
mod digest;
mod image;
mod krew;
mod provenance;
mod sbom;
mod sign;
mod smoke;
mod target;
mod verify;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::{git, root};
use archive::Tree;
use target::Target;

/// What `kiln` completes words in, and the names of the scripts.
const COMPLETIONS: [(&str, &str); 5] = [
    ("bash", "kiln.bash"),
    ("elvish", "kiln.elv"),
    ("fish", "kiln.fish"),
    ("powershell", "_kiln.ps1"),
    ("zsh", "_kiln"),
];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A target to build for, as Rust names it; may be given several times
    #[arg(long = "target", value_name = "TRIPLE", default_values = ["x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl"])]
    targets: Vec<String>,
    /// Where the files go; otherwise the directory dist of the project
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
    /// The profile to build with, to try something out: what is published is built with dist
    #[arg(long, value_name = "NAME", default_value = "dist")]
    profile: String,
    /// Build the commit a second time in another directory, and fail unless all files are the same
    #[arg(long)]
    verify: bool,
    /// Build nothing: start the images of an earlier run, and let `kiln run` in them work on a sandbox
    #[arg(long, conflicts_with_all = ["verify", "targets"])]
    smoke: bool,
    /// Build nothing: sign the files of an earlier run with this private key (PEM, ECDSA P-256; needs openssl)
    #[arg(long, value_name = "KEY", conflicts_with_all = ["smoke", "verify", "targets"])]
    sign: Option<PathBuf>,
}

/// One build: from which sources, into which directories.
struct Plan<'p> {
    /// The checkout.
    tree: &'p Path,
    /// What cargo builds into.
    build: PathBuf,
    /// Where the files go.
    into: PathBuf,
    profile: &'p str,
    targets: &'p [Target],
    source: &'p Source,
}

/// What is built.
struct Source {
    version: String,
    /// The commit, and whether the checkout has changes that are not part of it.
    commit: String,
    changed: bool,
    /// When the commit was made, in seconds since 1970: the time of every file.
    epoch: u64,
    /// The name that the image is published under, without a tag (`KILN_IMAGE`): programs name it in `kiln install`.
    image: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<bool> {
    let root = root();
    let into = std::path::absolute(args.into.clone().unwrap_or_else(|| root.join("dist")))?;
    let source = Source::of(&root)?;
    if args.smoke {
        return smoke::run(&into, &source.version);
    }
    if let Some(key) = &args.sign {
        sign::sign(&into, key)?;
        list(&into)?;
        return Ok(true);
    }
    let targets = args.targets.iter().map(|name| Target::find(name)).collect::<Result<Vec<_>>>()?;
    if args.verify && source.changed {
        bail!(
            "the checkout has changes that are not committed: commit them, then verify the commit"
        );
    }
    let build =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let plan = Plan {
        tree: &root,
        build: std::path::absolute(build)?,
        into,
        profile: &args.profile,
        targets: &targets,
        source: &source,
    };
    make(&plan)?;
    list(&plan.into)?;
    if args.verify { verify::verify(&plan) } else { Ok(true) }
}

/// Builds everything, and writes it.
fn make(plan: &Plan<'_>) -> Result<()> {
    let Source { version, epoch, .. } = plan.source;
    let _ = fs::remove_dir_all(&plan.into);
    fs::create_dir_all(&plan.into).with_context(|| plan.into.display().to_string())?;
    let built = compile::all(plan)?;
    let extras = extras(plan, &built)?;
    let mut images = BTreeMap::new();
    let mut archives = BTreeMap::new();
    for (target, binary) in plan.targets.iter().zip(&built) {
        let bytes = fs::read(binary).with_context(|| binary.display().to_string())?;
        let name = format!("kiln-{version}-{}", target.name());
        let mut tree = Tree::default();
        tree.executable(&format!("{name}/{}", target.binary()), bytes.clone());
        for (path, text) in &extras {
            tree.file(&format!("{name}/{path}"), text.clone());
        }
        let packed = archive::gzip(&tree.tar(*epoch)?)?;
        archives.insert((target.os, target.arch), digest::sha256(&packed));
        fs::write(plan.into.join(format!("{name}.tar.gz")), packed)?;
        let linked = sbom::linked(plan.tree, target.triple)?;
        let bill = sbom::document(&linked, target, plan.source, &digest::sha256(&bytes));
        fs::write(plan.into.join(format!("{name}.cdx.json")), bill)?;
        if target.os == "linux" {
            images.insert(target.arch, bytes);
        }
    }
    if !images.is_empty() {
        let layout = image::layout(&images, plan.source)?;
        for (arch, size) in &layout.sizes {
            if *size > image::LIMIT {
                bail!("the image for {arch} has {size} bytes, and may have {}", image::LIMIT);
            }
        }
        layout.write(&plan.into.join("image"))?;
        let archive = layout.archive(*epoch)?;
        fs::write(plan.into.join(format!("kiln-{version}-image.tar")), archive)?;
        fs::write(plan.into.join("image.digest"), format!("{}\n", layout.digest))?;
        let chart = chart::package(plan.tree, plan.source, &layout.digest)?.tar(*epoch)?;
        fs::write(plan.into.join(format!("kiln-{version}.tgz")), archive::gzip(&chart)?)?;
    }
    if !images.is_empty() {
        // Builds for other systems are other runs: the manifest is one file.
        fs::write(plan.into.join(krew::FILE), krew::manifest(version, &archives))?;
    }
    let subjects = digest::files(&plan.into)?;
    let statement = provenance::statement(plan, &subjects)?;
    // Builds for other systems are other runs.
    let systems: BTreeSet<&str> = plan.targets.iter().map(|target| target.os).collect();
    let systems = systems.into_iter().collect::<Vec<_>>().join("-");
    fs::write(plan.into.join(format!("kiln-{version}-{systems}.provenance.json")), statement)?;
    let sums = digest::files(&plan.into)?;
    fs::write(plan.into.join(digest::SUMS), digest::sums(&sums))?;
    Ok(())
}

/// What goes into every archive beside the program.
fn extras(plan: &Plan<'_>, built: &[PathBuf]) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut extras = BTreeMap::new();
    for name in ["LICENSE", "README.md", "CHANGELOG.md"] {
        extras.insert(name.to_owned(), fs::read(plan.tree.join(name)).context(name)?);
    }
    let kiln = compile::that_runs_here(plan, built)?;
    for (shell, name) in COMPLETIONS {
        let script = compile::output(&kiln, &["completion", shell])?;
        extras.insert(format!("completions/{name}"), script);
    }
    let pages = tempfile::tempdir()?;
    let directory =
        pages.path().to_str().context("a temporary directory whose name is not text")?;
    compile::output(&kiln, &["man", directory])?;
    for page in fs::read_dir(pages.path())? {
        let page = page?;
        let name = page.file_name().to_string_lossy().into_owned();
        extras.insert(format!("man/man1/{name}"), fs::read(page.path())?);
    }
    Ok(extras)
}

/// Shows the files with their sizes and digests.
#[expect(clippy::print_stdout, reason = "the list is this command's output")]
fn list(into: &Path) -> Result<()> {
    println!("{}", into.display());
    for (name, sum) in digest::files(into)? {
        println!("{sum}  {:>9}  {name}", fs::metadata(into.join(&name))?.len());
    }
    Ok(())
}

impl Source {
    fn of(root: &Path) -> Result<Self> {
        let git = |args: &[&str]| git::output(root, args);
        Ok(Source {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: git(&["rev-parse", "HEAD"])?,
            changed: !git(&["status", "--porcelain"])?.is_empty(),
            epoch: git(&["log", "-1", "--format=%ct"])?
                .parse()
                .context("the time of the commit")?,
            image: std::env::var("KILN_IMAGE").ok().filter(|name| !name.is_empty()),
        })
    }
}
