//! Values that a rule names, and where they come from.

use kiln_jmespath::Expression;
use kiln_value::{Path, Str};
use kiln_variables::Template;

/// A named value. It is loaded when something asks for it, and sees only what was named before it, so
/// that a later entry may take an earlier one's name and build on its value.
#[derive(Clone, Debug)]
pub struct ContextEntry {
    /// The name; dots build maps in maps.
    pub name: Str,
    /// Where the value comes from.
    pub load: Load,
    /// Where the entry was written, from the root of the rule's document.
    pub path: Path,
}

/// Where the value of a context entry comes from.
#[derive(Clone, Debug)]
pub enum Load {
    /// From the context so far.
    Variable {
        /// A document to fill.
        value: Option<Template>,
        /// What to look for, in the filled document if there is one, else in the context.
        query: Option<QueryText>,
        /// What to take when nothing is found.
        default: Option<Template>,
    },
    /// `data` and `metadata` of a ConfigMap.
    ConfigMap {
        name: Template,
        /// Its namespace; that of the policy, else `default`, when left out.
        namespace: Option<Template>,
    },
    /// An answer of the API server, or of a service.
    Call(Box<ApiCall>),
    /// A value that the host keeps for all rules.
    Global {
        /// Its name, perhaps with the name of a projection behind a dot.
        name: Template,
        /// What to look for in it.
        query: Option<QueryText>,
    },
    /// What a registry knows about an image.
    Image {
        /// The image.
        reference: Template,
        /// What to look for in it.
        query: Option<QueryText>,
    },
}

impl Load {
    /// The word that users write for this source.
    pub fn word(&self) -> &'static str {
        match self {
            Load::Variable { .. } => "variable",
            Load::ConfigMap { .. } => "configMap",
            Load::Call(_) => "apiCall",
            Load::Global { .. } => "globalReference",
            Load::Image { .. } => "imageRegistry",
        }
    }
}

/// A request whose answer is a value.
#[derive(Clone, Debug)]
pub struct ApiCall {
    /// Whom to ask.
    pub callee: Callee,
    /// Whether something is sent (`POST`) or only asked for (`GET`).
    pub method: Method,
    /// What is sent: one JSON object of these.
    pub data: Vec<(Str, Template)>,
    /// What to look for in the answer.
    pub query: Option<QueryText>,
    /// What to take when there is no answer. It is not searched.
    pub default: Option<Template>,
}

/// Whom a call asks.
#[derive(Clone, Debug)]
pub enum Callee {
    /// The API server, by a path such as `/api/v1/namespaces/x/configmaps`.
    ApiServer(Template),
    Service {
        /// Its address.
        url: Template,
        /// Headers to send.
        headers: Vec<(Str, Template)>,
        /// The certificates to trust, in PEM.
        ca_bundle: Option<Str>,
    },
}

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Asks.
    Get,
    /// Sends.
    Post,
    /// Sends, replacing what exists.
    Put,
}

impl Method {
    /// The word of HTTP.
    pub fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Put => "PUT",
        }
    }
}

/// An expression that may hold variables.
#[derive(Clone, Debug)]
pub enum QueryText {
    /// Without variables: ready to be evaluated.
    Ready(Expression),
    /// With variables: becomes an expression when they are filled in.
    Unfilled(Template),
}
