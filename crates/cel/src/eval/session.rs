//! Sessions: the bound variables, the budget and the host of one evaluation of a policy.

use kiln_text::Regex;
use kiln_value::{Str, Value};
use rustc_hash::FxHashMap;

use super::node::Program;
use super::run::EvalRun;
use crate::budget::{Budget, Interrupt, Meter};
use crate::env::Env;
use crate::error::{EvalError, EvalFailure, failure};
use crate::host::{Effect, Host};
use crate::value::{JsonForm, Keys, to_json};
use crate::{PolicyScope, Val};

/// Everything that the expressions of one policy share while they run for one trigger.
///
/// Lazy variables are computed at most once, when first used; effects are kept in the order in
/// which they were asked for.
pub struct Session<'h> {
    env: Env,
    slots: Vec<Slot>,
    pub(super) context: Context<'h>,
    /// Arguments of calls under way.
    pub(super) arguments: Vec<Val>,
    /// How deep evaluation may still have to recurse, with all that is under way.
    height: u32,
}

/// What functions see of a session.
pub(crate) struct Context<'h> {
    pub(crate) meter: Meter<'h>,
    pub(crate) host: &'h mut dyn Host,
    pub(crate) effects: Vec<Effect>,
    pub(crate) scope: PolicyScope,
    regexes: FxHashMap<Str, Regex>,
}

enum Slot {
    Unset,
    Value(Val),
    Lazy(Program),
    /// Being computed; meeting it again is a cycle.
    Running,
    /// Computed, with the program to compute it from again.
    Done(Program, Result<Val, EvalFailure>),
}

/// Recursion over all nested variables; each level is one frame of the evaluator.
const MAX_HEIGHT: u32 = 700;
/// How many patterns a session remembers.
const MAX_REGEXES: usize = 64;

impl<'h> Session<'h> {
    /// A session for expressions of this environment and of those it extends.
    pub fn new(env: &Env, host: &'h mut dyn Host) -> Self {
        Self::with_budget(env, host, Budget::default())
    }

    /// A session with its own limits.
    pub fn with_budget(env: &Env, host: &'h mut dyn Host, budget: Budget) -> Self {
        let slots = env.declarations().slots().iter().map(|_| Slot::Unset).collect();
        Session {
            env: env.clone(),
            slots,
            context: Context {
                meter: Meter::new(budget),
                host,
                effects: Vec::new(),
                scope: env.declarations().scope.clone(),
                regexes: FxHashMap::default(),
            },
            arguments: Vec::new(),
            height: 0,
        }
    }

    /// Asks this now and then whether to stop: the place for a deadline.
    #[must_use]
    pub fn interrupt(mut self, interrupt: Box<Interrupt<'h>>) -> Self {
        self.context.meter.set_interrupt(interrupt);
        self
    }

    /// Binds a variable to a value; nothing is copied. Unknown names are ignored, because an
    /// expression cannot mention them.
    pub fn set(&mut self, name: &str, value: impl Into<Val>) {
        if let Some(at) = self.slot(name) {
            self.slots[at] = Slot::Value(value.into());
        }
    }

    /// Binds a variable to an expression that runs when the variable is first used.
    pub fn set_lazy(&mut self, name: &str, program: Program) {
        if let Some(at) = self.slot(name) {
            self.slots[at] = Slot::Lazy(program);
        }
    }

    /// Binds `variables.NAME`, see [`Session::set_lazy`].
    pub fn set_policy_variable(&mut self, name: &str, program: Program) {
        self.set_lazy(&format!("variables.{name}"), program);
    }

    /// Lets lazy variables be computed afresh, because what they look at has changed.
    pub fn forget_variables(&mut self) {
        for slot in &mut self.slots {
            if let Slot::Done(program, _) = slot {
                *slot = Slot::Lazy(program.clone());
            }
        }
    }

    fn slot(&self, name: &str) -> Option<usize> {
        self.env.declarations().slots().iter().rposition(|known| known == name)
    }

    /// Runs an expression.
    ///
    /// # Errors
    /// When the expression fails, or when a budget is used up. Effects asked for before stay.
    pub fn eval(&mut self, program: &Program) -> Result<Val, EvalError> {
        self.context.meter.begin_expression();
        self.run(program).map_err(|failure| *failure)
    }

    /// Runs an expression and gives its value as JSON, within the output limit.
    ///
    /// # Errors
    /// As [`Session::eval`], and when the value is too large or has no JSON form.
    pub fn eval_json(&mut self, program: &Program) -> Result<Value, EvalError> {
        let value = self.eval(program)?;
        let limit = self.context.meter.output_limit();
        value.to_json(limit).map_err(|error| *failure(error.to_string()))
    }

    /// The value of a lazy variable, if some expression has asked for it.
    pub fn computed(&self, name: &str) -> Option<Result<&Val, &EvalError>> {
        match self.slots.get(self.slot(name)?)? {
            Slot::Done(_, outcome) => Some(outcome.as_ref().map_err(|error| &**error)),
            _ => None,
        }
    }

    /// Takes the effects asked for so far, in order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.context.effects)
    }

    /// How many cost units the session has spent.
    pub fn cost(&self) -> u64 {
        self.context.meter.spent()
    }

    pub(super) fn run(&mut self, program: &Program) -> Result<Val, EvalFailure> {
        self.descend(program.0.height)?;
        let arguments = self.arguments.len();
        let outcome = EvalRun::new(self, &program.0).eval(&program.0.root);
        self.arguments.truncate(arguments);
        self.ascend(program.0.height);
        outcome
    }

    /// Makes room for this many more levels of recursion.
    pub(super) fn descend(&mut self, height: u32) -> Result<(), EvalFailure> {
        if self.height + height > MAX_HEIGHT {
            return Err(failure("variables nest too deep"));
        }
        self.height += height;
        Ok(())
    }

    pub(super) fn ascend(&mut self, height: u32) {
        self.height -= height;
    }

    /// The value of a variable, by reference if there is one already.
    pub(super) fn variable(&mut self, at: u32) -> Result<&Val, EvalFailure> {
        let index = at as usize;
        if let Some(Slot::Lazy(_)) = self.slots.get(index) {
            self.compute(index);
        }
        match self.slots.get(index) {
            Some(Slot::Value(value) | Slot::Done(_, Ok(value))) => Ok(value),
            Some(Slot::Done(_, Err(error))) => Err(error.clone()),
            Some(Slot::Running) => {
                Err(failure(format!("variable {:?} depends on itself", self.name(index))))
            }
            _ => Err(failure(format!("no such attribute(s): {}", self.name(index)))),
        }
    }

    fn name(&self, index: usize) -> &str {
        self.env.declarations().slots().get(index).map_or("?", Str::as_str)
    }

    fn compute(&mut self, index: usize) {
        let Slot::Lazy(program) = std::mem::replace(&mut self.slots[index], Slot::Unset) else {
            return;
        };
        self.slots[index] = Slot::Running;
        let outcome = self.run(&program).map_err(|mut error| {
            // The innermost variable is the one whose source the span belongs to.
            error.variable.get_or_insert_with(|| self.name(index).into());
            error
        });
        self.slots[index] = Slot::Done(program, outcome);
    }
}

impl Context<'_> {
    /// A value as JSON for the host, within the output limit; map keys must be strings.
    pub(crate) fn json(&mut self, value: &Val) -> Result<Value, EvalFailure> {
        let limit = self.meter.output_limit();
        let mut room = limit;
        let plain =
            to_json(value, JsonForm { keys: Keys::StringsOnly, finite_only: false }, &mut room);
        self.meter.charge_text(limit - room)?;
        plain.map_err(|error| failure(error.to_string()))
    }

    /// The compiled form of a pattern; patterns are charged for by their length.
    pub(crate) fn regex(&mut self, pattern: &Str) -> Result<Regex, EvalFailure> {
        if let Some(known) = self.regexes.get(pattern) {
            return Ok(known.clone());
        }
        self.meter.charge_text(pattern.len() as u64)?;
        let regex = Regex::new(pattern).map_err(|error| failure(error.to_string()))?;
        if self.regexes.len() >= MAX_REGEXES {
            self.regexes.clear();
        }
        self.regexes.insert(pattern.clone(), regex.clone());
        Ok(regex)
    }
}

impl std::fmt::Debug for Session<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({:?}, {:?})", self.env, self.context.meter)
    }
}
