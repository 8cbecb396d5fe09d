//! `cargo xtask docs`: the documentation site.
//!
//! ```text
//! docs, and the pages elsewhere that docs/SUMMARY.md names ─▶ target/docs-source ─▶ mdBook ─▶ target/docs
//! ```
//!
//! Pages are written so that their links work where the repository is read. On the way to the site, links to pages are
//! made to fit their new places, and links to what the site does not have (sources, examples) become plain text. The
//! links of the built pages are checked as a browser would follow them. Search works without a server.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use kiln_testkit::markdown::{is_external, links, resolve};
use regex::Regex;

use crate::{cache, root};

const VERSION: &str = "0.5.4";
const INDEX: &str = "docs/SUMMARY.md";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where the site goes; otherwise target/docs
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
}

/// Whether the site was built, and all its links lead somewhere.
#[expect(clippy::print_stdout, reason = "the path is this command's output")]
pub(crate) fn run(args: &Args) -> Result<bool> {
    let source = root().join("target/docs-source");
    let site = args.into.clone().unwrap_or_else(|| root().join("target/docs"));
    gather(&root(), &source)?;
    let built = Command::new(mdbook()?)
        .arg("build")
        .arg("--dest-dir")
        .arg(std::path::absolute(&site)?)
        .arg(&source)
        .status()
        .context("cannot start mdbook")?;
    if !built.success() {
        bail!("mdbook cannot build the site");
    }
    let broken = broken_links(&site)?;
    for link in &broken {
        eprintln!("error: {link}");
    }
    println!("{}", site.join("index.html").display());
    Ok(broken.is_empty())
}

/// mdBook, built if it is not there yet.
fn mdbook() -> Result<PathBuf> {
    let directory = cache()?.join(format!("mdbook-{VERSION}"));
    let binary = directory.join("bin/mdbook");
    if binary.exists() {
        return Ok(binary);
    }
    eprintln!("mdbook {VERSION} is built, which takes some minutes");
    let built = Command::new("cargo")
        .args(["install", "mdbook", "--version", VERSION, "--locked"])
        .args(["--no-default-features", "--features", "search", "--root"])
        .arg(&directory)
        .status()
        .context("cannot start cargo")?;
    if !built.success() {
        bail!("mdbook {VERSION} cannot be built: see above");
    }
    Ok(binary)
}

/// Writes the pages of the site into a directory.
fn gather(root: &Path, into: &Path) -> Result<()> {
    if into.exists() {
        fs::remove_dir_all(into)?;
    }
    let places = places(root)?;
    for (page, place) in &places {
        let target = into.join(place);
        fs::create_dir_all(target.parent().context("a page lies in a directory")?)?;
        if page.ends_with(".md") {
            let text = fs::read_to_string(root.join(page)).with_context(|| page.clone())?;
            fs::write(target, fitted(&text, page, place, &places))?;
        } else {
            fs::copy(root.join(page), target).with_context(|| page.clone())?;
        }
    }
    Ok(())
}

/// What the site is made of: paths in the project, and where they lie in the site.
fn places(root: &Path) -> Result<BTreeMap<String, String>> {
    let mut files = Vec::new();
    files_below(&root.join("docs"), &mut files)?;
    let mut places = BTreeMap::new();
    for file in files {
        let page = path_below(root, &file)?;
        let place = page.strip_prefix("docs/").unwrap_or(&page);
        places.insert(page.clone(), index_page(place));
    }
    let index = fs::read_to_string(root.join(INDEX)).context(INDEX)?;
    for link in links(&index) {
        let page = resolve(INDEX, &index[link.target]);
        if !page.starts_with("docs/") {
            let place = index_page(&format!("project/{page}"));
            places.insert(page, place);
        }
    }
    Ok(places)
}

/// What a directory shows first is called `README.md` in repositories and `index.html` in sites.
fn index_page(place: &str) -> String {
    match place.strip_suffix("README.md") {
        Some(directory) => format!("{directory}index.md"),
        None => place.to_owned(),
    }
}

/// The text of a page with links that fit the site.
fn fitted(text: &str, page: &str, place: &str, places: &BTreeMap<String, String>) -> String {
    let mut new = text.to_owned();
    for link in links(text).into_iter().rev() {
        let target = &text[link.target.clone()];
        if is_external(target) {
            continue;
        }
        let heading = target.find('#').map_or("", |at| &target[at..]);
        match places.get(&resolve(page, target)) {
            Some(to) => new.replace_range(link.target, &format!("{}{heading}", way(place, to))),
            None => new.replace_range(link.whole, &text[link.text]),
        }
    }
    new
}

/// The relative address of one page at another.
fn way(from: &str, to: &str) -> String {
    let from: Vec<&str> = from.split('/').collect();
    let to: Vec<&str> = to.split('/').collect();
    let directories = from.len() - 1;
    let shared =
        from.iter().take(directories).zip(&to[..to.len() - 1]).take_while(|(a, b)| a == b).count();
    let up = std::iter::repeat_n("..", directories - shared);
    up.chain(to[shared..].iter().copied()).collect::<Vec<_>>().join("/")
}

/// Links of built pages that lead to no file, or to no place in it.
fn broken_links(site: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    files_below(site, &mut files)?;
    let mut pages = BTreeMap::new();
    let id = Regex::new(r#"\sid="([^"]*)""#)?;
    for file in &files {
        // It is shown at any address.
        if file.extension().is_some_and(|ending| ending == "html") && !file.ends_with("404.html") {
            let text = fs::read_to_string(file)?;
            let ids: BTreeSet<String> =
                id.captures_iter(&text).map(|id| id[1].to_owned()).collect();
            pages.insert(path_below(site, file)?, (text, ids));
        }
    }
    let address = Regex::new(r#"\s(?:href|src)="([^"]*)""#)?;
    let mut broken = Vec::new();
    for (page, (text, _)) in &pages {
        for found in address.captures_iter(text) {
            let target = &found[1];
            if is_external(target) || target.starts_with("javascript:") || target == "#" {
                continue;
            }
            let path = resolve(page, target);
            let leads = match target.split_once('#') {
                Some((_, heading)) => {
                    pages.get(&path).is_some_and(|(_, ids)| ids.contains(heading))
                }
                None => site.join(&path).is_file(),
            };
            if !leads {
                broken.push(format!("{page}: {target} leads nowhere"));
            }
        }
    }
    Ok(broken)
}

fn files_below(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            files_below(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

fn path_below(directory: &Path, file: &Path) -> Result<String> {
    let path = file.strip_prefix(directory)?.to_str().context("a path is not text")?;
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{fitted, way};

    #[test]
    fn links_fit_the_site() {
        let places =
            [("docs/README.md", "index.md"), ("docs/a/b.md", "a/b.md"), ("S.md", "project/S.md")];
        let places: BTreeMap<_, _> =
            places.map(|(from, to)| (from.to_owned(), to.to_owned())).into();
        let text =
            "[x](../../S.md#h) [y](../README.md) [z](../../src/z.rs) [e](https://example.com)";
        assert_eq!(
            fitted(text, "docs/a/b.md", "a/b.md", &places),
            "[x](../project/S.md#h) [y](../index.md) z [e](https://example.com)"
        );
        assert_eq!(way("a/b.md", "a/c/d.md"), "c/d.md");
    }
}
