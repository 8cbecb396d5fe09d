//! What a generate rule names: kind, namespace and name of a target or a source.

use kiln_object::{Gvk, name};
use kiln_rules::{Scope, Target, TargetNamespace, is_version};
use kiln_value::Value;
use kiln_variables::Template;

use super::{Compiler, Lenient, Named};
use crate::document_reader::DocumentNode;
use crate::kyverno::parse::TargetDoc;

impl Compiler<'_> {
    /// A source whose kind and apiVersion may stand in each other's place.
    pub(super) fn unswapped<'d, 'r>(&self, source: &TargetDoc<'d, 'r>) -> TargetDoc<'d, 'r> {
        let mut source = source.clone();
        let kind = TargetDoc::plain(source.kind.as_ref());
        let api_version = TargetDoc::plain(source.api_version.as_ref());
        if let (Some(kind), Some(api_version)) = (kind, api_version) {
            let camel = api_version.starts_with(|c: char| c.is_ascii_uppercase());
            let version = kind.rsplit('/').next().is_some_and(is_version);
            if camel && version {
                source.fields.report().warn(
                    source.kind.as_ref().map_or(source.fields.path(), |kind| &kind.path),
                    format!("apiVersion and kind are swapped; reading them as apiVersion: {kind}, kind: {api_version}"),
                    Some(format!("write `apiVersion: {kind}` and `kind: {api_version}`")),
                );
                std::mem::swap(&mut source.kind, &mut source.api_version);
            }
        }
        source
    }

    pub(super) fn target(&self, doc: &TargetDoc<'_, '_>, lenient: Lenient) -> Option<Named> {
        let report = doc.fields.report();
        let missing = |field: &str| {
            report.error(
                doc.fields.path(),
                format!("{field} can not be empty"),
                Some(format!("add {field:?} here")),
            );
        };
        let parts = [("kind", &doc.kind), ("name", &doc.name), ("apiVersion", &doc.api_version)];
        let absent: Vec<_> = parts.into_iter().filter(|(_, node)| node.is_none()).collect();
        absent.iter().for_each(|(field, _)| missing(field));
        if !absent.is_empty() {
            return None;
        }
        let mut api_version = TargetDoc::filled(doc.api_version.as_ref())?;
        let kind = TargetDoc::filled(doc.kind.as_ref())?;
        let name = TargetDoc::filled(doc.name.as_ref())?;
        self.warn_variables(&[doc.api_version.as_ref(), doc.kind.as_ref()]);
        self.check_name(doc);
        let mut known = self.known(doc);
        if let (Some(gvk), Lenient::Yes | Lenient::Source) = (&mut known, lenient)
            && let Some(served) = self.served_elsewhere(gvk)
        {
            let node = doc.api_version.as_ref()?;
            node.report.warn(
                &node.path,
                format!("{} is not of {}, {served} is taken", gvk.kind, gvk.api_version()),
                Some(format!("write `apiVersion: {served}`")),
            );
            api_version = Template::compile_part(&Value::from(served.as_str()), &node.path);
            *gvk = Gvk::new(&served, &gvk.kind);
        }
        let namespace = self.namespace(doc, known.as_ref(), lenient)?;
        Some(Named { target: Target { api_version, kind, name, namespace }, known })
    }

    /// The kind of a target, if it has no variables.
    pub(super) fn known(&self, doc: &TargetDoc<'_, '_>) -> Option<Gvk> {
        let api_version = TargetDoc::plain(doc.api_version.as_ref())?;
        let kind = TargetDoc::plain(doc.kind.as_ref())?;
        Some(Gvk::new(&api_version, kind.split('/').next().unwrap_or(&kind)))
    }

    /// The apiVersion under which a kind is served, if it is another one than was written.
    pub(super) fn served_elsewhere(&self, gvk: &Gvk) -> Option<String> {
        if self.kinds.get(gvk).is_some()
            || self.kinds.versions(&gvk.group, &gvk.kind).next().is_some()
        {
            return None;
        }
        match &self.kinds.by_kind(&gvk.kind)[..] {
            [only] => Some(only.group_version().to_string()),
            _ => None,
        }
    }

    pub(super) fn namespace(
        &self,
        doc: &TargetDoc<'_, '_>,
        known: Option<&Gvk>,
        lenient: Lenient,
    ) -> Option<TargetNamespace> {
        let report = doc.fields.report();
        let namespaced = known.and_then(|kind| self.kinds.is_namespaced(kind));
        let written = TargetDoc::filled(doc.namespace.as_ref());
        if doc.namespace.is_some() && written.is_none() {
            return None;
        }
        if let (Scope::Namespace(_), Some(false), Some(kind)) = (self.scope, namespaced, known) {
            report.error(
                doc.fields.path(),
                format!(
                    "target resource scope mismatched: the target must be a namespaced resource: {kind}"
                ),
                Some("use a ClusterPolicy".into()),
            );
            return None;
        }
        if lenient != Lenient::Source {
            self.own_target_namespace(doc);
        }
        match (namespaced, written, lenient) {
            (Some(false), Some(_), _) => {
                let namespace = doc.namespace.as_ref()?;
                namespace.error_with(
                    "target namespace must not be set for a cluster-wide resource",
                    "remove it",
                );
                None
            }
            (_, Some(namespace), _) => Some(TargetNamespace::Written(namespace)),
            (Some(false), None, _) | (None, None, Lenient::Source) => Some(TargetNamespace::None),
            (Some(true), None, Lenient::No | Lenient::Source) => {
                report.error(
                    doc.fields.path(),
                    "target namespace must be set for a namespaced resource",
                    Some(
                        "add `namespace`, for example \"{{ request.object.metadata.name }}\""
                            .into(),
                    ),
                );
                None
            }
            (Some(true) | None, None, Lenient::Yes) => {
                report.warn(
                    doc.fields.path(),
                    "no target namespace: that of the trigger is taken",
                    Some("add `namespace: \"{{ request.namespace }}\"`".into()),
                );
                Some(TargetNamespace::OfTrigger)
            }
            (None, None, Lenient::No) => {
                if let Some(kind) = known {
                    report.warn(
                        doc.fields.path(),
                        format!("the kind {kind} is not known here; without a namespace it is taken for cluster-wide"),
                        Some("give its CustomResourceDefinition along with the policy".into()),
                    );
                }
                Some(TargetNamespace::None)
            }
        }
    }

    /// Checks that a namespaced policy writes only into its namespace.
    pub(super) fn own_target_namespace(&self, doc: &TargetDoc<'_, '_>) {
        if let Some(namespace) = &doc.namespace {
            self.own_namespace(Some(namespace), namespace, |own, found| {
                format!(
                    "target resource scope mismatched: a namespaced policy cannot generate resources \
                     in other namespaces, expected: {own}, received: {found}"
                )
            });
        }
    }

    pub(super) fn own_namespace(
        &self,
        namespace: Option<&DocumentNode<'_, '_>>,
        whole: &DocumentNode<'_, '_>,
        message: impl FnOnce(&str, &str) -> String,
    ) {
        let Scope::Namespace(own) = self.scope else { return };
        let found = namespace.and_then(|node| node.value.as_str()).unwrap_or_default();
        if found != own.as_str() {
            let node = namespace.unwrap_or(whole);
            node.error_with(
                message(own, found),
                format!("write `namespace: {own}`, or use a ClusterPolicy"),
            );
        }
    }

    /// A name without variables is checked before anything runs.
    pub(super) fn check_name(&self, doc: &TargetDoc<'_, '_>) {
        let (Some(called), Some(kind)) = (TargetDoc::plain(doc.name.as_ref()), self.known(doc))
        else {
            return;
        };
        if let (Some(problem), Some(node)) = (name::problem(&kind, &called), &doc.name) {
            node.error_with(
                format!("the target name {called:?} is not a valid name: {problem}"),
                "choose another name",
            );
        }
    }
}
