//! Which fields the transformers change: the defaults, what `configurations` and `crds` add, and
//! how a layer hands them to the one above it.

use std::sync::{Arc, LazyLock};

use kiln_value::{Str, Value};

use crate::error::{Context, Error, Result};
use crate::fields::field_spec::{FieldSpec, Specs, merge_specs, sort_specs};
use crate::load::decode::{self, record};
use crate::model::id::Gvk;
use crate::release::ReleaseBehavior;

record! {
    /// A file of `configurations`.
    ConfigFile = "TransformerConfig" {
        name_prefix: Specs = "namePrefix",
        name_suffix: Specs = "nameSuffix",
        namespace: Specs = "namespace",
        common_labels: Specs = "commonLabels",
        labels: Specs = "labels",
        template_labels: Specs = "templateLabels",
        volume_claim_template_labels: Specs = "volumeClaimTemplateLabels",
        common_annotations: Specs = "commonAnnotations",
        name_reference: Vec<NameBackReferences> = "nameReference",
        var_reference: Specs = "varReference",
        images: Specs = "images",
        replicas: Specs = "replicas",
    }
}

record! {
    /// A kind that others name, and the fields in which they do.
    NameBackReferences = "NameBackReferences" {
        group: Str = "group",
        version: Str = "version",
        kind: Str = "kind",
        referrers: Specs = "fieldSpecs",
    }
}

impl NameBackReferences {
    pub(crate) fn gvk(&self) -> Gvk {
        Gvk { group: self.group.clone(), version: self.version.clone(), kind: self.kind.clone() }
    }
}

/// The field specs of one layer. Lists are shared until a layer adds to them, so that a thousand
/// bases with the defaults hold them once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    pub(crate) name_prefix: Arc<Specs>,
    pub(crate) name_suffix: Arc<Specs>,
    pub(crate) namespace: Arc<Specs>,
    pub(crate) common_labels: Arc<Specs>,
    pub(crate) labels: Arc<Specs>,
    pub(crate) template_labels: Arc<Specs>,
    pub(crate) volume_claim_template_labels: Arc<Specs>,
    pub(crate) common_annotations: Arc<Specs>,
    pub(crate) name_reference: Arc<Vec<NameBackReferences>>,
    pub(crate) var_reference: Arc<Specs>,
    pub(crate) images: Arc<Specs>,
    pub(crate) replicas: Arc<Specs>,
}

static DEFAULTS: LazyLock<Config> =
    LazyLock::new(|| Config::in_order(read_table(include_str!("../../data/field-specs.txt"))));

/// `templateLabels` of releases that label claims with templates.
static TEMPLATES_WITH_CLAIMS: LazyLock<Arc<Specs>> = LazyLock::new(|| {
    let mut specs = DEFAULTS.template_labels.to_vec();
    specs.extend(DEFAULTS.volume_claim_template_labels.iter().cloned());
    sort_specs(&mut specs);
    Arc::new(specs)
});

/// `images` of releases that know no image volumes of CronJobs.
static IMAGES_WITHOUT_CRON_JOB_VOLUMES: LazyLock<Arc<Specs>> = LazyLock::new(|| {
    let mut specs = DEFAULTS.images.to_vec();
    specs.retain(|spec| !spec.path.starts_with("spec/jobTemplate/"));
    Arc::new(specs)
});

impl Config {
    /// What every kustomization starts with.
    pub(crate) fn defaults(behavior: ReleaseBehavior) -> Self {
        let mut config = DEFAULTS.clone();
        if !behavior.claim_templates_apart {
            config.template_labels = Arc::clone(&TEMPLATES_WITH_CLAIMS);
        }
        if !behavior.image_volumes_of_cron_jobs {
            config.images = Arc::clone(&IMAGES_WITHOUT_CRON_JOB_VOLUMES);
        }
        config
    }

    /// The content of a configuration file.
    pub(crate) fn from_value(value: &Value) -> std::result::Result<Self, decode::DecodeError> {
        decode::known::<ConfigFile>(value).map(Config::from)
    }

    /// The content of a file that is in order already. The table of defaults is stored so: sorting it took 0.7 of
    /// the 15 million instructions of building one Service (without optimization).
    fn in_order(file: ConfigFile) -> Self {
        Config {
            name_prefix: Arc::new(file.name_prefix),
            name_suffix: Arc::new(file.name_suffix),
            namespace: Arc::new(file.namespace),
            common_labels: Arc::new(file.common_labels),
            labels: Arc::new(file.labels),
            template_labels: Arc::new(file.template_labels),
            volume_claim_template_labels: Arc::new(file.volume_claim_template_labels),
            common_annotations: Arc::new(file.common_annotations),
            name_reference: Arc::new(file.name_reference),
            var_reference: Arc::new(file.var_reference),
            images: Arc::new(file.images),
            replicas: Arc::new(file.replicas),
        }
    }

    /// Adds what another layer declares.
    ///
    /// # Errors
    /// When both declare a field and disagree on creating it.
    pub(crate) fn merge(&mut self, more: &Config) -> Result<()> {
        let defaults = &*DEFAULTS;
        let lists = [
            (&mut self.name_prefix, &more.name_prefix, &defaults.name_prefix, "NamePrefix"),
            (&mut self.name_suffix, &more.name_suffix, &defaults.name_suffix, "NameSuffix"),
            (&mut self.namespace, &more.namespace, &defaults.namespace, "NameSpace"),
            (
                &mut self.common_annotations,
                &more.common_annotations,
                &defaults.common_annotations,
                "CommonAnnotations",
            ),
            (&mut self.common_labels, &more.common_labels, &defaults.common_labels, "CommonLabels"),
            (&mut self.labels, &more.labels, &defaults.labels, "Labels"),
            (
                &mut self.template_labels,
                &more.template_labels,
                &defaults.template_labels,
                "TemplateLabels",
            ),
            (
                &mut self.volume_claim_template_labels,
                &more.volume_claim_template_labels,
                &defaults.volume_claim_template_labels,
                "VolumeClaimTemplateLabels",
            ),
            (&mut self.var_reference, &more.var_reference, &defaults.var_reference, "VarReference"),
            (&mut self.images, &more.images, &defaults.images, "Images"),
            (&mut self.replicas, &more.replicas, &defaults.replicas, "Replicas"),
        ];
        for (into, more, default, name) in lists {
            merge_shared(into, more, default, |into, more| {
                merge_specs(into, more)?;
                sort_specs(into);
                Ok(())
            })
            .context(format_args!("failed to merge {name} fieldSpec"))?;
        }
        let default = &defaults.name_reference;
        merge_shared(
            &mut self.name_reference,
            &more.name_reference,
            default,
            merge_name_back_references,
        )
        .context("failed to merge NameReference fieldSpec")
    }
}

/// Merges lists, unless they are the same.
///
/// kustomize merges even into an empty list entry by entry, so that an entry for any kind falls away
/// behind one for some kind. The defaults hold no such pair, and are shared as they are.
fn merge_shared<T: Clone>(
    into: &mut Arc<Vec<T>>,
    more: &Arc<Vec<T>>,
    default: &Arc<Vec<T>>,
    merge: impl FnOnce(&mut Vec<T>, &[T]) -> Result<()>,
) -> Result<()> {
    if more.is_empty() || Arc::ptr_eq(into, more) {
        return Ok(());
    }
    if into.is_empty() && Arc::ptr_eq(more, default) {
        *into = Arc::clone(more);
        return Ok(());
    }
    merge(Arc::make_mut(into), more)
}

fn merge_name_back_references(
    into: &mut Vec<NameBackReferences>,
    more: &[NameBackReferences],
) -> Result<()> {
    for references in more {
        let mut found = false;
        for old in into.iter_mut().filter(|old| old.gvk() == references.gvk()) {
            merge_specs(&mut old.referrers, &references.referrers)?;
            found = true;
        }
        if !found {
            into.push(references.clone());
        }
    }
    sort_name_back_references(into);
    Ok(())
}

fn sort_name_back_references(references: &mut [NameBackReferences]) {
    references.sort_by_cached_key(|references| {
        (crate::model::id::rank(&references.kind), references.gvk().sort_text())
    });
}

impl From<ConfigFile> for Config {
    fn from(mut file: ConfigFile) -> Self {
        for specs in [
            &mut file.name_prefix,
            &mut file.name_suffix,
            &mut file.namespace,
            &mut file.common_labels,
            &mut file.labels,
            &mut file.template_labels,
            &mut file.volume_claim_template_labels,
            &mut file.common_annotations,
            &mut file.var_reference,
            &mut file.images,
            &mut file.replicas,
        ] {
            sort_specs(specs);
        }
        sort_name_back_references(&mut file.name_reference);
        Config::in_order(file)
    }
}

/// Reads the table of defaults. It is part of the program, so a wrong line is a wrong program.
fn read_table(table: &'static str) -> ConfigFile {
    let mut file = ConfigFile::default();
    let mut section = "";
    for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            section = name;
            continue;
        }
        let mut words = line.split(' ');
        let mut word = || match words.next() {
            None | Some("-") => Str::default(),
            Some(word) => Str::new_static(word),
        };
        let path = word();
        let (kind, group, version, create) = (word(), word(), word(), word() == "create");
        if path == "@" {
            file.name_reference.push(NameBackReferences {
                group,
                version,
                kind,
                referrers: Vec::new(),
            });
            continue;
        }
        let spec = FieldSpec { group, version, kind, path, create };
        match section {
            "namePrefix" => file.name_prefix.push(spec),
            "nameSuffix" => file.name_suffix.push(spec),
            "namespace" => file.namespace.push(spec),
            "commonLabels" => file.common_labels.push(spec),
            "templateLabels" => file.template_labels.push(spec),
            "volumeClaimTemplateLabels" => file.volume_claim_template_labels.push(spec),
            "commonAnnotations" => file.common_annotations.push(spec),
            "images" => file.images.push(spec),
            "replicas" => file.replicas.push(spec),
            "varReference" => file.var_reference.push(spec),
            "nameReference" => {
                if let Some(references) = file.name_reference.last_mut() {
                    references.referrers.push(spec);
                }
            }
            _ => {}
        }
    }
    file
}

/// What the type descriptions of a `crds` file declare: names, labels, annotations and references
/// in fields of custom resources.
///
/// # Errors
/// When the file has another form.
pub(crate) fn from_crds(types: &Value) -> Result<Config> {
    let Value::Map(types) = types else {
        return Err(Error::new(format!(
            "json: cannot unmarshal {} into Go value of type accumulator.nameToApiMap",
            types.type_name()
        )));
    };
    let mut merged = Config::default();
    for (name, described) in types {
        if !matches!(described, Value::Map(_) | Value::Null) {
            return Err(Error::new(format!(
                "json: cannot unmarshal {} into Go value of type accumulator.OpenAPIDefinition",
                described.type_name()
            ))
            .hint("move CustomResourceDefinitions to `resources`"));
        }
        let looks_like_an_object = properties(described)
            .is_some_and(|p| ["kind", "apiVersion", "metadata"].iter().all(|k| p.contains_key(k)));
        if looks_like_an_object {
            let kind = name.rsplit('.').next().unwrap_or(name);
            let mut scan = CrdScan {
                types,
                kind: Str::new(kind),
                found: ConfigFile::default(),
                path: Vec::new(),
                steps: 0,
            };
            scan.properties_of(name)?;
            merged.merge(&Config::from(scan.found))?;
        }
    }
    Ok(merged)
}

fn properties(described: &Value) -> Option<&kiln_value::Map> {
    let schema = described.get("Schema").or_else(|| described.get("schema"))?;
    schema.get("properties")?.as_map()
}

struct CrdScan<'t> {
    types: &'t kiln_value::Map,
    kind: Str,
    found: ConfigFile,
    path: Vec<&'t str>,
    steps: usize,
}

impl<'t> CrdScan<'t> {
    /// Types may refer to each other in circles; kustomize follows them until its stack ends.
    const MAX_DEPTH: usize = 32;
    const MAX_STEPS: usize = 200_000;

    fn properties_of(&mut self, type_name: &str) -> Result<()> {
        let Some(properties) = self.types.get(type_name).and_then(properties) else {
            return Ok(());
        };
        if self.path.len() > Self::MAX_DEPTH {
            return Ok(());
        }
        for (name, property) in properties {
            self.steps += 1;
            if self.steps > Self::MAX_STEPS {
                return Err(Error::new("the type descriptions refer to each other without end"));
            }
            self.path.push(name);
            self.property(property)?;
            self.path.pop();
        }
        Ok(())
    }

    fn property(&mut self, property: &'t Value) -> Result<()> {
        let text = |key: &str| property.get(key).and_then(Value::as_str);
        let spec = |path: &[&str]| FieldSpec {
            kind: self.kind.clone(),
            path: path.join("/").into(),
            ..FieldSpec::default()
        };
        if text("x-kubernetes-annotation").is_some() {
            let spec = spec(&self.path);
            merge_specs(&mut self.found.common_annotations, &[spec])?;
        }
        if text("x-kubernetes-label-selector").is_some() {
            let spec = spec(&self.path);
            merge_specs(&mut self.found.common_labels, &[spec])?;
        }
        if text("x-kubernetes-identity").is_some() {
            let spec = spec(&self.path);
            merge_specs(&mut self.found.name_prefix, &[spec])?;
        }
        if let (Some(version), Some(kind)) =
            (text("x-kubernetes-object-ref-api-version"), text("x-kubernetes-object-ref-kind"))
        {
            let mut path = self.path.clone();
            path.push(text("x-kubernetes-object-ref-name-key").unwrap_or("name"));
            let references = NameBackReferences {
                kind: kind.into(),
                version: version.into(),
                referrers: vec![spec(&path)],
                ..NameBackReferences::default()
            };
            merge_name_back_references(&mut self.found.name_reference, &[references])?;
        }
        match text("$ref") {
            Some(other) => self.properties_of(other),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    #[test]
    fn the_table_of_defaults_is_whole() {
        let config = Config::defaults(ReleaseBehavior::default());
        let counts = [
            config.name_prefix.len(),
            config.name_suffix.len(),
            config.namespace.len(),
            config.common_labels.len(),
            config.template_labels.len(),
            config.volume_claim_template_labels.len(),
            config.common_annotations.len(),
            config.images.len(),
            config.replicas.len(),
            config.var_reference.len(),
            config.name_reference.len(),
            config.name_reference.iter().map(|r| r.referrers.len()).sum(),
        ];
        assert_eq!(counts, [1, 1, 3, 32, 9, 1, 9, 7, 4, 72, 16, 167]);
        assert!(config.name_reference.iter().all(|r| !r.kind.is_empty()));
    }

    #[test]
    fn older_releases_have_their_own_defaults() {
        let old = ReleaseBehavior::of(crate::KustomizeVersion::parse("5.8.1").unwrap());
        let config = Config::defaults(old);
        assert_eq!([config.template_labels.len(), config.images.len()], [10, 6]);
    }

    #[test]
    fn merging_the_same_defaults_changes_nothing() {
        let mut config = Config::defaults(ReleaseBehavior::default());
        config.merge(&Config::defaults(ReleaseBehavior::default())).unwrap();
        assert!(Arc::ptr_eq(
            &config.common_labels,
            &Config::defaults(ReleaseBehavior::default()).common_labels
        ));
        // What the shortcut for the defaults relies on.
        let again = Config::from(read_table(include_str!("../../data/field-specs.txt")));
        // The table is in order.
        assert_eq!(format!("{:?}", *DEFAULTS), format!("{again:?}"));
        let mut merged = Config::default();
        merged.merge(&again).unwrap();
        assert_eq!(format!("{merged:?}"), format!("{again:?}"));
    }

    #[test]
    fn a_field_of_any_kind_falls_away_behind_one_of_some_kind() {
        let mut config = Config::defaults(ReleaseBehavior::default());
        let some = value!({"namePrefix": [{"path": "metadata/name", "kind": "Bee"}]});
        config.merge(&Config::from_value(&some).unwrap()).unwrap();
        assert_eq!(config.name_prefix.len(), 2);
        let mut gathered = Config::default();
        gathered.merge(&config).unwrap();
        assert_eq!(gathered.name_prefix.len(), 1);
        assert_eq!(gathered.name_prefix[0].kind, "Bee");
    }

    #[test]
    fn a_layer_may_not_change_whether_a_field_is_created() {
        let mut config = Config::defaults(ReleaseBehavior::default());
        let wrong = value!({"namePrefix": [{"path": "metadata/name", "create": true}]});
        let error = config.merge(&Config::from_value(&wrong).unwrap()).unwrap_err();
        assert_eq!(error.message(), "failed to merge NamePrefix fieldSpec: conflicting fieldspecs");
    }

    #[test]
    fn types_that_refer_to_themselves_end() {
        let types = value!({"x.Bee": {"Schema": {"properties": {
            "kind": {}, "apiVersion": {}, "metadata": {}, "more": {"$ref": "x.Bee"},
        }}}});
        assert!(from_crds(&types).is_ok());
    }
}
