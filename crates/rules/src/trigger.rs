//! What fires a rule: which objects, in which operations, by whom.

use std::fmt;
use std::sync::Arc;

use kiln_diagnostic::SourceLocation;
use kiln_object::Gvk;
use kiln_object::selector::WildcardSelector;
use kiln_text::wildcard;
use kiln_value::{Map, Str};

use crate::{KindPattern, Operation, Operations, RequestFacts, Script};

/// What fires a rule.
#[derive(Clone, Debug)]
pub struct Trigger {
    /// What must match.
    pub include: Filters,
    /// What must then not match.
    pub exclude: Filters,
    /// Skip requests that the engine itself made, so that rules do not fire on each other's
    /// objects.
    pub ignore_own_requests: bool,
    /// A policy that lives in a namespace is also fired by that Namespace itself.
    pub own_namespace: bool,
    /// What must match besides, if something narrows the rule.
    pub narrow_include: Option<Filters>,
    /// What narrows the rule by what must not match.
    pub narrow_exclude: Filters,
    /// Conditions on the request that come before everything else. One that fails counts as one that is
    /// false: an API server does not ask about such a request.
    pub match_conditions: Option<Arc<Script>>,
    /// Only objects that are there when the rule comes fire it, and not what happens to others later.
    pub existing_only: bool,
    /// What the rule is about.
    pub payload: Payload,
    /// A rule about Kubernetes objects also takes any data, without a match.
    pub takes_data: bool,
}

/// What a rule is about, and what an event brings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Payload {
    /// Kubernetes objects.
    #[default]
    Kubernetes,
    /// Any data, without a match.
    Json,
    /// Requests to a web server, without a match.
    Http,
    /// Requests that Envoy asks about, without a match.
    Envoy,
}

impl Payload {
    /// The word that policies write for it.
    pub fn word(self) -> &'static str {
        match self {
            Payload::Kubernetes => "Kubernetes",
            Payload::Json => "JSON",
            Payload::Http => "HTTP",
            Payload::Envoy => "Envoy",
        }
    }
}

impl Trigger {
    /// What fires a rule when there is nothing special about it.
    pub fn of(include: Filters, exclude: Filters) -> Self {
        Trigger {
            include,
            exclude,
            ignore_own_requests: false,
            own_namespace: false,
            narrow_include: None,
            narrow_exclude: Filters::NONE,
            match_conditions: None,
            existing_only: false,
            payload: Payload::Kubernetes,
            takes_data: false,
        }
    }

    /// Whether the rule is about what an event brings. Objects are data, too.
    pub fn takes(&self, payload: Payload) -> bool {
        self.payload == payload
            || (self.payload == Payload::Json && payload == Payload::Kubernetes)
            || (self.takes_data && payload == Payload::Json)
    }

    /// The operations that some filter names; none when every filter takes all of them.
    pub fn named_operations(&self) -> Operations {
        self.include
            .filters()
            .iter()
            .fold(Operations::NONE, |all, filter| all.union(filter.operations))
    }

    /// Whether the rule can fire in an operation at all.
    pub fn may_fire_on(&self, operation: Operation) -> bool {
        let takes = |f: &Filter| f.operations.is_empty() || f.operations.contains(operation);
        match &self.include {
            Filters::Any(filters) => filters.iter().any(takes),
            Filters::All(filters) => filters.iter().all(takes),
        }
    }

    /// Whether the rule can fire for a kind, or a subresource of it, at all.
    pub fn may_fire_for(&self, kind: &Gvk, subresource: &str) -> bool {
        let Gvk { group, version, kind } = kind;
        let takes = |f: &Filter| {
            f.kinds.is_empty()
                || f.kinds.iter().any(|k| k.matches(group, version, kind, subresource))
        };
        match &self.include {
            Filters::Any(filters) => filters.iter().any(takes),
            Filters::All(filters) => filters.iter().all(takes),
        }
    }

    /// What filters need to know of a request's user.
    pub(crate) fn request_facts(&self) -> RequestFacts {
        let narrow = self.narrow_include.iter().chain([&self.narrow_exclude]);
        let all = [&self.include, &self.exclude].into_iter().chain(narrow);
        let users = all.flat_map(Filters::filters).map(|filter| &filter.user);
        users
            .map(|user| RequestFacts {
                user: !user.is_empty(),
                roles: !user.roles.is_empty() || !user.cluster_roles.is_empty(),
                old_object: false,
            })
            .collect()
    }

    /// Whether who made the request decides if the rule fires.
    pub(crate) fn asks_for_user(&self) -> bool {
        let asks = |filters: &Filters| filters.filters().iter().any(|f| !f.user.is_empty());
        asks(&self.include)
            || asks(&self.exclude)
            || self.match_conditions.as_ref().is_some_and(|script| script.asks_for_user)
    }
}

/// Filters, and how they join. Without any filter nothing matches.
#[derive(Clone, Debug)]
pub enum Filters {
    /// One of them must match.
    Any(Vec<Filter>),
    /// Each of them must match.
    All(Vec<Filter>),
}

impl Filters {
    /// Filters that match nothing.
    pub const NONE: Filters = Filters::Any(Vec::new());

    pub fn filters(&self) -> &[Filter] {
        match self {
            Filters::Any(filters) | Filters::All(filters) => filters,
        }
    }

    /// The word that users write for the way they join.
    pub fn word(&self) -> &'static str {
        match self {
            Filters::Any(_) => "any",
            Filters::All(_) => "all",
        }
    }
}

/// One description of objects. Every attribute that is given must hold; of an attribute that lists
/// several things, one suffices. A filter without any attribute matches nothing.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub kinds: Vec<KindPattern>,
    /// Wildcards for the name, or for `generateName` of an object without one.
    pub names: Vec<Str>,
    /// Wildcards for the namespace; for a Namespace, its own name.
    pub namespaces: Vec<Str>,
    /// Wildcards for annotations: each pair must be met by some annotation.
    pub annotations: Vec<(Str, Str)>,
    /// Labels of the object.
    pub selector: Option<WildcardSelector>,
    /// Labels of the object's namespace.
    pub namespace_selector: Option<WildcardSelector>,
    /// Only objects that live in a namespace, or only those that do not.
    pub namespaced: Option<bool>,
    /// Operations; all of them when empty.
    pub operations: Operations,
    /// Who made the request.
    pub user: UserFilter,
    /// How attributes are read that languages read differently.
    pub reading: FilterSemantics,
    /// Where the filter was written.
    pub place: Option<SourceLocation>,
}

/// What languages decide differently about the attributes of a filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterSemantics {
    /// The labels of its namespace are, for a Namespace, its own, and do not matter for anything else
    /// that is in no namespace. Otherwise such objects never meet them.
    pub own_labels_of_namespaces: bool,
    /// The labels of the old object will do as well.
    pub old_labels: bool,
    /// For an object without a name, a name is what its `generateName` begins with.
    pub names_begin_generated: bool,
}

impl Filter {
    /// Whether no attribute is given.
    pub fn is_empty(&self) -> bool {
        self.describes_no_object() && self.user.is_empty()
    }

    /// Whether no attribute but the user is given.
    pub fn describes_no_object(&self) -> bool {
        self.kinds.is_empty()
            && self.names.is_empty()
            && self.namespaces.is_empty()
            && self.annotations.is_empty()
            && self.selector.is_none()
            && self.namespace_selector.is_none()
            && self.namespaced.is_none()
            && self.operations.is_empty()
    }
}

/// Who made a request. Each list that is given must be met by one of its entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserFilter {
    /// Users, groups and service accounts.
    pub subjects: Vec<Subject>,
    /// Roles as `namespace:name`, without wildcards.
    pub roles: Vec<Str>,
    /// Cluster roles, without wildcards.
    pub cluster_roles: Vec<Str>,
}

impl UserFilter {
    /// Whether any user will do.
    pub fn is_empty(&self) -> bool {
        self.subjects.is_empty() && self.roles.is_empty() && self.cluster_roles.is_empty()
    }
}

/// A user, group or service account, by wildcards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A user name.
    User(Str),
    /// One of the user's groups.
    Group(Str),
    ServiceAccount {
        namespace: Str,
        name: Str,
    },
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::User(name) => write!(f, "user {name}"),
            Subject::Group(name) => write!(f, "group {name}"),
            Subject::ServiceAccount { namespace, name } => {
                write!(f, "service account {namespace}/{name}")
            }
        }
    }
}

impl Subject {
    /// Whether a user is meant.
    pub fn matches(&self, username: &str, groups: &[Str]) -> bool {
        match self {
            Subject::User(pattern) => wildcard::matches(pattern, username),
            Subject::Group(pattern) => groups.iter().any(|g| wildcard::matches(pattern, g)),
            Subject::ServiceAccount { namespace, name } => username
                .strip_prefix("system:serviceaccount:")
                .and_then(|account| account.split_once(':'))
                .is_some_and(|(in_namespace, named)| {
                    wildcard::matches(namespace, in_namespace) && wildcard::matches(name, named)
                }),
        }
    }
}

/// Whether some pair of a map of texts meets the wildcards.
pub fn any_pair_matches(pairs: Option<&Map>, key: &str, value: &str) -> bool {
    pairs.is_some_and(|pairs| {
        pairs.iter().any(|(k, v)| {
            wildcard::matches(key, k) && v.as_str().is_some_and(|v| wildcard::matches(value, v))
        })
    })
}
