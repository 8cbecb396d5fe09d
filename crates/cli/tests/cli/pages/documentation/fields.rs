//! The pages below `docs/reference/fields` are printed from the tables that the readers themselves use.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use kiln_fields::{
    DocumentKind, Field, FieldTable, FieldType, LABEL_REQUIREMENT, LABEL_SELECTOR, METADATA,
    Support, chainsaw, deleting, kinds, kubemod, kustomize, kyverno, kyverno_cli, policies,
    validating,
};
use kiln_testkit::{difference, project_root};
use kiln_value::Value;
use kiln_yaml::{Document, ReadOptions, read_bytes};

struct Page {
    /// The name of the file, without its ending.
    file: &'static str,
    title: &'static str,
    intro: &'static str,
    tables: &'static [&'static FieldTable],
}

const PAGES: &[Page] = &[
    Page {
        file: "policy",
        title: "ClusterPolicy and Policy",
        intro: "How a policy and a rule begin, and what a rule matches. \
                The guide is [Writing policies](../../guides/writing-policies.md).",
        tables: &[
            &kyverno::POLICY,
            &kyverno::SPEC,
            &kyverno::RULE,
            &kyverno::MATCH,
            &kyverno::FILTER,
            &kyverno::RESOURCES,
            &kyverno::SUBJECT,
            &kyverno::WEBHOOK_CONFIGURATION,
            &kyverno::MATCH_CONDITION,
            &METADATA,
            &LABEL_SELECTOR,
            &LABEL_REQUIREMENT,
        ],
    },
    Page {
        file: "context",
        title: "Context entries and conditions",
        intro: "Parts of rules of a ClusterPolicy or Policy. \
                [JMESPath functions](../functions/jmespath.md) lists what expressions can call.",
        tables: &[
            &kyverno::CONTEXT_ENTRY,
            &kyverno::VARIABLE,
            &kyverno::CONFIG_MAP,
            &kyverno::API_CALL,
            &kyverno::KEY_VALUE,
            &kyverno::SERVICE,
            &kyverno::GLOBAL_REFERENCE,
            &kyverno::IMAGE_REGISTRY,
            &kyverno::REGISTRY_CREDENTIALS,
            &kyverno::CONDITIONS,
            &kyverno::CONDITION,
        ],
    },
    Page {
        file: "generate-and-mutate",
        title: "Generate and mutate rules",
        intro: "What a rule of a ClusterPolicy or Policy does. \
                [Synchronization](../../concepts/synchronization.md) says what becomes of downstreams.",
        tables: &[
            &kyverno::GENERATE,
            &kyverno::FOREACH,
            &kyverno::CLONE,
            &kyverno::CLONE_LIST,
            &kyverno::CLONE_PAIR,
            &kyverno::OBJECT_NAME,
            &kyverno::DATA_ENTRY,
            &kyverno::MUTATE,
            &kyverno::MUTATE_FOREACH,
            &kyverno::MUTATE_TARGET,
        ],
    },
    Page {
        file: "validate",
        title: "Validate rules",
        intro: "What a validate rule of a ClusterPolicy or Policy checks, on files and \
                [in clusters](../../concepts/admission.md#rules-that-check-objects).",
        tables: &[
            &kyverno::VALIDATE,
            &kyverno::VALIDATE_FOREACH,
            &kyverno::DENY,
            &kyverno::ACTION_OVERRIDE,
            &validating::POD_SECURITY,
            &validating::POD_SECURITY_EXCLUSION,
            &validating::CEL_RULE,
        ],
    },
    Page {
        file: "validating-policies",
        title: "ValidatingPolicy and ValidatingAdmissionPolicy",
        intro: "Policies in CEL that check objects, on files and \
                [in clusters](../../concepts/admission.md#rules-that-check-objects). There the API \
                server runs ValidatingAdmissionPolicies.",
        tables: &[
            &validating::VALIDATING_POLICY,
            &validating::VALIDATING_SPEC,
            &validating::VALIDATING_EVALUATION,
            &validating::VALIDATING_AUTOGEN,
            &validating::VALIDATION,
            &validating::VALIDATING_ADMISSION_POLICY,
            &validating::VALIDATING_ADMISSION_SPEC,
            &validating::VALIDATING_BINDING,
            &validating::VALIDATING_BINDING_SPEC,
        ],
    },
    Page {
        file: "cleanup",
        title: "Cleanup policies",
        intro: "Policies that [delete objects](../cleanup-policies.md) on a schedule.",
        tables: &[
            &kyverno::CLEANUP_POLICY,
            &kyverno::CLEANUP_SPEC,
            &kyverno::CLEANUP_MATCH,
            &deleting::DELETING_POLICY,
            &deleting::DELETING_SPEC,
        ],
    },
    Page {
        file: "cel-policies",
        title: "GeneratingPolicy and MutatingPolicy",
        intro: "Policies in CEL. [CEL in policies](../functions/cel-kyverno.md) lists what expressions can call.",
        tables: &[
            &policies::GENERATING_POLICY,
            &policies::GENERATING_SPEC,
            &policies::GENERATING_EVALUATION,
            &policies::SWITCH,
            &policies::GENERATE_ENTRY,
            &policies::GENERATE_TEMPLATE,
            &policies::MUTATING_POLICY,
            &policies::MUTATING_SPEC,
            &policies::MUTATING_EVALUATION,
            &policies::MUTATION,
            &policies::PATCH_EXPRESSION,
            &policies::AUTOGEN,
            &policies::POD_CONTROLLERS,
            &policies::MATCH_CONSTRAINTS,
            &policies::TARGET_CONSTRAINTS,
            &policies::RESOURCE_RULE,
            &policies::POLICY_VARIABLE,
            &policies::AUDIT_ANNOTATION,
            &policies::POLICY_WEBHOOK,
        ],
    },
    Page {
        file: "admission-policies",
        title: "MutatingAdmissionPolicy",
        intro: "Kubernetes' own policies, which `kiln apply` and `kiln test` run on files. In a cluster and in the \
                sandbox, the API server runs them.",
        tables: &[
            &policies::ADMISSION_POLICY,
            &policies::ADMISSION_SPEC,
            &policies::PARAM_KIND,
            &policies::BINDING,
            &policies::BINDING_SPEC,
            &policies::PARAM_REF,
        ],
    },
    Page {
        file: "exceptions",
        title: "PolicyException",
        intro: "There are two kinds of this name: one for rules of ClusterPolicies and Policies, one for policies in CEL.",
        tables: &[
            &kyverno::EXCEPTION,
            &kyverno::EXCEPTION_SPEC,
            &kyverno::EXCEPTED_RULES,
            &policies::EXCEPTION,
            &policies::EXCEPTION_SPEC,
            &policies::POLICY_REF,
        ],
    },
    Page {
        file: "modrule",
        title: "ModRule",
        intro: "[ModRules](../modrules.md) says how rules act together; the guide is \
                [Moving from KubeMod](../../guides/from-kubemod.md).",
        tables: &[&kubemod::MOD_RULE, &kubemod::SPEC, &kubemod::MATCH_ITEM, &kubemod::PATCH_ITEM],
    },
    Page {
        file: "cluster",
        title: "GlobalContextEntry and UpdateRequest",
        intro: "Objects of a cluster that `kiln run` reads beside policies. \
                [Status, Events and UpdateRequests](../status-and-events.md) says what it writes.",
        tables: &[
            &kyverno::GLOBAL_CONTEXT_ENTRY,
            &kyverno::GLOBAL_SPEC,
            &kyverno::KUBERNETES_RESOURCE,
            &kyverno::GLOBAL_API_CALL,
            &kyverno::PROJECTION,
            &kyverno::UPDATE_REQUEST,
            &kyverno::REQUEST_SPEC,
            &kyverno::RULE_CONTEXT,
            &kyverno::REQUEST_RESOURCE,
            &kyverno::REQUEST_CONTEXT,
            &kyverno::REQUEST_USER,
            &kyverno::REQUEST_USER_INFO,
            &kyverno::ADMISSION_REQUEST_INFO,
            &kyverno::REQUEST_STATUS,
        ],
    },
    Page {
        file: "kustomization",
        title: "Kustomization and Component",
        intro: "What `kiln build` reads. Unknown fields are an error, as in kustomize. The guide is \
                [Moving from kustomize](../../guides/from-kustomize.md).",
        tables: &[
            &kustomize::KUSTOMIZATION,
            &kustomize::LABEL,
            &kustomize::PATCH,
            &kustomize::PATCH_OPTIONS,
            &kustomize::SELECTOR,
            &kustomize::IMAGE,
            &kustomize::REPLICA,
            &kustomize::SORT_OPTIONS,
            &kustomize::LEGACY_SORT_OPTIONS,
            &kustomize::KUSTOMIZATION_METADATA,
        ],
    },
    Page {
        file: "kustomization-generators",
        title: "Generators, charts and replacements",
        intro: "Parts of a kustomization.",
        tables: &[
            &kustomize::GENERATOR_ARGS,
            &kustomize::GENERATOR_OPTIONS,
            &kustomize::CHART_RESOURCE,
            &kustomize::CHART_RESOURCE_ARGUMENTS,
            &kustomize::HELM_CHART,
            &kustomize::HELM_GLOBALS,
            &kustomize::HELM_CHART_ARGS,
            &kustomize::REPLACEMENT,
            &kustomize::REPLACEMENT_SOURCE,
            &kustomize::REPLACEMENT_TARGET,
            &kustomize::FIELD_OPTIONS,
            &kustomize::VAR,
            &kustomize::VAR_TARGET,
            &kustomize::FIELD_REF,
        ],
    },
    Page {
        file: "kustomize-plugins",
        title: "Built-in plugins of kustomize",
        intro: "Objects of apiVersion `builtin` in `generators`, `transformers` and `validators`. Unknown fields have no \
                effect, as in kustomize. The reference is [Plugins](../plugins.md).",
        tables: &[
            &kustomize::ANNOTATIONS_TRANSFORMER,
            &kustomize::CONFIG_MAP_GENERATOR,
            &kustomize::HASH_TRANSFORMER,
            &kustomize::HELM_CHART_GENERATOR,
            &kustomize::IAM_POLICY_GENERATOR,
            &kustomize::IAM_SERVICE,
            &kustomize::IAM_SERVICE_ACCOUNT,
            &kustomize::IMAGE_TAG_TRANSFORMER,
            &kustomize::LABEL_TRANSFORMER,
            &kustomize::NAMESPACE_TRANSFORMER,
            &kustomize::PATCH_JSON_TRANSFORMER,
            &kustomize::PATCH_STRATEGIC_MERGE_TRANSFORMER,
            &kustomize::PATCH_TRANSFORMER,
            &kustomize::PREFIX_SUFFIX_TRANSFORMER,
            &kustomize::REPLACEMENT_TRANSFORMER,
            &kustomize::REPLICA_COUNT_TRANSFORMER,
            &kustomize::VALUE_ADD_TRANSFORMER,
            &kustomize::VALUE_ADD_TARGET,
        ],
    },
    Page {
        file: "kustomize-functions",
        title: "Functions and configurations of kustomize",
        intro: "Plugins of your own, and files of `configurations`. The guide is [Plugins](../../guides/plugins.md).",
        tables: &[
            &kustomize::FUNCTION,
            &kustomize::EXEC,
            &kustomize::CONTAINER,
            &kustomize::MOUNT,
            &kustomize::EXEC_PLUGIN,
            &kustomize::CONFIGURATION,
            &kustomize::NAME_REFERENCE,
            &kustomize::FIELD_SPEC,
        ],
    },
    Page {
        file: "test-suites",
        title: "Test suites",
        intro: "The format of `kyverno-test.yaml`. [How results are met](../test-suites.md#how-results-are-met); the guide \
                is [Testing policies](../../guides/testing-policies.md).",
        tables: &[
            &kyverno_cli::TEST,
            &kyverno_cli::RESULT,
            &kyverno_cli::RESOURCE_SPEC,
            &kyverno_cli::API_CALL_RESPONSE,
            &kyverno_cli::RESPONSE,
            &kyverno_cli::GLOBAL_ENTRY,
            &kyverno_cli::GIVEN_PROJECTION,
        ],
    },
    Page {
        file: "values",
        title: "Values, UserInfo, Context and ClusterResource",
        intro: "Files that give test suites and `kiln apply` what only a cluster knows.",
        tables: &[
            &kyverno_cli::VALUES_FILE,
            &kyverno_cli::POLICY_VALUES,
            &kyverno_cli::RESOURCE_VALUES,
            &kyverno_cli::RULE_VALUES,
            &kyverno_cli::NAMESPACE_LABELS,
            &kyverno_cli::SUBRESOURCE,
            &kyverno_cli::API_RESOURCE,
            &kyverno_cli::USER_FILE,
            &kyverno_cli::USER_INFO,
            &kyverno_cli::GIVEN,
            &kyverno_cli::GIVEN_SPEC,
        ],
    },
    Page {
        file: "chainsaw",
        title: "Chainsaw tests",
        intro: "What `kiln test` reads of a `chainsaw-test.yaml`. Fields that are not here are an error.",
        tables: &[
            &chainsaw::TEST,
            &chainsaw::SPEC,
            &chainsaw::STEP,
            &chainsaw::OPERATION,
            &chainsaw::OBJECTS,
            &chainsaw::REFERENCE,
            &chainsaw::EXPECTATION,
            &chainsaw::SLEEP,
            &chainsaw::WAIT,
            &chainsaw::WAIT_FOR,
            &chainsaw::WAIT_CONDITION,
            &chainsaw::WAIT_PATH,
            &chainsaw::BINDING,
            &chainsaw::USED,
            &chainsaw::WITH,
            &chainsaw::TIMEOUTS,
            &chainsaw::WITHOUT_EFFECT,
        ],
    },
];

const FIRST_LINE: &str =
    "<!-- Printed from the tables in crates/fields by `cargo xtask accept documentation`. -->\n\n";

/// What a table is known by.
type Id = *const FieldTable;

fn page_of(table: &'static FieldTable) -> &'static Page {
    let has = |page: &&Page| page.tables.iter().any(|other| std::ptr::eq(*other, table));
    PAGES.iter().find(has).unwrap_or_else(|| panic!("no page has the table {:?}", table.title))
}

/// Where documents have a table: kind and path.
fn places() -> BTreeMap<Id, Vec<(&'static DocumentKind, String)>> {
    fn walk(
        kind: &'static DocumentKind,
        table: &'static FieldTable,
        path: &str,
        seen: &mut Vec<Id>,
        found: &mut BTreeMap<Id, Vec<(&'static DocumentKind, String)>>,
    ) {
        found.entry(table).or_default().push((kind, path.to_owned()));
        if seen.contains(&(table as Id)) {
            return;
        }
        seen.push(table);
        for field in table.fields {
            let dot = if path.is_empty() { "" } else { "." };
            for next in field.holds.tables() {
                let index = if is_list(&field.holds, next) { "[]" } else { "" };
                walk(kind, next, &format!("{path}{dot}{}{index}", field.name), seen, found);
            }
        }
        seen.pop();
    }
    let mut found = BTreeMap::new();
    for kind in kinds() {
        walk(kind, kind.table, "", &mut Vec::new(), &mut found);
    }
    walk(&chainsaw::KINDS[0], &chainsaw::WITHOUT_EFFECT, "spec", &mut Vec::new(), &mut found);
    found
}

fn is_list(holds: &FieldType, table: &'static FieldTable) -> bool {
    match holds {
        FieldType::Tables(inner) => std::ptr::eq(*inner, table),
        FieldType::Either(forms) => forms.iter().any(|form| is_list(form, table)),
        _ => false,
    }
}

fn anchor(title: &str) -> String {
    let kept = title.to_lowercase().replace(' ', "-");
    kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
}

fn link(from: &Page, to: &'static FieldTable) -> String {
    let page = page_of(to);
    let file = if page.file == from.file { String::new() } else { format!("{}.md", page.file) };
    format!("[{}]({file}#{})", to.title, anchor(to.title))
}

fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|"))
}

fn codes(texts: &[&str]) -> String {
    texts.iter().map(|text| code(text)).collect::<Vec<_>>().join(", ")
}

/// More words than this are listed with the meaning.
const WORDS: usize = 4;

fn type_cell(page: &Page, holds: &FieldType) -> String {
    match holds {
        FieldType::String => "string".into(),
        FieldType::Expression(language) => (*language).into(),
        FieldType::Enum(words) if words.len() > WORDS => "string".into(),
        FieldType::Enum(words) => codes(words),
        FieldType::Boolean => "boolean".into(),
        FieldType::Integer => "integer".into(),
        FieldType::Any => "any".into(),
        FieldType::List(FieldType::String) => "list of strings".into(),
        FieldType::List(inner) => format!("list of {}", type_cell(page, inner)),
        FieldType::Map(FieldType::String) => "map of strings".into(),
        FieldType::Map(inner) => format!("map of {}", type_cell(page, inner)),
        FieldType::Table(table) => link(page, table),
        FieldType::Tables(table) => format!("list of {}", link(page, table)),
        FieldType::Either(forms) => {
            forms.iter().map(|form| type_cell(page, form)).collect::<Vec<_>>().join(", or ")
        }
    }
}

fn default_cell(field: &Field) -> String {
    match field.default {
        _ if field.is_required => "required".into(),
        None => String::new(),
        Some(text) if text.starts_with('[') || !text.contains(' ') => code(text),
        Some(text) => text.into(),
    }
}

fn meaning_cell(field: &Field) -> String {
    let note = match field.support {
        Support::Full => String::new(),
        Support::Ignored => "*No effect.* ".into(),
        Support::NotRun => "*Not run.* ".into(),
        Support::Rejected => "*Rejected.* ".into(),
        Support::Deprecated(instead) => format!("*Deprecated; write {}.* ", code(instead)),
    };
    let words = match &field.holds {
        FieldType::Enum(words) if words.len() > WORDS => format!(" One of {}.", codes(words)),
        _ => String::new(),
    };
    let example =
        field.example.map(|value| format!("<br>{}", code(&format!("{}: {value}", field.name))));
    format!("{note}{}{words}{}", field.doc, example.unwrap_or_default())
}

fn section(
    page: &Page,
    table: &'static FieldTable,
    places: &[(&'static DocumentKind, String)],
) -> String {
    // What the page is named after is the document itself.
    let title = if table.title == page.title { "Document" } else { table.title };
    let mut text = format!("\n## {title}\n\n");
    let paths: Vec<&str> = {
        let mut paths: Vec<&str> = places.iter().map(|(_, path)| path.as_str()).collect();
        paths.sort_by_key(|path| path.len());
        paths.dedup();
        paths.into_iter().filter(|path| !path.is_empty()).collect()
    };
    const SHOWN: usize = 3;
    if !paths.is_empty() {
        let more = if paths.len() > SHOWN { " and elsewhere" } else { "" };
        let shown = codes(&paths[..paths.len().min(SHOWN)]);
        write!(text, "At {shown}{more}. ").unwrap();
    }
    writeln!(text, "{}", table.summary).unwrap();
    if table.fields.is_empty() {
        return text;
    }
    let original = places.first().map_or("original", |(kind, _)| kind.original);
    writeln!(text, "\n| field | type | default | {original} | meaning |").unwrap();
    writeln!(text, "|---|---|---|---|---|").unwrap();
    for field in table.fields {
        writeln!(
            text,
            "| `{}` | {} | {} | {} | {} |",
            field.name,
            type_cell(page, &field.holds),
            default_cell(field),
            if field.in_original { "yes" } else { "no" },
            meaning_cell(field),
        )
        .unwrap();
    }
    text
}

fn page_text(page: &Page, places: &BTreeMap<Id, Vec<(&'static DocumentKind, String)>>) -> String {
    let mut text = format!("{FIRST_LINE}# {}\n\n{}\n", page.title, page.intro);
    let shown: Vec<&DocumentKind> =
        kinds().filter(|kind| std::ptr::eq(page_of(kind.table), page)).collect();
    if !shown.is_empty() {
        text.push_str("\n| kind | apiVersion | |\n|---|---|---|\n");
    }
    for kind in shown {
        let versions = codes(kind.api_versions);
        writeln!(text, "| {} | {versions} | {} |", kind.name, kind.summary).unwrap();
    }
    for table in page.tables {
        let here = places.get(&(*table as Id)).map(Vec::as_slice).unwrap_or_default();
        text.push_str(&section(page, table, here));
    }
    text
}

fn index_text() -> String {
    let mut text = format!(
        "{FIRST_LINE}# Fields\n\nEvery field of every kind that Kiln reads, printed from the tables that its readers use: \
         a field that is not here is an error with its position, unless a page says otherwise.\n\n\
         | column | says |\n|---|---|\n\
         | type | what the field holds; *any* is any YAML, a language stands for an expression in it |\n\
         | default | what holds if the field is missing; *required* if that is an error |\n\
         | Kyverno, KubeMod, kustomize, … | whether the original has the field, too |\n\
         | meaning | what the field says, with an example below; *no effect*: accepted as in the original; *not run*: accepted, and [not run](../not-run.md) |\n\n\
         | kind | apiVersion | fields | page |\n|---|---|--:|---|\n"
    );
    for kind in kinds() {
        let page = page_of(kind.table);
        let versions = codes(kind.api_versions);
        let fields = reachable(kind.table);
        writeln!(
            text,
            "| {} | {versions} | {fields} | [{}]({}.md) |",
            kind.name, page.title, page.file
        )
        .unwrap();
    }
    text.push_str(
        "\nImageValidatingPolicy and NamespacedImageValidatingPolicy are accepted and [not run](../not-run.md); their fields are \
         not checked.\n",
    );
    text
}

/// How many fields a document with this table has, each table counted once.
fn reachable(table: &'static FieldTable) -> usize {
    fn walk(table: &'static FieldTable, seen: &mut Vec<Id>) -> usize {
        if seen.contains(&(table as Id)) {
            return 0;
        }
        seen.push(table);
        let below = table.fields.iter().flat_map(|field| field.holds.tables());
        table.fields.len() + below.map(|next| walk(next, seen)).sum::<usize>()
    }
    walk(table, &mut Vec::new())
}

#[test]
fn the_pages_of_fields_are_printed_from_the_tables() {
    let folder = project_root().join("docs/reference/fields");
    let places = places();
    let mut pages: BTreeMap<PathBuf, String> = PAGES
        .iter()
        .map(|page| (folder.join(format!("{}.md", page.file)), page_text(page, &places)))
        .collect();
    pages.insert(folder.join("README.md"), index_text());
    if std::env::var_os("KILN_ACCEPT").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        for (path, text) in pages {
            std::fs::write(path, text).unwrap();
        }
        return;
    }
    let mut wrong = Vec::new();
    for (path, text) in &pages {
        let there = std::fs::read_to_string(path).unwrap_or_default();
        wrong.extend(difference(&there, text).map(|found| format!("{}:\n{found}", path.display())));
    }
    for entry in std::fs::read_dir(&folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if !pages.contains_key(&path) {
            wrong.push(format!("{} is printed from no table", path.display()));
        }
    }
    assert!(
        wrong.is_empty(),
        "(cargo xtask accept documentation prints them)\n{}",
        wrong.join("\n")
    );
}

#[test]
fn every_table_is_on_one_page() {
    for id in places().keys() {
        let pages =
            PAGES.iter().flat_map(|page| page.tables).filter(|table| std::ptr::eq(**table, *id));
        // Not the tables themselves: those of foreach hold themselves.
        let paths: Vec<_> =
            places()[id].iter().map(|(kind, path)| (kind.name, path.clone())).collect();
        assert_eq!(pages.count(), 1, "{paths:?}");
    }
    for page in PAGES {
        let mut titles: Vec<&str> = page.tables.iter().map(|table| table.title).collect();
        titles.sort_unstable();
        titles.dedup();
        assert_eq!(titles.len(), page.tables.len(), "{} has a heading twice", page.title);
    }
}

/// Every field has an example, which is YAML of its type, or is described by a table of its own.
#[test]
fn every_field_has_an_example_of_its_type() {
    let mut wrong = Vec::new();
    for table in PAGES.iter().flat_map(|page| page.tables) {
        for field in table.fields {
            let at = format!("{} {}", table.title, field.name);
            let Some(text) = field.example else {
                if field.holds.tables().is_empty() && field.support != Support::Ignored {
                    wrong.push(format!("{at} has no example"));
                }
                continue;
            };
            let documents = read_bytes("example", text.as_bytes(), ReadOptions::kubernetes());
            let value =
                documents.map(|documents| documents.into_iter().next().map(Document::into_value));
            match value {
                Ok(Some(value)) if fits(&field.holds, &value) => {}
                other => wrong.push(format!("{at}: {text} is {other:?}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn fits(holds: &FieldType, value: &Value) -> bool {
    match holds {
        FieldType::String | FieldType::Expression(_) => value.as_str().is_some(),
        FieldType::Enum(words) => value.as_str().is_some_and(|word| words.contains(&word)),
        FieldType::Boolean => value.as_bool().is_some(),
        FieldType::Integer => value.as_i64().is_some(),
        FieldType::Any => true,
        FieldType::List(inner) => {
            value.as_list().is_some_and(|list| list.iter().all(|element| fits(inner, element)))
        }
        FieldType::Map(inner) => {
            value.as_map().is_some_and(|map| map.values().all(|value| fits(inner, value)))
        }
        FieldType::Table(table) => {
            value.as_map().is_some_and(|map| map.keys().all(|key| table.field(key).is_some()))
        }
        FieldType::Tables(table) => value
            .as_list()
            .is_some_and(|list| list.iter().all(|element| fits(&FieldType::Table(table), element))),
        FieldType::Either(forms) => forms.iter().any(|form| fits(form, value)),
    }
}
