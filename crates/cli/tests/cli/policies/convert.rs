//! `kiln convert` and `kiln diff`: policies in, policies and verdicts out.

use crate::harness::Folder;

const PRIVILEGED: &str = "# Keep containers apart from their node.
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata:
  name: no-privileged
  annotations: {policies.kyverno.io/severity: high}
spec:
  validationFailureAction: Audit
  rules:
  # init containers, too
  - name: privileged
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate:
      message: privileged containers are not allowed
      pattern:
        spec:
          =(initContainers):
          - =(securityContext): {=(privileged): \"false\"}
          containers:
          - =(securityContext): {=(privileged): \"false\"}
";

const BY_HAND: &str = "apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: no-privileged}
spec:
  validationActions: [Audit]
  matchConstraints:
    resourceRules:
    - {apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}
  validations:
  - expression: object.spec.containers.all(c, c.?securityContext.?privileged.orValue(false) == false)
";

#[test]
fn a_pattern_becomes_a_validating_policy_with_its_comments() {
    let folder = Folder::with(&[("p.yaml", PRIVILEGED)]);
    let run = folder.kiln(&["convert", "p.yaml"]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    for wanted in [
        "# Keep containers apart from their node.",
        "# init containers, too",
        "kind: ValidatingPolicy",
        "policies.kyverno.io/severity: high",
        "object.spec.containers.all(container,",
        "container.?securityContext.?privileged.orValue(false) == false",
        "message: privileged containers are not allowed",
    ] {
        assert!(run.stdout.contains(wanted), "{wanted}:\n{}", run.stdout);
    }
    assert!(!run.stdout.contains("dyn("), "{}", run.stdout);
    assert!(
        run.stderr.contains("no-privileged/privileged (validate.pattern): equal except"),
        "{}",
        run.stderr
    );
    assert!(run.stderr.contains("ReplicationControllers"), "{}", run.stderr);
    assert_eq!(folder.kiln(&["convert", "--strict", "p.yaml"]).code, 1);
}

#[test]
fn files_are_not_overwritten_without_force() {
    let folder = Folder::with(&[("p.yaml", PRIVILEGED)]);
    assert_eq!(folder.kiln(&["convert", "--no-check", "-o", "out", "p.yaml"]).code, 0);
    let written = folder.read("out/no-privileged.yaml");
    assert!(written.contains("kind: ValidatingPolicy"));
    folder.write("out/no-privileged.yaml", "mine");
    let run = folder.kiln(&["convert", "--no-check", "-o", "out", "p.yaml"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("--force"), "{}", run.stderr);
    assert_eq!(folder.read("out/no-privileged.yaml"), "mine");
    assert_eq!(folder.kiln(&["convert", "--no-check", "--force", "-o", "out", "p.yaml"]).code, 0);
    assert_eq!(folder.read("out/no-privileged.yaml"), written);
}

#[test]
fn what_cannot_be_converted_is_named_with_its_place() {
    let policy = PRIVILEGED.replace("pattern:", "manifests:");
    let policy = policy.split("      manifests:").next().unwrap_or_default().to_owned()
        + "      manifests: {attestors: [{entries: [{keys: {publicKeys: x}}]}]}\n";
    let folder = Folder::with(&[("p.yaml", policy.as_str())]);
    let run = folder.kiln(&["convert", "p.yaml"]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(run.stderr.contains("not convertible: validate.manifests (p.yaml:"), "{}", run.stderr);
    let run = Folder::with(&[("p.yaml", BY_HAND)]).kiln(&["convert", "p.yaml"]);
    assert_eq!(run.code, 2, "{}", run.stderr);
}

#[test]
fn policies_that_differ_are_told_apart_by_a_small_request() {
    let folder = Folder::with(&[("old.yaml", PRIVILEGED), ("new.yaml", BY_HAND)]);
    let run = folder.kiln(&["diff", "old.yaml", "new.yaml"]);
    assert_eq!(run.code, 1, "{}", run.stdout);
    assert!(run.stdout.contains("lets through what the old one refuses"), "{}", run.stdout);
    assert!(run.stdout.contains("privileged: true"), "{}", run.stdout);
    assert_eq!(folder.kiln(&["diff", "new.yaml", "new.yaml"]).code, 0);
    assert_eq!(folder.kiln(&["diff", "new.yaml", "none.yaml"]).code, 2);
}

#[test]
fn a_certificate_holds_until_a_policy_changes() {
    let folder = Folder::with(&[("p.yaml", PRIVILEGED)]);
    let run = folder.kiln(&[
        "convert",
        "--inputs",
        "60",
        "--certificate",
        "c.json",
        "-o",
        "out",
        "p.yaml",
    ]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let certificate = folder.read("c.json");
    assert!(certificate.contains("\"mutantsNoticed\""), "{certificate}");
    let run = folder.kiln(&["convert", "--verify", "c.json", "p.yaml"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    folder.write("p.yaml", PRIVILEGED.replace("\"false\"", "\"true\""));
    let run = folder.kiln(&["convert", "--verify", "c.json", "p.yaml"]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(run.stderr.contains("is not what was certified: old, new"), "{}", run.stderr);
    folder.write("p.yaml", PRIVILEGED);
    // What another version finds out as well holds.
    let version = env!("CARGO_PKG_VERSION");
    let before =
        certificate.replace(&format!("\"engine\": \"{version}\""), "\"engine\": \"0.1.0\"");
    assert_ne!(before, certificate);
    folder.write("before.json", &before);
    let run = folder.kiln(&["convert", "--verify", "before.json", "p.yaml"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stderr.contains("the engine was \"0.1.0\""), "{}", run.stderr);
    // A better verdict, other figures, another seed, a missing policy, a field more.
    for (from, to, said) in [
        ("\"verdict\": \"equal except\"", "\"verdict\": \"equal\"", "certified: rules"),
        ("\"mutantsNoticed\": ", "\"mutantsNoticed\": 1", "certified: rules"),
        (
            "\"policy\": \"no-privileged\"",
            "\"policy\": \"another\"",
            "is in the certificate and not among the files",
        ),
        (
            "\"certificate\": \"kiln convert\"",
            "\"certificate\": \"mine\"",
            "the certificate was changed",
        ),
        ("\"seed\": 1,", "\"seed\": 1, \"signed\": true,", "the certificate was changed: signed"),
    ] {
        assert!(certificate.contains(from), "{from}: {certificate}");
        folder.write("tampered.json", certificate.replacen(from, to, 1));
        let run = folder.kiln(&["convert", "--verify", "tampered.json", "p.yaml"]);
        assert_eq!(run.code, 1, "{from}: {}", run.stderr);
        assert!(run.stderr.contains(said), "{from}: {}", run.stderr);
    }
    folder.write("broken.json", "{\"seed\": 1");
    assert_eq!(folder.kiln(&["convert", "--verify", "broken.json", "p.yaml"]).code, 2);
}

#[test]
fn policies_become_native_ones_and_cluster_policies_again() {
    let folder = Folder::with(&[("v.yaml", BY_HAND)]);
    let run = folder.kiln(&["convert", "--to", "native", "v.yaml"]);
    assert!(
        run.stdout.contains("kind: ValidatingAdmissionPolicyBinding"),
        "{}{}",
        run.stdout,
        run.stderr
    );
    assert!(run.stdout.contains("name: autogen-no-privileged"), "{}", run.stdout);
    let run = folder.kiln(&["convert", "--to", "kyverno", "v.yaml"]);
    assert!(run.stdout.contains("kind: ClusterPolicy"), "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("failureAction: Audit"), "{}", run.stdout);
}

#[test]
fn a_modrule_becomes_a_mutating_policy() {
    let rule = "apiVersion: api.kubemod.io/v1beta1
kind: ModRule
metadata: {name: owner, namespace: shop}
spec:
  type: Patch
  match:
  - {select: '$.kind', matchValue: Deployment}
  - {select: '$.metadata.labels.app', matchRegex: '^web'}
  patch:
  - {op: add, path: /metadata/annotations/owner, value: '\"team-a\"'}
";
    let folder = Folder::with(&[("m.yaml", rule)]);
    let run = folder.kiln(&["convert", "m.yaml"]);
    assert!(run.stdout.contains("kind: NamespacedMutatingPolicy"), "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("matches('^web')"), "{}", run.stdout);
    assert!(run.stdout.contains("path: '/metadata/annotations/owner'"), "{}", run.stdout);
}

const MODRULE: &str = "apiVersion: api.kubemod.io/v1beta1
kind: ModRule
metadata: {name: owner, namespace: kubemod-system}
spec:
  type: Patch
  targetNamespaceRegex: '.*'
  match:
  - {select: '$.kind', matchValue: Deployment}
  - {select: '$.apiVersion', matchValue: apps/v1}
  patch:
  - {op: add, path: /metadata/labels/owner, value: team-a}
";

/// A policy in CEL about Pods.
fn in_cel(kind: &str, rest: &str) -> String {
    format!(
        "apiVersion: policies.kyverno.io/v1\nkind: {kind}\nmetadata: {{name: p}}\nspec:\n  matchConstraints:\n    resourceRules:\n    \
         - {{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}}\n{rest}"
    )
}

#[test]
fn what_has_a_native_form_gets_one_with_a_binding_and_the_rest_is_named() {
    let labels = "  mutations:\n  - patchType: ApplyConfiguration\n    applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: {\"a\": \"b\"}}}'}\n";
    let reads =
        "  validations: [{expression: 'resource.List(\"v1\", \"pods\", \"\").items.size() < 9'}]\n";
    let makes = "  generate: [{expression: 'generator.Apply(object.metadata.namespace, [])'}]\n";
    let cases = [
        (MODRULE.to_owned(), "native", Ok("kind: MutatingAdmissionPolicyBinding")),
        (
            MODRULE.replace("kubemod-system", "shop"),
            "native",
            Err("Kubernetes has no policies of namespaces"),
        ),
        (in_cel("MutatingPolicy", labels), "native", Ok("kind: MutatingAdmissionPolicyBinding")),
        (
            in_cel(
                "MutatingPolicy",
                &format!("  evaluation: {{mutateExisting: {{enabled: true}}}}\n{labels}"),
            ),
            "native",
            Err("Kubernetes does not change stored objects by policies"),
        ),
        (
            in_cel("ValidatingPolicy", reads),
            "native",
            Err("Kubernetes does not know what its expressions use"),
        ),
        (
            in_cel("GeneratingPolicy", makes),
            "native",
            Err("Kubernetes has no such policies of its own"),
        ),
        (
            in_cel("MutatingPolicy", labels),
            "kyverno",
            Err("only ValidatingPolicies have a form in ClusterPolicies"),
        ),
        (in_cel("ValidatingPolicy", reads), "kyverno", Err("validate.cel has no such library")),
    ];
    for (document, to, wanted) in cases {
        let folder = Folder::with(&[("p.yaml", document.as_str())]);
        let run = folder.kiln(&["convert", "--inputs", "40", "--to", to, "p.yaml"]);
        match wanted {
            Ok(part) => {
                assert!(run.stdout.contains(part), "{document}{}{}", run.stdout, run.stderr);
                assert!(run.stdout.contains("policyName: "), "{}", run.stdout);
                assert_eq!(run.code, 0, "{}", run.stderr);
            }
            Err(part) => {
                assert!(run.stderr.contains("not convertible"), "{document}{}", run.stderr);
                assert!(run.stderr.contains(part), "{document}{}", run.stderr);
                assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{}", run.stderr);
            }
        }
    }
}

#[test]
fn shadows_name_the_policy_and_the_rules_that_they_came_of() {
    let folder = Folder::with(&[("p.yaml", PRIVILEGED)]);
    let run = folder.kiln(&["convert", "--no-check", "--shadow", "p.yaml"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(
        run.stdout.contains("kiln.dev/shadow-of: ClusterPolicy/no-privileged"),
        "{}",
        run.stdout
    );
    assert!(!run.stdout.contains("shadow-of-rules"), "{}", run.stdout);
    let two = format!(
        "{PRIVILEGED}  - name: named\n    match: {{any: [{{resources: {{kinds: [Service]}}}}]}}\n    validate: {{message: m, pattern: {{metadata: {{name: 'a*'}}}}}}\n"
    );
    folder.write("p.yaml", two);
    let run = folder.kiln(&["convert", "--no-check", "--shadow", "p.yaml"]);
    assert!(run.stdout.contains("kiln.dev/shadow-of-rules: privileged"), "{}", run.stdout);
    assert!(run.stdout.contains("kiln.dev/shadow-of-rules: named"), "{}", run.stdout);
    assert_eq!(folder.kiln(&["convert", "--shadow", "--to", "native", "p.yaml"]).code, 2);
}
