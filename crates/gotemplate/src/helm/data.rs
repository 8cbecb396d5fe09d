//! Data that outlives a rendering, in the Go types that Helm gives to templates.

use std::sync::Arc;

use kiln_value::{Str, Value};

use super::files::FILES;
use crate::Numbers;
use crate::error::Refusal;
use crate::functions::ParameterType::Text;
use crate::functions::{FunctionCall, TemplateFunction, any, function, text};
use crate::sprig::encoding::json;
use crate::value::{Dyn, Elem, GoField, GoType, Map};

/// Data of templates. Cloning copies a pointer, and what a template changes is changed for all.
#[derive(Clone, Debug)]
pub struct Data(pub(crate) Dyn);

/// Which type the values of a chart have: the versions of Helm name it differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValuesType {
    /// `chartutil.Values`
    Helm3,
    /// `common.Values`
    Helm4,
}

/// A struct that Helm gives to templates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordType {
    /// `.Chart` in Helm 3
    Metadata,
    /// One of `.Chart.Maintainers`
    Maintainer,
    /// One of `.Chart.Dependencies`
    Dependency,
    /// `.Capabilities`
    Capabilities,
    /// `.Capabilities.HelmVersion`
    BuildInfo,
}

/// The version of Kubernetes that a chart is rendered for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeVersion {
    /// As templates see it.
    pub version: String,
    /// As it prints, and as constraints see it.
    pub shown: String,
    /// Its major version.
    pub major: String,
    /// Its minor version.
    pub minor: String,
}

impl Data {
    /// Data of a value.
    pub fn new(value: &Value, numbers: Numbers) -> Self {
        Data(Dyn::from_value(value, numbers))
    }

    /// A `map[string]interface {}`.
    pub fn map<'k>(entries: impl IntoIterator<Item = (&'k str, Data)>) -> Self {
        Data(Dyn::map(entries.into_iter().map(|(key, value)| (Str::new(key), value.0))))
    }

    /// A `map[string]string`.
    pub fn text_map<'k>(entries: impl IntoIterator<Item = (&'k str, &'k str)>) -> Self {
        let entries = entries.into_iter().map(|(key, value)| (Str::new(key), Dyn::from(value)));
        Data(Dyn::text_map(entries))
    }

    /// A struct of Helm. To ask for a field that it does not have is an error.
    pub fn record<'k>(of: RecordType, entries: impl IntoIterator<Item = (&'k str, Data)>) -> Self {
        let named = match of {
            RecordType::Metadata => &METADATA,
            RecordType::Maintainer => &MAINTAINER,
            RecordType::Dependency => &DEPENDENCY,
            RecordType::Capabilities => &CAPABILITIES,
            RecordType::BuildInfo => &BUILD_INFO,
        };
        Data(record(named, entries))
    }
    pub fn list(items: impl IntoIterator<Item = Data>) -> Self {
        Data(Dyn::list(items.into_iter().map(|item| item.0).collect()))
    }

    /// A list of texts.
    pub fn texts<'t>(items: impl IntoIterator<Item = &'t str>) -> Self {
        Data(Dyn::texts(items))
    }

    /// API versions, which can be asked whether they have one.
    pub fn versions<'t>(items: impl IntoIterator<Item = &'t str>) -> Self {
        Data(Dyn::list_of(Elem::Versions, items.into_iter().map(Dyn::from).collect()))
    }

    /// A version of Kubernetes, with its fields and methods.
    pub fn kube_version(version: &KubeVersion) -> Self {
        let entries = [
            ("Version", version.version.as_str()),
            ("Major", &version.major),
            ("Minor", &version.minor),
            (SHOWN, &version.shown),
        ];
        Data(record(&KUBE_VERSION, entries.map(|(name, text)| (name, text.into()))))
    }

    /// The files of a chart, by their paths.
    pub fn files<'k>(entries: impl IntoIterator<Item = (&'k str, Arc<[u8]>)>) -> Self {
        let entries = entries.into_iter().map(|(path, data)| (Str::new(path), Dyn::Bytes(data)));
        let map = Map::own(entries.collect());
        Data(Dyn::Map(map.under_type(Some(&FILES))))
    }

    /// The same map with the type and the methods that values of charts have.
    #[must_use]
    pub fn as_values(&self, of: ValuesType) -> Self {
        let named = match of {
            ValuesType::Helm3 => &VALUES_3,
            ValuesType::Helm4 => &VALUES_4,
        };
        match &self.0 {
            Dyn::Map(map) => Data(Dyn::Map(map.under_type(Some(named)))),
            other => Data(other.clone()),
        }
    }

    /// The entry of a map, shared with it.
    pub fn get(&self, key: &str) -> Option<Data> {
        match &self.0 {
            Dyn::Map(map) => map.get(key).map(Data),
            _ => None,
        }
    }
    pub fn is_map(&self) -> bool {
        matches!(self.0, Dyn::Map(_))
    }

    /// Sets an entry of a map, for all that share it.
    pub fn insert(&self, key: &str, value: Data) {
        if let Dyn::Map(map) = &self.0 {
            map.insert(Str::new(key), value.0);
        }
    }
}

impl From<&str> for Data {
    fn from(text: &str) -> Self {
        Data(Dyn::from(text))
    }
}

impl From<bool> for Data {
    fn from(truth: bool) -> Self {
        Data(Dyn::Bool(truth))
    }
}

impl From<i64> for Data {
    fn from(int: i64) -> Self {
        Data(Dyn::Int(int))
    }
}

const SHOWN: &str = "normalizedVersion";

static METADATA: GoType = GoType {
    embedded: 17,
    ..GoType::record(
        "struct { chart.Metadata; IsRoot bool }",
        &[
            GoField::optional("Name", "name"),
            GoField::optional("Home", "home"),
            GoField::optional("Sources", "sources"),
            GoField::optional("Version", "version"),
            GoField::optional("Description", "description"),
            GoField::optional("Keywords", "keywords"),
            GoField::optional("Maintainers", "maintainers"),
            GoField::optional("Icon", "icon"),
            GoField::optional("APIVersion", "apiVersion"),
            GoField::optional("Condition", "condition"),
            GoField::optional("Tags", "tags"),
            GoField::optional("AppVersion", "appVersion"),
            GoField::optional("Deprecated", "deprecated"),
            GoField::optional("Annotations", "annotations"),
            GoField::optional("KubeVersion", "kubeVersion"),
            GoField::optional("Dependencies", "dependencies"),
            GoField::optional("Type", "type"),
            GoField::plain("IsRoot"),
        ],
    )
};

static MAINTAINER: GoType = GoType::record(
    "*chart.Maintainer",
    &[
        GoField::optional("Name", "name"),
        GoField::optional("Email", "email"),
        GoField::optional("URL", "url"),
    ],
);

static DEPENDENCY: GoType = GoType::record(
    "*chart.Dependency",
    &[
        GoField { name: "Name", json: "name", omit_empty: false },
        GoField::optional("Version", "version"),
        GoField { name: "Repository", json: "repository", omit_empty: false },
        GoField::optional("Condition", "condition"),
        GoField::optional("Tags", "tags"),
        GoField::optional("Enabled", "enabled"),
        GoField::optional("ImportValues", "import-values"),
        GoField::optional("Alias", "alias"),
    ],
);

static CAPABILITIES: GoType = GoType::record(
    "*chartutil.Capabilities",
    &[GoField::plain("KubeVersion"), GoField::plain("APIVersions"), GoField::plain("HelmVersion")],
);

static BUILD_INFO: GoType = GoType::record(
    "version.BuildInfo",
    &[
        GoField::optional("Version", "version"),
        GoField::optional("GitCommit", "git_commit"),
        GoField::optional("GitTreeState", "git_tree_state"),
        GoField::optional("GoVersion", "go_version"),
    ],
);

static VALUES_3: GoType = GoType::map("chartutil.Values", VALUES);

static VALUES_4: GoType = GoType::map("common.Values", VALUES);

static KUBE_VERSION: GoType = GoType {
    name: "chartutil.KubeVersion",
    methods: &[
        function("GitVersion", &[], None, |_, a| field(a, "Version"), ""),
        function("String", &[], None, |_, a| field(a, SHOWN), ""),
    ],
    shown_as: Some(SHOWN),
    fields: &[GoField::plain("Version"), GoField::plain("Major"), GoField::plain("Minor")],
    embedded: 0,
};

const VALUES: &[TemplateFunction] = &[
    function("AsMap", &[], None, as_map, ""),
    function("PathValue", &[Text], None, path_value, ""),
    function("Table", &[Text], None, table, ""),
    function("YAML", &[], None, yaml, ""),
];

/// What can be asked of API versions.
pub(crate) const VERSION_SET: &[TemplateFunction] =
    &[function("Has", &[Text], None, has_version, "whether this version is there")];

type Result = std::result::Result<Dyn, Refusal>;

fn record<'k>(named: &'static GoType, entries: impl IntoIterator<Item = (&'k str, Data)>) -> Dyn {
    match Dyn::record(entries.into_iter().map(|(key, value)| (Str::new(key), value.0))) {
        Dyn::Map(map) => Dyn::Map(map.under_type(Some(named))),
        other => other,
    }
}

fn field(a: &[Dyn], name: &str) -> Result {
    match any(a, 0) {
        Dyn::Map(map) => Ok(map.get(name).unwrap_or(Dyn::Nil)),
        _ => Ok(Dyn::Nil),
    }
}

fn has_version(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let Dyn::List(list) = any(a, 0) else { return Ok(false.into()) };
    call.meter.step(list.items().len() as u64)?;
    let wanted = text(a, 1);
    let mut items = list.items().iter();
    Ok(items.any(|item| matches!(item, Dyn::Text(known) if known.as_str() == wanted)).into())
}

fn as_map(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(match any(a, 0) {
        Dyn::Map(map) => Dyn::Map(map.under_type(None)),
        _ => Dyn::map([]),
    })
}

/// The map under keys with dots between them.
fn table(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let Dyn::Map(values) = any(a, 0) else { return Ok(Dyn::Nil) };
    let mut found = values.clone();
    for key in text(a, 1).split('.') {
        match found.get(key) {
            Some(Dyn::Map(inner)) => found = inner.under_type(values.named),
            _ => return Err(no_table(key)),
        }
    }
    Ok(Dyn::Map(found))
}

fn no_table(key: &str) -> Refusal {
    Refusal::Failed(format!("{} is not a table", kiln_text::quote::quote(key)))
}

/// What lies under keys with dots between them, unless it is a map.
fn path_value(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let path = text(a, 1);
    if path.is_empty() {
        return Err("YAML path cannot be empty".into());
    }
    let (tables, key) = path.rsplit_once('.').unwrap_or(("", path));
    let none = || Refusal::Failed(format!("{} is not a value", kiln_text::quote::quote(key)));
    let within = match tables {
        "" => any(a, 0).clone(),
        tables => table(call, &[any(a, 0).clone(), Dyn::from(tables)]).map_err(|_| none())?,
    };
    match &within {
        Dyn::Map(map) => match map.get(key) {
            None | Some(Dyn::Map(_)) => Err(none()),
            Some(found) => Ok(found),
        },
        _ => Err(none()),
    }
}

fn yaml(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(kiln_yaml::emit(&json::value_of(any(a, 0), call.meter, 0)?).into())
}
