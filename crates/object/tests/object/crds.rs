//! The recorded CustomResourceDefinitions join the built-in kinds.

use kiln_object::Kinds;
use kiln_testkit::{Tally, corpus};
use kiln_yaml::{ReadOptions, read_bytes};

#[test]
fn recorded_definitions_are_read() {
    let Some(folder) = corpus("crds") else { return };
    let mut tally = Tally::new("crds");
    let files =
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path());
    for file in files.filter(|file| file.extension().is_some_and(|extension| extension == "yaml")) {
        let name = file.file_name().expect("a name").to_string_lossy().into_owned();
        tally.case(&name, || {
            let bytes = std::fs::read(&file).map_err(|e| e.to_string())?;
            let documents = read_bytes(&name, &bytes, ReadOptions::kustomize_resource())
                .map_err(|e| format!("{e:?}"))?;
            for document in &documents {
                let kinds =
                    Kinds::builtin().with_crd(document.value()).map_err(|e| e.to_string())?;
                // Files are named `group_plural.yaml`.
                let (group, plural) =
                    name.trim_end_matches(".yaml").split_once('_').ok_or("a name without group")?;
                let kind =
                    kinds.find(&format!("{plural}.{group}")).ok_or("not found by its name")?;
                if kind.plural() != plural || kind.group() != group {
                    return Err(format!("found {}", kind.gvk()));
                }
                let stored = kinds.versions(group, kind.kind()).filter(|kind| kind.is_storage());
                if stored.count() != 1 {
                    return Err("not stored in one version".into());
                }
            }
            Ok(())
        });
    }
    tally.finish();
}
