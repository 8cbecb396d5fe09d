//! A real API server takes what we print, and keeps what users write.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use kiln_diagnostic::Source;
use kiln_install::{Grant, InstallOptions, Permissions, definitions, manifests};
use kiln_testkit::control_plane::ControlPlane;
use kiln_testkit::{corpus, project_root};
use kiln_value::{Value, json, value};
use kiln_yaml::{ReadOptions, emit_documents, read};

#[test]
fn a_real_api_server_takes_everything_and_keeps_every_spelling() {
    let Some(cluster) = ControlPlane::for_test() else { return };
    let permissions = Permissions { grant: Grant::Standard, ..Permissions::default() };
    let options = InstallOptions { permissions, ..InstallOptions::default() };
    let objects = manifests(&options);
    cluster.apply(&emit_documents(&objects)).unwrap();
    let names: Vec<Value> = definitions();
    let mut wait = vec!["wait", "--for=condition=Established", "--timeout=60s", "crd"];
    wait.extend(names.iter().filter_map(|definition| definition.str_at(["metadata", "name"])));
    cluster.kubectl(&wait).unwrap();
    let conditions =
        cluster.kubectl(&["get", "crd", "--output=jsonpath={.items[*].status.conditions[*].type}"]);
    assert!(!conditions.unwrap().contains("NonStructuralSchema"));
    // Twice is as good as once, and in two pieces as good as in one.
    cluster.apply(&emit_documents(&objects)).unwrap();
    cluster.apply(&emit_documents(&manifests(&InstallOptions { split: true, ..options }))).unwrap();

    the_pod_may_only_act_as_the_two_accounts(&cluster);
    only_the_engines_own_webhooks_may_be_changed(&cluster);

    let mut documents = blocks(&project_root().join("../shared/seeds"), &["md", "txt"], fenced);
    assert!(!documents.is_empty() || corpus("chainsaw").is_none());
    documents
        .extend(blocks(&project_root().join("examples"), &["yaml"], |text| vec![text.to_owned()]));
    // Kinds that are run on files only have no definition.
    let has_definition = |document: &Value| {
        let kind = |definition: &Value| {
            definition.str_at(["spec", "names", "kind"]) == document.str_at(["kind"])
        };
        names.iter().any(kind)
    };
    let ours: Vec<Value> = documents.into_iter().filter(is_ours).filter(has_definition).collect();
    assert!(ours.len() > 20, "the examples alone have that many policies");
    let items = renamed(ours, "sample");
    let kept = create(&cluster, &items, &["--dry-run=server", "--output=json"]);
    // kubectl prints the objects one after another, each from the first column on.
    let kept = json::parse(&format!("[{}]", kept.replace("}\n{", "},\n{"))).unwrap();
    for (index, document) in items.iter().enumerate() {
        let mut lost = String::new();
        compare(document, kept.index(index).unwrap(), "", &mut lost);
        assert!(lost.is_empty(), "lost:\n{lost}\nof {}", json::to_string(document));
    }
    every_example_of_a_generating_policy_is_stored_unpruned(&cluster);
}

/// Samples share names, and some have none: they get names of their own.
fn renamed(documents: Vec<Value>, prefix: &str) -> Vec<Value> {
    let mut renamed = documents;
    for (index, document) in renamed.iter_mut().enumerate() {
        document.set(["metadata", "name"], Value::from(format!("{prefix}-{index}"))).unwrap();
        document.as_map_mut().unwrap().remove("status");
    }
    renamed
}

/// Creates objects in the namespaces that they name, and gives what kubectl prints.
fn create(cluster: &ControlPlane, items: &[Value], how: &[&str]) -> String {
    let namespaces: BTreeSet<&str> = items
        .iter()
        .filter_map(|item| item.get_path(["metadata", "namespace"])?.as_str())
        .filter(|namespace| !["default", "kyverno"].contains(namespace))
        .collect();
    for namespace in namespaces {
        // Another test object may have brought it already.
        let _ = cluster.kubectl(&["create", "namespace", namespace]);
    }
    let list = value!({"apiVersion": "v1", "kind": "List", "items": Value::from(items.to_vec())});
    let mut args = vec!["create", "--filename=-"];
    args.extend(how);
    cluster.kubectl_with_input(&args, &json::to_string(&list)).unwrap()
}

/// Each example is stored, read back, and has everything that was written.
fn every_example_of_a_generating_policy_is_stored_unpruned(cluster: &ControlPlane) {
    let examples = project_root().join("examples/generating-policy");
    let mut written = Vec::new();
    for example in std::fs::read_dir(examples).unwrap().flatten() {
        let documents = blocks(&example.path(), &["yaml"], |text| vec![text.to_owned()]);
        let policies: Vec<Value> = documents.into_iter().filter(is_ours).collect();
        let generating = |policy: &Value| {
            policy.str_at(["kind"]).is_some_and(|kind| kind.ends_with("GeneratingPolicy"))
        };
        assert!(policies.iter().any(generating), "{}", example.path().display());
        written.extend(policies);
    }
    let written = renamed(written, "stored");
    create(cluster, &written, &[]);
    let kinds = "generatingpolicies.policies.kyverno.io,namespacedgeneratingpolicies.policies.kyverno.io,\
                 policyexceptions.policies.kyverno.io";
    let stored = cluster.kubectl(&["get", kinds, "--all-namespaces", "--output=json"]).unwrap();
    let stored = json::parse(&stored).unwrap();
    let stored = stored.get("items").and_then(Value::as_list).unwrap();
    for policy in &written {
        let name = policy.str_at(["metadata", "name"]);
        let found = stored.iter().find(|object| object.str_at(["metadata", "name"]) == name);
        let mut lost = String::new();
        for part in ["metadata", "spec"] {
            compare(policy.get(part).unwrap(), found.unwrap().get(part).unwrap(), part, &mut lost);
        }
        assert!(lost.is_empty(), "lost:\n{lost}\nof {}", json::to_string(policy));
    }
}

fn the_pod_may_only_act_as_the_two_accounts(cluster: &ControlPlane) {
    let may = |args: &[&str]| {
        let mut all = vec!["auth", "can-i", "--as=system:serviceaccount:kyverno:kiln"];
        all.extend(args);
        cluster.kubectl(&all).is_ok()
    };
    let account = "serviceaccount/kyverno-background-controller";
    assert!(may(&["impersonate", account, "--namespace=kyverno"]));
    assert!(!may(&["impersonate", "serviceaccount/default", "--namespace=kyverno"]));
    assert!(!may(&["impersonate", account, "--namespace=kube-system"]));
    assert!(!may(&["list", "secrets", "--all-namespaces"]));
    assert!(!may(&["list", "pods", "--all-namespaces"]));
}

fn only_the_engines_own_webhooks_may_be_changed(cluster: &ControlPlane) {
    let may = |account: &str, verb: &str, name: &str| {
        let user = format!("--as=system:serviceaccount:kyverno:kyverno-{account}");
        cluster.kubectl(&["auth", "can-i", &user, verb, name]).is_ok()
    };
    for (kind, name) in kiln_object::EngineNames::default().webhook_configurations() {
        let name = name.as_str();
        let resource = format!("{}s", kind.to_lowercase());
        for (verb, one, may_do) in
            [("update", name, true), ("delete", name, true), ("delete", "istio", false)]
        {
            let object = format!("{resource}/{one}");
            assert_eq!(may("admission-controller", verb, &object), may_do, "{verb} {object}");
            assert!(!may("background-controller", verb, &object), "{verb} {object}");
        }
        assert!(!may("admission-controller", "list", &resource));
    }
}

/// Policies that could be stored; assertions of Chainsaw tests name only what they look at.
fn is_ours(document: &Value) -> bool {
    if document.get("spec").is_none() {
        return false;
    }
    let group = document.str_at(["apiVersion"]).unwrap_or_default();
    ["kyverno.io/", "policies.kyverno.io/", "api.kubemod.io/"]
        .iter()
        .any(|own| group.starts_with(own))
}

/// All documents in the files of a folder that can be read as YAML.
fn blocks(folder: &Path, endings: &[&str], split: fn(&str) -> Vec<String>) -> Vec<Value> {
    let mut documents = Vec::new();
    let Ok(entries) = std::fs::read_dir(folder) else { return documents };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            documents.extend(blocks(&path, endings, split));
        } else if path.extension().is_some_and(|e| endings.iter().any(|ending| e == *ending)) {
            for text in split(&std::fs::read_to_string(&path).unwrap()) {
                let source = Arc::new(Source::new(path.display().to_string(), text));
                let read = read(&source, ReadOptions::kubernetes()).unwrap_or_default();
                documents.extend(read.into_iter().map(kiln_yaml::Document::into_value));
            }
        }
    }
    documents
}

/// The fenced blocks of a text, without their indentation.
fn fenced(text: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        match (&mut open, line.trim_start().starts_with("```")) {
            (None, true) => open = Some((indent, String::new())),
            (Some(_), true) => blocks.extend(open.take().map(|(_, block)| block)),
            (Some((by, block)), false) => {
                let _ = writeln!(block, "{}", line.get(*by..).unwrap_or_default());
            }
            (None, false) => {}
        }
    }
    blocks
}

/// Names what was written and is not there any more.
fn compare(written: &Value, kept: &Value, path: &str, lost: &mut String) {
    if let (Some(map), Some(other)) = (written.as_map(), kept.as_map()) {
        for (key, value) in map.iter() {
            match other.get(key.as_str()) {
                Some(there) => compare(value, there, &format!("{path}.{key}"), lost),
                // The server drops nulls everywhere.
                None if value.is_null() => {}
                None => _ = writeln!(lost, "{path}.{key}"),
            }
        }
    } else if let (Some(list), Some(other)) = (written.as_list(), kept.as_list()) {
        for (index, value) in list.iter().enumerate() {
            match other.get(index) {
                Some(there) => compare(value, there, &format!("{path}[{index}]"), lost),
                None => _ = writeln!(lost, "{path}[{index}]"),
            }
        }
    } else if written != kept {
        let _ = writeln!(lost, "{path}");
    }
}
