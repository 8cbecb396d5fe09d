//! The CEL expressions of the recorded policies compile in the environment of policies.

use std::path::Path;

use kiln_cel::{Env, PolicyScope, Type};
use kiln_testkit::{Tally, corpus};
use kiln_value::{Str, Value};
use kiln_yaml::ReadOptions;

#[test]
fn expressions_of_recorded_policies_compile() {
    let mut tally = Tally::new("CEL expressions of recorded policies");
    for folder in ["kyverno-cli/cases", "chainsaw"] {
        let Some(cases) = corpus(folder) else { return };
        visit(&cases, &mut tally);
    }
    tally.finish();
}

fn visit(folder: &Path, tally: &mut Tally) {
    let entries = std::fs::read_dir(folder).expect("a folder of the corpus");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            visit(&path, tally);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            let bytes = std::fs::read(&path).expect("a readable file");
            let name = path.display().to_string();
            // Some files are wrong on purpose; they belong to other tests.
            let Ok(documents) = kiln_yaml::read_bytes(&name, &bytes, ReadOptions::kubernetes())
            else {
                continue;
            };
            for document in documents {
                policy(&name, document.value(), tally);
            }
        }
    }
}

fn policy(file: &str, policy: &Value, tally: &mut Tally) {
    let kind = policy.get("kind").and_then(Value::as_str).unwrap_or_default();
    let scope = match kind {
        "GeneratingPolicy" | "MutatingPolicy" | "MutatingAdmissionPolicy" => PolicyScope::Cluster,
        "NamespacedGeneratingPolicy" | "NamespacedMutatingPolicy" => {
            PolicyScope::Namespace(Str::new("default"))
        }
        _ => return,
    };
    let Some(spec) = policy.get("spec") else { return };
    let mut env = Env::policies(scope).extend().variable("params", Type::Dyn).build();
    let mut case = |env: &Env, expression: &str| {
        let mut ty = Type::Dyn;
        tally.case(&format!("{file}: {expression}"), || {
            match env.compile(expression) {
                Ok(_) if wrong_scope(file, expression) => return Err("is not refused".into()),
                Ok(program) => ty = program.result_type().clone(),
                Err(_) if wrong_scope(file, expression) => {}
                Err(error) => return Err(error.to_string()),
            }
            Ok(())
        });
        ty
    };
    for variable in list(spec, "variables") {
        let text = |field: &str| variable.get(field).and_then(Value::as_str).unwrap_or_default();
        let ty = case(&env, text("expression"));
        env = env.extend().policy_variable(text("name"), ty).build();
    }
    let conditions = list(spec, "matchConditions").chain(list(spec, "generate"));
    for entry in conditions {
        if let Some(expression) = entry.get("expression").and_then(Value::as_str) {
            case(&env, expression);
        }
    }
    for mutation in list(spec, "mutations") {
        for form in ["applyConfiguration", "jsonPatch"] {
            if let Some(expression) = mutation.str_at([form, "expression"]) {
                case(&env, expression);
            }
        }
    }
}

/// The recorded policy that must be refused: a cluster policy that names no namespace.
fn wrong_scope(file: &str, expression: &str) -> bool {
    file.contains("invalid-cel-expression") && expression.starts_with("generator.apply(variables.")
}

fn list<'v>(spec: &'v Value, field: &str) -> impl Iterator<Item = &'v Value> {
    spec.get(field).and_then(Value::as_list).into_iter().flatten()
}
