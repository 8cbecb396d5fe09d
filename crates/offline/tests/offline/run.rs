//! A run over documents, and what came of it as text.

use kiln_dialects::compile;
use kiln_engine::{EvaluationLimits, NoExternalData, RuleSet};
use kiln_jmespath::NoAmbientSources;
use kiln_object::{Kinds, ObjectId};
use kiln_offline::{Job, Made, Report, UserFile, Values, run, with_namespace};
use kiln_testkit::difference;
use kiln_value::Value;
use kiln_yaml::{Document, ReadOptions, emit, read_bytes};

/// What a run is given, each as a text of documents.
#[derive(Default)]
pub(crate) struct Given<'g> {
    pub(crate) policies: &'g str,
    pub(crate) resources: &'g str,
    pub(crate) others: &'g str,
    pub(crate) values: &'g str,
    pub(crate) user: &'g str,
    pub(crate) explain: bool,
    pub(crate) only_given_kinds: bool,
    pub(crate) follows_denied: bool,
}

impl Given<'_> {
    /// What came of the run: a line for each result with what was made, then the resources and whatever else rules wrote
    /// as they are at the end.
    pub(crate) fn shown(&self) -> String {
        let report = self.report();
        let mut lines = Vec::new();
        for result in &report.results {
            let because =
                result.because().map_or_else(String::new, |because| format!(": {because}"));
            let status = result.status.as_str();
            lines.push(format!("{} on {}: {status}{because}", result.rule, result.trigger));
            for made in &result.made {
                lines.push(format!("  {} {}", made.change.as_str(), made.id));
            }
            lines.extend(result.problems.iter().map(|problem| format!("  {problem}")));
        }
        lines.extend(report.untouched.iter().map(|id| format!("no rule names {id}")));
        lines.extend(report.refused.iter().map(|id| format!("refused {id}")));
        lines.extend(report.warnings.iter().map(|warning| format!("warning: {warning}")));
        let mut text = lines.join("\n") + "\n";
        let kinds = Kinds::builtin();
        let given = |made: &Made| {
            let mut resources = objects(self.resources).into_iter();
            resources.any(|object| {
                ObjectId::of(&with_namespace(object, &kinds)).is_ok_and(|id| id == made.id)
            })
        };
        let made = report.objects();
        let others = made.iter().filter(|made| !given(made)).map(|made| &made.object);
        for object in report.resources.iter().chain(others) {
            text.push_str("---\n");
            text.push_str(&emit(object));
        }
        text
    }

    fn report(&self) -> Report {
        let kinds = Kinds::builtin();
        let compiled = compile(&documents(self.policies), &kinds);
        assert!(!compiled.has_errors(), "{:#?}", compiled.diagnostics);
        let rules = RuleSet::new(compiled.policies).with_exceptions(compiled.exceptions);
        let values = documents(self.values).first().map(Values::read).transpose();
        let user = documents(self.user).first().map(UserFile::read).transpose();
        let job = Job {
            rules: &rules,
            kinds: &kinds,
            resources: objects(self.resources),
            others: objects(self.others),
            values: values.unwrap_or_else(|problem| panic!("{problem}")).unwrap_or_default(),
            user: user.unwrap_or_else(|problem| panic!("{problem}")),
            limits: EvaluationLimits { trace: 100, ..EvaluationLimits::default() },
            external_data: &NoExternalData,
            explain: self.explain,
            payloads: Vec::new(),
            only_given_kinds: self.only_given_kinds,
            audit_warns: false,
            follows_denied: self.follows_denied,
            schemas: None,
        };
        run(&job, &NoAmbientSources)
    }
}

pub(crate) fn documents(text: &str) -> Vec<Document> {
    read_bytes("test.yaml", text.as_bytes(), ReadOptions::kubernetes())
        .unwrap_or_else(|problem| panic!("{problem}"))
}

fn objects(text: &str) -> Vec<Value> {
    documents(text).into_iter().map(Document::into_value).collect()
}

/// Holds what a run said against what it should say.
#[track_caller]
pub(crate) fn assert_said(said: &str, wanted: &str) {
    if let Some(difference) = difference(wanted.trim_start_matches('\n'), said) {
        panic!("{difference}");
    }
}
