//! `Chart.yaml`.

use std::collections::BTreeSet;

use kiln_value::{Map, Value};

use crate::error::{ChartError, Result};

/// What `Chart.yaml` says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    /// `apiVersion`
    pub api_version: String,
    /// `name`; of a subchart with an alias that.
    pub name: String,
    pub version: String,
    /// `appVersion`
    pub app_version: String,
    /// `kubeVersion`
    pub kube_version: String,
    /// `type`
    pub kind: String,
    pub description: String,
    pub home: String,
    pub icon: String,
    pub condition: String,
    pub tags: String,
    pub deprecated: bool,
    pub sources: Vec<String>,
    pub keywords: Vec<String>,
    /// `maintainers`: name, email and URL of each.
    pub maintainers: Vec<[String; 3]>,
    pub annotations: Vec<(String, String)>,
    pub dependencies: Vec<Dependency>,
}

/// A chart that another one depends on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dependency {
    /// The name of the chart; its alias once dependencies are resolved.
    pub name: String,
    /// Which versions of it will do.
    pub version: String,
    /// Where it can be had.
    pub repository: String,
    /// Paths in values that say whether it is rendered, with commas between them.
    pub condition: String,
    /// Names in `tags` of values that say so.
    pub tags: Vec<String>,
    /// Whether it is rendered.
    pub enabled: bool,
    /// What its parent takes over from its values.
    pub import_values: Vec<Value>,
    /// The name that its parent gives it.
    pub alias: String,
}

impl Metadata {
    /// Takes over what a document says, over what is known.
    pub(crate) fn read(&mut self, document: &Value) -> Result<()> {
        let fields = MetadataFields::of(document, "Metadata")?;
        let Some(fields) = fields else { return Ok(()) };
        fields.text("apiVersion", &mut self.api_version)?;
        fields.text("name", &mut self.name)?;
        fields.text("version", &mut self.version)?;
        fields.text("appVersion", &mut self.app_version)?;
        fields.text("kubeVersion", &mut self.kube_version)?;
        fields.text("type", &mut self.kind)?;
        fields.text("description", &mut self.description)?;
        fields.text("home", &mut self.home)?;
        fields.text("icon", &mut self.icon)?;
        fields.text("condition", &mut self.condition)?;
        fields.text("tags", &mut self.tags)?;
        fields.texts("sources", &mut self.sources)?;
        fields.texts("keywords", &mut self.keywords)?;
        fields.truth("deprecated", &mut self.deprecated)?;
        if let Some(given) = fields.map.get("annotations").filter(|given| !given.is_null()) {
            let map = given
                .as_map()
                .ok_or_else(|| fields.wrong("annotations", given, "map[string]string"))?;
            let entries = map.iter().map(|(key, value)| {
                let text = scalar_text(value)
                    .ok_or_else(|| fields.wrong("annotations", value, "string"))?;
                Ok((key.as_str().to_owned(), text))
            });
            self.annotations = entries.collect::<Result<_>>()?;
        }
        if let Some(list) = fields.list("maintainers")? {
            let read = |value: &Value| {
                if value.is_null() {
                    let message = "validation: maintainers must not contain empty or null nodes";
                    return Err(ChartError::new(message));
                }
                let mut maintainer = <[String; 3]>::default();
                if let Some(fields) = MetadataFields::of(value, "Maintainer")? {
                    for (name, text) in ["name", "email", "url"].into_iter().zip(&mut maintainer) {
                        fields.text(name, text)?;
                    }
                }
                Ok(maintainer)
            };
            self.maintainers = list.iter().map(read).collect::<Result<_>>()?;
        }
        if let Some(list) = fields.list("dependencies")? {
            self.dependencies = list.iter().map(Dependency::read).collect::<Result<_>>()?;
        }
        Ok(())
    }

    /// Checks what Helm checks, and cleans texts as it does.
    pub(crate) fn validate(&mut self) -> Result<()> {
        let invalid = |message: String| Err(ChartError::new(format!("validation: {message}")));
        for text in [
            &mut self.name,
            &mut self.description,
            &mut self.home,
            &mut self.icon,
            &mut self.condition,
            &mut self.tags,
            &mut self.app_version,
            &mut self.kube_version,
        ] {
            *text = sanitized(text);
        }
        let lists = self.sources.iter_mut().chain(&mut self.keywords);
        let people = self.maintainers.iter_mut().flatten();
        lists.chain(people).for_each(|text| *text = sanitized(text));
        if self.api_version.is_empty() {
            return invalid("chart.metadata.apiVersion is required".into());
        }
        if self.name.is_empty() {
            return invalid("chart.metadata.name is required".into());
        }
        if self.name == "." || self.name == ".." {
            return invalid(format!("chart.metadata.name {:?} is not allowed", self.name));
        }
        if self.name.contains('/') {
            return invalid(format!("chart.metadata.name {:?} is invalid", self.name));
        }
        if self.version.is_empty() {
            return invalid("chart.metadata.version is required".into());
        }
        if !kiln_gotemplate::is_version(&self.version) {
            return invalid(format!("chart.metadata.version {:?} is invalid", self.version));
        }
        if !matches!(self.kind.as_str(), "" | "application" | "library") {
            return invalid("chart.metadata.type must be application or library".into());
        }
        let mut names = BTreeSet::new();
        for dependency in &mut self.dependencies {
            dependency.validate()?;
            let Dependency { name, alias, .. } = dependency;
            let name = if alias.is_empty() { name } else { alias };
            if !names.insert(name.clone()) {
                return invalid(format!("more than one dependency with name or alias {name:?}"));
            }
        }
        Ok(())
    }

    /// Whether it only lends its named templates.
    pub(crate) fn is_library(&self) -> bool {
        self.kind.eq_ignore_ascii_case("library")
    }
}

impl Dependency {
    fn read(value: &Value) -> Result<Self> {
        let mut dependency = Dependency::default();
        if value.is_null() {
            return Err(ChartError::new(
                "validation: dependencies must not contain empty or null nodes",
            ));
        }
        let Some(fields) = MetadataFields::of(value, "Dependency")? else { return Ok(dependency) };
        fields.text("name", &mut dependency.name)?;
        fields.text("version", &mut dependency.version)?;
        fields.text("repository", &mut dependency.repository)?;
        fields.text("condition", &mut dependency.condition)?;
        fields.text("alias", &mut dependency.alias)?;
        fields.texts("tags", &mut dependency.tags)?;
        fields.truth("enabled", &mut dependency.enabled)?;
        if let Some(list) = fields.list("import-values")? {
            dependency.import_values = list.to_vec();
        }
        Ok(dependency)
    }

    fn validate(&mut self) -> Result<()> {
        let texts = [&mut self.name, &mut self.version, &mut self.repository, &mut self.condition];
        texts.into_iter().chain(&mut self.tags).for_each(|text| *text = sanitized(text));
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if !self.alias.chars().all(allowed) {
            return Err(ChartError::new(format!(
                "validation: dependency {:?} has disallowed characters in the alias",
                self.name
            )));
        }
        Ok(())
    }
}

/// The fields of a struct in YAML.
struct MetadataFields<'v> {
    map: &'v Map,
    of: &'static str,
}

impl<'v> MetadataFields<'v> {
    fn of(value: &'v Value, of: &'static str) -> Result<Option<Self>> {
        match value {
            Value::Null => Ok(None),
            Value::Map(map) => Ok(Some(MetadataFields { map, of })),
            other => Err(ChartError::new(format!(
                "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of type chart.{of}",
                json_kind(other)
            ))),
        }
    }

    fn wrong(&self, field: &str, found: &Value, wanted: &str) -> ChartError {
        ChartError::new(format!(
            "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go struct field {}.{field} of type {wanted}",
            json_kind(found),
            self.of
        ))
    }

    fn text(&self, field: &str, to: &mut String) -> Result<()> {
        match self.map.get(field) {
            None | Some(Value::Null) => {}
            Some(given) => {
                *to = scalar_text(given).ok_or_else(|| self.wrong(field, given, "string"))?;
            }
        }
        Ok(())
    }

    fn truth(&self, field: &str, to: &mut bool) -> Result<()> {
        match self.map.get(field) {
            None | Some(Value::Null) => {}
            Some(given) => *to = given.as_bool().ok_or_else(|| self.wrong(field, given, "bool"))?,
        }
        Ok(())
    }

    fn list(&self, field: &str) -> Result<Option<&'v [Value]>> {
        match self.map.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(given) => match given.as_list() {
                Some(list) => Ok(Some(list)),
                None => Err(self.wrong(field, given, "[]")),
            },
        }
    }

    fn texts(&self, field: &str, to: &mut Vec<String>) -> Result<()> {
        let Some(list) = self.list(field)? else { return Ok(()) };
        let texts = list.iter().map(|value| match value {
            Value::Null => Ok(String::new()),
            value => scalar_text(value).ok_or_else(|| self.wrong(field, value, "string")),
        });
        *to = texts.collect::<Result<_>>()?;
        Ok(())
    }
}

/// The type of a value, as JSON calls it.
pub(crate) fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::List(_) => "array",
        Value::Map(_) => "object",
    }
}

/// The text of a scalar: where a text is wanted, `sigs.k8s.io/yaml` makes one of a number or a truth.
pub(crate) fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.as_str().to_owned()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Number(kiln_value::Number::Float(float)) => Some(kiln_text::float::print(*float)),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Helm: any white space is a blank, and what cannot be printed goes.
fn sanitized(text: &str) -> String {
    let kept = text.chars().filter_map(|c| match c {
        c if c.is_whitespace() => Some(' '),
        c if c.is_control() => None,
        c => Some(c),
    });
    kept.collect()
}
