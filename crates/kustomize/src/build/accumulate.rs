//! The flow of a build: resources, generators, components, transformers, and at the end what can be
//! done only once all names are final.

use std::rc::Rc;
use std::sync::Arc;

use kiln_diagnostic::Diagnostic;
use kiln_text::quote::quote;
use kiln_value::Value;
use rustc_hash::FxHashSet;

use crate::Reorder;
use crate::build::explain::{What, explaining, note_changes, snapshot, touch};
use crate::build::session::Session;
use crate::build::stats::Phase;
use crate::build::steps::{self, TransformerStep};
use crate::build::vars::{self, Vars};
use crate::build::{kustomize_differences, name_reference};
use crate::error::{Context, Error, Result};
use crate::fields::config::{self, Config};
use crate::fields::field_spec::FieldSpec;
use crate::generators::hash;
use crate::load::kustomization::{COMPONENT, SortOptions};
use crate::load::loader::Root;
use crate::load::target::KustomizationTarget;
use crate::model::objects::Purpose;
use crate::model::origin::Origin;
use crate::model::resource::Resource;
use crate::model::resources::Resources;
use crate::model::{objects, output};
use crate::plugins::{self, Program, VirtualResources};
use crate::transformers::labels::set_texts_of;
use crate::transformers::sort;

/// The field that names what a kustomization is made of.
const RESOURCES: &str = "resources";

/// What a kustomization has gathered.
#[derive(Default)]
pub(crate) struct Accumulator {
    pub(crate) resources: Resources,
    pub(crate) config: Config,
    vars: Vars,
}

/// What a build gives.
pub(crate) struct Built {
    pub(crate) objects: Vec<Value>,
    pub(crate) file_names: Vec<String>,
    pub(crate) yaml: String,
}

/// Builds the kustomization in a directory.
pub(crate) fn build(directory: &str, session: &Session<'_>) -> Result<Built> {
    let root = session.files.top(
        &session.options.working_directory,
        directory,
        session.options.load_restrictions,
    )?;
    let mut target =
        session.clock.time(Phase::Load, || KustomizationTarget::load(root, session))?;
    target.choose_schema(session)?;
    let metadata = target.kustomization.build_metadata.clone();
    target.origin = (!metadata.is_empty()).then(Origin::default);

    let gathered = accumulate(&target, Accumulator::default(), session)?;
    let Accumulator { mut resources, config, vars } = gathered;
    // Once, at the root, and not in every base: a hash depends on content that overlays above may still change, and a
    // reference may name an object that another base brings. The order is kustomize's: hashes change names, references
    // follow names, and vars read fields that references may have changed.
    session.clock.time(Phase::References, || {
        add_hashes(&mut resources, session);
        explaining(&mut resources, session, What::References, &target, |resources| {
            name_reference::update_references(resources, &config.name_reference, session)
        })
    })?;
    session.clock.time(Phase::Vars, || {
        explaining(&mut resources, session, What::Vars, &target, |resources| {
            vars::resolve(&vars, &config.var_reference, resources, session)
        })
    })?;
    let mut list = Vec::new();
    for resource in resources.into_list() {
        objects::check(resource.object())?;
        if !is_local(&resource) {
            list.push(resource);
        }
    }
    session.clock.time(Phase::Sort, || order(&mut list, &target, session))?;
    finish(&mut list, &metadata, session)?;
    Ok(session.clock.time(Phase::Write, || write(list)))
}

/// Adds the hash of their content to the names of objects that ask for it.
fn add_hashes(resources: &mut Resources, session: &Session<'_>) {
    for slot in resources.slots() {
        if !resources.get(slot).needs_hash {
            continue;
        }
        resources.update(slot, &session.scopes, |resource| {
            let hash = hash::of(resource.object());
            resource.store_previous_id();
            let name = format!("{}-{hash}", resource.name());
            resource.set_metadata("name", name);
        });
        if session.options.explain {
            session.touch(touch(resources.get(slot), What::Hashed, "", "HashTransformer"));
        }
    }
}

fn is_local(resource: &Resource) -> bool {
    resource
        .annotations()
        .and_then(|annotations| annotations.get(crate::model::annotations::LOCAL_CONFIG))
        .is_some_and(|value| value.as_str() != Some("false"))
}

fn order(
    list: &mut Vec<Resource>,
    target: &KustomizationTarget,
    session: &Session<'_>,
) -> Result<()> {
    let reorder = session.options.reorder;
    let legacy = SortOptions { order: "legacy".to_owned(), legacy_sort_options: None };
    let options = match (&target.kustomization.sort_options, reorder) {
        (Some(options), reorder) => {
            if reorder != Reorder::Unspecified {
                session.warn(Diagnostic::warning(
                    "Sorting order is set both in 'kustomization.yaml' ('sortOptions') and in a CLI flag ('--reorder'). Using the kustomization file over the CLI flag.",
                ));
            }
            options
        }
        (None, Reorder::None) => return Ok(()),
        (None, Reorder::Legacy | Reorder::Unspecified) => &legacy,
    };
    sort::sort(list, options)?;
    if options.order == "legacy" {
        let mut seen = FxHashSet::default();
        for resource in list.iter() {
            if !seen.insert(resource.id().key()) {
                return Err(Error::new(format!(
                    "SortOrderTransformer: Failed to append to resources: may not add resource with an already registered id: {}",
                    resource.id()
                )));
            }
        }
    }
    Ok(())
}

fn finish(list: &mut [Resource], metadata: &[String], session: &Session<'_>) -> Result<()> {
    let asked = |word: &str| metadata.iter().any(|asked| asked == word);
    if session.options.managed_by_label || asked("managedByLabel") {
        let label = [(
            "app.kubernetes.io/managed-by".to_owned(),
            format!("kustomize-v{}", session.options.behavior.version),
        )];
        let specs = [FieldSpec::everywhere("metadata/labels", true)];
        for resource in list.iter_mut() {
            set_texts_of(&label.clone().into(), &specs, resource, session)?;
        }
    }
    let (origin, transformations) = (asked("originAnnotations"), asked("transformerAnnotations"));
    for resource in list.iter_mut() {
        resource.check_types()?;
        if let Some(warning) = kustomize_differences::name_as_text(resource) {
            session.warn(warning);
        }
        output::finished(resource, origin, transformations);
    }
    Ok(())
}

fn write(list: Vec<Resource>) -> Built {
    let file_names = file_names(&list);
    let mut yaml = String::new();
    let mut objects = Vec::with_capacity(list.len());
    for resource in list {
        let object = resource.into_object();
        if !objects.is_empty() {
            yaml.push_str("---\n");
        }
        kiln_yaml::emit_into(&mut yaml, &object, &kiln_yaml::EmitOptions::default());
        objects.push(object);
    }
    Built { objects, file_names, yaml }
}

/// `[namespace_][group_]version_kind_name.yaml`, the namespace only if there are several.
fn file_names(list: &[Resource]) -> Vec<String> {
    let namespaces: FxHashSet<&str> = list
        .iter()
        .filter(|resource| !resource.id().cluster_scoped)
        .map(|resource| resource.id().effective_namespace())
        .collect();
    list.iter()
        .map(|resource| {
            let id = resource.id();
            let mut parts = Vec::new();
            if namespaces.len() > 1 && !id.cluster_scoped {
                parts.push(id.effective_namespace());
            }
            parts.extend([id.gvk.group.as_str(), &id.gvk.version, &id.gvk.kind, &id.name]);
            parts.retain(|part| !part.is_empty());
            format!("{}.yaml", parts.join("_").to_lowercase())
        })
        .collect()
}

/// Gathers what a kustomization describes. A component works on what its user has gathered.
///
/// The order is kustomize's and shows in the output. Generators come after resources, so that `behavior: merge` finds
/// what it merges into; components before transformers, so that prefixes and labels of the kustomization reach what its
/// components add; vars last, after all that can rename an object here.
pub(crate) fn accumulate(
    target: &KustomizationTarget,
    mut gathered: Accumulator,
    session: &Session<'_>,
) -> Result<Accumulator> {
    let kustomization = &target.kustomization;
    accumulate_resources(target, &mut gathered, &kustomization.resources, RESOURCES, session)
        .context("accumulating resources")?;
    gathered.config.merge(&read_config(target, session)?).context("merging config")?;
    let crds = read_crds(target, session)
        .context(format_args!("loading CRDs [{}]", kustomization.crds.join(" ")))?;
    gathered.config.merge(&crds).context("merging CRDs")?;
    let virtual_resources =
        session.clock.time(Phase::Generate, || run_generators(target, &mut gathered, session))?;
    gathered =
        accumulate_components(target, gathered, session).context("accumulating components")?;
    session.clock.time(Phase::Transform, || {
        run_transformers(target, &mut gathered, virtual_resources, session)
    })?;
    run_validators(target, &mut gathered, session)?;
    let vars = kustomization.vars.as_deref().unwrap_or_default();
    vars::add(&mut gathered.vars, vars, &mut gathered.resources, session)
        .map_err(|error| error.at(target.site(session).at(["vars"]).place()))
        .context("merging vars")?;
    Ok(gathered)
}

/// The defaults and the files of `configurations`.
fn read_config(target: &KustomizationTarget, session: &Session<'_>) -> Result<Config> {
    let site = target.site(session);
    let mut config = Config::defaults(session.options.behavior);
    let mut files = Config::default();
    for path in &target.kustomization.configurations {
        let (value, document) = site.load_config(path)?;
        let file = Config::from_value(&value)
            .map_err(|error| site.decode_error(error, document.as_deref()))?;
        files.merge(&file)?;
    }
    config.merge(&files)?;
    Ok(config)
}

fn read_crds(target: &KustomizationTarget, session: &Session<'_>) -> Result<Config> {
    let mut config = Config::default();
    for path in &target.kustomization.crds {
        let (value, _) = target.site(session).load_config(path)?;
        let found = config::from_crds(&value)
            .context(format_args!("unable to parse open API definition from '{path}'"))?;
        config.merge(&found)?;
    }
    Ok(config)
}

/// Adds files, directories and repositories, in order.
pub(crate) fn accumulate_resources(
    target: &KustomizationTarget,
    gathered: &mut Accumulator,
    paths: &[String],
    field: &str,
    session: &Session<'_>,
) -> Result<()> {
    for (at, path) in paths.iter().enumerate() {
        let place = || {
            let segments: [kiln_value::Segment; 2] = [field.into(), at.into()];
            target.site(session).at(segments).place()
        };
        let purpose = if field == RESOURCES { Purpose::Object } else { Purpose::Config };
        accumulate_resource(target, gathered, path, purpose, session)
            .map_err(|error| if error.place().is_none() { error.at(place()) } else { error })?;
    }
    Ok(())
}

fn accumulate_resource(
    target: &KustomizationTarget,
    gathered: &mut Accumulator,
    path: &str,
    purpose: Purpose,
    session: &Session<'_>,
) -> Result<()> {
    let as_file = session
        .clock
        .time(Phase::Load, || accumulate_file(target, gathered, path, purpose, session));
    // kustomize tries the file first and tells both failures: whether an entry is a file or a directory is known to the
    // user alone. A failure over HTTP is final, or a repository would be cloned for every address that is down.
    let Err(not_a_file) = as_file else { return Ok(()) };
    if not_a_file.is_http() {
        return Err(not_a_file);
    }
    let wrap =
        |error: Error| error.context(format_args!("accumulation err='{}'", not_a_file.message()));
    let root = match session.files.enter(&target.root, path) {
        Ok(root) => root,
        Err(_) if not_a_file.is_malformed() => return Err(not_a_file),
        Err(error) => {
            // Of the two failures the one with a place in a file is the user's.
            let missing = error.message().ends_with("no such file or directory");
            let hint = "paths count from the directory of the kustomization that names them";
            return Err(wrap(error)
                .pointing_like(&not_a_file)
                .maybe_hint(missing.then(|| hint.to_owned())));
        }
    };
    let inner = accumulate_directory(target, root, path, None, session).map_err(wrap)?;
    merge(gathered, inner).map_err(wrap)
}

fn accumulate_file(
    target: &KustomizationTarget,
    gathered: &mut Accumulator,
    path: &str,
    purpose: Purpose,
    session: &Session<'_>,
) -> Result<()> {
    let origin = target.origin.as_ref().map(|origin| Arc::new(origin.join(path)));
    let objects = target
        .site(session)
        .load_objects(path, purpose)
        .context(format_args!("accumulating resources from '{path}'"))?;
    // A file with one bad document adds nothing.
    let mut file = Resources::new();
    for mut resource in objects {
        resource.origin.clone_from(&origin);
        if session.options.explain {
            session.touch(touch(&resource, What::Read, &target.site(session).shown(path), ""));
        }
        file.append(resource).context(format_args!("accumulating resources from '{path}'"))?;
    }
    gathered.resources.append_all(file).context(format_args!("merging resources from '{path}'"))
}

/// Builds another kustomization; a component on top of what was gathered so far.
fn accumulate_directory(
    target: &KustomizationTarget,
    root: Rc<Root>,
    path: &str,
    component_on: Option<Accumulator>,
    session: &Session<'_>,
) -> Result<Accumulator> {
    let shown = root.path().to_owned();
    let mut inner = session
        .clock
        .time(Phase::Load, || KustomizationTarget::load(root, session))
        .context(format_args!("couldn't make target for path '{shown}'"))?;
    inner.origin = target.origin.as_ref().map(|origin| origin.join(path));
    inner.helm_namespace = if target.kustomization.namespace.is_empty() {
        target.helm_namespace.clone()
    } else {
        target.kustomization.namespace.clone()
    };
    inner.choose_schema(session)?;
    let kind = &inner.kustomization.kind;
    match (component_on.is_some(), kind == COMPONENT) {
        (true, false) => {
            return Err(Error::new(format!(
                "expected kind '{COMPONENT}' for path '{shown}' but got '{kind}'"
            ))
            .hint("list it under resources"));
        }
        (false, true) => {
            return Err(Error::new(format!("expected kind != '{COMPONENT}' for path '{shown}'"))
                .hint("list it under components"));
        }
        _ => {}
    }
    accumulate(&inner, component_on.unwrap_or_default(), session)
        .context(format_args!("recursed accumulation of path '{shown}'"))
}

fn merge(gathered: &mut Accumulator, inner: Accumulator) -> Result<()> {
    gathered.resources.append_all(inner.resources)?;
    gathered.config.merge(&inner.config)?;
    vars::merge(&mut gathered.vars, inner.vars.into_values())
}

fn accumulate_components(
    target: &KustomizationTarget,
    mut gathered: Accumulator,
    session: &Session<'_>,
) -> Result<Accumulator> {
    for (at, path) in target.kustomization.components.iter().enumerate() {
        let place = || {
            let segments: [kiln_value::Segment; 2] = ["components".into(), at.into()];
            target.site(session).at(segments).place()
        };
        let root = session.files.enter(&target.root, path).map_err(|error| {
            error.reword(|message| format!("loader.New {}", quote(message))).at(place())
        })?;
        gathered =
            accumulate_directory(target, root, path, Some(gathered), session).map_err(|error| {
                error
                    .reword(|message| format!("accumulateDirectory: {}", quote(message)))
                    .at(place())
            })?;
    }
    Ok(gathered)
}

/// Makes what generators make. What plugins for API groups will transform is handed on.
fn run_generators(
    target: &KustomizationTarget,
    gathered: &mut Accumulator,
    session: &Session<'_>,
) -> Result<VirtualResources> {
    let mut generators = steps::generators(target, session)?;
    let mut configs = plugins::configs(target, plugins::GENERATORS, session)?;
    let virtual_resources =
        VirtualResources::take(&mut configs, target, &gathered.config, session)?;
    generators.extend(
        plugins::generators(target, configs, session).context("loading generator plugins")?,
    );
    generators.extend(virtual_resources.generators(target, session)?);
    let programs: Vec<&Program> = generators.iter().filter_map(|g| g.what.program()).collect();
    let mut made_by_programs = None;
    for generator in &generators {
        let made = match generator.what.program() {
            // The first one that is reached starts them all.
            Some(_) => made_by_programs
                .get_or_insert_with(|| plugins::generate(&programs, session).into_iter())
                .next()
                .unwrap_or_else(|| Ok(Vec::new())),
            None => generator.what.generate(session),
        };
        for mut resource in made.map_err(|error| error.at(generator.at.place()))? {
            if resource.origin.is_none() {
                resource.origin.clone_from(&generator.origin);
            }
            if session.options.explain {
                let file = target.shown(session);
                session.touch(touch(&resource, What::Generated, &file, generator.what.kind()));
            }
            let behavior = session.options.behavior;
            gathered.resources.absorb(resource, behavior, &session.scopes).map_err(|error| {
                // kustomize prints the address of its generator here.
                error.context("merging from generator &{0xX <nil>}").at(generator.at.place())
            })?;
        }
    }
    Ok(virtual_resources)
}

fn run_transformers(
    target: &KustomizationTarget,
    gathered: &mut Accumulator,
    mut virtual_resources: VirtualResources,
    session: &Session<'_>,
) -> Result<()> {
    // Plugins for API groups transform before everything else.
    let mut steps = virtual_resources.transformers(target, session)?;
    steps.extend(steps::transformers(target, &gathered.config, session)?);
    let configs = virtual_resources.others(target, session)?;
    steps.extend(plugins::transformers(target, configs, session)?);
    session.remember_virtual(virtual_resources.into_resources());
    for step in &steps {
        run_step(step, &mut gathered.resources, target, session)?;
    }
    session.remember_virtual(Resources::new());
    Ok(())
}

fn run_step(
    step: &TransformerStep,
    resources: &mut Resources,
    target: &KustomizationTarget,
    session: &Session<'_>,
) -> Result<()> {
    session.clock.count_transformer();
    let before = session.options.explain.then(|| snapshot(resources));
    step.what.transform(resources, session).map_err(|error| error.at(step.at.place()))?;
    if let Some(before) = before {
        note_changes(before, resources, step.what.kind(), What::Changed, target, session);
    }
    for resource in resources.iter_mut() {
        for followed in std::mem::take(&mut resource.followed) {
            let mut warning = followed.warning(resource);
            warning.place = step.at.place();
            session.warn(warning);
        }
    }
    let Some(origin) = &step.origin else { return Ok(()) };
    for resource in resources.iter_mut() {
        resource.unshare_annotations();
        for _ in 0..step.what.repeats() {
            // An object without an origin was made by this very step.
            if resource.origin.is_none() {
                resource.origin = Some(Arc::clone(origin));
            } else {
                resource.transformations.push(Arc::clone(origin));
            }
        }
    }
    Ok(())
}

fn run_validators(
    target: &KustomizationTarget,
    gathered: &mut Accumulator,
    session: &Session<'_>,
) -> Result<()> {
    if target.kustomization.validators.is_empty() {
        return Ok(());
    }
    let configs = plugins::configs(target, plugins::VALIDATORS, session)?;
    for step in plugins::transformers(target, configs, session)? {
        let before = snapshot(&gathered.resources);
        step.what
            .transform(&mut gathered.resources, session)
            .map_err(|error| error.at(step.at.place()))?;
        let after = snapshot(&gathered.resources);
        let same = before.len() == after.len()
            && before.iter().zip(&after).all(|(a, b)| {
                let mut seen = b.1.clone();
                seen.remove(["metadata", "labels", "validated-by"]);
                let no_labels = |v: &Value| {
                    v.get_path(["metadata", "labels"])
                        .and_then(Value::as_map)
                        .is_some_and(kiln_value::Map::is_empty)
                };
                if no_labels(&seen) && !no_labels(&a.1) {
                    seen.remove(["metadata", "labels"]);
                }
                a.1 == seen
            });
        if !same {
            return Err(Error::new(format!(
                "validator shouldn't modify the resource map: {} changed an object",
                step.what.kind()
            )));
        }
    }
    Ok(())
}
