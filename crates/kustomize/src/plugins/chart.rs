//! `Chart` resources of the group `helm.kustomize.io`, which this crate renders itself.
//!
//! A chart and its values lie beside the kustomization; what the chart makes is customized like every other object.
//! Nothing is started or fetched, so no flag is needed. A program that the user installed for the group goes first.

use kiln_value::{Map, Path, Value};

use crate::build::session::Session;
use crate::build::steps::Generate;
use crate::error::{Error, Result};
use crate::fields::lazy_location::LazyLocation;
use crate::generators::helm::{self, refuse_options};
use crate::load::decode;
use crate::load::kustomization::{ChartArguments, HelmChart};
use crate::load::paths;
use crate::load::target::KustomizationTarget;
use crate::model::resource::Resource;

/// The API group.
pub(super) const GROUP: &str = "helm.kustomize.io";

/// The only kind in it.
const KIND: &str = "Chart";

/// The field that says what to generate.
const GENERATE: &str = "generate";

/// The ending of a packaged chart.
const PACKAGE: &str = ".tgz";

/// A chart that an object asks for.
pub(super) struct Chart(helm::Chart);

impl Chart {
    /// Reads the object.
    ///
    /// # Errors
    /// When it is of another kind, lacks a chart, or names one that is not there.
    pub(super) fn configured(
        config: &Resource,
        at: &LazyLocation,
        target: &KustomizationTarget,
        session: &Session<'_>,
    ) -> Result<Self> {
        let kind = config.kind().as_str();
        if kind != KIND {
            return Err(Error::new(format!("{GROUP} has no kind {kind}"))
                .hint(format!("write kind: {KIND}, or install a plugin for the group")));
        }
        let arguments = arguments(config, target, session)?;
        let chart = arguments.chart.as_str();
        let failed = |error: Error| error.at(at.field(GENERATE).field("chart").place());
        if chart.is_empty() {
            let missing = Error::new("generate.chart is missing")
                .hint("write the path of a chart from this kustomization, such as ./charts/web");
            return Err(missing.at(at.field(GENERATE).place()));
        }
        let path = session.files.confined(&target.root, chart).map_err(failed)?;
        if session.files.system().resolve(&path).is_err() {
            return Err(failed(
                Error::new(format!("there is no chart at {chart}"))
                    .hint("write the path of a directory with a Chart.yaml, or of a package"),
            ));
        }
        let name = paths::base(&path);
        let name = name.strip_suffix(PACKAGE).unwrap_or(name).to_owned();
        let own = &target.kustomization.namespace;
        let namespace = [&arguments.namespace, own, &target.helm_namespace];
        let release = [&arguments.release_name, &config.name().to_string(), &name];
        let chart = HelmChart {
            release_name: first_of(release),
            namespace: first_of(namespace),
            values_inline: match arguments.values {
                Value::Null => Value::Map(Map::new()),
                values => values,
            },
            // The renderer knows the chart's own values.
            values_merge: "replace".to_owned(),
            include_crds: arguments.include_crds,
            skip_hooks: arguments.skip_hooks,
            skip_tests: arguments.skip_tests,
            name,
            ..HelmChart::default()
        };
        refuse_options(&chart, &at.field(GENERATE))?;
        Ok(Chart(helm::Chart::new(chart, target, paths::parent(&path).to_owned())))
    }
}

/// The first text that says something.
fn first_of<const N: usize>(texts: [&String; N]) -> String {
    texts.into_iter().find(|text| !text.is_empty()).cloned().unwrap_or_default()
}

/// What stands under `generate`.
fn arguments(
    config: &Resource,
    target: &KustomizationTarget,
    session: &Session<'_>,
) -> Result<ChartArguments> {
    let generate = config.object().get(GENERATE).unwrap_or(&Value::Null);
    decode::known(generate).map_err(|mut error| {
        let mut path = Path::root().join(GENERATE);
        for segment in error.path.segments() {
            path.push(segment.clone());
        }
        error.path = path;
        target.site(session).decode_error(error, config.document.as_deref())
    })
}

impl Generate for Chart {
    fn kind(&self) -> &str {
        KIND
    }

    fn generate(&self, session: &Session<'_>) -> Result<Vec<Resource>> {
        let mut objects = self.0.generate(session)?;
        for object in &mut objects {
            // kustomize leaves the namespaces of `helmCharts` alone; here everything is customized.
            object.from_helm = false;
        }
        Ok(objects)
    }
}
