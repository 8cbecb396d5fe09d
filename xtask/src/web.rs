//! `cargo xtask web`: Kiln Studio, the web application.
//!
//! ```text
//! web/src, examples ─ vite ─▶ web/bundle (committed; the binary embeds it)
//! crates/studio ─ cargo, wasm-bindgen, wasm-opt ─▶ kiln.js, kiln.wasm ┐
//! web/bundle ─────────────────────────────────────────────────────────┴─▶ web/dist (the static playground)
//! ```
//!
//! The bundle holds no engine: `kiln ui` answers the calls of the page itself, so the binary never carries an older
//! engine than its own. Only the static playground has the engine as WebAssembly.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::root;

/// The limits of what is loaded first, and of what the binary embeds.
const MAX_LOADED: u64 = 2_000_000;
const MAX_EMBEDDED: u64 = 6_000_000;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Build only web/bundle, which the binary embeds
    #[arg(long)]
    bundle: bool,

    /// Build web/bundle elsewhere, and compare it with the committed one
    #[arg(long, conflicts_with = "bundle")]
    check: bool,

    /// Run the stories in a browser (Node, Chromium)
    #[arg(long, conflicts_with_all = ["bundle", "check"])]
    stories: bool,

    /// Take the screenshots of the documentation (Node, Chromium)
    #[arg(long, conflicts_with_all = ["bundle", "check", "stories"])]
    screenshots: bool,

    /// The kiln that stories run; otherwise target/debug/kiln
    #[arg(long, value_name = "FILE")]
    kiln: Option<PathBuf>,
}

/// Whether everything is as it should be.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let web = root().join("web");
    if Command::new("node").arg("--version").output().is_err() {
        skip("the web application", "there is no Node", "install Node 20.19 or newer");
        return Ok(true);
    }
    if !install(&web)? {
        skip("the web application", "npm cannot install its packages", "npm ci in web");
        return Ok(true);
    }
    let kiln = args.kiln.clone().unwrap_or_else(|| root().join("target/debug/kiln"));
    if args.stories || args.check {
        let same = is_bundle_current(&web)?;
        if args.check {
            return Ok(same);
        }
        let mut success = same;
        // Without the static playground there is nothing to compare.
        let scripts: &[&str] = match web.join("dist/kiln.wasm").exists() {
            true => &["stories/run.mjs", "stories/compare.mjs"],
            false => &["stories/run.mjs"],
        };
        for script in scripts {
            success &= node(&web).arg(script).arg("--kiln").arg(&kiln).status()?.success();
        }
        return Ok(success);
    }
    if args.screenshots {
        let taken = node(&web).arg("stories/screenshots.mjs").arg("--kiln").arg(&kiln).status()?;
        return Ok(taken.success());
    }
    vite(&web, "bundle")?;
    let embedded: u64 = sizes(&web.join("bundle"))?.values().sum();
    eprintln!("web/bundle: {embedded} bytes");
    if args.bundle {
        return Ok(embedded <= MAX_EMBEDDED);
    }
    let dist = web.join("dist");
    engine(&web, &dist)?;
    let loaded = brotli(&web, &dist)?;
    eprintln!("web/dist: {loaded} bytes in brotli, at most {MAX_LOADED}");
    Ok(embedded <= MAX_EMBEDDED && loaded <= MAX_LOADED)
}

fn skip(what: &str, missing: &str, how: &str) {
    eprintln!("skipped: {what}: {missing}; to get it: {how}");
}

fn node(web: &Path) -> Command {
    let mut node = Command::new("node");
    node.current_dir(web);
    node
}

/// Installs the pinned packages, if they are not there; whether they are there then.
fn install(web: &Path) -> Result<bool> {
    let lock = fs::read(web.join("package-lock.json"))?;
    let stamp = web.join("node_modules/.kiln-installed");
    if fs::read(&stamp).is_ok_and(|installed| installed == lock) {
        return Ok(true);
    }
    let told = Command::new("npm")
        .args(["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"])
        .current_dir(web)
        .status();
    if !told.is_ok_and(|status| status.success()) {
        return Ok(false);
    }
    fs::write(stamp, lock)?;
    Ok(true)
}

fn vite(web: &Path, into: &str) -> Result<()> {
    for arguments in [
        &["node_modules/typescript/bin/tsc", "--noEmit"][..],
        &["node_modules/vite/bin/vite.js", "build", "--logLevel", "warn", "--outDir", into],
    ] {
        if !node(web).args(arguments).status()?.success() {
            bail!("{} failed: see above", arguments[0]);
        }
    }
    Ok(())
}

/// Whether the committed bundle is what its sources make.
fn is_bundle_current(web: &Path) -> Result<bool> {
    let again = web.join("out");
    vite(web, "out")?;
    let mut same = true;
    let kept = web.join("bundle");
    let names: BTreeSet<String> =
        sizes(&again)?.into_keys().chain(sizes(&kept)?.into_keys()).collect();
    for name in names {
        let (built, kept) = (fs::read(again.join(&name)).ok(), fs::read(kept.join(&name)).ok());
        if built != kept {
            eprintln!(
                "error: web/bundle/{name} is not what the sources make: cargo xtask web --bundle"
            );
            same = false;
        }
    }
    fs::remove_dir_all(again)?;
    Ok(same)
}

/// The files of a directory, and how large they are.
fn sizes(directory: &Path) -> Result<BTreeMap<String, u64>> {
    let entries = fs::read_dir(directory).with_context(|| format!("{}", directory.display()))?;
    entries
        .map(|entry| {
            let entry = entry?;
            Ok((entry.file_name().to_string_lossy().into_owned(), entry.metadata()?.len()))
        })
        .collect()
}

/// The engine as WebAssembly, beside the files of the bundle.
fn engine(web: &Path, dist: &Path) -> Result<()> {
    let target = root().join("target/web");
    let home = std::env::var("CARGO_HOME")
        .or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")))?;
    // Messages of panics name files: as the same on every machine.
    let flags = [
        format!("--remap-path-prefix={}=/kiln", root().display()),
        format!("--remap-path-prefix={home}=/cargo"),
        // Documents nest as deep as the readers allow.
        "-Clink-arg=-zstack-size=8388608".to_owned(),
    ];
    let told = Command::new("cargo")
        .args(["build", "--release", "--locked", "--package", "kiln-wasm"])
        .args(["--target", "wasm32-unknown-unknown"])
        .arg("--manifest-path")
        .arg(web.join("wasm/Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .status()?;
    if !told.success() {
        bail!(
            "the engine does not compile for WebAssembly; `rustup target add wasm32-unknown-unknown` gets the target"
        );
    }
    let built = target.join("wasm32-unknown-unknown/release/kiln_wasm.wasm");
    let bound = target.join("bound");
    bind(web, &built, &bound)?;
    if dist.exists() {
        fs::remove_dir_all(dist)?;
    }
    fs::create_dir_all(dist)?;
    for name in sizes(&web.join("bundle"))?.into_keys() {
        fs::copy(web.join("bundle").join(&name), dist.join(&name))?;
    }
    fs::copy(bound.join("kiln.js"), dist.join("kiln.js"))?;
    let told = node(web)
        .arg("optimize.mjs")
        .arg(bound.join("kiln_bg.wasm"))
        .arg(dist.join("kiln.wasm"))
        .status()?;
    if !told.success() {
        bail!("wasm-opt failed: see above");
    }
    Ok(())
}

/// Writes the JavaScript beside the engine, with wasm-bindgen of the version that the engine is built with.
fn bind(web: &Path, built: &Path, bound: &Path) -> Result<()> {
    let told = Command::new("cargo")
        .args(["run", "--locked", "--quiet", "--package", "kiln-wasm-bind", "--manifest-path"])
        .arg(web.join("wasm/Cargo.toml"))
        .arg("--target-dir")
        .arg(root().join("target/web"))
        .arg("--")
        .arg(built)
        .arg(bound)
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .status()?;
    if !told.success() {
        bail!("wasm-bindgen failed: see above");
    }
    Ok(())
}

/// What a browser loads, compressed as servers do.
fn brotli(web: &Path, dist: &Path) -> Result<u64> {
    let script = "const fs=require('fs'),z=require('zlib');let sum=0;for(const n of fs.readdirSync(process.argv[1]))sum+=z.brotliCompressSync(fs.readFileSync(process.argv[1]+'/'+n)).length;console.log(sum)";
    let told = node(web).args(["-e", script]).arg(dist).output()?;
    String::from_utf8_lossy(&told.stdout)
        .trim()
        .parse()
        .context("node does not say how large the files are")
}
