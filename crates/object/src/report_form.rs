//! In which form reports are kept: their API group, and what they are called.

use crate::{EngineNames, Gvk, metadata};
use kiln_value::Value;

/// The label that says who keeps a report.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// The API groups of reports, about which there are no reports.
const GROUPS: [&str; 2] = ["wgpolicyk8s.io", "openreports.io"];

/// Whether objects of a group are reports.
pub fn is_report_group(group: &str) -> bool {
    GROUPS.contains(&group)
}

/// In which form reports are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportForm {
    /// Whose reports they are.
    pub names: EngineNames,
    /// Reports of `openreports.io` in the place of PolicyReports.
    pub open: bool,
}

impl ReportForm {
    /// The kinds of reports: about objects in namespaces, and about others.
    pub fn kinds(&self) -> [Gvk; 2] {
        let (version, kinds) = if self.open {
            ("openreports.io/v1alpha1", ["Report", "ClusterReport"])
        } else {
            ("wgpolicyk8s.io/v1alpha2", ["PolicyReport", "ClusterPolicyReport"])
        };
        kinds.map(|kind| Gvk::new(version, kind))
    }

    /// The name of the report about an object.
    pub fn name(&self, uid: &str) -> String {
        self.names.report(uid)
    }

    /// The UID of the object that the report of this name is about.
    pub fn uid<'n>(&self, name: &'n str) -> &'n str {
        let prefix = self.names.report("");
        name.strip_prefix(&prefix).unwrap_or(name)
    }

    /// The value of the label that says who keeps a report.
    pub fn manager(&self) -> &str {
        self.names.name()
    }

    /// Whether a report is one that this engine keeps.
    pub fn is_kept(&self, report: &Value) -> bool {
        metadata::label(report, MANAGED_BY) == Some(self.manager())
    }
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    #[test]
    fn a_report_of_another_engine_is_not_kept() {
        let report = |manager: &str| value!({"metadata": {"labels": {MANAGED_BY: manager}}});
        let usual = ReportForm::default();
        let own = ReportForm { names: EngineNames::new("kiln"), open: true };
        assert!(usual.is_kept(&report("kyverno")) && !usual.is_kept(&report("kiln")));
        assert!(own.is_kept(&report("kiln")) && !own.is_kept(&report("kyverno")));
        assert_eq!((usual.name("u").as_str(), own.name("u").as_str()), ("u", "kiln-u"));
        assert_eq!((usual.uid("u"), own.uid("kiln-u")), ("u", "u"));
        for kind in usual.kinds().iter().chain(&own.kinds()) {
            assert!(is_report_group(&kind.group), "{kind}");
        }
        assert!(!is_report_group("reports.kyverno.io"));
    }
}
