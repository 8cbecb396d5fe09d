//! The values of a Kyverno release, as values of Kiln's chart.
//!
//! [`fates::FATES`] says of each value of Kyverno's chart what becomes of it. A value without a counterpart is named with the
//! reason, unless it asks for nothing: what is empty or off in Kyverno is so in Kiln, but for controllers that are on by default.

mod fates;

use std::io::Write as _;

use kiln_diagnostic::Diagnostic;
use kiln_value::{Map, Path, Segment, Value};
use kiln_yaml::{Document, ReadOptions, emit_documents, read_bytes};
use serde_json::json;

use fates::FATES;
use fates::Fate::{self, Done, Global, None as No, Rules, Split, To, With};

use crate::args::OutputFormat;
use crate::exit::{CommandOutcome, CommandResult};
use crate::input;
use crate::ui::Ui;

/// The largest file of values.
const MOST_BYTES: u64 = 4 << 20;

/// What there is at a path with dots.
fn at<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    value.get_path(path.split('.'))
}

fn put(ours: &mut Value, path: &str, value: Value) {
    let _ = ours.set(path.split('.'), value);
}

/// A value that has no counterpart: its path, and why.
#[derive(Debug)]
struct Lost {
    path: Path,
    why: String,
}

/// Values of ours, and what has no counterpart in them.
#[derive(Debug, Default)]
struct Converted {
    ours: Value,
    lost: Vec<Lost>,
}

fn converted(values: &Value) -> Converted {
    let mut converted = Converted { ours: Value::map(), lost: Vec::new() };
    converted.visit(values, &mut Path::default(), "", None);
    converted
}

/// Whether a value asks for nothing.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.as_str().is_empty(),
        Value::List(list) => list.is_empty(),
        Value::Map(map) => map.values().all(is_nothing),
        _ => false,
    }
}

impl Converted {
    /// Looks at a value, and at those in it unless something is known of it as a whole. `around` is what is known of
    /// the values around it.
    fn visit(&mut self, value: &Value, path: &mut Path, name: &str, around: Option<Fate>) {
        let known = FATES.iter().find(|(known, _)| *known == name).map(|(_, fate)| *fate);
        let inner =
            |known: &str| known.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
        let has_parts = name.is_empty() || FATES.iter().any(|(known, _)| inner(known));
        if let (Some(map), true) = (value.as_map(), has_parts) {
            for (key, part) in map.iter() {
                let name = if name.is_empty() { key.to_string() } else { format!("{name}.{key}") };
                path.push(Segment::Key(key.clone()));
                self.visit(part, path, &name, known.or(around));
                path.pop();
            }
            return;
        }
        if is_nothing(value) && !matches!(known, Some(To(_) | With(_))) {
            return;
        }
        let Some(fate) = known.or(around) else {
            let why = "it is not a value of Kyverno's chart that Kiln knows";
            self.lost.push(Lost { path: path.clone(), why: why.to_owned() });
            return;
        };
        match fate {
            // What is not set has the default of the chart.
            To(_) | With(_) if value.is_null() => {}
            To(_) if is_nothing(value) && !matches!(value, Value::Bool(_) | Value::List(_)) => {}
            To(ours) => put(&mut self.ours, ours, value.clone()),
            Global(ours) => {
                if at(&self.ours, ours).is_none() {
                    put(&mut self.ours, ours, value.clone());
                }
            }
            Split(ours) => {
                put(&mut self.ours, "split", Value::from(true));
                put(&mut self.ours, ours, value.clone());
            }
            Rules(ours) => {
                let known = at(&self.ours, ours).and_then(Value::as_list);
                let mut rules: Vec<Value> = known.into_iter().flatten().cloned().collect();
                rules.extend(value.as_list().into_iter().flatten().cloned());
                put(&mut self.ours, ours, Value::from(rules));
            }
            With(convert) => {
                if let Err(why) = convert(value, &mut self.ours) {
                    self.lost.push(Lost { path: path.clone(), why: why.to_owned() });
                }
            }
            Done => {}
            No(why) => self.lost.push(Lost { path: path.clone(), why: why.to_owned() }),
        }
    }
}

/// Prints the values of a Kyverno release as values of Kiln's chart.
pub(super) fn run(ui: &Ui, path: &str) -> CommandResult {
    let input = input::read(path, MOST_BYTES)?;
    let documents = read_bytes(&input.name, &input.bytes, ReadOptions::kubernetes())?;
    let [document] = documents.as_slice() else {
        return Err(Diagnostic::error(format!("{} does not hold one document", input.name))
            .hint(
                "write the values of the release to it: helm get values kyverno -n kyverno -o yaml",
            )
            .into());
    };
    if document.value().as_map().is_none() {
        return Err(Diagnostic::error("values are a map")
            .at(document.place())
            .hint(
                "write the values of the release to it: helm get values kyverno -n kyverno -o yaml",
            )
            .into());
    }
    let Converted { ours, lost } = converted(document.value());
    show(ui, document, &ours, &lost)?;
    Ok(if lost.is_empty() { CommandOutcome::Done } else { CommandOutcome::Negative })
}

fn show(ui: &Ui, document: &Document, ours: &Value, lost: &[Lost]) -> CommandResult {
    let mut out = ui.stdout();
    if ui.format() == OutputFormat::Json {
        let lost: Vec<_> = lost
            .iter()
            .map(|Lost { path, why }| json!({"value": path.to_string(), "why": why}))
            .collect();
        let values = serde_json::to_value(ours)
            .map_err(|error| Diagnostic::error(format!("cannot write: {error}")))?;
        writeln!(out, "{:#}", json!({"values": values, "withoutCounterpart": lost}))?;
        out.flush()?;
        return Ok(CommandOutcome::Done);
    }
    for Lost { path, why } in lost {
        let message = format!("{path} has no counterpart: {why}");
        ui.problem(&Diagnostic::warning(message).at(document.locate_key(path)));
    }
    writeln!(out, "# Values of Kiln's chart. image.repository is required in any case.")?;
    if ours.as_map().is_none_or(Map::is_empty) {
        writeln!(out, "{{}}")?;
    } else {
        out.write_all(emit_documents(std::slice::from_ref(ours)).as_bytes())?;
    }
    out.flush()?;
    Ok(CommandOutcome::Done)
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    #[test]
    fn every_value_goes_where_the_chart_has_one() {
        let values: &[(&str, Value)] = &[
            ("global.tolerations", value!([{"key": "infra", "operator": "Exists"}])),
            ("config.excludeGroups", value!(["system:nodes"])),
            ("config.successEventActions", Value::from("Resource Generated, Resource Mutated")),
            ("config.resourceFilters", value!(["[Event,*,*]", "[Pod,{{ x }},*]"])),
            ("config.resourceFiltersInclude", value!(["[Lease,*,*]"])),
            ("config.webhooks", value!([{"namespaceSelector": {"matchLabels": {"a": "b"}}}])),
            ("existingImagePullSecrets", value!(["registry"])),
            ("features.policyExceptions", value!({"enabled": true, "namespace": "team-*"})),
            ("features.logging", value!({"format": "json", "verbosity": 4})),
            ("admissionController.replicas", Value::from(3)),
            ("admissionController.container.resources", value!({"limits": {"memory": "1Gi"}})),
            (
                "admissionController.topologySpreadConstraints",
                value!([
                    {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
                ]),
            ),
            ("admissionController.podDisruptionBudget.minAvailable", Value::from(2)),
            (
                "admissionController.certManager",
                value!({
                    "enabled": true, "createSelfSignedIssuer": false,
                    "issuerRef": {"name": "internal", "kind": "Issuer", "group": "cert-manager.io"},
                    "tls": {"duration": "100h", "renewBefore": "10h"},
                }),
            ),
            ("backgroundController.replicas", Value::from(2)),
            (
                "backgroundController.rbac.clusterRole.extraResources",
                value!([
                    {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]},
                ]),
            ),
            ("webhooksCleanup.enabled", Value::from(false)),
        ];
        let mut kyverno = Value::map();
        for (path, value) in values {
            put(&mut kyverno, path, value.clone());
        }
        let Converted { ours, lost } = converted(&kyverno);
        assert!(lost.is_empty(), "{lost:?}");
        let options = kiln_install::InstallOptions::from_values(&ours).unwrap();
        assert_eq!((options.replicas, options.split, options.controller.replicas), (3, true, 2));
        assert_eq!(options.config.resource_filters, ["[Event,*,*]", "[Lease,*,*]"]);
        assert_eq!(options.config.success_event_actions.len(), 2);
        assert_eq!(options.exception_namespaces.as_deref(), Some(&["team-*".to_owned()][..]));
        assert_eq!(options.topology_spread.topology_keys, ["zone"]);
        assert_eq!(options.certificates.issuer_ref.name, "internal");
        assert_eq!(options.certificates.duration, "100h");
        assert_eq!(options.permissions.controller.len(), 1);
        assert_eq!(options.pod_disruption_budget.min_available, Value::from(2));
        assert!(options.logging.json && options.logging.level == "debug");
        assert!(!options.uninstall_hook.enabled);
        assert_eq!(options.tolerations.len(), 1);
    }

    #[test]
    fn what_has_no_counterpart_is_named_once_and_what_asks_for_nothing_is_not() {
        let kyverno = value!({
            "cleanupController": {"replicas": 2, "resources": {"limits": {}}, "hostNetwork": false},
            "admissionController": {"hostNetwork": true, "dnsConfig": {}, "replicas": null},
            "features": {"tuf": {"enabled": false}, "forceFailurePolicyIgnore": {"enabled": true}},
            "admisionController": {"replicas": 3},
        });
        let Converted { ours, lost } = converted(&kyverno);
        assert!(ours.as_map().unwrap().is_empty(), "{ours:?}");
        let paths: Vec<String> = lost.iter().map(|lost| lost.path.to_string()).collect();
        assert_eq!(
            paths,
            [
                "cleanupController",
                "admissionController.hostNetwork",
                "features.forceFailurePolicyIgnore",
                "admisionController",
            ]
        );
        assert!(lost[3].why.contains("not a value of Kyverno's chart"), "{lost:?}");
    }

    #[test]
    fn controllers_that_are_switched_off_are_not_switched_on_in_silence() {
        let off = value!({"enabled": false, "replicas": 2});
        let kyverno = value!({"cleanupController": off, "reportsController": off});
        let Converted { ours, lost } = converted(&kyverno);
        assert_eq!(ours, value!({"features": {"policyReports": {"enabled": false}}}));
        assert_eq!(lost.len(), 1, "{lost:?}");
        assert_eq!(lost[0].path.to_string(), "cleanupController");
        assert!(lost[0].why.contains("all the same"), "{lost:?}");

        let on = value!({"enabled": true, "resources": {}});
        let kyverno = value!({"cleanupController": on, "reportsController": on});
        let Converted { ours, lost } = converted(&kyverno);
        assert!(ours.as_map().unwrap().is_empty() && lost.is_empty(), "{ours:?} {lost:?}");
    }

    #[test]
    fn every_target_is_a_value_of_the_chart() {
        let defaults = kiln_install::over_defaults(&Value::map());
        for (path, fate) in FATES {
            if let To(ours) | Global(ours) | Split(ours) | Rules(ours) = fate {
                let below = ours.starts_with("affinity.");
                assert!(below || at(&defaults, ours).is_some(), "{path} goes to {ours}");
            }
        }
    }
}
