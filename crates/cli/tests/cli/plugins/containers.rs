//! Functions in containers, with an executable that plays the container runtime.

use super::{CONFIG_MAP, Case, holds};
use crate::harness::Run;

const FUNCTION: &str = "apiVersion: example.com/v1\nkind: Labeler\nmetadata:\n  name: f\n  annotations:\n    config.kubernetes.io/function: |\n      container:\n        image: example.com/fn:v1\n        network: true\n        mounts: [{type: bind, src: data, dst: /data}]\n        envs: [A=b]\n";

/// Writes down how it was called, and does what the image would.
const RUNTIME: &str = "#!/bin/sh\nPATH=/usr/bin:/bin\necho \"$(basename $0) $*\" > called\nsed 's/k: v/k: contained/'\n";

fn case() -> Case {
    Case::new(
        "resources: [a.yaml]\ntransformers: [f.yaml]\n",
        &[("app/a.yaml", CONFIG_MAP), ("app/f.yaml", FUNCTION), ("app/data/x", "")],
    )
}

#[test]
fn the_runtime_that_is_there_is_used_and_called_as_docker_is() {
    let mut case = case();
    for runtime in ["nerdctl", "podman", "docker"] {
        case = case.executable(&format!("bin/{runtime}"), RUNTIME);
        holds(&build(&case, &[]).stdout, &["k: contained\n"]);
        let root = case.0.path().canonicalize().unwrap().display().to_string();
        assert_eq!(
            case.0.read("app/called"),
            format!(
                "{runtime} run --rm -i -a STDIN -a STDOUT -a STDERR --network none --user nobody \
                 --security-opt=no-new-privileges --mount type=bind,source={root}/app/data,target=/data,readonly \
                 -e LOG_TO_STDERR=true -e STRUCTURED_RESULTS=true -e A=b example.com/fn:v1\n"
            )
        );
        build(
            &case,
            &["--network", "--as-current-user", "-e", "C=d", "--mount", "type=tmpfs,dst=/t"],
        );
        let called = case.0.read("app/called");
        holds(&called, &["--network host", "--mount type=tmpfs,dst=/t", "-e C=d"]);
        assert!(!called.contains("nobody"), "{called}");
    }
}

#[test]
fn without_a_runtime_the_three_names_are_told() {
    let run = build(&case(), &[]);
    assert_eq!(run.code, 2);
    holds(&run.stderr, &["neither docker nor podman nor nerdctl is in PATH", "Labeler"]);
}

#[test]
fn a_container_that_hangs_or_fails_is_told_like_any_plugin() {
    let hangs = case().executable("bin/docker", "#!/bin/sh\nsleep 100\n");
    holds(
        &hangs.fails(&["--plugin-timeout", "200ms"]),
        &["Labeler did not end", "after 200ms", "app/f.yaml:1:1"],
    );
    let fails = case().executable("bin/docker", "#!/bin/sh\necho no such image >&2\nexit 125\n");
    holds(
        &fails.fails(&[]),
        &["couldn't execute function: exit status 125", "no such image", "app/f.yaml:1:1"],
    );
}

/// Builds where no other runtime can be found.
fn build(case: &Case, flags: &[&str]) -> Run {
    let bin = case.0.path().join("bin").display().to_string();
    let mut args = vec!["build", "app", "--enable-alpha-plugins"];
    args.extend(flags);
    case.0.kiln_with_variables(&args, &[("PATH", &bin), ("NO_COLOR", "1")])
}
