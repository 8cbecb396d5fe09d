//! The Helm chart as the archive that `helm install` takes.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::Source;
use super::archive::Tree;

/// Where the chart lies in a checkout.
const CHART: &str = "charts/kiln";
/// How `values.yaml` leaves the image open.
const REPOSITORY: &str = "\n  repository: \"\"\n";
const DIGEST: &str = "\n  digest: \"\"\n";

/// The chart, without what only tests need. Where the image is published, the values name it by its digest, so that
/// chart and image of a release belong together.
pub(super) fn package(checkout: &Path, source: &Source, digest: &str) -> Result<Tree> {
    let root = checkout.join(CHART);
    let ignored = fs::read_to_string(root.join(".helmignore")).context(".helmignore")?;
    let ignored: Vec<&str> = ignored.lines().filter_map(|line| line.strip_suffix('/')).collect();
    let mut tree = Tree::default();
    add(&root, "kiln", &ignored, &mut tree)?;
    let stated = format!("\nversion: {}\nappVersion: {0}\n", source.version);
    let chart = fs::read_to_string(root.join("Chart.yaml")).context("Chart.yaml")?;
    ensure!(chart.contains(&stated), "{CHART}/Chart.yaml has another version than Cargo.toml");
    if let Some(image) = &source.image {
        let mut values = fs::read_to_string(root.join("values.yaml")).context("values.yaml")?;
        for (open, name, value) in
            [(REPOSITORY, "repository", image.as_str()), (DIGEST, "digest", digest)]
        {
            ensure!(values.matches(open).count() == 1, "values.yaml has no empty image.{name}");
            values = values.replace(open, &format!("\n  {name}: {value}\n"));
        }
        tree.file("kiln/values.yaml", values);
    }
    Ok(tree)
}

fn add(directory: &Path, name: &str, ignored: &[&str], tree: &mut Tree) -> Result<()> {
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let entry = entry?;
        let file = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{name}/{file}");
        if !entry.file_type()?.is_dir() {
            tree.file(&path, fs::read(entry.path()).with_context(|| path.clone())?);
        } else if !ignored.contains(&file.as_str()) {
            add(&entry.path(), &path, ignored, tree)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read as _;

    use super::*;
    use crate::root;

    /// The files of the archive for an image.
    fn files(image: Option<&str>) -> BTreeMap<String, String> {
        let source = Source {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: String::new(),
            changed: false,
            epoch: 7,
            image: image.map(str::to_owned),
        };
        let tar = package(&root(), &source, "sha256:abc").unwrap().tar(7).unwrap();
        let mut archive = tar::Archive::new(tar.as_slice());
        let mut files = BTreeMap::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().to_str().unwrap().to_owned();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            files.insert(path, text);
        }
        files
    }

    #[test]
    fn the_archive_is_the_chart_without_its_test_values() {
        let files = files(None);
        let read = |name: &str| fs::read_to_string(root().join(CHART).join(name)).unwrap();
        for name in ["Chart.yaml", "values.yaml", "values.schema.json", "templates/crds.yaml"] {
            assert_eq!(files.get(&format!("kiln/{name}")), Some(&read(name)), "{name}");
        }
        assert!(!files.keys().any(|path| path.starts_with("kiln/ci/")), "{:?}", files.keys());
    }

    #[test]
    fn a_published_image_is_named_by_its_digest() {
        let values = &files(Some("registry.example.com/kiln"))["kiln/values.yaml"];
        assert!(values.contains("\n  repository: registry.example.com/kiln\n"), "{values}");
        assert!(values.contains("\n  digest: sha256:abc\n"), "{values}");
    }
}
