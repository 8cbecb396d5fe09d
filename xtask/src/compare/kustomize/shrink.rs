//! Makes a tree small on which Kiln and kustomize differ.

use anyhow::Result;

use super::generate::Tree;
use super::{Files, Kind, Kustomize, build};

/// So many trees are tried.
const MOST: usize = 1200;
/// So many at once.
const ROUND: usize = 24;

/// The smallest tree that is found by leaving out parts while the difference stays of its kind.
pub(super) fn smallest(mut tree: Tree, kind: Kind, kustomize: &Kustomize) -> Result<Tree> {
    let mut tried = 0;
    let mut at = 0;
    let mut improved = false;
    while tried < MOST {
        if at >= tree.parts() {
            if !improved {
                break;
            }
            // What was needed before may not be any more.
            (at, improved) = (0, false);
        }
        let candidates: Vec<Tree> =
            (at..tree.parts().min(at + ROUND)).map(|part| tree.without(part)).collect();
        let files: Vec<Files> = candidates.iter().map(Tree::files).collect();
        tried += files.len();
        let theirs = kustomize.build_all(&files)?;
        let differs = files
            .iter()
            .zip(&theirs)
            .position(|(files, theirs)| Kind::of(&build(files), theirs) == Some(kind));
        match differs {
            Some(found) => {
                tree = candidates.into_iter().nth(found).unwrap_or(tree);
                at += found;
                improved = true;
            }
            None => at += ROUND,
        }
    }
    Ok(tree)
}
