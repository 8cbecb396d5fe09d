//! Builds a tree of two files, cut from any bytes: no panic, no endless work.

use kiln_kustomize::fs::Memory;
use kiln_kustomize::{Build, BuildOptions};

pub(crate) fn check(bytes: &[u8]) {
    let cut = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    let (kustomization, resources) = bytes.split_at(cut);
    let tree = Memory::new()
        .with("app/kustomization.yaml", kustomization)
        .with("app/a.yaml", resources.get(1..).unwrap_or_default())
        .with("base/kustomization.yaml", &b"resources: [a.yaml]\nnamePrefix: b-\n"[..])
        .with("base/a.yaml", &b"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"[..]);
    let _ = Build::new(&tree, &BuildOptions::default()).run("/app");
}
