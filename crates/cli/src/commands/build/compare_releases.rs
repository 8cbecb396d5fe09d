//! `kiln build --as … --compare`: which objects a release of kustomize prints differently from the newest, and why.
//!
//! Each difference is switched on alone in the older release: the objects that change then change because of it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use kiln_diagnostic::Diagnostic;
use kiln_kustomize::{BuildOptions, DIFFERENCES, Output, ReleaseBehavior, ReleaseDifference};
use kiln_object::metadata;
use kiln_value::Value;
use serde_json::json;

use crate::args::{Global, OutputFormat};
use crate::exit::{CommandFailure, CommandOutcome, CommandResult};
use crate::kustomization::{BuildHost, try_build};
use crate::ui::{Ui, counted, plain};

/// What an object is known by in the output of a build.
type Key = (String, String, String);

/// An object that differs.
struct Changed {
    /// As the older release has it, or the newer where only that has it.
    key: Key,
    change: &'static str,
    /// Its key in the newer release, if that is another.
    renamed: Option<Key>,
    because: Vec<&'static ReleaseDifference>,
}

pub(super) fn run(
    ui: &Ui,
    global: &Global,
    directory: &str,
    options: &BuildOptions,
    host: &BuildHost<'_>,
) -> CommandResult {
    let build = |behavior: ReleaseBehavior| {
        let options = BuildOptions { behavior, ..options.clone() };
        try_build(ui, global, directory, &options, host)
    };
    let (older, newest) = (options.behavior, ReleaseBehavior::default());
    let (old, new) = (build(older)?, build(newest)?);
    let apart: Vec<&ReleaseDifference> =
        DIFFERENCES.iter().filter(|difference| difference.since > older.version).collect();
    let (old, new) = match (old, new) {
        (Ok(old), Ok(new)) => (old, new),
        (Err(_), Err(failed)) => return Err(CommandFailure::BadInput(vec![failed.error.into()])),
        (old, new) => {
            // One release builds it and the other does not: the differences that decide it.
            let fails_now = new.is_err();
            let failed = old.err().or(new.err()).map(|failed| Diagnostic::from(failed.error));
            let mut because = Vec::new();
            for difference in apart {
                if build(older.with(difference))?.is_err() == fails_now {
                    because.push(difference);
                }
            }
            let release = if fails_now { newest } else { older };
            return show_failure(ui, release, failed.as_ref(), &because);
        }
    };
    let mut changed = pairs(&old, &new);
    for difference in apart {
        if changed.is_empty() {
            break;
        }
        let Ok(with) = build(older.with(difference))? else { continue };
        let touched: BTreeSet<Key> = pairs(&old, &with).into_iter().map(|pair| pair.key).collect();
        for object in changed.iter_mut().filter(|object| touched.contains(&object.key)) {
            object.because.push(difference);
        }
    }
    show(ui, older, newest, old.objects.len(), &changed)
}

fn keyed(output: &Output) -> BTreeMap<Key, &Value> {
    let key = |object: &Value| {
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        (
            text(object.str_at(["kind"])),
            text(metadata::namespace(object)),
            text(metadata::name(object)),
        )
    };
    output.objects.iter().map(|object| (key(object), object)).collect()
}

/// The objects that differ. One that is gone and one of the same kind that is new are the same object under another
/// name: a hash or a namespace has changed.
fn pairs(old: &Output, new: &Output) -> Vec<Changed> {
    let (old, new) = (keyed(old), keyed(new));
    let changed = |key: &Key, change| Changed {
        key: key.clone(),
        change,
        renamed: None,
        because: Vec::new(),
    };
    let mut found = Vec::new();
    let mut added: Vec<&Key> = new.keys().filter(|key| !old.contains_key(*key)).collect();
    for (key, object) in &old {
        match new.get(key) {
            Some(now) if now == object => {}
            Some(_) => found.push(changed(key, "changes")),
            None => match added.iter().position(|other| other.0 == key.0) {
                Some(at) => {
                    let renamed = Some(added.remove(at).clone());
                    found.push(Changed { renamed, ..changed(key, "is renamed") });
                }
                None => found.push(changed(key, "is gone")),
            },
        }
    }
    found.extend(added.into_iter().map(|key| changed(key, "is new")));
    found
}

fn shown((kind, namespace, name): &Key) -> String {
    match namespace.as_str() {
        "" => format!("{kind}/{name}"),
        namespace => format!("{kind}/{namespace}/{name}"),
    }
}

fn as_json(difference: &ReleaseDifference) -> serde_json::Value {
    json!({
        "name": difference.name,
        "since": difference.since.to_string(),
        "what": difference.what,
    })
}

fn line(difference: &ReleaseDifference) -> String {
    format!("  since {}: {} ({})", difference.since, difference.what, difference.name)
}

fn show(
    ui: &Ui,
    older: ReleaseBehavior,
    newest: ReleaseBehavior,
    objects: usize,
    changed: &[Changed],
) -> CommandResult {
    let (older, newest) = (older.version.to_string(), newest.version.to_string());
    if ui.format() == OutputFormat::Text {
        let mut out = ui.stdout();
        for object in changed {
            let now = object.renamed.as_ref().map(|key| format!(" to {}", shown(key)));
            let now = now.unwrap_or_default();
            writeln!(out, "{}", plain(&format!("{} {}{now}", shown(&object.key), object.change)))?;
            for difference in &object.because {
                writeln!(out, "{}", line(difference))?;
            }
            if object.because.is_empty() {
                writeln!(out, "  by several changes together, none of them alone")?;
            }
        }
        let count = counted(changed.len(), "object differs", "objects differ");
        writeln!(out, "{count} of {objects} between kustomize {older} and {newest}")?;
        out.flush()?;
    } else {
        let objects: Vec<_> = changed
            .iter()
            .map(|object| {
                let differences: Vec<_> =
                    object.because.iter().map(|difference| as_json(difference)).collect();
                json!({
                    "kind": object.key.0,
                    "namespace": object.key.1,
                    "name": object.key.2,
                    "change": object.change,
                    "renamedTo": object.renamed.as_ref().map(shown),
                    "differences": differences,
                })
            })
            .collect();
        ui.document(&json!({"older": older, "newer": newest, "objects": objects}))?;
    }
    Ok(if changed.is_empty() { CommandOutcome::Done } else { CommandOutcome::Negative })
}

fn show_failure(
    ui: &Ui,
    release: ReleaseBehavior,
    failed: Option<&Diagnostic>,
    because: &[&ReleaseDifference],
) -> CommandResult {
    let version = release.version.to_string();
    let error = failed.map(ToString::to_string).unwrap_or_default();
    if ui.format() == OutputFormat::Text {
        let mut out = ui.stdout();
        writeln!(out, "only kustomize {version} fails: {}", plain(&error))?;
        for difference in because {
            writeln!(out, "{}", line(difference))?;
        }
        out.flush()?;
    } else {
        let because: Vec<_> = because.iter().map(|difference| as_json(difference)).collect();
        ui.document(&json!({"fails": version, "error": error, "differences": because}))?;
    }
    Ok(CommandOutcome::Negative)
}
