//! What holds for every Pod.

use kiln_podsecurity::{
    Control, Exclusion, Level, Pod, PodSecurityVersion, Standard, describe, leave_out,
};
use kiln_value::{Map, Path, Value};
use proptest::prelude::*;

/// Pods with many of the fields that checks look at, some with other types.
fn specs() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0i64..3).prop_map(Value::from),
        prop::sample::select(vec!["", "ALL", "Unconfined", "RuntimeDefault", "a", "windows"])
            .prop_map(Value::from),
    ];
    let key = || {
        prop::sample::select(vec![
            "containers",
            "initContainers",
            "ephemeralContainers",
            "securityContext",
            "capabilities",
            "add",
            "drop",
            "runAsNonRoot",
            "runAsUser",
            "privileged",
            "allowPrivilegeEscalation",
            "seccompProfile",
            "appArmorProfile",
            "seLinuxOptions",
            "type",
            "hostNetwork",
            "hostUsers",
            "volumes",
            "hostPath",
            "emptyDir",
            "path",
            "name",
            "image",
            "ports",
            "hostPort",
            "livenessProbe",
            "lifecycle",
            "preStop",
            "httpGet",
            "host",
            "procMount",
            "sysctls",
            "os",
            "windowsOptions",
            "hostProcess",
        ])
    };
    leaf.prop_recursive(6, 120, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from_iter),
            prop::collection::vec((key(), inner), 0..8)
                .prop_map(|entries| Value::Map(entries.into_iter().collect::<Map>())),
        ]
    })
}

fn versions() -> impl Strategy<Value = PodSecurityVersion> {
    prop_oneof![Just(PodSecurityVersion::Latest), (0u16..40).prop_map(PodSecurityVersion::Minor)]
}

proptest! {
    #[test]
    fn stricter_levels_forbid_no_less(spec in specs(), version in versions()) {
        let Ok(pod) = Pod::read(None, Some(&spec)) else { return Ok(()) };
        let found = |level| Standard::of_kubernetes(level, version).check(&pod);
        prop_assert!(found(Level::Privileged).is_empty());
        if !found(Level::Baseline).is_empty() {
            prop_assert!(!found(Level::Restricted).is_empty());
        }
        for level in [Level::Baseline, Level::Restricted] {
            let of_rules = Standard::of_rules(level, version).check(&pod);
            prop_assert_eq!(found(level).is_empty(), of_rules.is_empty());
            for violation in &of_rules {
                prop_assert!(!violation.errors.is_empty() && !violation.detail.is_empty());
            }
        }
    }

    #[test]
    fn leaving_out_all_of_a_control_twice_leaves_nothing_of_it(spec in specs(), version in versions()) {
        let Ok(pod) = Pod::read(None, Some(&spec)) else { return Ok(()) };
        let all = Standard::of_rules(Level::Restricted, version).check(&pod);
        for control in Control::ALL {
            let of_pod = Exclusion { control, images: Vec::new(), field: None, values: Vec::new() };
            let of_images = Exclusion { images: vec!["*".into()], ..of_pod.clone() };
            let left = leave_out(all.clone(), &[of_pod.clone(), of_images], &pod);
            prop_assert!(left.iter().all(|violation| violation.control != control));
            let others = |list: &[kiln_podsecurity::Violation]| {
                let others: Vec<_> =
                    list.iter().filter(|v| v.control != control).cloned().collect();
                describe(&others, &Path::root())
            };
            prop_assert_eq!(others(&left), others(&all));
            // Without images, no value that a container sets is left out.
            let left = leave_out(all.clone(), &[of_pod], &pod);
            prop_assert!(left.len() <= all.len());
        }
    }
}
