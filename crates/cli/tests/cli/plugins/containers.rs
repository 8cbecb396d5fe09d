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
        let called = case.0.read("app/called");
        let name = called.split_whitespace().find(|word| word.starts_with("kiln-")).unwrap();
        assert_eq!(
            called,
            format!(
                "{runtime} run --rm -i -a STDIN -a STDOUT -a STDERR --name {name} --network none --user nobody \
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
        build(&case, &["--network", "--network-name", "lan"]);
        holds(&case.0.read("app/called"), &["--network lan"]);
        build(&case, &["--network-name", "lan"]);
        holds(&case.0.read("app/called"), &["--network none"]);
    }
}

#[test]
fn a_mount_shows_what_is_in_the_folder_of_the_kustomization_and_no_more() {
    let mount = |mount: &str| {
        let function = FUNCTION.replace("{type: bind, src: data, dst: /data}", mount);
        let case = case().executable("bin/docker", RUNTIME);
        case.0.write("app/f.yaml", function);
        case.0.write("secret/token", "hush");
        case.0.write("app/a,b/x", "");
        std::os::unix::fs::symlink("../secret", case.0.path().join("app/link")).unwrap();
        std::os::unix::fs::symlink("data", case.0.path().join("app/inner")).unwrap();
        case
    };
    for (written, wanted) in [
        ("{type: bind, src: 'data,source=/etc', dst: /d}", "mount src \"data,source=/etc\""),
        ("{type: bind, src: 'a,b', dst: /d}", "mount src \"a,b\" is not permitted"),
        ("{type: bind, src: '\"data', dst: /d}", "mount src"),
        ("{type: bind, src: data, dst: '/d,source=/etc'}", "mount dst \"/d,source=/etc\""),
        ("{type: 'bind,source=/etc', src: data, dst: /d}", "mount type \"bind,source=/etc\""),
        ("{type: volume, src: data, dst: /d}", "mount type 'volume' is not permitted"),
        ("{type: bind, src: link, dst: /d}", "mount path 'link' is not permitted"),
        ("{type: bind, src: link/token, dst: /d}", "mount path 'link/token' is not permitted"),
        ("{type: bind, src: ../secret, dst: /d}", "mount path '../secret' is not permitted"),
        ("{type: bind, src: gone, dst: /d}", "mount path 'gone'"),
    ] {
        let case = mount(written);
        holds(&case.fails(&[]), &[wanted, "Labeler", "app/f.yaml:1:1"]);
        assert!(!case.0.path().join("app/called").exists(), "{written}");
    }
    let case = mount("{type: bind, src: inner, dst: /d, rw: true}, {type: tmpfs, dst: /t}");
    build(&case, &[]);
    let root = case.0.path().canonicalize().unwrap().display().to_string();
    holds(
        &case.0.read("app/called"),
        &[
            &format!("--mount type=bind,source={root}/app/data,target=/d -"),
            "--mount type=tmpfs,target=/t,readonly",
        ],
    );
}

#[test]
fn a_container_gets_no_variable_of_the_user_unless_they_say_so() {
    let case = case().executable("bin/docker", RUNTIME);
    for asked in ["CLOUD_TOKEN", "CLOUD*", "''"] {
        case.0.write("app/f.yaml", FUNCTION.replace("[A=b]", &format!("[A=b, {asked}]")));
        let name = asked.trim_matches('\'');
        holds(
            &case.fails(&[]),
            &[
                &format!("asks for your variable '{name}'"),
                "Labeler",
                &format!("--plugin-env {name}"),
                "app/f.yaml:1:1",
            ],
        );
        assert!(!case.0.path().join("app/called").exists(), "{asked}");
    }
    case.0.write("app/f.yaml", FUNCTION.replace("[A=b]", "[A=b, CLOUD_TOKEN]"));
    build(&case, &["--plugin-env", "CLOUD_TOKEN"]);
    holds(&case.0.read("app/called"), &["-e A=b -e CLOUD_TOKEN example.com/fn:v1"]);
}

#[test]
fn no_image_is_fetched_where_that_is_forbidden() {
    let case = case().executable("bin/docker", RUNTIME);
    build(&case, &["--offline"]);
    holds(&case.0.read("app/called"), &[" --pull=never "]);
    build(&case, &[]);
    assert!(!case.0.read("app/called").contains("--pull"), "{}", case.0.read("app/called"));
}

#[test]
fn an_image_is_no_option() {
    for image in ["--privileged", "''", "-v/:/host"] {
        let case = case().executable("bin/docker", RUNTIME);
        case.0.write("app/f.yaml", FUNCTION.replace("example.com/fn:v1", image));
        holds(&case.fails(&[]), &["names neither a program nor an image", "app/f.yaml:1:1"]);
    }
}

#[test]
fn without_a_runtime_the_three_names_are_told() {
    let run = build(&case(), &[]);
    assert_eq!(run.code, 2);
    holds(&run.stderr, &["neither docker nor podman nor nerdctl is in PATH", "Labeler"]);
}

#[test]
fn a_container_that_hangs_is_killed_by_its_name() {
    // The container goes on when the program that started it ends: only the runtime can stop it.
    let runtime = "#!/bin/sh\ncase $1 in run) echo \"$*\" > called; trap 'exit 0' TERM; sleep 100 & wait;;\nkill) echo \"$*\" > killed;;\nesac\n";
    let case = case().executable("bin/docker", runtime);
    let said = case.fails(&["--plugin-timeout", "500ms"]);
    holds(
        &said,
        &[
            "function Labeler f: couldn't execute function: it did not end: it was stopped after 500ms",
            "--plugin-timeout",
            "app/f.yaml:1:1",
            "it is the image example.com/fn:v1, run by docker",
        ],
    );
    let called = case.0.read("app/called");
    let name = called.split_whitespace().find(|word| word.starts_with("kiln-")).unwrap();
    // The runtime kills from wherever the build was started.
    assert_eq!(case.0.read("killed"), format!("kill {name}\n"));
}

#[test]
fn a_container_that_fails_is_told_once_with_what_it_says() {
    let fails = case().executable("bin/docker", "#!/bin/sh\necho no such image >&2\nexit 125\n");
    let said = fails.fails(&[]);
    holds(
        &said,
        &[
            "function Labeler f: couldn't execute function: exit status 125: no such image",
            "app/f.yaml:1:1",
        ],
    );
    assert_eq!(said.matches("no such image").count(), 1, "{said}");
}

/// Builds where no other runtime can be found.
fn build(case: &Case, flags: &[&str]) -> Run {
    let bin = case.0.path().join("bin").display().to_string();
    let mut args = vec!["build", "app", "--enable-alpha-plugins"];
    args.extend(flags);
    case.0.kiln_with_variables(&args, &[("PATH", &bin), ("NO_COLOR", "1")])
}
