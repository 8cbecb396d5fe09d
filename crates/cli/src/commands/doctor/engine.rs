//! Whether the cluster knows the kinds of rules, and whether a leader acts on them.

use kiln_object::{EngineNames, Gvk};
use kiln_text::time::Time;
use kiln_value::Value;

use super::Checks;
use crate::cluster::competing_engines::{
    KEEPING, KYVERNO, answering_engine, other_engine, sharing_engine,
};
use crate::ui::counted;

/// So many seconds clocks may differ.
const ASKEW: i64 = 5;
/// The group of PolicyReports.
const REPORTS: &str = "wgpolicyk8s.io";
const INSTALL: &str = "kiln install --image IMAGE | kubectl apply --server-side -f -";

/// Beside Kyverno, these are left to it.
const REPORT_CRDS: &str = "in a cluster without Kyverno: kiln install --name NAME --report-crds --only crds | kubectl apply --server-side -f -";

/// Whether the cluster knows every kind that Kiln uses; whether it knows any kind of rules.
pub(super) fn definitions(checks: &mut Checks<'_>) -> bool {
    let about = "definitions";
    let kinds = checks.reader.kinds();
    let Unknown { used, reports, all_rules } =
        Unknown::find(&checks.settings.names, |group, kind| kinds.preferred(group, kind).is_some());
    if !used.is_empty() {
        checks.bad(about, format!("the cluster does not know {}", used.join(", ")), INSTALL);
    }
    if !reports.is_empty() {
        let reports = reports.join(", ");
        let message = format!("the cluster does not know {reports}: nothing is reported");
        let stands_for_kyverno = checks.settings.names.stands_for_kyverno();
        checks.doubtful(about, message, if stands_for_kyverno { INSTALL } else { REPORT_CRDS });
    } else if used.is_empty() {
        checks.good(about, "the cluster knows every kind of rules, UpdateRequests and reports");
    }
    !all_rules
}

/// Definitions that a cluster lacks, by name.
#[derive(Debug, PartialEq, Eq)]
struct Unknown {
    /// Of rules, and of what engines need to act on them.
    used: Vec<String>,
    /// Of what they write about them.
    reports: Vec<String>,
    /// Whether no kind of rules is known.
    all_rules: bool,
}

impl Unknown {
    /// Asks for every kind that Kiln uses.
    fn find(names: &EngineNames, is_known: impl Fn(&str, &str) -> bool) -> Self {
        let mut unknown = Unknown { used: Vec::new(), reports: Vec::new(), all_rules: true };
        let mut definitions = kiln_install::definitions();
        if !names.stands_for_kyverno() {
            definitions.retain(|definition| definition.str_at(["spec", "group"]) == Some(REPORTS));
            definitions.extend(kiln_install::own_definitions());
        }
        for definition in definitions {
            let text = |path: &[&str]| definition.str_at(path.iter().copied()).unwrap_or_default();
            let (group, kind) = (text(&["spec", "group"]), text(&["spec", "names", "kind"]));
            if is_known(group, kind) {
                unknown.all_rules &= !(kind.ends_with("Policy") || kind == "ModRule");
                continue;
            }
            let list = if group == REPORTS { &mut unknown.reports } else { &mut unknown.used };
            list.push(text(&["metadata", "name"]).to_owned());
        }
        unknown
    }
}

/// Whether a replica holds the Lease, and has renewed it.
pub(super) fn lease(checks: &mut Checks<'_>) {
    let about = "controller";
    let gvk = Gvk::new("coordination.k8s.io/v1", "Lease");
    let name = checks.settings.names.lease();
    let Ok(lease) = checks.object(about, gvk, &name) else { return };
    let Some(lease) = lease else {
        let hint = format!(
            "start `kiln run`, or look at its pods: kubectl get pods -n {}",
            checks.settings.namespace
        );
        return checks.bad(about, format!("no replica holds the Lease {name}"), &hint);
    };
    let text = |field: &str| lease.str_at(["spec", field]).unwrap_or_default().to_owned();
    let life =
        lease.get_path(["spec", "leaseDurationSeconds"]).and_then(Value::as_i64).unwrap_or(15);
    let renewed = Time::parse_rfc3339(&text("renewTime")).ok().map(|time| time.unix());
    let (holder, age) = (text("holderIdentity"), renewed.map(|time| checks.now - time));
    match age {
        _ if holder.is_empty() => {
            checks.bad(about, "the Lease has no holder", "start `kiln run`");
        }
        Some(age) if age < -ASKEW => checks.doubtful(
            about,
            format!(
                "{holder} renewed the Lease {} seconds from now, by the clock of this machine: whether it is still the leader is unknown",
                -age
            ),
            "compare the clock of this machine and of the engine's",
        ),
        Some(age) if age <= life * 2 => {
            let age = counted(usize::try_from(age).unwrap_or(0), "second", "seconds");
            checks.good(about, format!("{holder} acts, and renewed the Lease {age} ago"));
        }
        Some(age) => checks.bad(
            about,
            format!("{holder} held the Lease, and renewed it {age} seconds ago"),
            "it has ended or cannot reach the API server: look at its logs",
        ),
        None => {
            checks.doubtful(about, format!("the Lease of {holder} has no renew time"), "look at its logs");
        }
    }
}

/// Engines that act on the same rules.
pub(super) fn others(checks: &mut Checks<'_>) {
    let about = "other engines";
    let Ok(deployments) = checks.all(about, &Gvk::new("apps/v1", "Deployment"), "") else { return };
    let found: Vec<_> = deployments.iter().filter_map(other_engine).collect();
    let beside = !checks.settings.names.stands_for_kyverno();
    for (name, engine) in &found {
        if beside && *engine == KYVERNO {
            checks.good(
                about,
                format!("Kyverno runs beside it, on policies of its own: Deployment {name}"),
            );
            continue;
        }
        let mut hint = "scale it to 0: two engines would both act on the same rules".to_owned();
        if *engine == KYVERNO {
            hint.push_str(&format!(" (or see docs/guides/from-kyverno.md, \"{KEEPING}\")"));
        }
        checks.bad(about, format!("{engine} runs too: Deployment {name}"), &hint);
    }
    if found.is_empty() {
        checks.good(about, "neither Kyverno nor KubeMod runs");
    }
    checks.answering = Some(deployments.iter().filter_map(answering_engine).collect());
    checks.sharing = Some(deployments.iter().filter_map(sharing_engine).collect());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_definition_that_is_missing_is_named() {
        let names =
            |known: &dyn Fn(&str, &str) -> bool| Unknown::find(&EngineNames::default(), known);
        let nothing = names(&|_, _| true);
        assert_eq!(nothing, Unknown { used: vec![], reports: vec![], all_rules: false });
        for (group, kind, name) in [
            ("kyverno.io", "ClusterPolicy", "clusterpolicies.kyverno.io"),
            ("kyverno.io", "Policy", "policies.kyverno.io"),
            ("kyverno.io", "UpdateRequest", "updaterequests.kyverno.io"),
            ("kyverno.io", "PolicyException", "policyexceptions.kyverno.io"),
            ("kyverno.io", "GlobalContextEntry", "globalcontextentries.kyverno.io"),
            ("policies.kyverno.io", "GeneratingPolicy", "generatingpolicies.policies.kyverno.io"),
            (
                "policies.kyverno.io",
                "NamespacedGeneratingPolicy",
                "namespacedgeneratingpolicies.policies.kyverno.io",
            ),
            ("policies.kyverno.io", "MutatingPolicy", "mutatingpolicies.policies.kyverno.io"),
            (
                "policies.kyverno.io",
                "NamespacedMutatingPolicy",
                "namespacedmutatingpolicies.policies.kyverno.io",
            ),
            ("policies.kyverno.io", "PolicyException", "policyexceptions.policies.kyverno.io"),
            ("api.kubemod.io", "ModRule", "modrules.api.kubemod.io"),
        ] {
            let found = names(&|g, k| (g, k) != (group, kind));
            let used = vec![name.to_owned()];
            assert_eq!(found, Unknown { used, reports: vec![], all_rules: false });
        }
        let found = names(&|group, _| group != "wgpolicyk8s.io");
        assert_eq!(found.reports.len(), 2);
        assert!(found.used.is_empty());
        let found = names(&|_, kind| kind == "UpdateRequest");
        assert_eq!((found.used.len(), found.all_rules), (16, true));
        assert!(!names(&|_, kind| kind == "ModRule").all_rules);
    }
}
