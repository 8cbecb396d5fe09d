//! Each expectation of a suite against what rules did.

mod rows;

use std::collections::{BTreeMap, HashMap, HashSet};

use kiln_diagnostic::{Diagnostic, did_you_mean};
use kiln_engine::{EvaluationLimits, ExternalData};
use kiln_jmespath::AmbientSources;
use kiln_object::ObjectId;
use kiln_offline::{Job, Made, Report as OfflineReport, RuleResult, Status, run as run_offline};
use kiln_rules::{Operation, Program, RuleId, Targets};
use kiln_value::{Str, Value};
use kiln_yaml::{Document, Places, ReadOptions, Reader};

use crate::files::Files;
use crate::format::{Expectation, ResourceName};
use crate::load::{Expected, Loaded, load, read_suites};
use crate::mock_responses::MockedServices;
use crate::names::{
    describe, is_named, is_the_policy, means_key, means_name, means_policy, means_rule, shown,
    shown_name,
};
use crate::report::{Row, Suite, Verdict};
use crate::select::Selector;

use rows::{FoundResult, targets};

/// How to run suites.
pub struct SuiteOptions<'o> {
    /// The time and chance that rules see.
    pub sources: &'o dyn AmbientSources,
    /// Which expectations to look at.
    pub selector: Selector,
    /// How files are read.
    pub read: ReadOptions,
    /// Who is asked for what a suite says no answer to.
    pub services: &'o dyn ExternalData,
    /// Definitions of custom resources that all suites may use.
    pub definitions: &'o [Document],
}

/// Runs the suites in the file at this path. Whatever is wrong with them is in the result, so that others can run.
pub fn run(path: &str, files: &dyn Files, options: &SuiteOptions<'_>) -> Suite {
    let mut all =
        Suite { path: path.to_owned(), name: None, problems: Vec::new(), rows: Vec::new() };
    let documents = match read_suites(path, files, Reader::new(options.read)) {
        Ok(documents) => documents,
        Err(problem) => {
            all.problems.push(problem);
            return all;
        }
    };
    for document in &documents {
        let one = run_one(path, document, files, options);
        all.name = all.name.or(one.name);
        all.problems.extend(one.problems);
        all.rows.extend(one.rows);
    }
    all
}

fn run_one(
    path: &str,
    document: &Document,
    files: &dyn Files,
    options: &SuiteOptions<'_>,
) -> Suite {
    let reader = Reader::new(options.read);
    let mut loaded = match load(path, document, files, reader, options.definitions) {
        Ok(loaded) => loaded,
        Err(problems) => {
            return Suite { path: path.to_owned(), name: None, problems, rows: Vec::new() };
        }
    };
    let problems = std::mem::take(&mut loaded.problems);
    let places = loaded.document.places();
    let mut checking = Checking {
        loaded: &loaded,
        options,
        places,
        runs: Vec::new(),
        given: by_name(&loaded),
        problems,
        rows: Vec::new(),
        compared: HashSet::new(),
    };
    for expected in &loaded.expectations {
        let Expectation { policy, rule, .. } = &expected.expectation;
        if options.selector.takes(policy, rule) {
            checking.check(expected);
        }
    }
    if options.selector.is_everything() {
        checking.name_what_was_not_compared();
    }
    let Checking { problems, rows, .. } = checking;
    let name = loaded.title.as_ref().map(ToString::to_string);
    Suite { path: path.to_owned(), name, problems, rows }
}

/// What tells one run of the rules from another: sources of clones, by their files, and the operation.
type RunKey = (Vec<Str>, Option<Operation>);

struct Checking<'c> {
    loaded: &'c Loaded,
    options: &'c SuiteOptions<'c>,
    places: Places,
    runs: Vec<(RunKey, Ran)>,
    /// The given objects, by name.
    given: BTreeMap<Str, Vec<ObjectId>>,
    problems: Vec<Diagnostic>,
    rows: Vec<Row>,
    /// Which expected objects something was compared with.
    compared: HashSet<ObjectId>,
}

/// What rules did, found by the names of the objects that it is about.
struct Ran {
    report: OfflineReport,
    by_name: HashMap<Str, Vec<usize>>,
}

impl Ran {
    fn new(report: OfflineReport) -> Self {
        let mut by_name: HashMap<Str, Vec<usize>> = HashMap::new();
        for (at, result) in report.results.iter().enumerate() {
            let made = result.made.iter().map(|made| &made.id.name);
            for name in made.chain([&result.trigger.name]) {
                let numbers = by_name.entry(name.clone()).or_default();
                if numbers.last() != Some(&at) {
                    numbers.push(at);
                }
            }
        }
        Ran { report, by_name }
    }

    /// Results about objects of this name.
    fn about(&self, name: &str) -> impl DoubleEndedIterator<Item = &RuleResult> {
        let numbers = self.by_name.get(name).map_or(&[][..], Vec::as_slice);
        numbers.iter().map(|at| &self.report.results[*at])
    }

    /// A resource as the rules of all policies left it.
    fn last_left(&self, result: &RuleResult) -> Option<&Value> {
        let same = |other: &&RuleResult| other.trigger == result.trigger && other.left.is_some();
        self.about(&result.trigger.name).rfind(same)?.left.as_ref()
    }
}

impl Checking<'_> {
    fn check(&mut self, expected: &Expected) {
        let expectation = &expected.expectation;
        let rules = match self.rules(expectation) {
            Ok(rules) => rules,
            Err(None) => return,
            Err(Some(problem)) => return self.problems.push(problem),
        };
        // The borrow of a run ends before rows are added.
        let key = (
            expectation.clone_sources.iter().map(|(name, _)| name.clone()).collect(),
            expectation.operation,
        );
        let at = self.run_of(key, expected);
        let (key, ran) = self.runs.swap_remove(at);
        let mut rows = Vec::new();
        if expectation.resources.is_empty() {
            rows.extend(self.all(expected, &rules, &ran));
        }
        for named in &expectation.resources {
            let shown = shown(&named.kind, named.namespace.as_deref(), &named.name);
            if self.options.selector.takes_resource(shown_name(&shown)) {
                rows.extend(self.one(expected, named, &rules, &ran));
            }
        }
        self.never_made(expected, &rules, &mut rows);
        self.rows.extend(rows);
        self.runs.push((key, ran));
    }

    /// The rules that an expectation means; none, after saying so in a row, when Kiln does not run them.
    fn rules(&mut self, expectation: &Expectation) -> Result<Vec<RuleId>, Option<Diagnostic>> {
        let Expectation { policy, rule, path, .. } = expectation;
        let all = self.loaded.rules.rules().map(|rule| &rule.id);
        let of_policy: Vec<&RuleId> = all.filter(|id| means_policy(policy, &id.policy)).collect();
        let means = |id: &RuleId| rule.is_empty() || is_the_policy(id) || means_rule(rule, id);
        let found = of_policy.iter().filter(|id| means(id));
        let found: Vec<RuleId> = found.map(|id| (*id).clone()).collect();
        if !found.is_empty() {
            return Ok(found);
        }
        let not_run = self.loaded.compiled.not_run.iter().find(|not_run| {
            means_key(policy, &not_run.policy)
                && (rule.is_empty()
                    || not_run.rule.as_ref().is_none_or(|name| means_name(rule, name)))
        });
        if let Some(not_run) = not_run {
            let names = expectation.resources.iter();
            let names = names.map(|n| shown(&n.kind, n.namespace.as_deref(), &n.name));
            let names: Vec<String> = names.collect();
            let reason = format!("not run by Kiln: {}", not_run.what);
            let row = self.row(expectation, rule, names.join(", "), None, Verdict::NotRun, reason);
            self.rows.push(row);
            return Err(None);
        }
        let policies = self.loaded.rules.policies();
        let is_there = policies.iter().any(|known| means_policy(policy, &known.id));
        let problem = if !is_there {
            let known: Vec<String> = policies.iter().map(|policy| policy.id.key()).collect();
            let hint = match did_you_mean(policy, known.iter().map(String::as_str)) {
                Some(meant) => format!("did you mean {meant:?}?"),
                None => format!("the policies here are {}", known.join(", ")),
            };
            let message = format!("this suite has no policy {:?}", policy.as_str());
            Diagnostic::error(message).at(self.places.value(&path.join("policy"))).hint(hint)
        } else {
            let not_run = self.loaded.compiled.not_run.iter();
            let not_run = not_run.filter(|not_run| means_key(policy, &not_run.policy));
            let known = of_policy.iter().map(|id| id.rule.as_str());
            let known: Vec<&str> =
                known.chain(not_run.filter_map(|not_run| not_run.rule.as_deref())).collect();
            let hint = match did_you_mean(rule, known.iter().copied()) {
                Some(meant) => format!("did you mean {meant:?}?"),
                None => format!("its rules are {}", known.join(", ")),
            };
            let message = format!("policy {:?} has no rule {:?}", policy.as_str(), rule.as_str());
            let place = self.places.value(&path.join("rule"));
            let warning = Diagnostic::warning(format!("{message}, so nothing is tested here"));
            self.problems.push(warning.at(place).hint(hint));
            // A resource that is not there either makes it a mistake, whatever the rule is called.
            let missing =
                expectation.resources.iter().find(|named| !self.given.contains_key(&named.name));
            if let Some(missing) = missing {
                return Err(Some(self.no_such_resource(missing)));
            }
            // Kyverno: such a result is excluded.
            let names = expectation.resources.iter();
            let names = names.map(|n| shown(&n.kind, n.namespace.as_deref(), &n.name));
            let names: Vec<String> = names.collect();
            let row =
                self.row(expectation, rule, names.join(", "), None, Verdict::Excluded, message);
            self.rows.push(row);
            return Err(None);
        };
        Err(Some(problem))
    }

    /// The number of the run that an expectation is about; it runs if it has not yet.
    fn run_of(&mut self, key: RunKey, expected: &Expected) -> usize {
        if let Some(at) = self.runs.iter().position(|(known, _)| *known == key) {
            return at;
        }
        let loaded = self.loaded;
        let mut values = loaded.values.clone();
        if let Some(operation) = expected.expectation.operation {
            values.set_operation(operation);
        }
        let mut others = loaded.others.clone();
        others.extend(expected.clone_sources.iter().cloned());
        let job = Job {
            rules: &loaded.rules,
            kinds: &loaded.kinds,
            resources: loaded.resources.clone(),
            payloads: loaded.payloads.clone(),
            others,
            values,
            user: loaded.user.clone(),
            limits: EvaluationLimits { trace: 32, ..EvaluationLimits::default() },
            external_data: &MockedServices {
                answers: &loaded.answers,
                services: self.options.services,
            },
            explain: true,
            only_given_kinds: true,
            audit_warns: false,
            // Kyverno: what one policy denies, others still generate for.
            follows_denied: true,
            // Kyverno: objects are compared as rules leave them.
            schemas: None,
        };
        let report = run_offline(&job, self.options.sources);
        for warning in &report.warnings {
            let text = warning.to_string();
            if !self.problems.iter().any(|known| known.to_string() == text) {
                self.problems.push(warning.clone());
            }
        }
        self.runs.push((key, Ran::new(report)));
        self.runs.len() - 1
    }

    /// The rows of an expectation that names no resources: for whatever its rules did something with.
    fn all(&mut self, expected: &Expected, rules: &[RuleId], ran: &Ran) -> Vec<Row> {
        let expectation = &expected.expectation;
        let of_kind =
            |id: &ObjectId| expectation.kind.is_empty() || id.gvk.kind == expectation.kind;
        let mut rows = Vec::new();
        for result in meant(rules, &ran.report.results).filter(|result| result.given) {
            let targets: Vec<&Made> = targets(result).filter(|made| of_kind(&made.id)).collect();
            if targets.is_empty() && of_kind(&result.trigger) && !self.is_about_others(result) {
                rows.push(self.held(expected, FoundResult { result, target: None }, ran));
            }
            for target in targets {
                rows.push(self.held(expected, FoundResult { result, target: Some(target) }, ran));
            }
        }
        rows.retain(|row| self.options.selector.takes_resource(shown_name(&row.resource)));
        // Kyverno: files need not have an expected object for everything that is given.
        let missing = |row: &Row| row.verdict == Verdict::Passed && row.compared == 0;
        if !expected.patched.is_empty() && !rows.iter().all(missing) {
            rows.retain(|row| !missing(row));
        }
        if rows.is_empty() {
            let kind = expectation.kind.to_string();
            rows.push(self.excluded(expected, None, &rules[0], kind, "no resource matches"));
        }
        rows
    }

    /// Whether a rule changed other objects than the trigger, which another rule of its policy speaks for.
    fn is_about_others(&self, result: &RuleResult) -> bool {
        let rule = self.loaded.rules.rule(&result.rule);
        let targets = rule.and_then(|rule| match &rule.program {
            Program::Mutate(mutate) => mutate.targets.as_ref(),
            _ => None,
        });
        matches!(targets, Some(Targets::Matching { but_the_trigger: true }))
    }

    /// The rows of an expectation for one of the resources that it names.
    fn one(
        &mut self,
        expected: &Expected,
        named: &ResourceName,
        rules: &[RuleId],
        ran: &Ran,
    ) -> Vec<Row> {
        let given = self.given.get(&named.name).map_or(&[][..], Vec::as_slice);
        let sources = expected.clone_sources.iter().filter_map(|source| ObjectId::of(source).ok());
        let made = ran.about(&named.name).flat_map(|result| &result.made);
        let known: Vec<ObjectId> =
            given.iter().cloned().chain(sources).chain(made.map(|made| made.id.clone())).collect();
        let mut named = named.clone();
        if !known.iter().any(|id| is_named(&named, id)) {
            let any_kind = ResourceName { kind: Str::default(), group: None, ..named.clone() };
            let Some(meant) = known.iter().find(|id| is_named(&any_kind, id)) else {
                self.problems.push(self.no_such_resource(&named));
                return Vec::new();
            };
            // Kyverno does not look at the kind.
            let message = format!("{} is a {}, not a {}", meant.name, meant.gvk.kind, named.kind);
            let place = self.places.value(&expected.expectation.path.join("kind"));
            self.problems.push(Diagnostic::warning(message).at(place));
            named = any_kind;
        }
        let mut rows = Vec::new();
        for result in meant(rules, ran.about(&named.name)) {
            if is_named(&named, &result.trigger) && !self.is_about_others(result) {
                rows.push(self.held(expected, FoundResult { result, target: None }, ran));
                continue;
            }
            for target in targets(result).filter(|made| is_named(&named, &made.id)) {
                rows.push(self.held(expected, FoundResult { result, target: Some(target) }, ran));
            }
        }
        if rows.is_empty() {
            let no_match = ran
                .about(&named.name)
                .find(|result| rules.contains(&result.rule) && is_named(&named, &result.trigger));
            let because = no_match.and_then(RuleResult::because);
            let because = because.unwrap_or_else(|| "the rule does not match".to_owned());
            let id = known.iter().find(|id| is_named(&named, id));
            let rule = no_match.map_or(&rules[0], |result| &result.rule);
            let resource = id.map_or_else(String::new, describe);
            rows.push(self.excluded(expected, id, rule, resource, &because));
        }
        rows
    }

    fn no_such_resource(&self, named: &ResourceName) -> Diagnostic {
        let shown = shown(&named.kind, named.namespace.as_deref(), &named.name);
        let place = self.places.value(&named.path);
        let names = self.given.keys().map(Str::as_str);
        let elsewhere = self.given.get(&named.name).and_then(|known| known.first());
        let hint = match (elsewhere, did_you_mean(&named.name, names)) {
            (Some(id), _) => format!("there is {}", describe(id)),
            (None, Some(meant)) => format!("did you mean {meant:?}?"),
            (None, None) => "add the file that holds it to resources or targetResources".to_owned(),
        };
        Diagnostic::error(format!("{shown} is in no file of this suite")).at(place).hint(hint)
    }
}

/// What these rules did, without what they had no business with.
fn meant<'r>(
    rules: &'r [RuleId],
    results: impl IntoIterator<Item = &'r RuleResult>,
) -> impl Iterator<Item = &'r RuleResult> {
    let meant = |result: &&RuleResult| rules.contains(&result.rule);
    results.into_iter().filter(meant).filter(|result| result.status != Status::NoMatch)
}

/// The objects that a suite gives, by name.
fn by_name(loaded: &Loaded) -> BTreeMap<Str, Vec<ObjectId>> {
    let mut by_name: BTreeMap<Str, Vec<ObjectId>> = BTreeMap::new();
    for object in loaded.resources.iter().chain(&loaded.others) {
        if let Ok(id) = ObjectId::of(object) {
            by_name.entry(id.name.clone()).or_default().push(id);
        }
    }
    for given in &loaded.payloads {
        let id = given.id();
        by_name.entry(id.name.clone()).or_default().push(id);
    }
    by_name
}
