//! Environments: what an expression may mention, and which dialect it is written in.
//!
//! An [`Env`] is immutable and cheap to clone. A policy extends a named environment by its own
//! variables; programs compiled in an environment also run in sessions of its extensions, because
//! variables keep their slots.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use kiln_value::Str;

use crate::check::{self, Checked};
use crate::error::{CompileError, Issue};
use crate::eval::Program;
use crate::library::{self, FunctionBody};
use crate::reads::reads;
use crate::syntax::{self, Dialect};
use crate::uses::{VariableUse, uses};
use crate::written::written;
use crate::{Asker, PolicyScope, Span, Type, Val, WrittenValue};

/// What expressions may mention.
#[derive(Clone)]
pub struct Env(Arc<Declarations>);

/// Collects declarations for an [`Env`].
#[derive(Clone)]
pub struct EnvBuilder(Declarations);

#[derive(Clone)]
pub(crate) struct Declarations {
    pub(crate) dialect: Dialect,
    pub(crate) container: String,
    pub(crate) scope: PolicyScope,
    /// Lists and maps of mixed types need `dyn()`.
    pub(crate) homogeneous_literals: bool,
    /// Null may stand for maps and lists.
    pub(crate) nullable_aggregates: bool,
    functions: Arc<FxHashMap<Str, Vec<Overload>>>,
    types: Arc<FxHashMap<Str, Type>>,
    structs: FxHashMap<Str, Structure>,
    /// Whether `Object` and everything below it are messages with any field.
    pub(crate) object_literals: bool,
    variables: FxHashMap<Str, Variable>,
    slots: Vec<Str>,
}

/// One way to call a function.
#[derive(Clone)]
pub(crate) struct Overload {
    pub(crate) params: Vec<Type>,
    pub(crate) result: Type,
    /// Called as `receiver.name(…)`; the receiver is the first parameter.
    pub(crate) member: bool,
    pub(crate) run: FunctionBody,
    /// Overloads with the same number share one implementation.
    pub(crate) group: u32,
}

/// A message type: its fields and their types.
#[derive(Clone, Debug, Default)]
pub struct Structure {
    pub(crate) fields: FxHashMap<Str, Type>,
}

#[derive(Clone)]
pub(crate) struct Variable {
    pub(crate) ty: Type,
    pub(crate) place: VariablePlace,
}

#[derive(Clone)]
pub(crate) enum VariablePlace {
    Slot(u32),
    Constant(Val),
}

impl Structure {
    /// A message type with these fields.
    pub fn new<'f>(fields: impl IntoIterator<Item = (&'f str, Type)>) -> Self {
        Structure { fields: fields.into_iter().map(|(name, ty)| (Str::new(name), ty)).collect() }
    }
}

/// What a type check found out.
#[derive(Clone, Debug)]
pub struct CheckReport {
    /// The type of the expression's value.
    pub result: Type,
}

impl Env {
    /// The environment of the language's own conformance suite: the standard library, all
    /// extensions, network functions, back-quoted fields.
    pub fn suite() -> Self {
        library::suite()
    }

    /// The environment of policies: the suite's functions, the Kubernetes and Kyverno libraries,
    /// and the declarations that belong to the scope of the policy.
    pub fn policies(scope: PolicyScope) -> Self {
        library::policies(scope)
    }

    /// The environment of policies that create objects: without what Kyverno gives only to others.
    pub fn generating(scope: PolicyScope) -> Self {
        library::generating(scope)
    }

    /// The environment of policies that change objects: without what Kyverno gives only to others.
    pub fn mutating(scope: PolicyScope) -> Self {
        library::mutating(scope)
    }

    /// The environment of policies that check objects: without what Kyverno gives only to others.
    pub fn validating(scope: PolicyScope) -> Self {
        library::validating(scope)
    }

    /// The environment of policies that delete objects: without what Kyverno gives only to others.
    pub fn deleting(scope: PolicyScope) -> Self {
        library::deleting(scope)
    }

    /// The environment of the policies that an API server runs by itself: without the libraries of Kyverno.
    pub fn admission() -> Self {
        library::admission()
    }

    /// The environment of policies that authorise requests; each expression gives an answer, or null.
    pub fn requests(asker: Asker) -> Self {
        library::authz::env(asker)
    }

    /// Begins an environment with more declarations.
    pub fn extend(&self) -> EnvBuilder {
        EnvBuilder((*self.0).clone())
    }

    /// Compiles an expression after checking its types.
    ///
    /// # Errors
    /// When the expression does not parse or does not check; all type errors are reported.
    pub fn compile(&self, source: &str) -> Result<Program, CompileError> {
        let ast = syntax::parse(source, &self.0.dialect)?;
        let checked = check::check(&self.0, &ast, source, check::Mode::Strict)?;
        Ok(Program::plan(self.clone(), source, &ast, &checked))
    }

    /// Compiles an expression whose value must have one of these types.
    ///
    /// # Errors
    /// As [`Env::compile`]; and when the type is another one (dyn is accepted only if listed).
    pub fn compile_as(&self, source: &str, wanted: &[Type]) -> Result<Program, CompileError> {
        let program = self.compile(source)?;
        if wanted.contains(program.result_type()) {
            return Ok(program);
        }
        let names: Vec<_> = wanted.iter().map(ToString::to_string).collect();
        let message = match names.as_slice() {
            [one] => format!("output is expected to be of type {one}"),
            _ => format!("output is expected to be either of type {}", names.join(" or ")),
        };
        let span = Span::new(0, source.len());
        Err(CompileError::new(source, vec![Issue::new(message, span)]))
    }

    /// Compiles an expression without refusing it for its types; what is wrong fails when it runs.
    ///
    /// # Errors
    /// When the expression does not parse.
    pub fn compile_unchecked(&self, source: &str) -> Result<Program, CompileError> {
        let ast = syntax::parse(source, &self.0.dialect)?;
        let checked = check::check(&self.0, &ast, source, check::Mode::Lenient)?;
        Ok(Program::plan(self.clone(), source, &ast, &checked))
    }

    /// Checks an expression and says what type it has.
    ///
    /// # Errors
    /// As [`Env::compile`].
    pub fn check(&self, source: &str) -> Result<CheckReport, CompileError> {
        let ast = syntax::parse(source, &self.0.dialect)?;
        let Checked { result, .. } = check::check(&self.0, &ast, source, check::Mode::Strict)?;
        Ok(CheckReport { result })
    }

    /// The maps, structures and lists that an expression writes out, outermost ones only, each with its place; none when
    /// it cannot be read, which compiling it reports.
    pub fn written(&self, source: &str) -> Vec<(Span, WrittenValue)> {
        syntax::parse(source, &self.0.dialect).map_or_else(|_| Vec::new(), |ast| written(&ast))
    }

    /// The fields below a variable that an expression reads, each with its place; none when it cannot be read, or gives the
    /// name another meaning. Elements of lists are passed over, and so are optional fields (`.?`).
    pub fn reads(&self, source: &str, variable: &str) -> Vec<(Span, Vec<Str>)> {
        let ast = syntax::parse(source, &self.0.dialect);
        ast.map_or_else(|_| Vec::new(), |ast| reads(&ast, variable))
    }

    /// What an expression takes of a variable; all of it when the expression cannot be read.
    pub fn uses(&self, source: &str, variable: &str) -> VariableUse {
        let ast = syntax::parse(source, &self.0.dialect);
        ast.map_or_else(|_| VariableUse::unknown(), |ast| uses(&ast, variable))
    }

    /// The names of the variables that must be bound before an expression that uses them runs.
    pub fn variable_names(&self) -> impl Iterator<Item = &str> {
        self.0.slots.iter().map(Str::as_str)
    }

    /// Every way to call a function or macro, as it is written, in the order of names.
    pub fn functions(&self) -> Vec<String> {
        let mut calls: Vec<(String, String)> = Vec::new();
        for (name, overloads) in self.0.functions.iter() {
            // Operators have names that cannot be written in source.
            if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
                continue;
            }
            for Overload { params, result, member, .. } in overloads {
                let params: Vec<_> = params.iter().map(ToString::to_string).collect();
                let call = match params.split_first() {
                    Some((receiver, rest)) if *member => {
                        format!("{receiver}.{name}({}) -> {result}", rest.join(", "))
                    }
                    _ => format!("{name}({}) -> {result}", params.join(", ")),
                };
                calls.push((name.to_string(), call));
            }
        }
        let macros = syntax::MACROS.iter();
        calls.extend(macros.map(|(name, call)| ((*name).to_owned(), format!("{call} (macro)"))));
        calls.sort();
        calls.dedup();
        calls.into_iter().map(|(_, call)| call).collect()
    }

    /// What a misspelt name may have meant, among variables and functions.
    pub fn nearest(&self, name: &str) -> Option<&str> {
        let functions = self.0.functions.keys().map(Str::as_str);
        let known = self.0.variables.keys().map(Str::as_str).chain(functions);
        // Operators have names, too.
        let mut known: Vec<&str> = known.filter(|name| !name.contains('_')).collect();
        known.sort_unstable();
        kiln_diagnostic::did_you_mean(name, known)
    }

    pub(crate) fn declarations(&self) -> &Declarations {
        &self.0
    }
}

impl std::fmt::Debug for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Env({} functions, {:?})", self.0.functions.len(), self.0.slots)
    }
}

impl EnvBuilder {
    pub(crate) fn new(
        dialect: Dialect,
        functions: FxHashMap<Str, Vec<Overload>>,
        types: FxHashMap<Str, Type>,
    ) -> Self {
        EnvBuilder(Declarations {
            dialect,
            container: String::new(),
            scope: PolicyScope::Cluster,
            homogeneous_literals: false,
            nullable_aggregates: false,
            functions: Arc::new(functions),
            types: Arc::new(types),
            structs: FxHashMap::default(),
            object_literals: false,
            variables: FxHashMap::default(),
            slots: Vec::new(),
        })
    }

    /// Declares a variable; its name may be dotted. A later declaration hides an earlier one.
    #[must_use]
    pub fn variable(mut self, name: &str, ty: Type) -> Self {
        let slot = u32::try_from(self.0.slots.len()).unwrap_or(u32::MAX);
        self.0.slots.push(Str::new(name));
        let variable = Variable { ty, place: VariablePlace::Slot(slot) };
        self.0.variables.insert(Str::new(name), variable);
        self
    }

    /// Declares a name that always stands for this value.
    #[must_use]
    pub fn constant(mut self, name: &str, ty: Type, value: Val) -> Self {
        let variable = Variable { ty, place: VariablePlace::Constant(value) };
        self.0.variables.insert(Str::new(name), variable);
        self
    }

    /// Declares a policy's variable: `variables.NAME`.
    #[must_use]
    pub fn policy_variable(mut self, name: &str, ty: Type) -> Self {
        let known = self.0.structs.entry(Str::new_static(VARIABLES)).or_default();
        known.fields.insert(Str::new(name), ty.clone());
        if !self.0.variables.contains_key("variables") {
            self = self.variable("variables", Type::Struct(Str::new_static(VARIABLES)));
        }
        self.variable(&format!("variables.{name}"), ty)
    }

    /// Declares a message type.
    #[must_use]
    pub fn structure(mut self, name: &str, structure: Structure) -> Self {
        self.0.structs.insert(Str::new(name), structure);
        self
    }

    /// Declares a function that can be checked but not run.
    #[must_use]
    pub fn function(mut self, name: &str, params: Vec<Type>, result: Type, member: bool) -> Self {
        let functions = Arc::make_mut(&mut self.0.functions);
        let overloads = functions.entry(Str::new(name)).or_default();
        let run: FunctionBody = |_, _| Err(crate::error::no_such_overload());
        overloads.push(Overload { params, result, member, run, group: u32::MAX });
        self
    }

    /// Takes away names: of variables, constants and functions.
    #[must_use]
    pub(crate) fn without(mut self, names: &[&str]) -> Self {
        let functions = Arc::make_mut(&mut self.0.functions);
        for name in names {
            functions.remove(*name);
            self.0.variables.remove(*name);
        }
        self
    }

    /// Sets the container: names are looked up in it first, then in those around it.
    #[must_use]
    pub fn container(mut self, container: &str) -> Self {
        container.clone_into(&mut self.0.container);
        self
    }

    /// Refuses (or accepts) list and map literals of mixed types.
    #[must_use]
    pub fn homogeneous_literals(mut self, refuse_mixed: bool) -> Self {
        self.0.homogeneous_literals = refuse_mixed;
        self
    }

    /// Lets null stand where a map or a list is declared.
    #[must_use]
    pub(crate) fn nullable_aggregates(mut self) -> Self {
        self.0.nullable_aggregates = true;
        self
    }

    #[must_use]
    pub(crate) fn scope(mut self, scope: PolicyScope) -> Self {
        self.0.scope = scope;
        self
    }

    /// Accepts `Object{…}`, `Object.spec{…}` and so on, with any fields, and `JSONPatch{…}`.
    #[must_use]
    pub fn patch_literals(mut self) -> Self {
        self.0.object_literals = true;
        let text = || Type::String;
        let fields = [("op", text()), ("path", text()), ("from", text()), ("value", Type::Dyn)];
        self.structure("JSONPatch", Structure::new(fields))
    }

    /// Switches macros off, so that they are plain calls.
    #[must_use]
    pub fn without_macros(mut self) -> Self {
        self.0.dialect.macros = false;
        self
    }

    /// The environment.
    pub fn build(self) -> Env {
        Env(Arc::new(self.0))
    }
}

/// The type of the variable `variables`.
pub(crate) const VARIABLES: &str = "kyverno.variables";

/// What a name stands for.
pub(crate) enum Named<'d> {
    Variable(&'d Variable),
    Type(&'d Type),
}

impl Declarations {
    pub(crate) fn slots(&self) -> &[Str] {
        &self.slots
    }

    /// The declared thing that a name means, looked up from the container outwards.
    pub(crate) fn name(&self, name: &str, absolute: bool) -> Option<Named<'_>> {
        self.candidates(name, absolute, |name| {
            let variable = self.variables.get(name).map(Named::Variable);
            variable.or_else(|| self.types.get(name).map(Named::Type))
        })
    }

    /// The overloads of a function, looked up from the container outwards.
    pub(crate) fn function(&self, name: &str, absolute: bool) -> Option<&[Overload]> {
        self.candidates(name, absolute, |name| self.functions.get(name).map(Vec::as_slice))
    }

    /// The message type of this name.
    pub(crate) fn message(&self, name: &str) -> Option<StructKind<'_>> {
        self.candidates(name, false, |name| {
            if self.object_literals && (name == "Object" || name.starts_with("Object.")) {
                return Some(StructKind::Open);
            }
            self.structs.get(name).map(StructKind::Closed)
        })
    }

    /// Whether `variables.name` is declared.
    pub(crate) fn has_policy_variable(&self, name: &str) -> bool {
        self.structs.get(VARIABLES).is_some_and(|known| known.fields.contains_key(name))
    }

    fn candidates<'d, T>(
        &'d self,
        name: &str,
        absolute: bool,
        look: impl Fn(&str) -> Option<T> + 'd,
    ) -> Option<T> {
        if !absolute {
            let mut container = self.container.as_str();
            while !container.is_empty() {
                if let Some(found) = look(&format!("{container}.{name}")) {
                    return Some(found);
                }
                container = container.rsplit_once('.').map_or("", |(outer, _)| outer);
            }
        }
        look(name)
    }
}

/// How a message type treats fields.
pub(crate) enum StructKind<'d> {
    /// Any field, of any type.
    Open,
    /// Declared fields only.
    Closed(&'d Structure),
}
