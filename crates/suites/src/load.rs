//! Everything that a suite names, read and compiled.

use std::collections::HashSet;
use std::sync::Arc;

use kiln_diagnostic::{Diagnostic, Severity};
use kiln_dialects::{Compiled, compile, is_exception, is_policy};
use kiln_engine::{RuleSet, User};
use kiln_object::{Gvk, Kinds, ObjectId, list, metadata};
use kiln_offline::{Given, UserFile, Values, remark_kind, with_namespace};
use kiln_rules::usual_plural;
use kiln_value::{Path, Str, Value, value};
use kiln_yaml::{Document, Reader};

use crate::files::{Directory, Files};
use crate::format::{Expectation, GivenFile, TestFile};
use crate::mock_responses::{GlobalEntryError, MockResponses};

/// A suite, ready to run.
pub(crate) struct Loaded {
    /// The suite itself.
    pub(crate) document: Document,
    pub(crate) title: Option<Str>,
    pub(crate) compiled: Compiled,
    pub(crate) rules: RuleSet,
    pub(crate) kinds: Kinds,
    /// The resources: each is an event.
    pub(crate) resources: Vec<Value>,
    /// Data and requests: each is an event.
    pub(crate) payloads: Vec<Given>,
    /// What is only there to be read or changed.
    pub(crate) others: Vec<Value>,
    pub(crate) values: Values,
    pub(crate) user: Option<User>,
    pub(crate) answers: MockResponses,
    pub(crate) expectations: Vec<Expected>,
    /// What is suspicious, and expectations that make no sense.
    pub(crate) problems: Vec<Diagnostic>,
}

/// An expectation with the objects that it names.
pub(crate) struct Expected {
    pub(crate) expectation: Expectation,
    pub(crate) patched: Vec<Value>,
    pub(crate) generated: Vec<Value>,
    pub(crate) clone_sources: Vec<Value>,
}

/// The suites in the file at this path.
///
/// # Errors
/// When it cannot be read, or holds none.
pub(crate) fn read_suites(
    path: &str,
    files: &dyn Files,
    reader: Reader,
) -> Result<Vec<Document>, Diagnostic> {
    let documents = Directory::of(path, files, reader).read_suite(path)?;
    match documents.is_empty() {
        true => Err(Diagnostic::error(format!("{path} is empty"))),
        false => Ok(documents),
    }
}

/// Loads a suite of the file at this path.
///
/// # Errors
/// When something that it names cannot be read or compiled: everything that is wrong, with places.
pub(crate) fn load(
    path: &str,
    document: &Document,
    files: &dyn Files,
    reader: Reader,
    definitions: &[Document],
) -> Result<Loaded, Vec<Diagnostic>> {
    let directory = Directory::of(path, files, reader);
    if document.value().as_map().is_none() {
        let problem = Diagnostic::error("a suite is a map of fields such as policies and results");
        return Err(vec![problem.at(document.place())]);
    }
    let (test, mut problems) = TestFile::read(document).map_err(|problem| vec![problem])?;
    problems.extend(test.remarks(document));
    let mut reading = Reading { directory, document, definitions, problems };
    let loaded = reading.everything(test);
    let problems = reading.problems;
    match loaded {
        Some(mut loaded) => {
            loaded.problems = problems;
            Ok(loaded)
        }
        None => Err(problems),
    }
}

/// The only document of a file that a suite names.
fn only(documents: Vec<Document>, path: &str) -> Result<Document, Diagnostic> {
    if let [_, second, ..] = documents.as_slice() {
        return Err(Diagnostic::error(format!("{path} has {} documents", documents.len()))
            .at(second.place())
            .hint("keep one document in it"));
    }
    documents.into_iter().next().ok_or_else(|| Diagnostic::error(format!("{path} is empty")))
}

/// The reading of one suite.
struct Reading<'r> {
    directory: Directory<'r>,
    document: &'r Document,
    /// Definitions that were given for all suites.
    definitions: &'r [Document],
    problems: Vec<Diagnostic>,
}

impl Reading<'_> {
    /// Nothing when something is wrong with what the suite names; the problems say what.
    fn everything(&mut self, test: TestFile) -> Option<Loaded> {
        let title = test.title();
        let (expectations, wrong) = test.expectations(self.document);
        let root = Path::root();
        let mut policies = self.documents(&test.policies, &root.join("policies"));
        let exceptions = self.documents(&test.exceptions, &root.join("exceptions"));
        for other in exceptions.iter().filter(|document| !is_exception(document)) {
            let problem = Diagnostic::error("this is not a PolicyException").at(other.place());
            self.problems.push(problem.hint("exceptions are files with PolicyExceptions alone"));
        }
        policies.extend(exceptions);
        let resources = self.documents(&test.resources, &root.join("resources"));
        let targets = self.documents(&test.target_resources, &root.join("targetResources"));
        let params = self.documents(&test.param_resources, &root.join("paramResources"));
        let payloads = self.payloads(&test);
        let mut definitions = self.documents(&test.crds, &root.join("crds"));
        let mut answers = MockResponses::default();
        let mut others = Vec::new();
        for (at, name) in test.cluster_resources.iter().enumerate() {
            let path = root.join("clusterResources").join(at);
            self.given(name, &path, &mut others, &mut definitions, &mut answers);
        }
        if let Some(name) = &test.context {
            self.given(name, &root.join("context"), &mut others, &mut definitions, &mut answers);
        }
        let values = self.values(&test);
        let user = self.user(&test);
        self.answers(test.global_context_entries, &mut answers);
        for (at, why) in answers.calls(test.api_call_responses) {
            let place = self.document.locate(&root.join("apiCallResponses").join(at));
            self.problems.push(Diagnostic::error(format!("this answer {why}")).at(place));
        }

        let defining = [&policies, &resources, &targets, &definitions].into_iter().flatten();
        let mut kinds = Kinds::builtin();
        for definition in self.definitions.iter().chain(defining) {
            kinds = self.define(kinds, definition);
        }
        let resources = self.distinct(resources);
        others.extend(self.objects(targets));
        others.extend(self.objects(params));
        let mut expected = Vec::new();
        for expectation in expectations {
            let mut objects = |names: &[(Str, Path)]| self.expected_objects(names);
            expected.push(Expected {
                patched: objects(&expectation.patched),
                generated: objects(&expectation.generated),
                clone_sources: objects(&expectation.clone_sources),
                expectation,
            });
        }
        for object in resources.iter().chain(&others) {
            kinds = guess(kinds, object);
        }
        for object in expected.iter().flat_map(|expected| &expected.clone_sources) {
            kinds = guess(kinds, object);
        }
        for expected in &mut expected {
            for objects in [&mut expected.patched, &mut expected.generated] {
                *objects = objects.drain(..).map(|o| with_namespace(o, &kinds)).collect();
            }
        }
        let compiled = self.compile(&policies, &kinds, &test.policies);
        if self.has_errors() {
            self.problems.extend(wrong);
            return None;
        }
        self.problems.extend(wrong);
        let rules = RuleSet::new(compiled.policies.iter().map(Arc::clone))
            .with_exceptions(compiled.exceptions.iter().map(Arc::clone));
        Some(Loaded {
            document: self.document.clone(),
            title,
            compiled,
            rules,
            kinds,
            resources,
            payloads,
            others,
            values,
            user,
            answers,
            expectations: expected,
            problems: Vec::new(),
        })
    }

    fn has_errors(&self) -> bool {
        self.problems.iter().any(|problem| problem.severity == Severity::Error)
    }

    fn documents(&mut self, names: &[Str], path: &Path) -> Vec<Document> {
        let mut all = Vec::new();
        for (at, name) in names.iter().enumerate() {
            all.extend(self.named(name, &path.join(at)));
        }
        all
    }

    /// The data and requests that the suite names, each under the name of its file.
    fn payloads(&mut self, test: &TestFile) -> Vec<Given> {
        let mut all = Vec::new();
        for (payload, file, path) in test.payloads() {
            let name = file.rsplit('/').next().unwrap_or(&file).to_owned();
            for document in self.named(&file, &path) {
                let (name, value) = (name.clone(), document.into_value());
                all.push(Given { payload, name, value });
            }
        }
        all
    }

    /// The documents that a name in the suite means.
    fn named(&mut self, name: &str, path: &Path) -> Vec<Document> {
        let place = self.document.locate(path);
        match self.directory.read(name, &place) {
            Ok(documents) => documents,
            Err(problem) => {
                self.problems.push(problem);
                Vec::new()
            }
        }
    }

    /// The one document that a name in the suite means.
    fn only(&mut self, name: &str, path: &Path) -> Option<Document> {
        match only(self.named(name, path), name) {
            Ok(document) => Some(document),
            Err(problem) => {
                // What could not be read has been named already.
                if !self.has_errors() {
                    let place = problem.place.clone();
                    let place = place.unwrap_or_else(|| self.document.locate(path));
                    self.problems.push(problem.at(place));
                }
                None
            }
        }
    }

    fn expected_objects(&mut self, names: &[(Str, Path)]) -> Vec<Value> {
        let mut documents = Vec::new();
        for (name, path) in names {
            documents.extend(self.named(name, path));
        }
        self.objects(documents)
    }

    /// The objects of documents, lists taken apart.
    fn objects(&mut self, documents: Vec<Document>) -> Vec<Value> {
        let mut objects = Vec::new();
        for document in documents {
            let found = list::flatten(document.value().clone());
            if let Some(missing) = found.iter().find_map(|object| ObjectId::of(object).err()) {
                let problem =
                    Diagnostic::error(format!("this is not a Kubernetes object: {missing}"));
                self.problems.push(
                    problem
                        .at(document.place())
                        .hint("a resource has apiVersion, kind and metadata.name"),
                );
                continue;
            }
            objects.extend(found);
        }
        objects
    }

    /// The objects of documents, each once.
    fn distinct(&mut self, documents: Vec<Document>) -> Vec<Value> {
        let mut seen = HashSet::new();
        let mut distinct = Vec::new();
        for document in documents {
            let place = document.place();
            for object in self.objects(vec![document]) {
                match ObjectId::of(&object) {
                    Ok(id) if !seen.insert(id.clone()) => {
                        let problem = Diagnostic::warning(format!("{id} is given twice"));
                        self.problems.push(problem.at(place.clone()).hint("the first one is used"));
                    }
                    _ => distinct.push(object),
                }
            }
        }
        distinct
    }

    /// What a Context or ClusterResource file gives.
    fn given(
        &mut self,
        name: &str,
        path: &Path,
        objects: &mut Vec<Value>,
        definitions: &mut Vec<Document>,
        answers: &mut MockResponses,
    ) {
        let Some(document) = self.only(name, path) else { return };
        let file: GivenFile = match document.read() {
            Ok(file) => file,
            Err(problem) => return self.problems.push(problem),
        };
        if !matches!(file.kind.as_str(), "" | "Context" | "ClusterResource") {
            let problem = Diagnostic::error(format!("this is a {}", file.kind));
            let problem = problem.at(document.locate(&Path::root().join("kind")));
            return self
                .problems
                .push(problem.hint("write kind: Context or kind: ClusterResource"));
        }
        for (at, object) in file.spec.resources.into_iter().enumerate() {
            if let Err(missing) = ObjectId::of(&object) {
                let place = document.locate(&Path::root().join("spec").join("resources").join(at));
                let problem =
                    Diagnostic::error(format!("this is not a Kubernetes object: {missing}"));
                self.problems.push(problem.at(place));
            }
            objects.push(object);
        }
        for image in &file.spec.images {
            answers.image(image);
        }
        for (at, name) in file.spec.crds.iter().enumerate() {
            let place = document.locate(&Path::root().join("spec").join("crds").join(at));
            match self.directory.read(name, &place) {
                Ok(read) => definitions.extend(read),
                // Kinds that nothing defines are taken as the given objects have them.
                Err(mut problem) => {
                    problem.severity = Severity::Warning;
                    self.problems
                        .push(problem.hint("without it, plural and scope of the kind are guessed"));
                }
            }
        }
    }

    fn values(&mut self, test: &TestFile) -> Values {
        let inline = test.values.clone().unwrap_or_default();
        if let Some((path, problem)) = inline.wrong_operation() {
            let mut at = Path::root().join("values");
            path.segments().iter().for_each(|segment| at.push(segment.clone()));
            self.problems.push(problem.at(self.document.locate(&at)));
        }
        let Some(name) = test.variables.as_deref().filter(|name| !name.is_empty()) else {
            return inline;
        };
        let path = Path::root().join("variables");
        let Some(document) = self.only(name, &path) else { return inline };
        self.problems.extend(remark_kind(&document, "values file", "Values"));
        match Values::read(&document) {
            Ok(values) => values.over(inline),
            Err(problem) => {
                self.problems.push(problem);
                inline
            }
        }
    }

    fn user(&mut self, test: &TestFile) -> Option<User> {
        let name = test.userinfo.as_deref().filter(|name| !name.is_empty())?;
        let document = self.only(name, &Path::root().join("userinfo"))?;
        self.problems.extend(remark_kind(&document, "user file", "UserInfo"));
        match UserFile::read(&document) {
            Ok(user) => Some(user),
            Err(problem) => {
                self.problems.push(problem);
                None
            }
        }
    }

    fn answers(&mut self, entries: Vec<crate::format::GlobalEntry>, answers: &mut MockResponses) {
        let mut seen = HashSet::new();
        for (at, entry) in entries.into_iter().enumerate() {
            let path = Path::root().join("globalContextEntries").join(at);
            let mut objects = entry.resources.clone();
            if let Some(files) = &entry.resource_files {
                let documents = self.documents(files, &path.join("resourceFiles"));
                let read = documents.into_iter().map(Document::into_value);
                objects.get_or_insert_default().extend(read);
            }
            let added = match seen.insert(entry.name.clone()) {
                true => answers.global(&entry, objects),
                false => Err(GlobalEntryError::SameName),
            };
            if let Err(why) = added {
                let message = format!("the global value {:?} {why}", entry.name.as_str());
                let place = self.document.locate(&path);
                self.problems.push(Diagnostic::error(message).at(place));
            }
        }
    }

    fn define(&mut self, kinds: Kinds, document: &Document) -> Kinds {
        if document.value().str_at(["kind"]) != Some("CustomResourceDefinition") {
            return kinds;
        }
        match kinds.clone().with_crd(document.value()) {
            Ok(kinds) => kinds,
            Err(error) => {
                self.problems.push(Diagnostic::error(error.to_string()).at(document.place()));
                kinds
            }
        }
    }

    fn compile(&mut self, documents: &[Document], kinds: &Kinds, named: &[Str]) -> Compiled {
        if !documents.iter().any(is_policy) && !self.has_errors() {
            let place = self.document.locate(&Path::root().join("policies"));
            let problem = match named.is_empty() {
                true => Diagnostic::error("the suite names no policies").hint("add policies"),
                false => Diagnostic::error("there is no policy in the files of this suite"),
            };
            self.problems.push(problem.at(place));
        }
        let compiled = compile(documents, kinds);
        // Rules that are not run are named where something is expected of them.
        let told = compiled.diagnostics.iter().filter(|found| found.severity > Severity::Note);
        self.problems.extend(told.cloned());
        compiled
    }
}

/// Takes a kind that nothing defines as the given object has it: its plural is guessed, and it belongs to
/// namespaces if the object is in one.
fn guess(kinds: Kinds, object: &Value) -> Kinds {
    let Some(gvk) = Gvk::of(object) else { return kinds };
    if kinds.versions(&gvk.group, &gvk.kind).next().is_some() {
        return kinds;
    }
    let plural = usual_plural(&gvk.kind);
    let namespaced = metadata::namespace(object).is_some_and(|namespace| !namespace.is_empty());
    let definition = value!({
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{}", gvk.group)},
        "spec": {
            "group": gvk.group.as_str(),
            "names": {"kind": gvk.kind.as_str(), "plural": plural},
            "scope": if namespaced { "Namespaced" } else { "Cluster" },
            "versions": [{"name": gvk.version.as_str(), "served": true, "storage": true}],
        },
    });
    kinds.clone().with_crd(&definition).unwrap_or(kinds)
}
