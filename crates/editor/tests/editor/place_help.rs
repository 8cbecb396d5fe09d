//! Completion and hover for editors without the protocol; `‸` in a text is where the cursor is.

use kiln_editor::place_help;
use serde_json::Value;

const POLICY: &str =
    "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata:\n  name: ä\nspec:\n  rules:\n";

fn help(text: &str) -> Value {
    let at = text.find('‸').expect("a place is marked");
    let units: usize = text[..at].chars().map(char::len_utf16).sum();
    place_help("policies.yaml", &text.replacen('‸', "", 1), units, None)
}

fn labels(text: &str) -> Vec<String> {
    let help = help(text);
    let items = help["items"].as_array().cloned().unwrap_or_default();
    items.iter().map(|item| item["label"].as_str().unwrap().to_owned()).collect()
}

fn offers(text: &str, wanted: &str) {
    let labels = labels(text);
    assert!(labels.iter().any(|label| label == wanted), "{text}\n{labels:?}");
}

#[test]
fn fields_of_a_rule_are_offered_in_both_styles_of_lists() {
    for rule in ["  - name: a\n    ‸", "    - name: a\n      ‸", "  - ‸", "  - name: a\n    m‸"]
    {
        offers(&format!("{POLICY}{rule}"), "preconditions");
    }
    let resources = "  - name: a\n    match:\n      any:\n      - resources:\n          ‸";
    offers(&format!("{POLICY}{resources}"), "kinds");
}

#[test]
fn fields_of_kubernetes_kinds_are_offered_and_explained() {
    let pod = "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: a\n";
    offers(&format!("{pod}    ‸\n"), "imagePullPolicy");
    offers(&format!("{pod}    securityContext:\n      priv‸"), "privileged");
    offers(&format!("{pod}    stdin: ‸"), "true");
    let about = help(&format!("{pod}    imagePull‸Policy: Always\n"));
    let hover = about["hover"]["text"].as_str().unwrap();
    assert!(hover.starts_with("**imagePullPolicy** (string)"), "{hover}");
    let written = labels(&format!("{pod}    image: b\n    ‸\n"));
    assert!(!written.contains(&"image".to_owned()), "what is there is not offered: {written:?}");
}

#[test]
fn another_document_has_another_kind() {
    offers(&format!("{POLICY}---\napiVersion: v1\nkind: ConfigMap\n‸"), "binaryData");
}

#[test]
fn words_are_offered_as_values_and_fields_explained() {
    offers(&format!("{POLICY}  - name: a\n    skipBackgroundRequests: ‸"), "false");
    let about = help(&format!("{POLICY}  - name: a\n    precond‸itions: {{}}"));
    let hover = &about["hover"];
    assert!(hover["text"].as_str().unwrap().starts_with("**preconditions**"), "{hover}");
    let text = format!("{POLICY}  - name: a\n    ");
    let from = text.chars().map(char::len_utf16).sum::<usize>();
    assert_eq!((&hover["from"], &hover["to"]), (&from.into(), &(from + 13).into()));
}

#[test]
fn nothing_breaks_anywhere_in_a_text() {
    let text = format!("{POLICY}  - - - a: b\n\t-x\n---\n :\n- : -\nä: 𝄞");
    for offset in 0..=text.encode_utf16().count() + 2 {
        place_help("p.yaml", &text, offset, None);
    }
}
