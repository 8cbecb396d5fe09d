//! Read access to objects, and the gate that every read of a rule passes.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;

use kiln_object::{Gvk, ObjectId, Selector, metadata};
use kiln_rules::{PolicyId, Scope};
use kiln_text::wildcard;
use kiln_value::{Str, Value};

use crate::input::event::Event;
use crate::input::limits::{Counters, Exceeded};
use crate::output::effect::PatchEffect;
use crate::output::failure::Failure;

/// Read access to objects, given by a host. Everything is asked for by typed parts.
pub trait View {
    /// One object, or none when there is no such object.
    ///
    /// # Errors
    /// When it cannot be known whether there is one.
    fn get(
        &self,
        kind: &Gvk,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, ReadError>;

    /// Objects, in the order of namespace and name, page by page.
    ///
    /// # Errors
    /// When the objects cannot be had.
    fn list(&self, query: &ListQuery<'_>) -> Result<ListPage, ReadError>;

    /// The place of an object in the order in which a host was given its objects, if it knows.
    fn sequence(&self, object: &ObjectId) -> Option<usize> {
        let _ = object;
        None
    }

    /// Whether the objects of a kind are known at all, so that an empty list means that there are none.
    fn knows(&self, kind: &Gvk) -> bool {
        let _ = kind;
        true
    }

    /// Whether a policy may be shown something, for hosts that hold policies to the rights of their authors.
    ///
    /// # Errors
    /// When it may not, or when that cannot be known.
    fn permits(&self, access: &AccessRequest<'_>) -> Result<(), ReadError> {
        let _ = access;
        Ok(())
    }

    /// The kind that a resource of the API is, for resources that are not built in.
    fn kind_of(&self, group: &str, version: &str, plural: &str) -> Option<Gvk> {
        let _ = (group, version, plural);
        None
    }
}

/// Something that a policy wants to read.
#[derive(Clone, Copy, Debug)]
pub struct AccessRequest<'w> {
    pub policy: &'w PolicyId,
    /// What it wants to do: `get`, `list`, `update` what is sent, or `bind` and `escalate` roles by that.
    pub verb: &'static str,
    pub kind: &'w Gvk,
    /// The subresource; empty for the object itself.
    pub subresource: &'w str,
    /// The namespace; none for all of them, and for cluster-scoped kinds.
    pub namespace: Option<&'w str>,
    /// The name; none for all of them.
    pub name: Option<&'w str>,
}

const RBAC: &str = "rbac.authorization.k8s.io";

impl AccessRequest<'_> {
    /// What the author of a role or a binding needs besides permission to write it, since it grants permissions: verbs, and
    /// the roles that they are about. Where a binding does not say which role it is for, it may be any.
    // Kubernetes: `bind` counts in the namespace of the binding, for a ClusterRole as well. Unlike the API server, having
    // all the rights that are handed out is not enough.
    pub fn for_roles(id: &ObjectId, object: Option<&Value>) -> Vec<(&'static str, ObjectId)> {
        if id.gvk.group != RBAC {
            return Vec::new();
        }
        let role = |kind: &str, name: &str| {
            let gvk = Gvk { group: RBAC.into(), version: "v1".into(), kind: kind.into() };
            ObjectId::new(gvk, &id.namespace, name)
        };
        if !id.gvk.kind.ends_with("Binding") {
            return vec![("escalate", role(&id.gvk.kind, &id.name))];
        }
        let text = |key: &str| object.and_then(|object| object.str_at(["roleRef", key]));
        match (text("kind"), text("name")) {
            (Some(kind @ ("Role" | "ClusterRole")), Some(name)) if !name.is_empty() => {
                vec![("bind", role(kind, name))]
            }
            _ => ["Role", "ClusterRole"].map(|kind| ("bind", role(kind, ""))).into(),
        }
    }
}

/// Which objects to list.
#[derive(Clone, Debug)]
pub struct ListQuery<'q> {
    pub kind: &'q Gvk,
    /// Their namespace; none for all of them, and for cluster-scoped kinds.
    pub namespace: Option<&'q str>,
    /// Their labels.
    pub selector: &'q Selector,
    /// The most that one page should hold.
    pub limit: usize,
    /// Where to go on, as the page before said.
    pub resume: Option<&'q str>,
}

/// Some of the objects that were asked for.
#[derive(Clone, Debug, Default)]
pub struct ListPage {
    pub objects: Vec<Value>,
    /// Where the next page begins, if there is one.
    pub resume: Option<String>,
}

/// A view of nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct EmptyView;

impl View for EmptyView {
    fn get(&self, _: &Gvk, _: Option<&str>, _: &str) -> Result<Option<Value>, ReadError> {
        Ok(None)
    }

    fn list(&self, _: &ListQuery<'_>) -> Result<ListPage, ReadError> {
        Ok(ListPage::default())
    }
}

/// Why objects cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// The cluster does not serve this kind.
    UnknownKind(String),
    /// The host may not read them.
    Forbidden(String),
    /// The server cannot be asked at the moment.
    Unavailable(String),
    /// The author of the policy may not do it.
    Denied(String),
    /// It cannot be known at the moment whether the author of the policy may do it.
    Undecided(String),
    /// The rule belongs to one namespace, and these are elsewhere.
    OutOfReach {
        /// The namespace of the rule.
        own: Str,
        /// What it wanted to read.
        wanted: String,
    },
    /// The namespace is protected, and an object chose it.
    Protected(Str),
    /// It is one of the engine's own Secrets.
    Withheld(ObjectId),
    /// The rule reads too much.
    Exceeded(Exceeded),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::UnknownKind(kind) => write!(f, "there is no kind {kind} here"),
            ReadError::Forbidden(why) => write!(f, "reading is forbidden: {why}"),
            ReadError::Unavailable(why) => write!(f, "objects cannot be read at the moment: {why}"),
            ReadError::Denied(why) | ReadError::Undecided(why) => f.write_str(why),
            ReadError::OutOfReach { own, wanted } => {
                write!(f, "a policy of namespace {own:?} cannot read {wanted}")
            }
            ReadError::Protected(namespace) if namespace.is_empty() => f.write_str(
                "cannot read from all namespaces: an object that names none asks for that, not the policy",
            ),
            ReadError::Protected(namespace) => write!(
                f,
                "cannot read from namespace {namespace}: it is protected, and an object names it, not the policy"
            ),
            ReadError::Withheld(id) => {
                write!(f, "{id} holds keys of the engine, which rules cannot read")
            }
            ReadError::Exceeded(exceeded) => exceeded.fmt(f),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<Exceeded> for ReadError {
    fn from(exceeded: Exceeded) -> Self {
        ReadError::Exceeded(exceeded)
    }
}

/// Something that a rule has read, so that a host knows what the outcome depends on.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordedRead {
    /// Also recorded if the object did not exist.
    Object(ObjectId),
    /// All objects of a kind that a selector meets.
    List {
        kind: Gvk,
        /// The namespace; none for all.
        namespace: Option<Str>,
        selector: Selector,
    },
    /// A value that the host keeps for all rules, whether it was there or not.
    Global(Str),
}

/// The view of one evaluation: limited to what its rule may see, counted, and recorded.
pub(crate) struct Gate<'g> {
    pub(crate) view: &'g dyn View,
    pub(crate) policy: &'g PolicyId,
    pub(crate) scope: &'g Scope,
    /// Wildcards for namespaces that objects cannot choose.
    pub(crate) protected_namespaces: &'g [Str],
    /// The namespace that the engine lives in.
    pub(crate) home: &'g str,
    /// The namespace of the trigger, whose author may read there.
    pub(crate) trigger_namespace: Str,
    pub(crate) counters: &'g Counters,
    pub(crate) reads: RefCell<Vec<RecordedRead>>,
    pub(crate) seen: RefCell<HashSet<ObjectId>>,
    /// The first failure to read something that a default stands in for.
    pub(crate) unread: RefCell<Option<Failure>>,
}

/// How many earlier reads a list is compared with.
const REMEMBERED: usize = 64;

/// How many objects one page of a list holds.
const PAGE: usize = 500;

impl Gate<'_> {
    pub(crate) fn get(
        &self,
        kind: &Gvk,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, ReadError> {
        // Every refusal comes before the read, so that none of them tells whether the object exists.
        let wanted = ObjectId::new(kind.clone(), namespace.unwrap_or_default(), name);
        self.check(namespace, || wanted.to_string())?;
        if is_own_secret(self.home, kind, namespace, name) {
            return Err(ReadError::Withheld(wanted));
        }
        self.counters.read()?;
        // Nothing has an empty name, and a host must not take it for everything.
        if name.is_empty() {
            return Ok(None);
        }
        self.check_access("get", kind, "", namespace, Some(name))?;
        let found = self.view.get(kind, namespace, name)?;
        if self.seen.borrow_mut().insert(wanted.clone()) {
            self.reads.borrow_mut().push(RecordedRead::Object(wanted));
        }
        Ok(found)
    }

    /// The namespace that a trigger is in: every rule that is fired from there may see it.
    pub(crate) fn namespace(&self, kind: &Gvk, name: &str) -> Result<Option<Value>, ReadError> {
        match self.scope {
            Scope::Namespace(own) if own == name => {
                self.counters.read()?;
                self.view.get(kind, None, name)
            }
            _ => self.get(kind, None, name),
        }
    }

    /// All objects that are meant, or as many as are wanted.
    pub(crate) fn list(
        &self,
        kind: &Gvk,
        namespace: Option<&str>,
        selector: &Selector,
        most: Option<usize>,
    ) -> Result<ListPage, ReadError> {
        self.check(namespace, || match namespace {
            Some(namespace) => {
                format!("the objects of kind {} in namespace {namespace:?}", kind.kind)
            }
            None => format!("the objects of kind {} in all namespaces", kind.kind),
        })?;
        self.check_access("list", kind, "", namespace, None)?;
        let mut found = ListPage::default();
        loop {
            self.counters.read()?;
            let left = most.map_or(PAGE, |most| most - found.objects.len());
            let query = ListQuery {
                kind,
                namespace,
                selector,
                limit: left.min(PAGE),
                resume: found.resume.as_deref(),
            };
            let page = self.view.list(&query)?;
            self.counters.listed(page.objects.len() as u64)?;
            // Left out here and not in the query, since a host does not know which Secrets these are.
            found.objects.extend(page.objects.into_iter().filter(|object| {
                let (namespace, name) = (metadata::namespace(object), metadata::name(object));
                !is_own_secret(self.home, kind, namespace, name.unwrap_or_default())
            }));
            found.resume = page.resume;
            let enough = most.is_some_and(|most| found.objects.len() >= most);
            if found.resume.is_none() || enough {
                break;
            }
        }
        if let Some(most) = most
            && found.objects.len() > most
        {
            found.objects.truncate(most);
            // Only says that there are more. No page begins in the middle of another.
            found.resume.get_or_insert_default();
        }
        let read = RecordedRead::List {
            kind: kind.clone(),
            namespace: namespace.map(Str::from),
            selector: selector.clone(),
        };
        self.note(read);
        Ok(found)
    }

    /// Whether the policy may be shown, or may change, the object that fires it.
    pub(crate) fn trigger(
        &self,
        verb: &'static str,
        event: &Event,
        object: &Value,
    ) -> Result<(), ReadError> {
        let (namespace, name) = place_of(event, object);
        self.check_access(verb, &event.kind, &event.subresource, namespace, Some(name))
    }

    /// Whether the policy may change the request as it does: roles and bindings grant permissions, as they were
    /// and as they become.
    pub(crate) fn grants_rights(
        &self,
        event: &Event,
        patch: &PatchEffect,
    ) -> Result<(), ReadError> {
        for object in [&patch.before, &patch.after] {
            let (namespace, name) = place_of(event, object);
            let id = ObjectId::new(event.kind.clone(), namespace.unwrap_or_default(), name);
            for (verb, role) in AccessRequest::for_roles(&id, Some(object)) {
                let namespace = Some(role.namespace.as_str()).filter(|text| !text.is_empty());
                let name = Some(role.name.as_str()).filter(|text| !text.is_empty());
                self.check_access(verb, &role.gvk, "", namespace, name)?;
            }
        }
        Ok(())
    }

    /// Whether the policy may be shown something.
    fn check_access(
        &self,
        verb: &'static str,
        kind: &Gvk,
        subresource: &str,
        namespace: Option<&str>,
        name: Option<&str>,
    ) -> Result<(), ReadError> {
        let policy = self.policy;
        self.view.permits(&AccessRequest { policy, verb, kind, subresource, namespace, name })
    }

    /// Takes note that a default stands in for something that may well be there.
    pub(crate) fn uncertain(&self, failure: Failure) {
        self.unread.borrow_mut().get_or_insert(failure);
    }

    /// Takes note of a read.
    pub(crate) fn note(&self, read: RecordedRead) {
        // A loop reads the same again and again, mostly right after the last time.
        let mut reads = self.reads.borrow_mut();
        if !reads.iter().rev().take(REMEMBERED).any(|earlier| *earlier == read) {
            reads.push(read);
        }
    }

    /// Whether a namespace may be read from: one that is protected only if the rule `names` it, or if the trigger is there.
    pub(crate) fn may_read_from(
        &self,
        namespace: Option<&str>,
        names: impl FnOnce(&str) -> bool,
    ) -> Result<(), ReadError> {
        let Some(namespace) = namespace else { return Ok(()) };
        let is_protected = || {
            self.protected_namespaces.iter().any(|pattern| wildcard::matches(pattern, namespace))
        };
        // In each of these cases the author of the policy or the place of the trigger decides, and not the content of an object
        // that any user may have created.
        if namespace == self.trigger_namespace
            || self.scope.namespace() == Some(namespace)
            || !is_protected()
            || names(namespace)
        {
            return Ok(());
        }
        Err(ReadError::Protected(namespace.into()))
    }

    /// Whether something is within reach that is not an object: what belongs to the whole cluster has no namespace.
    pub(crate) fn check(
        &self,
        namespace: Option<&str>,
        wanted: impl FnOnce() -> String,
    ) -> Result<(), ReadError> {
        match self.scope {
            Scope::Namespace(own) if namespace != Some(own.as_str()) => {
                Err(ReadError::OutOfReach { own: own.clone(), wanted: wanted() })
            }
            _ => Ok(()),
        }
    }
}

/// Whether an object is a Secret that only the engine needs: with the keys of its claims it could be impersonated, with
/// those of its webhooks be replaced.
pub fn is_own_secret(home: &str, kind: &Gvk, namespace: Option<&str>, name: &str) -> bool {
    kind.kind == "Secret"
        && kind.group.is_empty()
        && !home.is_empty()
        && namespace == Some(home)
        && (name == CLAIM_KEYS || TLS.iter().any(|suffix| name.ends_with(suffix)))
}

/// The Secret that holds the keys of claims.
pub const CLAIM_KEYS: &str = "kiln-claim-keys";

/// How the Secrets end that hold the certificates of the webhooks, and the authority behind them.
const TLS: [&str; 2] = [".kyverno-tls-ca", ".kyverno-tls-pair"];

/// Namespace and name of what is sent. What the object does not say itself, the request does; a Namespace is sent into
/// itself.
fn place_of<'o>(event: &'o Event, object: &'o Value) -> (Option<&'o str>, &'o str) {
    let own = metadata::namespace(object).filter(|namespace| !namespace.is_empty());
    let sent_to = event.namespace.as_deref().filter(|_| !event.subresource.is_empty());
    (own.or(sent_to), metadata::name(object).unwrap_or(&event.name))
}
