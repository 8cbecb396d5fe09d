//! Test of Chainsaw, as far as `kiln test` runs it.

use crate::{DocumentKind, Field, FieldTable, any, boolean, string, string_map, table, tables};

/// Kinds of `chainsaw.kyverno.io`.
pub const KINDS: &[DocumentKind] = &[DocumentKind {
    name: "Test",
    api_versions: &["chainsaw.kyverno.io/v1alpha1", "chainsaw.kyverno.io/v1alpha2"],
    original: "Chainsaw",
    summary: "A test with steps on a cluster (`chainsaw-test.yaml`), run in the sandbox.",
    table: &TEST,
}];

pub static TEST: FieldTable = FieldTable::new(
    "Chainsaw Test",
    "Each test has a sandbox of its own, which is thrown away: what only cleans up has no effect.",
    &[
        string("apiVersion", "Group and version of the kind.")
            .required()
            .example("chainsaw.kyverno.io/v1alpha1"),
        string("kind", "The kind.").required().example("Test"),
        any("metadata", "`name` is the name of the test.")
            .required()
            .example("{name: clone-secret}"),
        table("spec", &SPEC, "The test.").required(),
    ],
);

const BINDINGS: Field = tables("bindings", &BINDING, "Values that expressions read as `$NAME`.");
const SKIP: Field = boolean("skip", "Whether it is left out.").default("false").example("true");
const TEMPLATE: Field = boolean("template", "Whether objects may have expressions in parentheses.")
    .default("true")
    .example("false");

/// `spec` of a Test.
pub static SPEC: FieldTable = FieldTable::new(
    "Test spec",
    "The steps, and what holds for all of them.",
    &[
        tables("steps", &STEP, "Steps, in order.").required(),
        BINDINGS,
        string("namespace", "Namespace of objects that name none.")
            .default("chainsaw-test")
            .example("shop"),
        SKIP,
        TEMPLATE,
        table("timeouts", &TIMEOUTS, "How long assertions may take."),
    ],
);

/// `spec.timeouts`.
pub static TIMEOUTS: FieldTable = FieldTable::new(
    "Timeouts",
    "Durations such as `1m30s`. Other timeouts have no effect.",
    &[string(
        "assert",
        "How long something may take to become true, by the clock of the test's cluster.",
    )
    .default("90s")
    .example("10s")],
);

pub static STEP: FieldTable = FieldTable::new(
    "Step",
    "`use`, then `try`, then `finally`.",
    &[
        string("name", "Name of the step.").default("its number").example("create the policy"),
        tables("try", &OPERATION, "Operations, in order."),
        tables("finally", &OPERATION, "Operations after them; programs here are left out."),
        table("use", &USED, "A template with operations."),
        BINDINGS,
        SKIP,
        TEMPLATE,
    ],
);

const fn without_effect(name: &'static str) -> Field {
    any(name, "For a cluster that stays, or that other tests use.").ignored()
}

/// What Chainsaw knows and a sandbox that is thrown away does not need.
pub static WITHOUT_EFFECT: FieldTable = FieldTable::new(
    "Fields without effect",
    "These may stand in a spec and in a step.",
    &[
        string("description", "A text for readers.").example("clones a Secret").ignored(),
        without_effect("concurrent").example("false"),
        without_effect("skipDelete").example("true"),
        without_effect("fullName").example("true"),
        without_effect("cleanup").example("[{delete: {}}]"),
        without_effect("catch").example("[{events: {}}]"),
        without_effect("delayBeforeCleanup").example("3s"),
        without_effect("forceTerminationGracePeriod").example("5s"),
        without_effect("deletionPropagationPolicy").example("Background"),
        without_effect("namespaceTemplate").example("{metadata: {labels: {a: b}}}"),
        without_effect("namespaceTemplateCompiler").example("jp"),
        without_effect("compiler").example("jp"),
        without_effect("timeouts").example("{apply: 10s}"),
        without_effect("timeout").example("30s"),
        without_effect("dryRun").example("false"),
        without_effect("continueOnError").example("false"),
        without_effect("failFast").example("true"),
    ],
);

/// A value with a name.
pub static BINDING: FieldTable = FieldTable::new(
    "Binding",
    "A value with a name.",
    &[
        string("name", "Name; expressions read it as `$NAME`.").required().example("team"),
        any("value", "The value.").example("shop"),
    ],
);

/// `use` of a step.
pub static USED: FieldTable = FieldTable::new(
    "Step template",
    "Operations from a file with a StepTemplate.",
    &[
        string("template", "The file.").required().example("../templates/ready.yaml"),
        table("with", &WITH, "Values for it."),
    ],
);

/// `use.with` of a step.
pub static WITH: FieldTable =
    FieldTable::new("Template values", "Values for a template.", &[BINDINGS]);

const fn on_objects(name: &'static str, doc: &'static str) -> Field {
    table(name, &OBJECTS, doc)
}

/// An operation: one of its fields.
pub static OPERATION: FieldTable = FieldTable::new(
    "Operation",
    "One of these fields; `description` and `continueOnError` may stand beside it.",
    &[
        on_objects("apply", "Creates objects, or changes them."),
        on_objects("create", "Creates objects."),
        on_objects("update", "Replaces objects."),
        on_objects("patch", "Merges into objects."),
        on_objects("delete", "Deletes objects, and waits until they are gone."),
        on_objects("assert", "Waits until objects exist that fit."),
        on_objects("error", "Waits until no object fits."),
        table("sleep", &SLEEP, "Waits."),
        table("wait", &WAIT, "Waits for a condition, a field or a deletion."),
        any("script", "A shell script, run with `--allow-scripts`; without it the test ends there, undecided.")
            .example("{content: kubectl get ns}"),
        any("command", "A program, run with `--allow-scripts`; without it the test ends there, undecided.")
            .example("{entrypoint: kubectl}"),
        any("describe", "Shows something.").example("{resource: pods}").ignored(),
        any("events", "Shows something.").example("{}").ignored(),
        any("get", "Shows something.").example("{resource: pods}").ignored(),
        any("podLogs", "Shows something.").example("{name: web}").ignored(),
        string("description", "A text for readers.").example("the clone is there").ignored(),
        boolean("continueOnError", "Whether Chainsaw continues after a failure. Kiln stops.")
            .example("true")
            .ignored(),
    ],
);

/// What most operations have.
pub static OBJECTS: FieldTable = FieldTable::new(
    "Objects of an operation",
    "`file`, `resource`, or for `delete` `ref`.",
    &[
        string("file", "A file with objects; `($NAME)` is a binding.").example("policy.yaml"),
        any("resource", "One object; of `assert` and `error`, what must fit.")
            .example("{apiVersion: v1, kind: Namespace, metadata: {name: shop}}"),
        table("ref", &REFERENCE, "Objects to delete, by name or label."),
        tables("expect", &EXPECTATION, "What is expected of the answer, in place of success."),
        BINDINGS,
        TEMPLATE,
    ],
);

/// Objects by name or label.
pub static REFERENCE: FieldTable = FieldTable::new(
    "Reference",
    "Objects by name or label.",
    &[
        string("apiVersion", "apiVersion.").required().example("v1"),
        string("kind", "Kind.").required().example("Secret"),
        string("name", "Name.").example("registry-credentials"),
        string("namespace", "Namespace.").example("shop"),
        string_map("labels", "Labels.").example("{team: shop}"),
    ],
);

/// What is expected of an answer.
pub static EXPECTATION: FieldTable = FieldTable::new(
    "Expectation",
    "What an answer must be.",
    &[
        any("match", "Objects that it is for.").example("{kind: Secret}"),
        any("check", "What must hold; `$error` is the error.")
            .required()
            .example("{($error != null): true}"),
    ],
);

/// `sleep`.
pub static SLEEP: FieldTable = FieldTable::new(
    "Sleep",
    "Waits.",
    &[string("duration", "How long, as a duration.").required().example("3s")],
);

/// `wait`.
pub static WAIT: FieldTable = FieldTable::new(
    "Wait",
    "An object, and what to wait for.",
    &[
        string("apiVersion", "apiVersion.").required().example("kyverno.io/v1"),
        string("kind", "Kind.").required().example("ClusterPolicy"),
        string("name", "Name.").example("clone-secret"),
        string("namespace", "Namespace.").example("shop"),
        string_map("labels", "Labels.").example("{team: shop}"),
        table("for", &WAIT_FOR, "What to wait for.").required(),
    ],
);

/// `wait.for`.
pub static WAIT_FOR: FieldTable = FieldTable::new(
    "What to wait for",
    "One of these.",
    &[
        any("deletion", "Until it is gone.").example("{}"),
        table("condition", &WAIT_CONDITION, "Until a condition of its status has a value."),
        table("jsonPath", &WAIT_PATH, "Until a field has a value."),
    ],
);

/// `wait.for.condition`.
pub static WAIT_CONDITION: FieldTable = FieldTable::new(
    "Awaited condition",
    "A condition of the status.",
    &[
        string("name", "Type of the condition.").required().example("Ready"),
        string("value", "Its status, in any letter case.").default("'true'").example("'True'"),
    ],
);

/// `wait.for.jsonPath`.
pub static WAIT_PATH: FieldTable = FieldTable::new(
    "Awaited field",
    "A field.",
    &[
        string("path", "A path that only names fields.").required().example("'{.status.phase}'"),
        any("value", "Its value.").required().example("Active"),
    ],
);
