//! Pods, and what makes Pods, against the Pod Security Standards.

use kiln_podsecurity::{
    Exclusion, FieldError, FieldFault as Wrong, Pod, Violation, describe, leave_out,
};
use kiln_rules::PodSecurity;
use kiln_text::image::Image;
use kiln_value::{Path, Str, Value, json, value};

use super::{Checked, Failed, ValidationFault};
use crate::output::failure::{Failure, FailureKind};

/// What came of a check of Pod Security.
pub(crate) struct Secured {
    pub(crate) checked: Checked,
    /// What is added to reports.
    pub(crate) properties: Vec<(Str, Str)>,
    /// Only what exceptions leave out was wrong.
    pub(crate) excepted: bool,
}

/// Holds an object against a standard; exceptions may leave out more than the rule does.
pub(crate) fn check(
    rule: &str,
    wanted: &PodSecurity,
    object: &Value,
    excepted: &[Exclusion],
) -> Result<Secured, Failure> {
    let passed = || Secured {
        checked: Checked::Pass(format!("Validation rule '{rule}' passed.")),
        properties: Vec::new(),
        excepted: false,
    };
    // Kyverno's words.
    let unreadable = |why: String| {
        let message = format!("Error while getting new resource: {why}");
        Failure::new(FailureKind::Value, message)
    };
    let kind = object.str_at(["kind"]).unwrap_or_default();
    let Some(pod_at) = pod_of(kind) else {
        return Err(unreadable("could not find correct resource type".to_owned())
            .hint("match Pods, or kinds that make Pods"));
    };
    let template = object.get_path(&pod_at);
    let pod = Pod::read(
        template.and_then(|template| template.get("metadata")),
        template.and_then(|template| template.get("spec")),
    )
    .map_err(|malformed| unreadable(malformed.to_string()))?;
    let found = wanted.standard.check(&pod);
    // Kyverno: reports name the images of all containers that break a control, also of those that are left out.
    let images: Vec<_> = found.iter().map(|one| (one.check, one.images(&pod))).collect();
    let found = leave_out(found, &wanted.exclude, &pod);
    if found.is_empty() {
        return Ok(passed());
    }
    let found = leave_out(found, excepted, &pod);
    if found.is_empty() {
        return Ok(Secured { excepted: true, ..passed() });
    }
    let (level, version) = (wanted.standard.level, &wanted.version);
    let message = format!(
        "Validation rule '{rule}' failed. It violates PodSecurity \"{level}:{version}\": {}",
        describe(&found, &pod_at)
    );
    let faults = found.iter().flat_map(|violation| {
        violation.errors.iter().map(|error| fault(violation, error, &pod_at, wanted))
    });
    let checked = Checked::Fail(Failed { message, faults: faults.collect(), fix: None });
    Ok(Secured { checked, properties: properties(wanted, &found, &images), excepted: false })
}

/// Where a kind keeps the Pod that it is, or makes.
fn pod_of(kind: &str) -> Option<Path> {
    Some(match kind {
        "Pod" => Path::root(),
        "DaemonSet"
        | "Deployment"
        | "Job"
        | "StatefulSet"
        | "ReplicaSet"
        | "ReplicationController" => Path::from_iter(["spec", "template"]),
        "CronJob" => Path::from_iter(["spec", "jobTemplate", "spec", "template"]),
        _ => return None,
    })
}

fn fault(
    violation: &Violation,
    error: &FieldError,
    pod_at: &Path,
    wanted: &PodSecurity,
) -> ValidationFault {
    let steps = pod_at.segments().iter().chain(error.path.segments());
    let control = violation.control;
    let why = match &error.fault {
        Wrong::Required => format!("{control}: a value is required"),
        Wrong::Forbidden(_) => {
            let said = error.describe(pod_at);
            match said.split_once("found: ") {
                Some((_, value)) => format!("{control}: {value} is forbidden"),
                None => format!("{control}: it is forbidden"),
            }
        }
    };
    ValidationFault { at: Some(steps.cloned().collect()), wanted: Some(wanted.path.clone()), why }
}

/// Kyverno: reports name images with their registry and tag.
fn canonical(image: &str) -> String {
    Image::parse(image).map_or_else(|_| image.to_owned(), |image| image.to_string())
}

/// What reports say besides the message.
fn properties(
    wanted: &PodSecurity,
    found: &[Violation],
    images: &[(&str, Vec<String>)],
) -> Vec<(Str, Str)> {
    let ids: Vec<&str> = found.iter().map(|violation| violation.check).collect();
    let controls: Value = found
        .iter()
        .map(|violation| {
            let images = images.iter().find(|(check, _)| *check == violation.check);
            let images = images.map(|(_, images)| images).filter(|images| !images.is_empty());
            let images = images.map_or(Value::Null, |images| {
                Value::from_iter(images.iter().map(|image| canonical(image)))
            });
            let mut one = value!({"ID": violation.check, "Name": violation.control.name()});
            if let Some(one) = one.as_map_mut() {
                one.insert("Images", images);
            }
            one
        })
        .collect();
    vec![
        (Str::new_static("standard"), Str::new_static(wanted.standard.level.word())),
        (Str::new_static("version"), wanted.version.clone()),
        (Str::new_static("controls"), ids.join(",").into()),
        (Str::new_static("controlsJSON"), json::to_string(&controls).into()),
    ]
}
