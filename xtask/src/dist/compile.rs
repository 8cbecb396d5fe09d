//! Compiling `kiln`, so that the program does not depend on where and by whom it is built.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use kiln_testkit::control_plane::python_packages;

use super::Plan;
use super::target::{Compiler, Target};

/// What Zig is installed from.
pub(super) const ZIG: &str = "xtask/dist/zig.txt";

/// The programs for all targets, in their order.
pub(super) fn all(plan: &Plan<'_>) -> Result<Vec<PathBuf>> {
    for target in plan.targets {
        let Compiler::Native = target.compiler else { continue };
        if !cfg!(target_os = "macos") {
            bail!("{} can only be built on a Mac: Apple's SDK may not be passed on", target.triple);
        }
    }
    install_targets(plan)?;
    plan.targets.iter().map(|target| one(plan, target)).collect()
}

/// Gets Rust's standard library for the targets, if it is missing.
fn install_targets(plan: &Plan<'_>) -> Result<()> {
    let sysroot = output(Path::new("rustc"), &["--print", "sysroot"])?;
    let libraries = Path::new(String::from_utf8(sysroot)?.trim()).join("lib/rustlib");
    let missing: Vec<&str> = plan
        .targets
        .iter()
        .map(|target| target.triple)
        .filter(|triple| !libraries.join(triple).join("lib").is_dir())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let added = Command::new("rustup")
        .current_dir(plan.tree)
        .args(["target", "add"])
        .args(&missing)
        .status();
    if !added.is_ok_and(|status| status.success()) {
        bail!(
            "Rust's standard library for {0} is missing: `rustup target add {0}`",
            missing.join(" ")
        );
    }
    Ok(())
}

/// The program for one target.
fn one(plan: &Plan<'_>, target: &Target) -> Result<PathBuf> {
    eprintln!("building kiln for {}", target.triple);
    let mut command = Command::new("cargo");
    command
        .current_dir(plan.tree)
        .args(["build", "--locked", "--package", "kiln", "--bin", "kiln"])
        .args(["--profile", plan.profile, "--target", target.triple])
        .env("CARGO_TARGET_DIR", &plan.build)
        .env("SOURCE_DATE_EPOCH", plan.source.epoch.to_string())
        // The lints of `cargo xtask test` are no part of what is shipped, and neither are the flags of this shell.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("RUSTFLAGS");
    let moved = moved(plan)?;
    let mut flags = linker(target);
    flags.extend(
        moved.iter().map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display())),
    );
    command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    for (name, value) in c_compiler(plan, target, &moved)? {
        command.env(format!("{name}_{}", target.in_variables()), value);
    }
    let status = command.status().context("cannot start cargo")?;
    if !status.success() {
        bail!("kiln cannot be built for {}: see above", target.triple);
    }
    Ok(plan.build.join(target.triple).join(directory(plan.profile)).join(target.binary()))
}

/// The directory that cargo builds a profile into.
fn directory(profile: &str) -> &str {
    if profile == "dev" { "debug" } else { profile }
}

/// Directories of this machine, and what programs call them instead. The last one that fits counts.
fn moved(plan: &Plan<'_>) -> Result<Vec<(PathBuf, &'static str)>> {
    let mut moved = vec![(plan.tree.to_owned(), "/kiln"), (plan.build.clone(), "/target")];
    let cargo = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")))
        .context("neither CARGO_HOME nor HOME says where cargo keeps packages")?;
    // Nothing is there before the first build on this machine.
    let fetched = Command::new("cargo").current_dir(plan.tree).args(["fetch", "--locked"]).status();
    if !fetched.is_ok_and(|status| status.success()) {
        bail!("`cargo fetch --locked` failed: the packages that Kiln needs cannot be fetched");
    }
    let registries = cargo.join("registry/src");
    let mut directories: Vec<PathBuf> = fs::read_dir(&registries)
        .with_context(|| registries.display().to_string())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    directories.sort();
    moved.extend(directories.into_iter().map(|directory| (directory, "/cargo")));
    Ok(moved)
}

/// How programs are linked.
pub(super) fn linker(target: &Target) -> Vec<String> {
    match target.compiler {
        // It comes with Rust, as the C library does: nothing of this machine is linked.
        Compiler::Zig(_) => vec!["-Clinker=rust-lld".to_owned()],
        Compiler::Gnu(prefix) => vec![
            format!("-Clinker={prefix}-gcc"),
            // It would write the time into the program.
            "-Clink-arg=-Wl,--no-insert-timestamp".to_owned(),
        ],
        Compiler::Native => Vec::new(),
    }
}

/// What compiles the C code of packages (ring, mimalloc).
fn c_compiler(
    plan: &Plan<'_>,
    target: &Target,
    moved: &[(PathBuf, &'static str)],
) -> Result<Vec<(&'static str, OsString)>> {
    let flags = moved.iter().map(|(from, to)| format!("-ffile-prefix-map={}={to}", from.display()));
    let flags = OsString::from(flags.collect::<Vec<_>>().join(" "));
    Ok(match target.compiler {
        Compiler::Zig(system) => {
            let (cc, ar) = zig(plan, system)?;
            vec![("CC", cc.into()), ("AR", ar.into()), ("CFLAGS", flags)]
        }
        Compiler::Gnu(prefix) => {
            let gcc = format!("{prefix}-gcc");
            if Command::new(&gcc).arg("--version").output().is_err() {
                bail!(
                    "{gcc} is missing: install MinGW-w64 (Debian: apt-get install gcc-mingw-w64-x86-64)"
                );
            }
            vec![("CC", gcc.into()), ("AR", format!("{prefix}-ar").into()), ("CFLAGS", flags)]
        }
        Compiler::Native => Vec::new(),
    })
}

/// Commands that call Zig as a C compiler and as an archiver. Packages give the target as Rust names it, which Zig does
/// not know.
fn zig(plan: &Plan<'_>, system: &str) -> Result<(PathBuf, PathBuf)> {
    let packages = python_packages(&plan.tree.join(ZIG)).context(
        "the C compiler for other systems is missing: it is installed from the Python package ziglang, \
         which needs Python 3 with pip (Debian: apt-get install python3-pip)",
    )?;
    let zig = packages.join("ziglang/zig");
    let zig = zig.to_str().context("the cache has a name that is not text")?.replace('\'', r"'\''");
    let cc = format!(
        "#!/bin/sh\nfor word do\n  shift\n  case $word in --target=*) ;; *) set -- \"$@\" \"$word\" ;; esac\ndone\n\
         exec '{zig}' cc -target {system} \"$@\"\n"
    );
    let ar = format!("#!/bin/sh\nexec '{zig}' ar \"$@\"\n");
    Ok((command_file(plan, &format!("cc-{system}"), &cc)?, command_file(plan, "ar", &ar)?))
}

/// Writes a script, if it is not there yet: a newer file would make cargo compile again.
fn command_file(plan: &Plan<'_>, name: &str, text: &str) -> Result<PathBuf> {
    let path = plan.build.join("cc").join(name);
    if fs::read_to_string(&path).is_ok_and(|found| found == text) {
        return Ok(path);
    }
    fs::create_dir_all(plan.build.join("cc"))?;
    fs::write(&path, text).with_context(|| path.display().to_string())?;
    #[cfg(unix)]
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    Ok(path)
}

/// One of the programs that this machine can run, or one that is built for that.
pub(super) fn that_runs_here(plan: &Plan<'_>, built: &[PathBuf]) -> Result<PathBuf> {
    let ours = plan.targets.iter().zip(built).find(|(target, _)| target.runs_here());
    if let Some((_, binary)) = ours {
        return Ok(binary.clone());
    }
    eprintln!("building kiln for this machine, which writes the completions and the manual pages");
    let status = Command::new("cargo")
        .current_dir(plan.tree)
        .args(["build", "--locked", "--package", "kiln", "--release"])
        .env("CARGO_TARGET_DIR", &plan.build)
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("kiln cannot be built for this machine: see above");
    }
    Ok(plan.build.join("release").join(if cfg!(windows) { "kiln.exe" } else { "kiln" }))
}

/// What a command prints.
pub(super) fn output(program: &Path, args: &[&str]) -> Result<Vec<u8>> {
    let shown = || format!("{} {}", program.display(), args.join(" "));
    let output = Command::new(program).args(args).output().with_context(shown)?;
    if !output.status.success() {
        bail!("{}: {}", shown(), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}
