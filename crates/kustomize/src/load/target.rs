//! A kustomization file: found, read, checked.

use std::rc::Rc;
use std::sync::Arc;

use kiln_diagnostic::Diagnostic;
use kiln_value::{Segment, Value};
use kiln_yaml::ReadOptions;

use crate::build::session::{KustomizationSite, Session};
use crate::error::{Context, Error, Result};
use crate::fields::lazy_location::{LazyLocation, LocatedDocument};
use crate::load::decode;
use crate::load::kustomization::Kustomization;
use crate::load::loader::Root;
use crate::load::paths;
use crate::model::origin::Origin;
use crate::model::output::yaml_error;

/// The names that a kustomization file can have.
pub(crate) const FILE_NAMES: [&str; 3] =
    ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// A kustomization, where it is, and what it inherits from who uses it.
pub(crate) struct KustomizationTarget {
    pub(crate) root: Rc<Root>,
    pub(crate) kustomization: Kustomization,
    pub(crate) file_name: &'static str,
    pub(crate) document: Option<Rc<LocatedDocument>>,
    /// Where this kustomization is, if origins are tracked.
    pub(crate) origin: Option<Origin>,
    /// The namespace of the nearest kustomization above that has one.
    pub(crate) helm_namespace: String,
}

impl KustomizationTarget {
    /// Reads the kustomization file of a root.
    ///
    /// # Errors
    /// When there is none or more than one, or it is not well-formed.
    pub(crate) fn load(root: Rc<Root>, session: &Session<'_>) -> Result<Self> {
        let (file_name, contents) = find(&root, session)?;
        let shown = session.shown(&paths::join(root.path(), file_name));
        let options = session.files.limited(ReadOptions::kustomization());
        let documents = kiln_yaml::read_bytes(&shown, &contents, options)
            .map_err(|diagnostic| yaml_error(&diagnostic))
            .context("invalid Kustomization")?;
        let document = documents.into_iter().next().map(Arc::new);
        let value = document.as_ref().map_or(Value::Null, |document| document.value().clone());
        let site = KustomizationSite { session, root: &root, document: None };
        let mut kustomization: Kustomization = decode::strict(&value)
            .map_err(|error| site.decode_error(error, document.as_deref()))
            .context("invalid Kustomization")?;
        let document = document.map(LocatedDocument::new);
        if !session.options.behavior.claim_templates_apart {
            refuse_claim_templates(&value, document.as_ref()).context("invalid Kustomization")?;
        }
        for (field, message) in kustomization.deprecations() {
            let mut warning = Diagnostic::warning(message);
            warning.place = LazyLocation::new(document.as_ref(), [field]).key_place();
            session.warn(warning);
        }
        kustomization.fix();
        let place = || LazyLocation::new::<Segment>(document.as_ref(), []).place();
        if is_empty(&value) {
            return Err(Error::new("kustomization.yaml is empty")
                .at(place())
                .hint("name at least one resource or generator"));
        }
        let problems = kustomization.type_problems();
        if !problems.is_empty() {
            return Err(Error::new(format!(
                "Failed to read kustomization file under {}:\n{}",
                root.path(),
                problems.join("\n")
            ))
            .at(place()));
        }
        Ok(KustomizationTarget {
            root,
            kustomization,
            file_name,
            document,
            origin: None,
            helm_namespace: String::new(),
        })
    }

    pub(crate) fn site<'s, 'h>(&'s self, session: &'s Session<'h>) -> KustomizationSite<'s, 'h> {
        KustomizationSite { session, root: &self.root, document: self.document.as_ref() }
    }

    /// The kustomization file as the user knows it.
    pub(crate) fn shown(&self, session: &Session<'_>) -> String {
        session.shown(&paths::join(self.root.path(), self.file_name))
    }

    /// Chooses the schema that this kustomization names, unless one was chosen before.
    ///
    /// # Errors
    /// When it is not there, or is not a schema.
    pub(crate) fn choose_schema(&self, session: &Session<'_>) -> Result<()> {
        let Some(openapi) = &self.kustomization.openapi else { return Ok(()) };
        let path = openapi.get("path");
        let document = match path {
            Some(path) => Some(self.site(session).load_config(path)?.0),
            None => None,
        };
        if session.scopes.is_chosen() {
            return Ok(());
        }
        let outcome = match (document, openapi.get("version")) {
            (Some(_), Some(_)) => {
                Err(Error::new("builtin version and custom schema provided, cannot use both"))
            }
            (Some(document), None) => session.scopes.choose_document(&document),
            (None, Some(version)) if !version.is_empty() => session.scopes.choose_builtin(version),
            (None, _) => Ok(()),
        };
        outcome.map_err(|error| error.at(self.site(session).at(["openapi"]).place()))
    }
}

/// kustomize 5.8.1 and before know no `includeVolumeClaimTemplates`.
fn refuse_claim_templates(value: &Value, document: Option<&Rc<LocatedDocument>>) -> Result<()> {
    const FIELD: &str = "includeVolumeClaimTemplates";
    let labels = value.get("labels").and_then(Value::as_list).into_iter().flatten();
    let Some(number) = labels.into_iter().position(|label| label.get(FIELD).is_some()) else {
        return Ok(());
    };
    let place = LazyLocation::new(document, ["labels"]).entry(number).field(FIELD).key_place();
    Err(Error::new(format!("json: unknown field {FIELD:?}"))
        .at(place)
        .hint("remove it, or build as kustomize 5.8.2 or newer"))
}

fn find(root: &Root, session: &Session<'_>) -> Result<(&'static str, Arc<[u8]>)> {
    let mut found = None;
    for name in FILE_NAMES {
        let Ok(contents) = session.files.load(root, name) else { continue };
        if found.replace((name, contents)).is_some() {
            return Err(Error::new(format!(
                "Found multiple kustomization files under: {}\n",
                root.path()
            ))
            .hint("keep one of them"));
        }
    }
    found.ok_or_else(|| {
        Error::new(format!(
            "unable to find one of 'kustomization.yaml', 'kustomization.yml' or 'Kustomization' in directory '{}'",
            root.path()
        ))
    })
}

/// Whether a kustomization says nothing but what it is.
fn is_empty(value: &Value) -> bool {
    let Value::Map(fields) = value else { return value.is_null() };
    fields.iter().all(|(key, value)| {
        let key = key.to_ascii_lowercase();
        match value {
            Value::Null => true,
            Value::String(text) => text.is_empty() || key == "kind" || key == "apiversion",
            // What is appended to another field leaves nothing behind when it is empty.
            Value::List(list) => {
                list.is_empty()
                    && matches!(key.as_str(), "bases" | "imagetags" | "helmchartinflationgenerator")
            }
            _ => false,
        }
    })
}
