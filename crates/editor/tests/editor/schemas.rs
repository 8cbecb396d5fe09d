//! JSON Schemas say what readers say.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use kiln_chart::schema_violations;
use kiln_diagnostic::Severity;
use kiln_dialects::{compile, is_exception, is_policy};
use kiln_editor::json_schema::{
    document_kinds, file_name, kinds_called, schema, schema_of_all_kinds,
};
use kiln_fields::{DocumentKind, FieldTable, FieldType, Support, chainsaw};
use kiln_kustomize::fs::Disk;
use kiln_kustomize::{Build, BuildOptions};
use kiln_object::Kinds;
use kiln_testkit::{Tally, corpus};
use kiln_value::Value;
use kiln_yaml::{Document, ReadOptions, read_bytes};

#[test]
fn every_kind_has_a_schema_with_the_fields_of_its_table() {
    let mut names = Vec::new();
    for kind in document_kinds() {
        let schema = schema(kind);
        let mut seen = Vec::new();
        compare(kind.table, &schema, &schema, kind.name, &mut seen);
        names.push(file_name(kind));
    }
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "two kinds have one file");
}

/// Holds a schema against a table, name by name and type by type.
fn compare(
    table: &'static FieldTable,
    schema: &Value,
    root: &Value,
    at: &str,
    seen: &mut Vec<*const FieldTable>,
) {
    if seen.contains(&(table as *const FieldTable)) {
        return;
    }
    seen.push(table);
    let properties = schema.get("properties").and_then(Value::as_map);
    let properties = properties.unwrap_or_else(|| panic!("{at} has no properties"));
    let names: Vec<&str> = properties.iter().map(|(name, _)| name.as_str()).collect();
    // Documents have a head, which the tables of plugins leave out.
    let is_everywhere = |name: &str| {
        root.str_at(["title"]) == Some("Test")
            && chainsaw::WITHOUT_EFFECT.field(name).is_some()
            && table.field(name).is_none()
    };
    let is_head = |name: &str| {
        std::ptr::eq(schema, root)
            && ["apiVersion", "kind", "metadata"].contains(&name)
            && table.field(name).is_none()
    };
    let names: Vec<&str> =
        names.into_iter().filter(|name| !is_head(name) && !is_everywhere(name)).collect();
    assert_eq!(names, table.names().collect::<Vec<_>>(), "{at}");
    let required = schema.get("required").and_then(Value::as_list);
    let required: Vec<&str> = required.into_iter().flatten().filter_map(Value::as_str).collect();
    let wanted: Vec<&str> =
        table.fields.iter().filter(|field| field.is_required).map(|field| field.name).collect();
    assert_eq!(required, wanted, "{at}");
    for field in table.fields {
        let at = format!("{at}.{}", field.name);
        let property = schema.get_path(["properties", field.name]).unwrap();
        assert_eq!(field.support == Support::Rejected, property.get("not").is_some(), "{at}");
        assert!(property.str_at(["description"]).is_some_and(|text| !text.is_empty()), "{at}");
        if let FieldType::Table(inner) | FieldType::Tables(inner) = field.holds
            && field.support != Support::Rejected
        {
            let reference = property
                .str_at(["items", "$ref"])
                .or_else(|| property.get("anyOf")?.as_list()?.first()?.str_at(["$ref"]));
            let name = reference.and_then(|text| text.strip_prefix("#/definitions/"));
            let name = name.unwrap_or_else(|| panic!("{at} refers to nothing"));
            compare(inner, root.get_path(["definitions", name]).unwrap(), root, &at, seen);
        }
    }
}

/// All YAML files below a directory.
fn files_below(directory: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() && !path.is_symlink() {
            files_below(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "yaml" || ending == "yml") {
            found.push(path);
        }
    }
}

fn documents(path: &Path) -> Vec<Document> {
    let bytes = fs::read(path).unwrap();
    read_bytes(&path.display().to_string(), &bytes, ReadOptions::kubernetes()).unwrap_or_default()
}

fn kind_of(value: &Value) -> Option<&'static DocumentKind> {
    let (version, name) = (value.str_at(["apiVersion"])?, value.str_at(["kind"])?);
    kinds_called(&format!("{version}/{name}")).first().copied()
}

/// The schema of each kind, and the one for all.
struct Schemas {
    each: BTreeMap<String, Value>,
    all: Value,
}

impl Schemas {
    fn new() -> Self {
        let each = document_kinds().map(|kind| (file_name(kind), schema(kind))).collect();
        Schemas { each, all: schema_of_all_kinds() }
    }

    fn violations(&self, kind: &DocumentKind, value: &Value) -> Option<String> {
        let one = schema_violations(&self.each[&file_name(kind)], value).unwrap();
        let of_all = schema_violations(&self.all, value).unwrap();
        assert_eq!(one.is_some(), of_all.is_some(), "both schemas agree: {one:?} {of_all:?}");
        one
    }
}

/// Policies with mistakes that check only warns of.
const WARNED: &[(&str, &str)] = &[
    ("seed-pvc-matches-alias/modrules.yaml", "`matches` is read as `match` with a warning"),
    (
        "seed-pvc-matches-alias-other-kind/modrules.yaml",
        "`matches` is read as `match` with a warning",
    ),
];

#[test]
fn policies_of_the_corpora_that_check_accepts_are_valid() {
    let schemas = Schemas::new();
    let mut tally = Tally::new("policies against schemas");
    for (case, reason) in WARNED {
        let Some(folder) = corpus("kubemod") else { return };
        tally.known_failure(format!("{}/{case}#0", folder.display()), *reason);
    }
    for name in ["policy-library", "kyverno-cli", "kyverno-cli-validate", "chainsaw", "kubemod"] {
        let Some(folder) = corpus(name) else { return };
        let mut files = Vec::new();
        files_below(&folder, &mut files);
        for path in files {
            for (number, document) in documents(&path).into_iter().enumerate() {
                if !is_policy(&document) && !is_exception(&document) {
                    continue;
                }
                let Some(kind) = kind_of(document.value()) else { continue };
                let compiled = compile([&document], &Kinds::builtin());
                let is_accepted =
                    compiled.diagnostics.iter().all(|found| found.severity < Severity::Error);
                if !is_accepted {
                    continue;
                }
                tally.case(&format!("{}#{number}", path.display()), || {
                    schemas.violations(kind, document.value()).map_or(Ok(()), Err)
                });
            }
        }
    }
    tally.finish();
}

#[test]
fn kustomizations_of_the_corpora_that_build_are_valid() {
    let schemas = Schemas::new();
    let mut tally = Tally::new("kustomizations against schemas");
    for name in ["kustomize", "kustomize-5.8.2", "kustomize-differences"] {
        let Some(folder) = corpus(name) else { return };
        let mut files = Vec::new();
        files_below(&folder, &mut files);
        for path in files {
            if !path
                .file_name()
                .is_some_and(|name| name == "kustomization.yaml" || name == "kustomization.yml")
            {
                continue;
            }
            let read = fs::read(&path).unwrap();
            let read = read_bytes("k", &read, ReadOptions::kustomization()).unwrap_or_default();
            // kustomize reads the first document.
            let Some(document) = read.into_iter().next() else { continue };
            let kind = match document.value().str_at(["kind"]) {
                Some("Component") => kinds_called("Component")[0],
                _ => kinds_called("Kustomization")[0],
            };
            // What cannot be built for its fields is not valid either; what fails for other reasons may be.
            let built = Build::new(&Disk, &BuildOptions::default())
                .run(path.parent().unwrap().to_str().unwrap());
            let text = built.err().map(|failed| failed.error.to_string()).unwrap_or_default();
            let is_wrong = [
                "json: ",
                "invalid Kustomization",
                "Failed to read kustomization",
                "yaml: ",
                "sortOptions",
            ]
            .iter()
            .any(|part| text.contains(part));
            if is_wrong {
                continue;
            }
            tally.case(&path.display().to_string(), || {
                let one = &schemas.each[&file_name(kind)];
                schema_violations(one, document.value()).unwrap().map_or(Ok(()), Err)
            });
        }
    }
    tally.finish();
}

/// Fields of real documents, each with one letter too few, too many or in another place; and values of another type.
const MISSPELT: &[(&str, &[(&str, &str)])] = &[
    (
        "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: p}\nspec:\n  background: true\n  rules:\n  - name: r\n    match:\n      any:\n      - resources:\n          kinds: [Pod]\n          names: [a]\n          selector: {matchLabels: {a: b}}\n    exclude:\n      any:\n      - resources: {namespaces: [x]}\n    context:\n    - name: c\n      configMap: {name: m, namespace: ns}\n    - name: d\n      variable: {jmesPath: a}\n    preconditions:\n      all:\n      - {key: a, operator: Equals, value: b}\n    validate:\n      message: m\n      failureAction: Enforce\n      pattern: {a: b}\n",
        &[
            ("background:", "backgroud:"),
            ("rules:", "ruls:"),
            ("match:", "macth:"),
            ("any:", "ayn:"),
            ("resources:", "resource:"),
            ("kinds:", "kind:"),
            ("names:", "nmaes:"),
            ("selector:", "selecter:"),
            ("matchLabels:", "matchlabels:"),
            ("exclude:", "exclud:"),
            ("context:", "contxt:"),
            ("configMap:", "configmap:"),
            ("jmesPath:", "jmespath:"),
            ("preconditions:", "precondition:"),
            ("operator:", "operater:"),
            ("validate:", "validat:"),
            ("message:", "mesage:"),
            ("failureAction:", "failureActions:"),
            ("pattern:", "patern:"),
            ("failureAction: Enforce", "failureAction: Enforced"),
            ("background: true", "background: 'true'"),
            ("kinds: [Pod]", "kinds: Pod"),
            ("spec:", "specs:"),
        ],
    ),
    (
        "apiVersion: policies.kyverno.io/v1\nkind: ValidatingPolicy\nmetadata: {name: p}\nspec:\n  validationActions: [Deny]\n  matchConstraints:\n    resourceRules:\n    - {apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}\n  variables:\n  - {name: a, expression: '1'}\n  validations:\n  - {expression: 'true', message: m}\n",
        &[
            ("validationActions:", "validationAction:"),
            ("matchConstraints:", "matchConstraint:"),
            ("resourceRules:", "resourceRule:"),
            ("apiGroups:", "apiGroup:"),
            ("operations:", "operation:"),
            ("variables:", "variable:"),
            ("validations:", "validation:"),
            ("expression: 'true'", "expresion: 'true'"),
            ("expression: 'true'", "expression: true"),
        ],
    ),
    (
        "apiVersion: api.kubemod.io/v1beta1\nkind: ModRule\nmetadata: {name: m, namespace: shop}\nspec:\n  type: Patch\n  match:\n  - {select: $.kind, matchValue: Pod}\n  patch:\n  - {op: add, path: /a, value: b}\n",
        &[
            ("type: Patch", "type: Patches"),
            ("type:", "tpye:"),
            ("select:", "selects:"),
            ("matchValue:", "matchvalue:"),
            ("path: /a", "pth: /a"),
            ("op: add", "op: ad"),
        ],
    ),
    (
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamePrefix: a-\nresources: [a.yaml]\nimages:\n- {name: nginx, newTag: '1'}\nlabels:\n- {pairs: {a: b}, includeSelectors: true}\npatches:\n- {path: p.yaml, target: {kind: Pod}}\nconfigMapGenerator:\n- {name: c, literals: [a=b]}\nreplicas:\n- {name: a, count: 2}\n",
        &[
            ("namePrefix:", "nameprefx:"),
            ("resources:", "resource:"),
            ("images:", "image:"),
            ("newTag: '1'", "newTag: 1"),
            ("newTag:", "newtags:"),
            ("pairs:", "pair:"),
            ("includeSelectors:", "includeSelector:"),
            ("patches:", "patch:"),
            ("target:", "targets:"),
            ("configMapGenerator:", "configMapGenerators:"),
            ("literals:", "literal:"),
            ("count: 2", "count: two"),
            ("resources: [a.yaml]", "resources: a.yaml"),
        ],
    ),
];

#[test]
fn misspelt_documents_are_invalid() {
    let schemas = Schemas::new();
    let read = |text: &str| {
        let read = read_bytes("t", text.as_bytes(), ReadOptions::kubernetes()).unwrap();
        read.into_iter().next().unwrap().into_value()
    };
    let mut count = 0;
    for (text, mistakes) in MISSPELT {
        let right = read(text);
        let kind = kind_of(&right).unwrap();
        assert_eq!(schemas.violations(kind, &right), None, "{}", kind.name);
        for (from, to) in *mistakes {
            assert!(text.contains(from), "{from}");
            let wrong = read(&text.replacen(from, to, 1));
            assert!(schemas.violations(kind, &wrong).is_some(), "{}: {to}", kind.name);
            count += 1;
        }
    }
    assert!(count >= 50, "{count}");
}
