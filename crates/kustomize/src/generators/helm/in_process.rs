//! Charts, rendered in the process: no program is started.

use kiln_chart::{HelmVersion, KubeVersion, NoAmbientSources, Release, SeededSources};
use kiln_diagnostic::Diagnostic;
use kiln_value::Value;

use super::{Chart, merged};
use crate::build::session::Session;
use crate::error::{Error, Result};
use crate::host::ChartSource;
use crate::load::chart_directory::ChartDirectory;
use crate::load::loader::LoadRestrictions;
use crate::load::paths;

/// The error of a chart in Helm's words, with its place.
fn failed(error: &kiln_chart::ChartError) -> Error {
    let diagnostic = error.diagnostic();
    let hint = diagnostic.hint.clone();
    Error::new(error.helm_text()).at(diagnostic.place.clone()).maybe_hint(hint)
}

impl Chart {
    /// What `helm template` prints of the chart.
    pub(super) fn render(&self, helm: HelmVersion, session: &Session<'_>) -> Result<String> {
        let options = self.render_options(helm, session)?;
        let (chart, packaged) = self.load(&options, session)?;
        let values = match packaged && self.chart.values_file.is_empty() {
            true => self.values_over(&chart),
            false => self.values(session)?,
        };
        let values = kiln_chart::read_values("values", &values, helm);
        let mut values = values.map_err(|error| failed(&error))?;
        for path in &self.chart.additional_values_files {
            let text = session.files.load(&self.root, path)?;
            let more = kiln_chart::read_values(&self.shown(path, session), &text, helm);
            kiln_chart::merge_values(&mut values, &more.map_err(|error| failed(&error))?);
        }
        let seed = session.options.helm.as_ref().and_then(|helm| helm.seed.as_deref());
        let seeded = seed.map(|seed| SeededSources::new(seed, &options.release));
        let sources: &dyn kiln_chart::AmbientSources = match &seeded {
            Some(seeded) => seeded,
            None => &NoAmbientSources,
        };
        let rendered = kiln_chart::render_with(chart, &values, &options, sources, session.lookup)
            .map_err(|error| failed(&error))?;
        for warning in &rendered.warnings {
            session.warn(Diagnostic::warning(format!("chart {}: {warning}", self.chart.name)));
        }
        if seeded.is_some_and(|seeded| seeded.was_used()) {
            session.warn(
                Diagnostic::warning(format!(
                    "random values of chart {} follow from the seed: every user who knows it knows them",
                    self.chart.name
                ))
                .hint("give passwords and keys as values"),
            );
        }
        Ok(rendered.text())
    }

    fn render_options(
        &self,
        helm: HelmVersion,
        session: &Session<'_>,
    ) -> Result<kiln_chart::ChartOptions> {
        let chart = &self.chart;
        let given = session.options.helm.clone().unwrap_or_default();
        let name = match (chart.release_name.as_str(), chart.name_template.as_str()) {
            ("", "") => Release::default().name,
            ("", template) => kiln_chart::release_name(template).map_err(|error| failed(&error))?,
            (name, "") => name.to_owned(),
            _ => return Err(Error::new("cannot set --name-template and also specify a name")),
        };
        let namespace = match chart.namespace.as_str() {
            "" => Release::default().namespace,
            namespace => namespace.to_owned(),
        };
        let kube_version =
            if chart.kube_version.is_empty() { &given.kube_version } else { &chart.kube_version };
        let kube_version = match kube_version.as_str() {
            "" => KubeVersion::default(),
            version => KubeVersion::parse(version).map_err(|error| failed(&error))?,
        };
        let api_versions = if chart.api_versions.is_empty() {
            given.api_versions
        } else {
            chart.api_versions.clone()
        };
        Ok(kiln_chart::ChartOptions {
            helm,
            release: Release { name, namespace, is_upgrade: false },
            kube_version,
            api_versions,
            include_crds: chart.include_crds,
            skip_tests: chart.skip_tests,
            no_hooks: chart.skip_hooks,
            ..kiln_chart::ChartOptions::default()
        })
    }

    /// The values for a packaged chart, which is not unpacked for kustomize to read its own from.
    fn values_over(&self, chart: &kiln_chart::Chart) -> Vec<u8> {
        let inline = &self.chart.values_inline;
        let own = Value::Map(chart.values().clone());
        let values = match (inline, self.chart.values_merge.as_str()) {
            (Value::Null, _) => own,
            (inline, "replace") => inline.clone(),
            (inline, "merge") => merged(inline, &own),
            (inline, _) => merged(&own, inline),
        };
        kiln_yaml::emit(&values).into_bytes()
    }

    /// The chart in its directory, packaged beside it, or from where it is published. Whether it was packaged.
    fn load(
        &self,
        options: &kiln_chart::ChartOptions,
        session: &Session<'_>,
    ) -> Result<(kiln_chart::Chart, bool)> {
        let directory = self.chart_directory();
        let system = session.files.system();
        if system.resolve(&directory).is_err() {
            let package = match self.package(session) {
                Some(package) => session.files.load(&self.root, &package)?.to_vec(),
                None => self.fetched(session)?,
            };
            let chart = kiln_chart::Chart::load_package(&package, options);
            return chart.map(|chart| (chart, true)).map_err(|error| failed(&error));
        }
        let within = match self.root.restrictions() {
            LoadRestrictions::None => None,
            LoadRestrictions::RootOnly => Some(self.root.path()),
        };
        let files = ChartDirectory { files: system, path: &directory, within };
        let chart = kiln_chart::Chart::load(&files, options);
        chart.map(|chart| (chart, false)).map_err(|error| failed(&error))
    }

    /// The package from the repository or registry that the chart names.
    fn fetched(&self, session: &Session<'_>) -> Result<Vec<u8>> {
        self.check_repository()?;
        let chart = &self.chart;
        let source = ChartSource {
            repository: &chart.repo,
            name: &chart.name,
            version: &chart.version,
            devel: chart.devel,
        };
        session
            .files
            .chart(&source)
            .map_err(|error| error.hint(format!("put the chart into {}", self.chart_directory())))
    }

    /// A packaged chart where its directory would be.
    fn package(&self, session: &Session<'_>) -> Option<String> {
        let kustomized = &self.chart;
        let names = match kustomized.version.as_str() {
            "" => vec![format!("{}.tgz", kustomized.name)],
            version => vec![
                format!("{}-{version}.tgz", kustomized.name),
                format!("{}.tgz", kustomized.name),
            ],
        };
        let homes = [self.home.as_str(), paths::parent(&self.home)];
        let mut places =
            homes.iter().flat_map(|home| names.iter().map(|name| paths::join(home, name)));
        places.find(|place| {
            let place = session.files.confined(&self.root, place);
            place.is_ok_and(|place| session.files.system().resolve(&place).is_ok())
        })
    }
}
