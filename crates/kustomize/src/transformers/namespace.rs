//! The namespace of everything.

use kiln_value::{Path, Str, Value};

use super::Transform;
use crate::build::session::Session;
use crate::error::{Error, Result};
use crate::fields::field_spec::{FieldSpec, Make, Specs};
use crate::load::decode::record;
use crate::load::kustomization::ObjectMeta;
use crate::model::output::{written_block, wrong_node_kind, wrong_node_kind_as};
use crate::model::resource::{Resource, scalar_text};
use crate::model::resources::Resources;

record! {
    /// The configuration of a NamespaceTransformer.
    NamespaceConfig = "NamespaceTransformer" {
        metadata: ObjectMeta = "metadata",
        field_specs: Specs = "fieldSpecs",
        unset_only: bool = "unsetOnly",
        set_role_binding_subjects: String = "setRoleBindingSubjects",
    }
}

/// Sets the namespace.
pub(crate) struct Namespace {
    namespace: Str,
    specs: Specs,
    unset_only: bool,
    subjects: Subjects,
}

/// Which subjects of role bindings are moved along.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subjects {
    NamedDefault,
    AllServiceAccounts,
    None,
}

impl Namespace {
    pub(crate) fn new(namespace: &str, specs: Specs) -> Self {
        Namespace {
            namespace: namespace.into(),
            specs,
            unset_only: false,
            subjects: Subjects::NamedDefault,
        }
    }

    /// From the configuration of a transformer object.
    ///
    /// # Errors
    /// When the mode for subjects is none of the known ones.
    pub(crate) fn configured(config: NamespaceConfig) -> Result<Self> {
        let subjects = match config.set_role_binding_subjects.as_str() {
            "" | "defaultOnly" => Subjects::NamedDefault,
            "allServiceAccounts" => Subjects::AllServiceAccounts,
            "none" => Subjects::None,
            other => {
                return Err(Error::new(format!(
                    "invalid value {other:?} for setRoleBindingSubjects: must be one of \"defaultOnly\", \"none\" or \"allServiceAccounts\""
                )));
            }
        };
        Ok(Namespace {
            namespace: config.metadata.namespace.into(),
            specs: config.field_specs,
            unset_only: config.unset_only,
            subjects,
        })
    }

    fn set(&self, field: &mut Value) -> Result<()> {
        if matches!(field, Value::List(_) | Value::Map(_)) {
            return Err(wrong_node_kind("ScalarNode", field));
        }
        if !self.unset_only || scalar_text(field).is_empty() {
            *field = self.namespace.clone().into();
        }
        Ok(())
    }

    /// Moves one object.
    pub(crate) fn apply(&self, resource: &mut Resource, session: &Session<'_>) -> Result<()> {
        let budget = &session.budget;
        let id = resource.id().clone();
        if !id.cluster_scoped {
            FieldSpec::everywhere("metadata/namespace", true).apply(
                resource.object_mut(),
                &id,
                Some(Make::Scalar),
                budget,
                &mut |field| self.set(field),
            )?;
        }
        let role_binding = matches!(id.gvk.kind.as_str(), "RoleBinding" | "ClusterRoleBinding");
        if role_binding {
            self.move_subjects(resource.object_mut())?;
        }
        // kustomize: the name of a Namespace changes along, but only that of core Namespaces.
        let core = resource.object().get("apiVersion").and_then(Value::as_str) == Some("v1");
        for spec in &self.specs {
            let skipped = spec.path == "metadata/namespace"
                || (spec.path == "metadata/name" && !core)
                || (role_binding
                    && spec.path == "subjects/namespace"
                    && matches!(spec.kind.as_str(), "RoleBinding" | "ClusterRoleBinding"));
            if skipped {
                continue;
            }
            let mut not_a_scalar = false;
            let outcome =
                spec.apply(resource.object_mut(), &id, Some(Make::Scalar), budget, &mut |field| {
                    not_a_scalar = matches!(field, Value::List(_) | Value::Map(_));
                    self.set(field)
                });
            if let Err(error) = outcome {
                return Err(if not_a_scalar {
                    not_scalar(error, spec, resource)
                } else {
                    error.context("namespace transformation failed")
                });
            }
        }
        Ok(())
    }

    fn move_subjects(&self, object: &mut Value) -> Result<()> {
        let (key, wanted) = match self.subjects {
            Subjects::None => return Ok(()),
            Subjects::NamedDefault => ("name", "default"),
            Subjects::AllServiceAccounts => ("kind", "ServiceAccount"),
        };
        let subjects = match object.get_mut("subjects") {
            None | Some(Value::Null) => return Ok(()),
            Some(Value::List(subjects)) => subjects.make_mut(),
            Some(other) => {
                return Err(wrong_node_kind("SequenceNode", other)
                    .context("setting namespace on (cluster)role binding subjects"));
            }
        };
        for subject in subjects {
            let Value::Map(fields) = subject else {
                return Err(wrong_node_kind("MappingNode", subject)
                    .context(format_args!("looking up {key} on (cluster)role binding subject"))
                    .context("setting namespace on (cluster)role binding subjects"));
            };
            if fields.get(key).is_some_and(|value| scalar_text(value) == wanted) {
                self.set(fields.get_or_insert_with("namespace", || Value::Null))?;
            }
        }
        Ok(())
    }
}

/// Shows the field as the user wrote it.
fn not_scalar(error: Error, spec: &FieldSpec, resource: &Resource) -> Error {
    let path: Path = spec.path.split('/').collect();
    let as_written = resource.object().get_path(&path).and_then(|value| {
        let text = written_block(resource.document.as_ref()?, &path)?;
        Some(wrong_node_kind_as("ScalarNode", value, &text))
    });
    let error = match as_written {
        Some(shown) => shown.context(format_args!(
            "considering field '{}' of object {}",
            spec.path,
            resource.id()
        )),
        None => error,
    };
    let place = resource.document.as_ref().map(|document| document.locate(&path));
    error.context("namespace field specs must target scalar nodes").at(place)
}

impl Transform for Namespace {
    fn kind(&self) -> &str {
        "NamespaceTransformer"
    }

    fn transform(&self, resources: &mut Resources, session: &Session<'_>) -> Result<()> {
        if self.namespace.is_empty() {
            return Ok(());
        }
        resources.update_all(&session.scopes, |resource| {
            if resource.from_helm {
                return Ok(());
            }
            resource.store_previous_id();
            self.apply(resource, session)
        })?;
        refuse_conflicts(resources)
    }
}

/// Two objects that differed in nothing but their namespaces have become one.
fn refuse_conflicts(resources: &mut Resources) -> Result<()> {
    for slot in resources.slots() {
        let id = resources.get(slot).id().clone();
        let same = resources.by_current_id(&id);
        if same.len() > 1 {
            let shown: Vec<String> = same
                .iter()
                .map(|slot| {
                    let marked = crate::model::annotations::with_memory(resources.get(*slot));
                    kiln_value::json::to_go_string(&marked)
                })
                .collect();
            let place = same
                .last()
                .and_then(|slot| resources.get(*slot).document.as_ref())
                .map(|document| document.place());
            return Err(Error::new(format!(
                "namespace transformation produces ID conflict: [{}]",
                shown.join(" ")
            ))
            .at(place)
            .hint(format!(
                "{id} would exist more than once in this namespace; rename one of them"
            )));
        }
    }
    Ok(())
}
