//! Levels, versions, controls and the words of reports, as the API server and Kyverno write them.

use kiln_podsecurity::{Control, Covers, Level, Pod, PodSecurityVersion, Standard};
use kiln_value::{Path, value};

#[test]
fn versions_are_latest_or_v1() {
    for (text, wanted) in [
        ("latest", Ok(PodSecurityVersion::Latest)),
        ("v1.0", Ok(PodSecurityVersion::Minor(0))),
        ("v1.24", Ok(PodSecurityVersion::Minor(24))),
        ("v1.99999999", Ok(PodSecurityVersion::Latest)),
        ("1.24", Err(())),
        ("v1.024", Err(())),
        ("v1.", Err(())),
        ("v2.0", Err(())),
        ("", Err(())),
    ] {
        assert_eq!(text.parse::<PodSecurityVersion>().map_err(|_| ()), wanted, "{text}");
    }
}

#[test]
fn every_control_has_a_name_of_its_own() {
    for control in Control::ALL {
        assert_eq!(control.name().parse(), Ok(control));
    }
    assert_eq!("capabilities".parse::<Control>(), Err(()));
    assert_eq!(Control::VolumeTypes.level(), Level::Restricted);
    assert_eq!(Control::Capabilities.level(), Level::Baseline);
    assert_eq!(Control::Seccomp.covers(), Covers::Both);
}

/// What the API server says of a Pod that does nearly everything wrong, in its order.
#[test]
fn details_of_the_api_server() {
    let metadata = value!({"annotations": {
        "container.apparmor.security.beta.kubernetes.io/a": "unconfined",
    }});
    let spec = value!({
        "hostNetwork": true, "hostPID": true,
        "securityContext": {
            "runAsNonRoot": false, "runAsUser": 0, "sysctls": [{"name": "a"}, {"name": "b"}],
            "seLinuxOptions": {"type": "t", "user": "u"},
        },
        "volumes": [{"name": "h", "hostPath": {"path": "/"}}, {"name": "n", "nfs": {}}],
        "initContainers": [{"name": "i"}],
        "containers": [
            {"name": "a", "image": "web:1", "ports": [{"hostPort": 80}, {"hostPort": 8}],
             "livenessProbe": {"httpGet": {"host": "h"}},
             "securityContext": {
                "privileged": true, "procMount": "Unmasked",
                "windowsOptions": {"hostProcess": true},
                "capabilities": {"add": ["SYS_ADMIN", "NET_ADMIN"], "drop": ["X"]},
                "seccompProfile": {"type": "Unconfined"}}},
            {"name": "b", "securityContext": {"runAsUser": 0}},
        ],
    });
    let pod = Pod::read(Some(&metadata), Some(&spec)).unwrap();
    let found = Standard::of_kubernetes(Level::Restricted, PodSecurityVersion::Latest).check(&pod);
    let shown: Vec<String> = found.iter().map(|v| format!("{} ({})", v.reason, v.detail)).collect();
    let wanted = [
        r#"forbidden AppArmor profile (annotation must not set AppArmor profile type to "container.apparmor.security.beta.kubernetes.io/a="unconfined"")"#,
        "host namespaces (hostNetwork=true, hostPID=true)",
        r#"hostPort (container "a" uses hostPorts 8, 80)"#,
        r#"probe or lifecycle host (container "a" uses probe or lifecycle host "h")"#,
        r#"privileged (container "a" must not set securityContext.privileged=true)"#,
        r#"seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type "t"; user may not be set)"#,
        "forbidden sysctls (a, b)",
        r#"hostProcess (container "a" must not set securityContext.windowsOptions.hostProcess=true)"#,
        r#"allowPrivilegeEscalation != false (containers "i", "a", "b" must set securityContext.allowPrivilegeEscalation=false)"#,
        r#"unrestricted capabilities (containers "i", "a", "b" must set securityContext.capabilities.drop=["ALL"]; container "a" must not include "NET_ADMIN", "SYS_ADMIN" in securityContext.capabilities.add)"#,
        r#"procMount (container "a" must not set securityContext.procMount to "Unmasked")"#,
        r#"restricted volume types (volumes "h", "n" use restricted volume types "hostPath", "nfs")"#,
        "runAsNonRoot != true (pod must not set securityContext.runAsNonRoot=false)",
        r#"runAsUser=0 (pod and container "b" must not set runAsUser=0)"#,
        r#"seccompProfile (container "a" must not set securityContext.seccompProfile.type to "Unconfined")"#,
    ];
    assert_eq!(shown, wanted);
    let ports = found.iter().find(|v| v.check == "hostPorts").unwrap();
    assert_eq!(ports.images(&pod), ["web:1"]);
    let template = Path::from_iter(["spec", "template"]);
    assert_eq!(
        ports.errors[0].describe(&template),
        "spec.template.spec.containers[0].ports[0].hostPort is forbidden, forbidden values found: 80"
    );
}
