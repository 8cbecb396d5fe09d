//! Recorded cases: the fixtures of the standards, and what Kyverno's rules make of Pods with exclusions.

use kiln_podsecurity::{Exclusion, Level, Pod, PodSecurityVersion, Standard, describe, leave_out};
use kiln_testkit::{Tally, corpus_json};
use kiln_value::{Path, Str, Value};

fn texts(value: Option<&Value>) -> Vec<Str> {
    let list = value.and_then(Value::as_list);
    list.into_iter().flat_map(|list| list.iter()).filter_map(Value::as_str).map(Str::from).collect()
}

fn pod(case: &Value) -> Pod<'_> {
    let pod = case.get("pod").unwrap();
    Pod::read(pod.get("metadata"), pod.get("spec")).unwrap()
}

#[test]
fn fixtures_of_the_standards() {
    let Some(recorded) = corpus_json("pod-security/cases.json") else { return };
    let mut tally = Tally::new("Pod Security Standards");
    for case in recorded.as_list().unwrap() {
        let level: Level = case.str_at(["level"]).unwrap().parse().unwrap();
        let allowed = case.get("allowed").and_then(Value::as_bool).unwrap();
        let pod = pod(case);
        for version in texts(case.get("versions")) {
            let parsed: PodSecurityVersion = version.parse().unwrap();
            let name = format!("{} {version}", case.str_at(["id"]).unwrap());
            tally.case(&name, || {
                for standard in
                    [Standard::of_kubernetes(level, parsed), Standard::of_rules(level, parsed)]
                {
                    let found = standard.check(&pod);
                    if found.is_empty() != allowed {
                        return Err(format!("wanted allowed: {allowed}, found {found:?}"));
                    }
                }
                Ok(())
            });
        }
    }
    tally.finish();
}

/// What rules say, where nothing but the wish to be right differs: see docs/differences.md.
#[test]
fn words_of_rules() {
    let Some(recorded) = corpus_json("pod-security/cases.json") else { return };
    let mut tally = Tally::new("Pod Security Standards, words of rules");
    for case in recorded.as_list().unwrap() {
        let Some(kyverno) = case.get("kyverno").and_then(Value::as_map) else { continue };
        let level: Level = case.str_at(["level"]).unwrap().parse().unwrap();
        let pod = pod(case);
        for (version, said) in kyverno {
            // Kyverno's newest checks are older than ours, and its oldest are newer.
            if version.as_str() == "latest" || said.str_at(["result"]) != Some("fail") {
                continue;
            }
            let found = Standard::of_rules(level, version.parse().unwrap()).check(&pod);
            let wanted = said.str_at(["message"]).unwrap();
            let wanted = wanted.split_once("\": ").map_or(wanted, |(_, list)| list);
            // Kyverno moves the annotations of Pods into a template that Pods do not have.
            let wanted = wanted.replace("spec.template.metadata", "metadata");
            let unasked = !asked_of(&wanted, version);
            let name = format!("{} {version}", case.str_at(["id"]).unwrap());
            if unasked {
                tally.leave_out();
                continue;
            }
            tally.case(&name, || {
                let got = describe(&found, &Path::root());
                if got == wanted { Ok(()) } else { Err(format!("\nwanted {wanted}\ngot    {got}")) }
            });
        }
    }
    tally.finish();
}

/// Kyverno asks for dropped capabilities before v1.22, for users before v1.23 and about probes before v1.34; the standard
/// does not.
fn asked_of(message: &str, version: &str) -> bool {
    let minor: u32 = version.strip_prefix("v1.").unwrap().parse().unwrap();
    !(minor < 22 && message.contains("unrestricted capabilities")
        || minor < 23 && message.contains("runAsUser=0")
        || minor < 34 && message.contains("probe or lifecycle host")
        // A volume that says nothing, which the API server makes an empty directory.
        || message.contains(".unknown"))
}

#[test]
fn exclusions() {
    let Some(recorded) = corpus_json("validate/pod-security.json") else { return };
    let mut tally = Tally::new("podSecurity rules with exclusions");
    for case in recorded.as_list().unwrap() {
        let rule = case.get("podSecurity").unwrap();
        let level: Level = rule.str_at(["level"]).unwrap().parse().unwrap();
        let version: PodSecurityVersion =
            rule.str_at(["version"]).unwrap_or("latest").parse().unwrap();
        let exclusions = rule.get("exclude").and_then(Value::as_list);
        let exclusions: Vec<Exclusion> = exclusions
            .into_iter()
            .flat_map(|list| list.iter())
            .map(|entry| Exclusion {
                control: entry.str_at(["controlName"]).unwrap().parse().unwrap(),
                images: texts(entry.get("images")),
                field: entry.str_at(["restrictedField"]).map(Str::from),
                values: texts(entry.get("values")),
            })
            .collect();
        tally.case(case.str_at(["id"]).unwrap(), || {
            let pod = pod(case);
            let found = Standard::of_rules(level, version).check(&pod);
            let left = leave_out(found, &exclusions, &pod);
            let allowed = case.get("allowed").and_then(Value::as_bool).unwrap();
            if left.is_empty() == allowed {
                return Ok(());
            }
            let left = describe(&left, &Path::root());
            Err(format!("wanted allowed: {allowed}, left {left}; {exclusions:?}"))
        });
    }
    tally.finish();
}
