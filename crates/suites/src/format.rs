//! The fields of a suite.

use kiln_diagnostic::{Diagnostic, did_you_mean};
use kiln_fields::{FieldTable, kyverno_cli as table};
use kiln_offline::{Values, remark_kind};
use kiln_rules::{Operation, Payload};
use kiln_value::{Path, Str, Value, from_value};
use kiln_yaml::Document;
use serde::Deserialize;

/// A suite as it is written. Whatever Kyverno's command line reads is accepted; what says nothing about rules
/// that Kiln runs is kept apart, to be named.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct TestFile {
    #[serde(default, rename = "apiVersion")]
    _api_version: Str,
    #[serde(default, rename = "kind")]
    _kind: Str,
    #[serde(default)]
    pub(crate) metadata: Value,
    /// An older spelling of `metadata.name`.
    pub(crate) name: Option<Str>,
    #[serde(default)]
    pub(crate) policies: Vec<Str>,
    #[serde(default)]
    pub(crate) resources: Vec<Str>,
    #[serde(default)]
    pub(crate) target_resources: Vec<Str>,
    #[serde(default)]
    pub(crate) param_resources: Vec<Str>,
    #[serde(default)]
    pub(crate) cluster_resources: Vec<Str>,
    #[serde(default)]
    pub(crate) exceptions: Vec<Str>,
    #[serde(default)]
    pub(crate) crds: Vec<Str>,
    pub(crate) variables: Option<Str>,
    pub(crate) values: Option<Values>,
    pub(crate) userinfo: Option<Str>,
    pub(crate) context: Option<Str>,
    #[serde(default)]
    pub(crate) api_call_responses: Vec<ApiCallResponse>,
    #[serde(default)]
    pub(crate) global_context_entries: Vec<GlobalEntry>,
    #[serde(default)]
    pub(crate) results: Vec<ExpectedResult>,
    #[serde(default)]
    checks: Value,
    /// An older spelling of `jsonPayloads`.
    json_payload: Option<Str>,
    #[serde(default)]
    json_payloads: Vec<Str>,
    #[serde(default)]
    http_payloads: Vec<Str>,
    #[serde(default)]
    envoy_payloads: Vec<Str>,
}

/// What a service or the API server is said to answer.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ApiCallResponse {
    pub(crate) url: Option<Str>,
    pub(crate) url_path: Option<Str>,
    #[serde(default)]
    pub(crate) method: Str,
    pub(crate) response: Response,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Response {
    #[serde(default)]
    pub(crate) status_code: u16,
    pub(crate) body: Value,
}

impl ApiCallResponse {
    /// What keeps it from answering anything, as Kyverno sees it.
    pub(crate) fn slip(&self) -> Option<String> {
        fn given(text: Option<&Str>) -> &str {
            text.map_or("", |text| text.trim())
        }
        let (url, path) = (given(self.url.as_ref()), given(self.url_path.as_ref()));
        let host = url.split_once("://").filter(|(scheme, _)| ["http", "https"].contains(scheme));
        let host = host.map_or("", |(_, rest)| rest.split('/').next().unwrap_or(rest));
        let method = self.method.trim().to_uppercase();
        let status = self.response.status_code;
        if url.is_empty() && path.is_empty() {
            Some("has neither url nor urlPath".to_owned())
        } else if !url.is_empty() && !path.is_empty() {
            Some("has url and urlPath, and one is needed".to_owned())
        } else if !url.is_empty() && host.is_empty() {
            Some(format!("has the url {url:?}, which is not an address of http or https"))
        } else if !path.is_empty() && !path.starts_with('/') {
            Some(format!("has the urlPath {path:?}, which does not begin with a slash"))
        } else if !["", "GET", "POST"].contains(&method.as_str()) {
            Some(format!("has the method {method:?}, and only GET and POST are sent"))
        } else if self.response.body.as_map().is_none() {
            Some("has a body that is not a map".to_owned())
        } else if status != 0 && !(100..600).contains(&status) {
            Some(format!("has the statusCode {status}, which is not an HTTP status code"))
        } else {
            None
        }
    }

    /// The call that it answers.
    pub(crate) fn question(&self) -> (String, Option<Str>, Option<Str>) {
        let method = self.method.trim().to_uppercase();
        (method, self.url.clone(), self.url_path.clone())
    }
}

/// What a GlobalContextEntry is said to hold.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct GlobalEntry {
    pub(crate) name: Str,
    pub(crate) data: Option<Value>,
    pub(crate) resources: Option<Vec<Value>>,
    pub(crate) resource_files: Option<Vec<Str>>,
    #[serde(default)]
    pub(crate) field_path: Str,
    #[serde(default)]
    pub(crate) projections: Vec<Projection>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Projection {
    pub(crate) name: Str,
    pub(crate) path: Str,
}

/// Objects that a cluster is said to hold: kinds Context and ClusterResource.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct GivenFile {
    #[serde(default, rename = "apiVersion")]
    _api_version: Str,
    #[serde(default)]
    pub(crate) kind: Str,
    #[serde(default, rename = "metadata")]
    _metadata: Value,
    #[serde(default)]
    pub(crate) spec: GivenSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct GivenSpec {
    #[serde(default)]
    pub(crate) crds: Vec<Str>,
    #[serde(default)]
    pub(crate) resources: Vec<Value>,
    #[serde(default)]
    pub(crate) images: Vec<Value>,
}

/// One expectation as it is written.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ExpectedResult {
    policy: Str,
    #[serde(default)]
    rule: Str,
    #[serde(default)]
    kind: Str,
    #[serde(default)]
    resources: Vec<Str>,
    #[serde(default)]
    resource_specs: Vec<ResourceSpec>,
    result: Option<Str>,
    operation: Option<Str>,
    #[serde(default)]
    patched_resources: NameList,
    #[serde(default)]
    generated_resource: NameList,
    #[serde(default)]
    generated_resources: NameList,
    #[serde(default)]
    clone_source_resource: NameList,
    #[serde(default)]
    fail_on_missing_resources: bool,
    /// Kiln's own: what a rule that refuses the resource says.
    reject_message: Option<Str>,
    /// Older spellings of `result`, `resources` and `patchedResources`.
    status: Option<Str>,
    resource: Option<Str>,
    #[serde(default)]
    namespace: Str,
    #[serde(default)]
    patched_resource: NameList,
    /// `isGeneratingPolicy` and the like: they say what the policy itself says.
    #[serde(default, rename = "isValidatingAdmissionPolicy")]
    _is_validating_admission_policy: bool,
    #[serde(default, rename = "isMutatingAdmissionPolicy")]
    _is_mutating_admission_policy: bool,
    #[serde(default, rename = "isValidatingPolicy")]
    _is_validating_policy: bool,
    #[serde(default, rename = "isImageValidatingPolicy")]
    _is_image_validating_policy: bool,
    #[serde(default, rename = "isMutatingPolicy")]
    _is_mutating_policy: bool,
    #[serde(default, rename = "isGeneratingPolicy")]
    _is_generating_policy: bool,
    #[serde(default, rename = "isDeletingPolicy")]
    _is_deleting_policy: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ResourceSpec {
    #[serde(default)]
    group: Str,
    #[serde(default)]
    version: Str,
    #[serde(default)]
    kind: Str,
    #[serde(default)]
    namespace: Str,
    #[serde(default)]
    name: Str,
    #[serde(default, rename = "subresource")]
    _subresource: Str,
}

/// One name, or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum NameList {
    One(Str),
    Many(Vec<Str>),
}

impl Default for NameList {
    fn default() -> Self {
        NameList::Many(Vec::new())
    }
}

impl NameList {
    fn all(&self) -> Vec<Str> {
        match self {
            NameList::One(name) if name.is_empty() => Vec::new(),
            NameList::One(name) => vec![name.clone()],
            NameList::Many(names) => names.clone(),
        }
    }
}

/// What a rule was expected to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpectedStatus {
    Pass,
    Fail,
    Skip,
    Warn,
    Error,
}

impl ExpectedStatus {
    const ALL: [ExpectedStatus; 5] = [
        ExpectedStatus::Pass,
        ExpectedStatus::Fail,
        ExpectedStatus::Skip,
        ExpectedStatus::Warn,
        ExpectedStatus::Error,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            ExpectedStatus::Pass => "pass",
            ExpectedStatus::Fail => "fail",
            ExpectedStatus::Skip => "skip",
            ExpectedStatus::Warn => "warn",
            ExpectedStatus::Error => "error",
        }
    }
}

/// Which resources an expectation is about.
#[derive(Clone, Debug)]
pub(crate) struct ResourceName {
    pub(crate) group: Option<Str>,
    pub(crate) kind: Str,
    pub(crate) namespace: Option<Str>,
    pub(crate) name: Str,
    /// Where the suite has it.
    pub(crate) path: Path,
}

/// One expectation, in today's spelling.
#[derive(Debug)]
pub(crate) struct Expectation {
    /// Where the suite has it.
    pub(crate) path: Path,
    pub(crate) policy: Str,
    pub(crate) rule: Str,
    pub(crate) kind: Str,
    /// None for all of them.
    pub(crate) resources: Vec<ResourceName>,
    pub(crate) wanted: ExpectedStatus,
    pub(crate) operation: Option<Operation>,
    pub(crate) patched: Vec<(Str, Path)>,
    pub(crate) generated: Vec<(Str, Path)>,
    pub(crate) clone_sources: Vec<(Str, Path)>,
    pub(crate) fail_on_missing: bool,
    /// What a rule must say that refuses the resource.
    pub(crate) reject_message: Option<Str>,
}

/// The fields of a suite, of a result and of what a result names.
const FIELDS: [&FieldTable; 3] = [&table::TEST, &table::RESULT, &table::RESOURCE_SPEC];

/// Fields that Go would read although they are in another letter case, corrected; each with where it is and its name.
fn respelt(
    value: &mut Value,
    tables: &[&'static FieldTable],
    path: &Path,
    found: &mut Vec<(Path, &'static str)>,
) {
    let Some((table, deeper)) = tables.split_first() else { return };
    let Some(map) = value.as_map_mut() else { return };
    let wrong = |key: &str| {
        let same = |name: &&'static str| name.eq_ignore_ascii_case(key);
        table.names().find(same).filter(|_| table.field(key).is_none())
    };
    let keys: Vec<(String, &'static str)> =
        map.keys().filter_map(|key| Some((key.as_str().to_owned(), wrong(key)?))).collect();
    for (key, name) in keys {
        if let Some(value) = map.remove(&key) {
            found.push((path.join(key.as_str()), name));
            map.insert(name, value);
        }
    }
    for inner in ["results", "resourceSpecs"] {
        let Some(list) = map.get_mut(inner).and_then(Value::as_list_mut) else { continue };
        for (at, element) in list.iter_mut().enumerate() {
            respelt(element, deeper, &path.join(inner).join(at), found);
        }
    }
}

/// What to say of an object that is no suite: a policy, for example, that was given in the place of its suite.
fn another_kind(document: &Document) -> Option<Diagnostic> {
    let version = document.value().str_at(["apiVersion"])?;
    let kind = document.value().str_at(["kind"])?;
    (!version.starts_with("cli.kyverno.io/")).then(|| {
        Diagnostic::error(format!("this is a {kind}, and not a suite of tests"))
            .at(document.locate(&Path::root().join("kind")))
            .hint("give the suite, such as kyverno-test.yaml, or a directory that has one")
    })
}

impl TestFile {
    /// Reads a suite, and what is wrong with the letter case of its fields, which Go does not mind.
    ///
    /// # Errors
    /// With the place of what does not fit.
    pub(crate) fn read(document: &Document) -> Result<(Self, Vec<Diagnostic>), Diagnostic> {
        let problem = match document.read() {
            Ok(test) => return Ok((test, Vec::new())),
            Err(problem) => problem,
        };
        let mut value = document.value().clone();
        let mut found = Vec::new();
        respelt(&mut value, &FIELDS, &Path::root(), &mut found);
        let Ok(test) = from_value(&value) else {
            return Err(another_kind(document).unwrap_or(problem));
        };
        let places = document.places();
        let remark = |(path, name): (Path, &str)| {
            let message = format!("{path} is in another letter case");
            Diagnostic::warning(message).at(places.key(&path)).hint(format!("write {name}"))
        };
        Ok((test, found.into_iter().map(remark).collect()))
    }

    /// The name of the suite, if it has one.
    pub(crate) fn title(&self) -> Option<Str> {
        let name = self.metadata.get("name").and_then(Value::as_str).map(Str::from);
        name.or_else(|| self.name.clone()).filter(|name| !name.is_empty())
    }

    /// Older spellings, each with what to write instead, and fields that Kiln leaves to others.
    pub(crate) fn remarks(&self, document: &Document) -> Vec<Diagnostic> {
        let places = document.places();
        let root = Path::root();
        let mut remarks = Vec::new();
        let mut old = |path: Path, old: &str, new: &str| {
            let remark = Diagnostic::warning(format!("{old} is an older spelling"));
            remarks.push(remark.at(places.key(&path)).hint(format!("write {new}")));
        };
        if self.name.is_some() {
            old(root.join("name"), "name", "metadata.name");
        }
        for (at, entry) in self.results.iter().enumerate() {
            let path = root.join("results").join(at);
            let spellings = [
                (entry.status.is_some(), "status", "result"),
                (entry.resource.is_some(), "resource", "resources, which is a list"),
                (!entry.namespace.is_empty(), "namespace", "resources as namespace/name"),
                (!entry.patched_resource.all().is_empty(), "patchedResource", "patchedResources"),
            ];
            for (_, name, new) in spellings.into_iter().filter(|(used, ..)| *used) {
                old(path.join(name), name, new);
            }
        }
        remarks.extend(remark_kind(document, "suite", "Test"));
        if self.results.is_empty() && self.checks.is_null() {
            let remark = Diagnostic::warning("the suite expects nothing");
            remarks.push(
                remark
                    .at(crate::files::beginning(document))
                    .hint("list what should come of policies and resources under results"),
            );
        }
        if !self.checks.is_null() {
            let remark = Diagnostic::warning("checks is not run by Kiln");
            remarks.push(remark.at(places.key(&root.join("checks"))));
        }
        remarks
    }

    /// The files of data and of requests that are judged, and where the suite has them.
    pub(crate) fn payloads(&self) -> Vec<(Payload, Str, Path)> {
        let root = Path::root();
        let old = self.json_payload.iter().filter(|name| !name.is_empty());
        let old = old.map(|name| (Payload::Json, name.clone(), root.join("jsonPayload")));
        let lists = [
            (Payload::Json, "jsonPayloads", &self.json_payloads),
            (Payload::Http, "httpPayloads", &self.http_payloads),
            (Payload::Envoy, "envoyPayloads", &self.envoy_payloads),
        ];
        let listed = lists.into_iter().flat_map(|(payload, key, names)| {
            let path = root.join(key);
            let all = names.iter().enumerate();
            all.map(move |(at, name)| (payload, name.clone(), path.join(at)))
        });
        old.chain(listed).collect()
    }

    /// The expectations, in today's spelling, and what is wrong with the others.
    pub(crate) fn expectations(&self, document: &Document) -> (Vec<Expectation>, Vec<Diagnostic>) {
        let mut problems = Vec::new();
        let mut expectations = Vec::new();
        for (at, entry) in self.results.iter().enumerate() {
            match entry.expectation(Path::root().join("results").join(at), document) {
                Ok(expectation) => expectations.push(expectation),
                Err(problem) => problems.push(problem),
            }
        }
        (expectations, problems)
    }
}

impl ExpectedResult {
    fn expectation(&self, path: Path, document: &Document) -> Result<Expectation, Diagnostic> {
        let (field, word) = match (&self.result, &self.status) {
            (Some(result), _) => ("result", result),
            (None, Some(status)) => ("status", status),
            (None, None) => {
                return Err(Diagnostic::error("the expectation has no result")
                    .at(document.locate(&path))
                    .hint("write result: pass, fail, skip, warn or error"));
            }
        };
        let wanted =
            ExpectedStatus::ALL.into_iter().find(|wanted| wanted.as_str() == word.as_str());
        let wanted = wanted.ok_or_else(|| {
            let meant = did_you_mean(word, ExpectedStatus::ALL.map(ExpectedStatus::as_str));
            let hint = match meant {
                Some(meant) => format!("did you mean {meant:?}?"),
                None => "use pass, fail, skip, warn or error".to_owned(),
            };
            Diagnostic::error(format!("{:?} is not a result", word.as_str()))
                .at(document.locate(&path.join(field)))
                .hint(hint)
        })?;
        if self.reject_message.is_some() && wanted != ExpectedStatus::Fail {
            let place = document.locate(&path.join("rejectMessage"));
            return Err(Diagnostic::error("only a resource that is refused has a message")
                .at(place)
                .hint("write result: fail, or leave rejectMessage out"));
        }
        let operation = match self.operation.as_deref().filter(|word| !word.is_empty()) {
            Some(word) => Some(word.parse::<Operation>().map_err(|error| {
                Diagnostic::error(error.to_string()).at(document.locate(&path.join("operation")))
            })?),
            None => None,
        };
        let names = |field: &str, names: &NameList| -> Vec<(Str, Path)> {
            let several = matches!(names, NameList::Many(_));
            let path = path.join(field);
            let at = |at: usize| if several { path.join(at) } else { path.clone() };
            names.all().into_iter().enumerate().map(|(i, name)| (name, at(i))).collect()
        };
        let mut patched = names("patchedResources", &self.patched_resources);
        patched.extend(names("patchedResource", &self.patched_resource));
        let mut generated = names("generatedResources", &self.generated_resources);
        if generated.is_empty() {
            generated = names("generatedResource", &self.generated_resource);
        }
        Ok(Expectation {
            resources: self.named(&path),
            policy: self.policy.clone(),
            rule: self.rule.clone(),
            kind: self.kind.clone(),
            wanted,
            operation,
            patched,
            generated,
            clone_sources: names("cloneSourceResource", &self.clone_source_resource),
            fail_on_missing: self.fail_on_missing_resources,
            reject_message: self.reject_message.clone(),
            path,
        })
    }

    fn named(&self, path: &Path) -> Vec<ResourceName> {
        let mut named = Vec::new();
        let mut add = |text: &Str, path: Path| {
            let (namespace, name) = match text.split_once('/') {
                Some((namespace, name)) => (Some(Str::from(namespace)), Str::from(name)),
                None if self.namespace.is_empty() => (None, text.clone()),
                None => (Some(self.namespace.clone()), text.clone()),
            };
            named.push(ResourceName {
                group: None,
                kind: self.kind.clone(),
                namespace,
                name,
                path,
            });
        };
        for (at, text) in self.resources.iter().enumerate() {
            add(text, path.join("resources").join(at));
        }
        if let Some(text) = &self.resource {
            add(text, path.join("resource"));
        }
        for (at, spec) in self.resource_specs.iter().enumerate() {
            let given = |text: &Str| Some(text.clone()).filter(|text| !text.is_empty());
            let kind = given(&spec.kind).unwrap_or_else(|| self.kind.clone());
            named.push(ResourceName {
                // A version without a group is one of the core group.
                group: given(&spec.group).or_else(|| given(&spec.version).map(|_| Str::default())),
                kind,
                namespace: given(&spec.namespace),
                name: spec.name.clone(),
                path: path.join("resourceSpecs").join(at),
            });
        }
        named
    }
}

#[cfg(test)]
mod tests {
    use kiln_testkit::TypeShape;

    use super::*;

    #[test]
    fn the_readers_have_the_fields_of_the_tables() {
        const OPEN: &[&str] = &["globalValues", "values", "foreachValues", "labels", "extra"];
        let none = Vec::<String>::new();
        assert_eq!(TypeShape::of::<TestFile>(OPEN).differences(&table::TEST), none);
        assert_eq!(TypeShape::of::<GivenFile>(OPEN).differences(&table::GIVEN), none);
    }
}
