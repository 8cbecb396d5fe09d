//! Policies as they were written, compiled to rules.

use std::collections::HashSet;
use std::sync::Arc;

use kiln_object::Kinds;
use kiln_rules::{
    Dialect, Emission, Existing, Filters, LabelOwner, Lifecycle, OnPolicyDelete, Origin,
    OwnershipLabels, Policy, PolicyId, Program, Rule, RuleId, Trigger, Write,
};
use kiln_value::{Key, Map, Path, Str};
use kiln_variables::Template;
use kiln_yaml::Document;

use crate::cel_policies::{in_rules, request_facts};
use crate::delivery::{background, report_words};
use crate::document_reader::{DocumentNode, Report};
use crate::generated_object_fields;
use crate::kyverno::autogen::{self, Derived};
use crate::kyverno::check;
use crate::kyverno::delivery;
use crate::kyverno::entries::string_template;
use crate::kyverno::generate::Compiler;
use crate::kyverno::mutate;
use crate::kyverno::parse::{self, HeadDoc, OperationDoc, PolicyDoc, RuleDoc};
use crate::kyverno::remarks;
use crate::kyverno::validate;
use crate::kyverno::variables::VariableCheck;
use crate::{Compiled, NotRun};

/// The field manager of objects that are written by server-side apply.
const MANAGER: &str = "kyverno-generate";

/// The labels that Kyverno's rules write.
const LABELS: OwnershipLabels = OwnershipLabels {
    owner: LabelOwner::Kyverno,
    rule: true,
    trigger_name: false,
    whole_source: true,
};

/// What becomes of what a rule leaves behind that makes no objects: it stays.
pub(crate) const KEPT: Lifecycle = Lifecycle {
    synchronize: false,
    existing: false,
    on_policy_delete: OnPolicyDelete::Keep,
    on_conflict: Existing::Keep,
    write: Write::Replace,
    labels: LABELS,
    clears_adopted: false,
    existing_switch: "mutateExistingOnPolicyUpdate",
};

/// Compiles a ClusterPolicy or Policy. A policy with an error is left out as a whole, as Kyverno
/// refuses it as a whole.
pub(crate) fn compile(document: &Document, kinds: &Kinds, compiled: &mut Compiled) {
    let report = Report::new(document);
    let policy = parse::policy(&report).map(|doc| {
        let id = PolicyId {
            dialect: Dialect::Kyverno,
            namespace: doc.scope.namespace().map(Into::into),
            name: doc.name.clone(),
        };
        check_policy(&report, &doc);
        let mut rules: Vec<_> = doc
            .rules
            .iter()
            .filter_map(|rule| compile_rule(&doc, rule, &id, 0, kinds, compiled))
            .map(Arc::new)
            .collect();
        if !report.has_errors() {
            add_derived(&mut rules, &report, &doc, &id, kinds);
        }
        Policy {
            api_version: doc.api_version.to_string(),
            kind: doc.kind.to_string(),
            rules,
            apply: doc.apply,
            delivery: delivery::of(document.value()),
            background: background(document.value()),
            report: report_words(document.value()),
            origin: Origin::new(document.clone(), Path::root()),
            id,
        }
    });
    if !report.has_errors() {
        compiled.policies.extend(policy.map(Arc::new));
    }
    compiled.diagnostics.extend(report.finish());
}

/// Adds the rules that are rewritten for the controllers of Pods.
fn add_derived(
    rules: &mut Vec<Arc<Rule>>,
    report: &Report<'_>,
    doc: &PolicyDoc<'_, '_>,
    id: &PolicyId,
    kinds: &Kinds,
) {
    let derived = autogen::derive(report.document().value());
    if derived.is_empty() {
        return;
    }
    // Kyverno: older versions wrote them into the policy.
    rules.retain(|rule| !autogen::is_derived_name(&rule.id.rule));
    let path = Path::from_iter(["spec", "rules"]);
    for Derived { from, rule, wrapped } in &derived {
        // The rule it was made from has said everything there is to say.
        let quiet = Report::new(report.document());
        let node = DocumentNode { value: rule, path: path.join(*from), report: &quiet };
        let compiled = parse::rule(node).and_then(|rule| {
            compile_rule(doc, &rule, id, *wrapped, kinds, &mut Compiled::default())
        });
        match compiled {
            Some(rule) if !quiet.has_errors() => rules.push(Arc::new(rule)),
            _ => report.warn(
                &path.join(*from),
                "the rule cannot be rewritten for the controllers of Pods, so it acts on Pods alone",
                Some("write a rule for the controllers".into()),
            ),
        }
    }
}

fn check_policy(report: &Report<'_>, doc: &PolicyDoc<'_, '_>) {
    let version = doc.api_version.rsplit('/').next().unwrap_or_default();
    if !matches!(version, "v1" | "v2beta1") {
        report.error(
            &Path::from_iter(["apiVersion"]),
            format!("{} {} is not known", doc.api_version, doc.kind),
            Some("use kyverno.io/v1 or kyverno.io/v2beta1".into()),
        );
    }
    let mut seen = HashSet::new();
    for rule in &doc.rules {
        if !seen.insert(&rule.name) {
            report.error(
                &rule.node.path.join("name"),
                format!("Duplicate rule name: '{}'", rule.name),
                Some("give each rule a name of its own".into()),
            );
        }
    }
    let Some(admission) = &doc.admission else { return };
    if admission.flag() == Some(false) {
        if !doc.background {
            admission.error_with(
                "disabling both admission and background processing is not allowed",
                "remove one of the two",
            );
        }
        let validates =
            |rule: &RuleDoc<'_, '_>| matches!(rule.operation, OperationDoc::Validate(_));
        if !doc.rules.iter().all(validates) {
            admission.error_with(
                "disabling admission processing is only allowed with validation policies",
                "remove `admission: false`",
            );
        }
    }
}

fn compile_rule(
    doc: &PolicyDoc<'_, '_>,
    rule: &RuleDoc<'_, '_>,
    policy: &PolicyId,
    wrapped: usize,
    kinds: &Kinds,
    compiled: &mut Compiled,
) -> Option<Rule> {
    let not_run = |what: &'static str| NotRun {
        policy: policy.key(),
        rule: Some(rule.name.clone()),
        what,
        place: rule.node.report.place(&rule.node.path),
    };
    let block = match &rule.operation {
        OperationDoc::NotRun { word } => {
            compiled.not_run.push(not_run(word));
            return None;
        }
        OperationDoc::Generate(block)
        | OperationDoc::Mutate(block)
        | OperationDoc::Validate(block) => block,
    };
    let in_cel = matches!(&rule.operation, OperationDoc::Validate(block) if block.value.get("cel").is_some());
    if let Some(cel) = rule.fields.get("celPreconditions").filter(|_| !in_cel) {
        cel.error_with(
            "celPrecondition can only be used with validate.cel",
            "write preconditions, or validate.cel",
        );
    }
    if let Some(extractors) = rule.fields.get("imageExtractors") {
        extractors.report.warn_at_key(
            &extractors.path,
            "imageExtractors has no effect in Kiln: `images` holds the images of Pods and of their controllers",
            Some("read images of other kinds from request.object, completed with image_normalize".into()),
        );
    }
    let old_form_allowed = !doc.api_version.ends_with("/v2beta1");
    let head = parse::head(rule, &doc.scope, old_form_allowed)?;
    check::head(doc, rule, &head, kinds);
    // Kyverno: who made the request may be asked where existing objects are changed.
    let has_targets = |rule: &RuleDoc<'_, '_>| match &rule.operation {
        OperationDoc::Mutate(block) => block.value.get("targets").is_some(),
        _ => false,
    };
    let background = doc.background && !doc.rules.iter().any(has_targets);
    let fired_by = generated_object_fields::filtered(&head.include.filters, kinds);
    let mut variables =
        VariableCheck::new(block.report, &rule.name, background).fired_by(fired_by.clone());
    variables.context(&head.context);
    variables.guard(head.guard.as_ref());
    let mut script = None;
    let (program, lifecycle) = match rule.operation {
        OperationDoc::Mutate(_) => mutate(doc, &head, block, (&rule.name, kinds), &mut variables)?,
        OperationDoc::Validate(_) => match validate::compile(block, rule, doc, wrapped)? {
            validate::Compiled::NotRun(what) => {
                compiled.not_run.push(not_run(what));
                return None;
            }
            validate::Compiled::Program(program, made) => {
                script = made.map(|made| Arc::new(*made));
                validate::every_kind(doc, &head.include, &program);
                remarks::validate(doc, rule, &head.include);
                let cel = block.any_fields().and_then(|fields| fields.get("cel"));
                if let (Some(cel), Some(script)) = (cel, script.as_deref()) {
                    in_rules::check_reads(&cel, script, fired_by.as_deref().unwrap_or_default());
                }
                variables.validate(&program);
                (Program::Validate(program), KEPT)
            }
        },
        _ => generate(doc, &head, block, kinds, &mut variables)?,
    };
    let report_properties = report_properties(rule);
    for (_, template) in &report_properties {
        variables.template(template);
    }
    let in_cel = request_facts::of_rule(script.as_deref(), &program);
    // Kyverno: what the engine writes itself passes through mutate rules like everything else; only
    // what makes or changes other objects could go round in circles.
    let at_admission = program.acts_at_admission();
    Some(Rule {
        id: RuleId { policy: policy.clone(), rule: rule.name.clone() },
        trigger: Trigger {
            ignore_own_requests: head.skip_background_requests && !at_admission,
            match_conditions: doc.match_conditions.clone(),
            ..Trigger::of(
                head.include.filters,
                head.exclude.map_or(Filters::NONE, |exclude| exclude.filters),
            )
        },
        scope: doc.scope.clone(),
        context: head.context,
        guard: head.guard,
        script,
        program,
        lifecycle,
        report_properties,
        request_facts: variables.facts().and(in_cel).and(doc.condition_facts),
        origin: Origin::new(rule.node.report.document().clone(), rule.node.path.clone()),
    })
}

/// What a rule adds to its results in reports.
fn report_properties(rule: &RuleDoc<'_, '_>) -> Vec<(Str, Template)> {
    let Some(properties) = rule.fields.get("reportProperties") else { return Vec::new() };
    let Some(fields) = properties.any_fields() else { return Vec::new() };
    let keys = properties.value.as_map().into_iter().flat_map(Map::keys);
    let read = |key: &Key| Some((key.as_str().into(), string_template(&fields.get(key)?)?));
    keys.filter_map(read).collect()
}

fn generate(
    doc: &PolicyDoc<'_, '_>,
    head: &HeadDoc<'_, '_>,
    block: &DocumentNode<'_, '_>,
    kinds: &Kinds,
    variables: &mut VariableCheck<'_, '_>,
) -> Option<(Program, Lifecycle)> {
    let generate = parse::generate(block, &doc.scope)?;
    check::no_wildcard_kind(doc, &head.include);
    let compiler = Compiler { scope: &doc.scope, kinds, synchronize: generate.synchronize };
    let program = compiler.program(&generate);
    variables.program(&program);
    let fired: Vec<_> = head.include.filters.filters().iter().flat_map(|f| &f.kinds).collect();
    for (_, _, emitter) in program.emitters() {
        for made in emitter.target_kinds() {
            // Kyverno: of a cloneList the kinds are not compared.
            let compared = !matches!(emitter.emission, Emission::CloneSelect(_));
            if compared && head.include.old_form && fired.iter().any(|kind| kind.kind == made.kind)
            {
                block.report.error(
                    &emitter.path,
                    "generation kind and match resource kind should not be the same",
                    Some("use match.any, and exclude the objects that the rule makes".into()),
                );
            }
            check::fires_on_itself(head, &made, &emitter.path, block);
        }
    }
    let lifecycle = Lifecycle {
        synchronize: generate.synchronize,
        // The rule wins over the policy, also when it says no.
        existing: generate.existing.or(doc.generate_existing).unwrap_or(false),
        on_policy_delete: match generate.orphan {
            None => OnPolicyDelete::DeleteMade,
            Some(false) => OnPolicyDelete::Delete,
            Some(true) => OnPolicyDelete::Keep,
        },
        on_conflict: if generate.synchronize { Existing::Update } else { Existing::Keep },
        write: if doc.server_side_apply {
            Write::Apply { manager: MANAGER }
        } else {
            Write::Replace
        },
        labels: LABELS,
        clears_adopted: false,
        existing_switch: "generateExisting",
    };
    Some((Program::Generate(program), lifecycle))
}

fn mutate(
    doc: &PolicyDoc<'_, '_>,
    head: &HeadDoc<'_, '_>,
    block: &DocumentNode<'_, '_>,
    (rule, kinds): (&str, &Kinds),
    variables: &mut VariableCheck<'_, '_>,
) -> Option<(Program, Lifecycle)> {
    let compiled = mutate::compile(block, doc, rule)?;
    mutate::only_metadata(doc, &head.include, &compiled);
    generated_object_fields::patches(block.report, &head.include.filters, &compiled.program, kinds);
    variables.mutate(&compiled.program);
    let lifecycle = Lifecycle {
        existing: compiled.existing.or(doc.mutate_existing).unwrap_or(false)
            && compiled.program.targets.is_some(),
        ..KEPT
    };
    Some((Program::Mutate(compiled.program), lifecycle))
}
