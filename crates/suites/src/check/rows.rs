//! The rows of a report: an expectation held against what a rule did, and against what it left undone.

use kiln_diagnostic::Diagnostic;
use kiln_object::ObjectId;
use kiln_offline::{Deletion, Made, ObjectChange, RuleResult, Status};
use kiln_rules::{Program, RuleId};
use kiln_value::Value;

use super::{Checking, Ran};
use crate::compare::{difference, find, same};
use crate::format::{Expectation, ExpectedStatus};
use crate::load::Expected;
use crate::names::describe;
use crate::report::{Row, Verdict};

/// What an expectation is held against.
#[derive(Clone, Copy)]
pub(super) struct FoundResult<'f> {
    pub(super) result: &'f RuleResult,
    /// The target that is meant, where the expectation names a target rather than the trigger.
    pub(super) target: Option<&'f Made>,
}

impl Checking<'_> {
    /// Objects that the rules were expected to change, and that are not as expected although no rule matched anything:
    /// what was never made is not to be taken for excluded.
    pub(super) fn never_made(&self, expected: &Expected, rules: &[RuleId], rows: &mut [Row]) {
        let has_targets = |rule: &RuleId| {
            let program = self.loaded.rules.rule(rule).map(|rule| &rule.program);
            matches!(program, Some(Program::Mutate(mutate)) if mutate.targets.is_some())
        };
        let nothing_ran = rows.iter().all(|row| row.verdict == Verdict::Excluded);
        if expected.expectation.wanted != ExpectedStatus::Pass
            || !nothing_ran
            || !rules.iter().any(has_targets)
        {
            return;
        }
        let Some(row) = rows.first_mut() else { return };
        let is = |object: &Value, id: &ObjectId| {
            ObjectId::of(object).is_ok_and(|other| other.same_object(id))
        };
        for wanted in &expected.patched {
            let Ok(id) = ObjectId::of(wanted) else { continue };
            if self.loaded.resources.iter().any(|object| is(object, &id)) {
                continue;
            }
            let given = self.loaded.others.iter().find(|object| is(object, &id));
            let unlike = match given {
                Some(given) => {
                    let given = kiln_offline::with_namespace(given.clone(), &self.loaded.kinds);
                    difference(wanted, &id, &given)
                }
                None => {
                    row.verdict = Verdict::Failed;
                    row.reason = format!("{} was expected and never made", describe(&id));
                    continue;
                }
            };
            if let Some(unlike) = unlike {
                row.verdict = Verdict::Failed;
                row.reason = format!("{} was never changed: {}", describe(&id), row.reason);
                row.differences.push(unlike);
            }
        }
    }

    /// A rule does not match. Kyverno takes that for met; here it must also leave what was expected.
    pub(super) fn excluded(
        &mut self,
        expected: &Expected,
        id: Option<&ObjectId>,
        rule: &RuleId,
        resource: String,
        because: &str,
    ) -> Row {
        let expectation = &expected.expectation;
        let found = self.loaded.rules.rule(rule);
        let deletes = found.is_some_and(|rule| rule.program.is_scheduled());
        let finds_objects =
            deletes || found.is_some_and(|r| matches!(r.program, Program::Modify(_)));
        let object = id.and_then(|id| {
            let mut given = self.loaded.resources.iter().chain(&self.loaded.others);
            given.find(|o| ObjectId::of(o).is_ok_and(|other| other.same_object(id)))
        });
        let differs = id.zip(object).and_then(|(id, object)| {
            let (_, wanted) = find(&expected.patched, id)?;
            difference(
                wanted,
                id,
                &kiln_offline::with_namespace(object.clone(), &self.loaded.kinds),
            )
        });
        let made_nothing =
            expectation.wanted == ExpectedStatus::Pass && !expected.generated.is_empty();
        let verdict = match expectation.wanted {
            // What such a rule leaves alone is the point of it, and not to be taken for done.
            ExpectedStatus::Pass if finds_objects => Verdict::Failed,
            ExpectedStatus::Fail if deletes => Verdict::Passed,
            ExpectedStatus::Skip if finds_objects && differs.is_none() => Verdict::Passed,
            ExpectedStatus::Pass | ExpectedStatus::Skip if differs.is_none() && !made_nothing => {
                Verdict::Excluded
            }
            ExpectedStatus::Fail if differs.is_some() => Verdict::Passed,
            _ => Verdict::Failed,
        };
        let reason = match verdict {
            Verdict::Failed => format!("want {}, but {because}", expectation.wanted.as_str()),
            _ => because.to_owned(),
        };
        let mut row = self.row(expectation, &rule.rule, resource, None, verdict, reason);
        row.differences.extend(differs.filter(|_| verdict == Verdict::Failed));
        row
    }

    /// Holds an expectation against what a rule did.
    pub(super) fn held(&mut self, expected: &Expected, found: FoundResult<'_>, ran: &Ran) -> Row {
        let expectation = &expected.expectation;
        let FoundResult { result, target } = found;
        let compared = self.compare(expected, found, ran);
        let wanted = expectation.wanted;
        // Kyverno: what is kept has failed.
        let got = match result.deletion {
            Some(Deletion::Keep) => Status::Fail,
            Some(Deletion::Delete) | None => result.status,
        };
        let unlike = !compared.differences.is_empty() || !compared.missing.is_empty();
        let as_wanted = match wanted {
            // A warning is what becomes of a failure that does not count.
            ExpectedStatus::Pass if result.violation.is_some() => false,
            ExpectedStatus::Pass => matches!(got, Status::Pass | Status::Warn),
            ExpectedStatus::Warn => got == Status::Warn,
            ExpectedStatus::Skip => got == Status::Skip,
            ExpectedStatus::Error => got == Status::Error,
            ExpectedStatus::Fail if expectation.reject_message.is_some() => {
                got == Status::Fail
                    && result.refusal.as_deref() == expectation.reject_message.as_deref()
            }
            // Kyverno: an object that is not the expected one is a failure, too.
            ExpectedStatus::Fail => got == Status::Fail || unlike,
        };
        let because = result.problems.first().map(|problem| problem.message.clone());
        let because = because.or_else(|| result.because());
        let because = because.map_or_else(String::new, |because| format!(": {because}"));
        let words = expectation.reject_message.as_ref();
        let words = words.map_or_else(String::new, |words| format!(" with {:?}", words.as_str()));
        let want = format!("want {}{words}, got {}{because}", wanted.as_str(), got.as_str());
        let (verdict, reason) = if wanted == ExpectedStatus::Fail && as_wanted {
            (Verdict::Passed, "ok".to_owned())
        } else if !compared.differences.is_empty() {
            (Verdict::Failed, "objects differ".to_owned())
        } else if !as_wanted {
            (Verdict::Failed, want)
        } else if let Some(missing) = compared.missing.first() {
            let fails = expectation.fail_on_missing || compared.made;
            let reason = format!("no expected object for {missing}");
            (if fails { Verdict::Failed } else { Verdict::Passed }, reason)
        } else if wanted == ExpectedStatus::Pass
            && !expected.generated.is_empty()
            && compared.count == 0
        {
            (Verdict::Failed, "nothing was made".to_owned())
        } else {
            (Verdict::Passed, "ok".to_owned())
        };
        let resource = describe(target.map_or(&result.trigger, |made| &made.id));
        let rule = &result.rule.rule;
        let mut row = self.row(expectation, rule, resource, Some(got), verdict, reason);
        row.message = message(result);
        row.compared = compared.count;
        if verdict == Verdict::Failed {
            row.differences = compared.differences;
        }
        row
    }

    fn compare(&mut self, expected: &Expected, found: FoundResult<'_>, ran: &Ran) -> Compared {
        let FoundResult { result, target } = found;
        let mut compared = Compared::default();
        // What a rule that failed left behind is not expected.
        if result.status == Status::Error {
            return compared;
        }
        if !expected.patched.is_empty() {
            let mut objects: Vec<(&ObjectId, &Value)> = Vec::new();
            match (target, &result.left) {
                (Some(made), _) => objects.push((&made.id, &made.object)),
                (None, Some(left)) => objects.push((&result.trigger, left)),
                (None, None) => objects.extend(targets(result).map(|m| (&m.id, &m.object))),
            }
            for (id, object) in objects {
                let Some((_, wanted)) = find(&expected.patched, id) else {
                    compared.missing.push(id.to_string());
                    continue;
                };
                compared.count += 1;
                self.compared.insert(id.clone());
                // The object as its policy left it, or as all policies did.
                let last = ran.last_left(result);
                if target.is_some() || !last.is_some_and(|last| same(wanted, last)) {
                    compared.differences.extend(difference(wanted, id, object));
                }
            }
        }
        let made = result.made.iter().filter(|made| made.change != ObjectChange::Patched);
        let made = made.filter(|made| made.id != result.trigger && target.is_none());
        for made in made.filter(|_| !expected.generated.is_empty()) {
            compared.made = true;
            let any = || expected.generated.iter().position(|wanted| same(wanted, &made.object));
            let found = find(&expected.generated, &made.id).map(|(at, _)| at).or_else(any);
            let Some(at) = found else {
                compared.missing.push(made.id.to_string());
                continue;
            };
            compared.count += 1;
            let wanted = &expected.generated[at];
            self.compared.extend(ObjectId::of(wanted));
            compared.differences.extend(difference(wanted, &made.id, &made.object));
        }
        compared
    }

    pub(super) fn row(
        &self,
        expectation: &Expectation,
        rule: &str,
        resource: String,
        got: Option<Status>,
        verdict: Verdict,
        reason: String,
    ) -> Row {
        Row {
            policy: expectation.policy.to_string(),
            rule: rule.to_owned(),
            resource,
            wanted: expectation.wanted.as_str(),
            got: got.map(Status::as_str),
            verdict,
            message: reason.clone(),
            reason,
            differences: Vec::new(),
            compared: 0,
            place: self.places.value(&expectation.path),
        }
    }

    /// An expected object that nothing was compared with tests nothing; its author should know.
    pub(super) fn name_what_was_not_compared(&mut self) {
        for Expected { expectation, patched, generated, .. } in &self.loaded.expectations {
            let place = self.places.value(&expectation.path);
            let ran = self.rows.iter().any(|row| row.place == place && row.got.is_some());
            if !ran || expectation.wanted != ExpectedStatus::Pass {
                continue;
            }
            for (objects, files) in
                [(patched, &expectation.patched), (generated, &expectation.generated)]
            {
                let ids = objects.iter().filter_map(|object| ObjectId::of(object).ok());
                let unused = ids.filter(|id| !self.compared.contains(id));
                let unused: Vec<String> = unused.map(|id| id.to_string()).collect();
                if let Some((_, file)) = files.first().filter(|_| !unused.is_empty()) {
                    let message = format!("nothing was compared with {}", unused.join(", "));
                    let problem = Diagnostic::warning(message).at(self.places.value(file));
                    self.problems.push(problem);
                }
            }
        }
    }
}

/// What came of comparing the objects of a result with the expected ones.
#[derive(Default)]
struct Compared {
    count: usize,
    differences: Vec<crate::compare::Difference>,
    /// Objects for which none is expected.
    missing: Vec<String>,
    /// Whether the rule made objects, rather than changing them.
    made: bool,
}

/// The stored objects that a rule changed.
pub(super) fn targets(result: &RuleResult) -> impl Iterator<Item = &Made> {
    let stored = result.left.is_none();
    result.made.iter().filter(move |made| {
        stored && (made.change == ObjectChange::Patched || made.id == result.trigger)
    })
}

fn message(result: &RuleResult) -> String {
    if let Some(problem) = result.problems.first() {
        return problem.to_string();
    }
    if let Some(because) = result.because() {
        return because;
    }
    if let Some(why) = result.why.as_ref().filter(|_| result.made.is_empty()) {
        return why.clone();
    }
    let made: Vec<_> =
        result.made.iter().map(|made| format!("{} {}", made.change.as_str(), made.id)).collect();
    made.join(", ")
}
