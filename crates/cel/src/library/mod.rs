//! The function libraries, and the named environments made of them.
//!
//! A library is a list of signatures with the function that implements them; the signatures are
//! what the checker knows, the functions look at the values they get.

pub(crate) mod authz;
mod encoders;
pub(crate) mod format;
mod format_kubernetes;
mod kubernetes;
mod kyverno;
mod lists;
mod math;
mod network;
mod optionals;
mod patch;
mod regex;
mod sets;
mod signature;
pub(crate) mod standard;
mod strings;
mod times;

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use kiln_value::Str;

use crate::env::{Env, EnvBuilder, Overload};
use crate::error::EvalFailure;
use crate::eval::Context;
use crate::syntax::Dialect;
use crate::{Type, Val};

pub(crate) use self::kubernetes::request_resource;
pub(crate) use self::lists::sorted_by_key;

/// The implementation of a function. Receivers come first among the arguments, and their number is
/// that of the signature.
pub(crate) type FunctionBody = fn(&mut Context<'_>, &[Val]) -> Result<Val, EvalFailure>;

/// Where a policy lives, which decides which forms of `generator` and `resource` calls it may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyScope {
    /// A cluster policy: calls name their namespace.
    Cluster,
    /// A namespaced policy: calls work in this namespace.
    Namespace(Str),
}

/// Collects functions and type names.
#[derive(Default)]
struct Registry {
    functions: FxHashMap<Str, Vec<Overload>>,
    types: FxHashMap<Str, Type>,
    groups: u32,
}

impl Registry {
    /// Adds a function with the signatures that it implements, see [`signature`].
    fn add(&mut self, run: FunctionBody, signatures: &[&'static str]) {
        let group = self.groups;
        self.groups += 1;
        for text in signatures {
            let signature = signature::parse(text);
            self.functions.entry(signature.name).or_default().push(Overload {
                params: signature.params,
                result: signature.result,
                member: signature.member,
                run,
                group,
            });
        }
    }

    /// Makes a type known by its name.
    fn type_name(&mut self, ty: Type) {
        self.types.insert(Str::new(ty.runtime_name()), ty);
    }
}

/// Which release of the extension for texts an environment has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Texts {
    Newest,
    /// The one that Kubernetes keeps to.
    Kubernetes,
}

fn language(texts: Texts) -> Registry {
    let mut registry = Registry::default();
    standard::register(&mut registry);
    times::register(&mut registry);
    optionals::register(&mut registry);
    strings::register(&mut registry, texts);
    math::register(&mut registry);
    lists::register(&mut registry);
    sets::register(&mut registry);
    encoders::register(&mut registry);
    regex::register(&mut registry);
    network::register(&mut registry);
    registry
}

fn dialect() -> Dialect {
    Dialect {
        macros: true,
        two_variables: true,
        quoted_fields: true,
        blocks: true,
        lenient_or_value: false,
        kubernetes: false,
        // cel-go: 250 levels, 100,000 code points.
        max_depth: 250,
        max_length: 100_000,
    }
}

pub(crate) fn suite() -> Env {
    let registry = language(Texts::Newest);
    EnvBuilder::new(dialect(), registry.functions, registry.types).build()
}

/// The environments of policies of one kind. Each policy extends one of the two; making them takes longer than most
/// policies take to compile.
struct Pair {
    cluster: Env,
    namespace: Env,
}

impl Pair {
    fn new(make: impl Fn(PolicyScope) -> Env) -> Self {
        let namespace = PolicyScope::Namespace(Str::default());
        Pair { cluster: make(PolicyScope::Cluster), namespace: make(namespace) }
    }

    fn of(&self, scope: PolicyScope) -> Env {
        match scope {
            PolicyScope::Cluster => self.cluster.clone(),
            own @ PolicyScope::Namespace(_) => self.namespace.extend().scope(own).build(),
        }
    }
}

pub(crate) fn policies(scope: PolicyScope) -> Env {
    static PAIR: LazyLock<Pair> = LazyLock::new(|| Pair::new(make_policies));
    PAIR.of(scope)
}

pub(crate) fn generating(scope: PolicyScope) -> Env {
    static PAIR: LazyLock<Pair> = LazyLock::new(|| {
        let others = [
            "authorizer",
            "jsonpatch.escapeKey",
            "parseServiceAccount",
            "user.parseServiceAccount",
        ];
        Pair::new(|scope| policies(scope).extend().without(&others).build())
    });
    PAIR.of(scope)
}

pub(crate) fn mutating(scope: PolicyScope) -> Env {
    static PAIR: LazyLock<Pair> = LazyLock::new(|| {
        Pair::new(|scope| policies(scope).extend().without(&["authorizer", "generator"]).build())
    });
    PAIR.of(scope)
}

pub(crate) fn validating(scope: PolicyScope) -> Env {
    static PAIR: LazyLock<Pair> = LazyLock::new(|| {
        let others = ["authorizer", "generator", "jsonpatch.escapeKey"];
        Pair::new(|scope| policies(scope).extend().without(&others).build())
    });
    PAIR.of(scope)
}

pub(crate) fn deleting(scope: PolicyScope) -> Env {
    static PAIR: LazyLock<Pair> = LazyLock::new(|| {
        let others = [
            "authorizer",
            "generator",
            "jsonpatch.escapeKey",
            "parseServiceAccount",
            "user.parseServiceAccount",
        ];
        Pair::new(|scope| policies(scope).extend().without(&others).build())
    });
    PAIR.of(scope)
}

pub(crate) fn admission() -> Env {
    static ENV: LazyLock<Env> = LazyLock::new(|| {
        let mut registry = language(Texts::Kubernetes);
        kubernetes::register(&mut registry);
        patch::register(&mut registry);
        let builder = policy_builder(registry, PolicyScope::Cluster);
        kubernetes::declare_request_resource(kubernetes::declare(builder, &[])).build()
    });
    ENV.clone()
}

fn policy_builder(registry: Registry, scope: PolicyScope) -> EnvBuilder {
    let dialect = Dialect { blocks: false, lenient_or_value: true, kubernetes: true, ..dialect() };
    let builder = EnvBuilder::new(dialect, registry.functions, registry.types);
    builder.nullable_aggregates().patch_literals().scope(scope)
}

fn make_policies(scope: PolicyScope) -> Env {
    let mut registry = language(Texts::Kubernetes);
    kubernetes::register(&mut registry);
    kyverno::register(&mut registry, &scope);
    patch::register(&mut registry);
    // Kyverno adds the objects themselves to requests.
    let objects = [("object", Type::Dyn), ("oldObject", Type::Dyn)];
    kyverno::declare(kubernetes::declare(policy_builder(registry, scope), &objects)).build()
}
