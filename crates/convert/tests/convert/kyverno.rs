//! Kyverno's own command line: what it says of policies and resources.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use kiln_equivalence::{Input, PolicySide, Word, outcome};
use kiln_object::Kinds;
use kiln_rules::Operation;
use kiln_value::Value;

/// The program, if `cargo xtask compare convert` was given one.
pub(crate) struct Kyverno {
    program: PathBuf,
    directory: tempfile::TempDir,
}

/// How an object fares with a policy: whether it is as the policy wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KyvernoVerdict {
    Good,
    Bad,
}

impl Kyverno {
    pub(crate) fn find() -> Option<Self> {
        let program = std::env::var_os("KILN_KYVERNO_CLI").map(PathBuf::from)?;
        let directory = tempfile::tempdir().expect("a directory can be made");
        Some(Kyverno { program, directory })
    }

    /// What it says of each object, by the names of the objects, which have to differ; none if it does not take the
    /// policies.
    pub(crate) fn apply(
        &self,
        policies: &[Value],
        objects: &[Value],
    ) -> Option<BTreeMap<String, KyvernoVerdict>> {
        let write = |name: &str, values: &[Value]| {
            let path = self.directory.path().join(name);
            std::fs::write(&path, kiln_yaml::emit_documents(values))
                .expect("a file can be written");
            path
        };
        let (policies, resources) = (write("p.yaml", policies), write("r.yaml", objects));
        let output = Command::new(&self.program)
            .arg("apply")
            .arg(policies)
            .arg("--resource")
            .arg(resources)
            .args(["--policy-report", "--output-format", "json", "--continue-on-fail"])
            .output()
            .expect("the program can be started");
        let text = String::from_utf8_lossy(&output.stdout);
        if text.contains("Invalid") || text.contains("Skipped") || text.contains("failed to") {
            return None;
        }
        let mut verdicts = BTreeMap::new();
        let mut rest = text.as_ref();
        while let Some(at) = rest.find("{\n").into_iter().chain(rest.find("{\"")).min() {
            let mut documents =
                serde_json::Deserializer::from_str(&rest[at..]).into_iter::<serde_json::Value>();
            let Some(Ok(report)) = documents.next() else { break };
            let length = documents.byte_offset();
            for result in report["results"].as_array().into_iter().flatten() {
                let bad = matches!(result["result"].as_str(), Some("fail" | "error" | "warn"));
                for resource in result["resources"].as_array().into_iter().flatten() {
                    let name = resource["name"].as_str().unwrap_or_default().to_owned();
                    let known = verdicts.entry(name).or_insert(KyvernoVerdict::Good);
                    if bad {
                        *known = KyvernoVerdict::Bad;
                    }
                }
            }
            rest = &rest[at + length..];
        }
        Some(verdicts)
    }
}

/// What Kiln says of an object that is made, with nothing else there.
pub(crate) fn ours(side: &PolicySide, input: &Input, kinds: &Kinds) -> KyvernoVerdict {
    let alone = Input {
        operation: Operation::Create,
        old_object: None,
        user: None,
        others: Vec::new(),
        ..input.clone()
    };
    match outcome(side, &alone, kinds).word {
        Word::Fail | Word::Error => KyvernoVerdict::Bad,
        Word::Pass | Word::Skip => KyvernoVerdict::Good,
    }
}

/// Whether a policy reads something that the command line has not: a cluster, a registry, a user.
pub(crate) fn reads_more(policy: &Value) -> bool {
    let text = kiln_value::json::to_string(policy);
    [
        "resource.",
        "image.Get",
        "http.",
        "globalContext.",
        "userInfo",
        "namespaceObject",
        "apiCall",
        "configMap",
        "imageRegistry",
        "oldObject",
        "subjects",
        "clusterRoles",
        "namespaceSelector",
        "serviceAccountName",
    ]
    .iter()
    .any(|word| text.contains(word))
}
