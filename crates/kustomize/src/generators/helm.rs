//! Charts, rendered in the process or by the `helm` program.
//!
//! The author of a kustomization chooses charts and values, and nothing else: no text of it becomes an option
//! of helm (some of those run programs), no path leads where the kustomization itself may not read, helm runs
//! in a directory of its own, and a configuration that the kustomization brings counts only where programs may run.

mod in_process;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::rc::Rc;

use kiln_diagnostic::Diagnostic;
use kiln_value::{Map, Value};

use crate::ChartRenderer;
use crate::build::session::Session;
use crate::build::steps::{Generate, put, trouble};
use crate::error::{Error, Result};
use crate::fields::lazy_location::LazyLocation;
use crate::host::{Argument, Command, Finished};
use crate::load::kustomization::HelmChart;
use crate::load::loader::{LoadRestrictions, Root};
use crate::load::paths;
use crate::load::target::KustomizationTarget;
use crate::model::objects::Purpose;
use crate::model::resource::Resource;

/// A chart, checked and ready to render.
pub(crate) struct Chart {
    chart: HelmChart,
    root: Rc<Root>,
    /// The directory that holds the chart's own.
    home: String,
}

impl Chart {
    /// Checks an entry of `helmCharts`.
    ///
    /// # Errors
    /// When charts are not allowed, or the entry lacks something.
    pub(crate) fn configured(
        mut chart: HelmChart,
        at: &LazyLocation,
        target: &KustomizationTarget,
        session: &Session<'_>,
    ) -> Result<Self> {
        let globals = target.kustomization.helm_globals.clone().unwrap_or_default();
        if chart.chart_home.is_empty() {
            chart.chart_home = globals.chart_home;
        }
        if chart.config_home.is_empty() {
            chart.config_home = globals.config_home;
        }
        if chart.namespace.is_empty() {
            let own = &target.kustomization.namespace;
            chart.namespace =
                if own.is_empty() { target.helm_namespace.clone() } else { own.clone() };
        }
        let failed = |error: Error| {
            trouble(error, "HelmChartInflationGenerator", shown(&chart), &LazyLocation::default())
        };
        Self::check(&chart, session).map_err(failed)?;
        refuse_options(&chart, at).map_err(failed)?;
        let root = Rc::clone(&target.root);
        let confined = |field: &str, path: &str| {
            let confined = session.files.confined(&root, path);
            confined.map_err(|error| failed(error.at(at.field(field).place())))
        };
        let home = if chart.chart_home.is_empty() { "charts" } else { &chart.chart_home };
        let mut home = confined("chartHome", home)?;
        // Several versions of one chart live side by side.
        if !chart.version.is_empty() && !chart.repo.is_empty() {
            let both = format!("{}-{}", chart.name, chart.version);
            home = confined("version", &paths::join(&home, &both))?;
        }
        confined("name", &paths::join(&home, &chart.name))?;
        let config_home = match chart.config_home.as_str() {
            "" => String::new(),
            path => {
                let path = confined("configHome", path)?;
                if session.options.enable_exec { path } else { without_config_home(at, session) }
            }
        };
        let mut files = Vec::new();
        for path in &chart.additional_values_files {
            files
                .push(values_file(path, &root, session).map_err(|error| {
                    failed(error.at(at.field("additionalValuesFiles").place()))
                })?);
        }
        chart.config_home = config_home;
        chart.additional_values_files = files;
        Ok(Chart { chart, root, home })
    }

    /// A chart in a directory below the kustomization that needs no check.
    pub(crate) fn new(chart: HelmChart, target: &KustomizationTarget, home: String) -> Self {
        Chart { chart, root: Rc::clone(&target.root), home }
    }

    fn check(chart: &HelmChart, session: &Session<'_>) -> Result<()> {
        if session.options.helm.is_none() {
            return Err(Error::new("must specify --enable-helm")
                .hint("build with --enable-helm, which renders charts without helm"));
        }
        if chart.name.is_empty() {
            return Err(Error::new("chart name cannot be empty"));
        }
        match chart.values_merge.as_str() {
            "" | "override" | "merge" | "replace" => Ok(()),
            _ => Err(Error::new("valuesMerge must be one of override, merge, replace")),
        }
    }

    fn helm(
        &self,
        arguments: Vec<Argument>,
        file: Option<Vec<u8>>,
        session: &Session<'_>,
    ) -> Result<Finished> {
        let options = session.options.helm.clone().unwrap_or_default();
        let mut environment = Vec::new();
        if !self.chart.config_home.is_empty() {
            environment.push(("HELM_CONFIG_HOME".to_owned(), self.chart.config_home.clone()));
        }
        let command = Command {
            program: options.command.clone(),
            arguments,
            environment,
            // All paths are absolute. What helm looks for where it runs is not for the kustomization to bring.
            directory: String::new(),
            file,
            ..Command::default()
        };
        let finished = session.programs.run(&command).map_err(|error| {
            error.hint("install helm, or name another program with --helm-command")
        })?;
        if !finished.exit.is_success() {
            return Err(Error::new(format!(
                "{}\n: unable to run: '{}' (is '{}' installed?): {}",
                finished.errors.trim_end(),
                options.command,
                options.command,
                finished.exit
            )));
        }
        Ok(finished)
    }

    fn check_version(&self, session: &Session<'_>) -> Result<()> {
        let words = ["version", "--short"].map(Argument::from).to_vec();
        let finished = self.helm(words, None, session)?;
        let version = String::from_utf8_lossy(&finished.output).into_owned();
        if version.trim_start().starts_with("v3") || version.trim_start().starts_with("v4") {
            return Ok(());
        }
        Err(Error::new(format!("this plugin requires helm V3 or V4 but got {}", version.trim())))
    }

    fn pull(&self, session: &Session<'_>) -> Result<()> {
        let chart = &self.chart;
        self.check_repository()?;
        if session.options.offline {
            return Err(Error::new(format!(
                "the chart {} lies elsewhere ({}), and this build is offline",
                chart.name, chart.repo
            ))
            .hint(format!(
                "build without --offline and KILN_OFFLINE to let helm fetch it, or put it into {}",
                self.chart_directory()
            )));
        }
        let mut words: Vec<Argument> =
            vec!["pull".into(), "--untar".into(), format!("--untardir={}", self.home).into()];
        if chart.repo.starts_with("oci://") {
            words.push(format!("{}/{}", chart.repo.trim_end_matches('/'), chart.name).into());
        } else {
            words.push(format!("--repo={}", chart.repo).into());
            words.push(chart.name.as_str().into());
        }
        if !chart.version.is_empty() {
            words.push(format!("--version={}", chart.version).into());
        }
        if chart.devel {
            words.push("--devel".into());
        }
        self.helm(words, None, session).map(drop)
    }

    /// Whether there is a place to fetch the chart from.
    fn check_repository(&self) -> Result<()> {
        if !self.chart.repo.is_empty() {
            return Ok(());
        }
        let directory = self.chart_directory();
        Err(Error::new(format!("no repo specified for pull, no chart found at '{directory}'")))
    }

    fn chart_directory(&self) -> String {
        paths::join(&self.home, &self.chart.name)
    }

    /// Refuses a chart with links that lead where the kustomization may not read: helm follows them all.
    fn refuse_links_out(&self, session: &Session<'_>) -> Result<()> {
        let system = session.files.system();
        let mut directories = vec![session.files.confined(&self.root, &self.chart_directory())?];
        if self.root.restrictions() == LoadRestrictions::None {
            return Ok(());
        }
        let mut seen = BTreeSet::new();
        while let Some(directory) = directories.pop() {
            let links = system.links_below(&directory);
            for link in links.map_err(|error| Error::new(error.to_string()))? {
                let place = session.files.confined(&self.root, &link)?;
                // Links may be in there, too.
                if system.resolve(&place).is_ok_and(|found| found.is_directory)
                    && !seen.contains(&place)
                {
                    directories.push(place);
                }
            }
            seen.insert(directory);
        }
        Ok(())
    }

    fn shown(&self, path: &str, session: &Session<'_>) -> String {
        session.shown(&paths::absolute(self.root.path(), path))
    }

    /// The values for the chart: its file and the ones written in place, merged as asked.
    fn values(&self, session: &Session<'_>) -> Result<Vec<u8>> {
        let chart = &self.chart;
        let path = if chart.values_file.is_empty() {
            paths::join(&self.chart_directory(), "values.yaml")
        } else {
            chart.values_file.clone()
        };
        let inline = &chart.values_inline;
        if chart.values_merge == "replace" && !inline.is_null() {
            return Ok(kiln_yaml::emit(inline).into_bytes());
        }
        let file = session.files.load(&self.root, &path)?;
        if inline.is_null() {
            return Ok(file.to_vec());
        }
        let options = session.files.limited(kiln_yaml::ReadOptions::kustomization());
        let documents = kiln_yaml::read_bytes(&self.shown(&path, session), &file, options)
            .map_err(|diagnostic| crate::model::output::yaml_error(&diagnostic))?;
        let file =
            documents.into_iter().next().map_or(Value::Null, kiln_yaml::Document::into_value);
        let merged = if chart.values_merge == "merge" {
            merged(inline, &file)
        } else {
            merged(&file, inline)
        };
        Ok(kiln_yaml::emit(&merged).into_bytes())
    }

    fn template_words(&self, session: &Session<'_>) -> Vec<Argument> {
        let chart = &self.chart;
        let options = session.options.helm.clone().unwrap_or_default();
        let mut words: Vec<Argument> = vec!["template".into()];
        if chart.release_name.is_empty() {
            words.push("--generate-name".into());
        } else {
            words.push(chart.release_name.as_str().into());
        }
        words.push(self.chart_directory().into());
        let option = |words: &mut Vec<Argument>, flag: &str, value: &str| {
            if !value.is_empty() {
                words.push(format!("{flag}={value}").into());
            }
        };
        option(&mut words, "--namespace", &chart.namespace);
        option(&mut words, "--name-template", &chart.name_template);
        words.extend([Argument::from("-f"), Argument::File]);
        for file in &chart.additional_values_files {
            option(&mut words, "--values", file);
        }
        let api_versions =
            if chart.api_versions.is_empty() { &options.api_versions } else { &chart.api_versions };
        for version in api_versions {
            option(&mut words, "--api-versions", version);
        }
        let kube_version =
            if chart.kube_version.is_empty() { &options.kube_version } else { &chart.kube_version };
        option(&mut words, "--kube-version", kube_version);
        for (flag, on) in [
            ("--include-crds", chart.include_crds),
            ("--skip-tests", chart.skip_tests),
            ("--no-hooks", chart.skip_hooks),
            ("--debug", chart.debug || options.debug),
            ("--devel", chart.devel),
        ] {
            if on {
                words.push(flag.into());
            }
        }
        words
    }
}

impl Chart {
    fn printed_by_helm(&self, session: &Session<'_>) -> Result<Vec<u8>> {
        self.check_version(session)?;
        if session.files.system().resolve(&self.chart_directory()).is_err() {
            self.pull(session)?;
        }
        self.refuse_links_out(session)?;
        let values = self.values(session)?;
        Ok(self.helm(self.template_words(session), Some(values), session)?.output)
    }
}

impl Generate for Chart {
    fn kind(&self) -> &str {
        "HelmChartInflationGenerator"
    }

    fn generate(&self, session: &Session<'_>) -> Result<Vec<Resource>> {
        let renderer = session.options.helm.clone().unwrap_or_default().renderer;
        let output = match renderer {
            ChartRenderer::InProcess(helm) => self.render(helm, session)?.into_bytes(),
            ChartRenderer::Program => self.printed_by_helm(session)?,
        };
        let name = format!("chart {}", self.chart.name);
        // Some versions write notes before the first document.
        let output = &output;
        let mut objects =
            session.read_objects(&name, output, Purpose::Object).or_else(|error| {
                let start = output.windows(4).position(|window| window == b"---\n");
                match start {
                    Some(start) => session.read_objects(&name, &output[start..], Purpose::Object),
                    None => Err(error),
                }
            })?;
        for resource in &mut objects {
            resource.from_helm = true;
        }
        Ok(objects)
    }
}

/// Says that the user's own configuration of helm is used: that of a kustomization can name programs which log in
/// to registries, and helm runs them.
fn without_config_home(at: &LazyLocation, session: &Session<'_>) -> String {
    let mut warning =
        Diagnostic::warning("configHome of a chart was not used: what lies there can name programs that helm runs")
            .hint("helm uses your own configuration; build with --enable-exec to let it use that of the kustomization");
    warning.place = at.field("configHome").place();
    session.warn(warning);
    String::new()
}

/// Refuses texts that helm would take for options.
pub(crate) fn refuse_options(chart: &HelmChart, at: &LazyLocation) -> Result<()> {
    // All fields are named, so that a new one cannot be forgotten here.
    let HelmChart {
        name,
        version,
        repo,
        release_name,
        namespace,
        additional_values_files,
        values_file,
        values_inline: _,
        values_merge: _,
        include_crds: _,
        skip_hooks: _,
        api_versions,
        kube_version,
        name_template,
        skip_tests: _,
        debug: _,
        devel: _,
        chart_home,
        config_home,
    } = chart;
    let texts = [
        ("name", name),
        ("version", version),
        ("repo", repo),
        ("releaseName", release_name),
        ("namespace", namespace),
        ("valuesFile", values_file),
        ("kubeVersion", kube_version),
        ("nameTemplate", name_template),
        ("chartHome", chart_home),
        ("configHome", config_home),
    ];
    let lists = [("additionalValuesFiles", additional_values_files), ("apiVersions", api_versions)];
    let in_lists = lists.into_iter().flat_map(|(field, list)| list.iter().map(move |t| (field, t)));
    match texts.into_iter().chain(in_lists).find(|(_, text)| text.starts_with('-')) {
        None => Ok(()),
        Some((field, text)) => Err(Error::new(format!("{field} of a chart cannot be '{text}'"))
            .at(at.field(field).place())
            .hint("helm would take it for an option: no value may begin with a dash")),
    }
}

/// A further file of values, as helm is given it.
fn values_file(path: &str, root: &Root, session: &Session<'_>) -> Result<String> {
    if root.restrictions() == LoadRestrictions::RootOnly && path.contains("://") {
        return Err(Error::new(format!("'{path}' is not a file of this kustomization"))
            .hint("download the file and name it as a local one: helm would fetch it unasked"));
    }
    session.files.confined(root, path)
}

/// One over the other, map by map.
fn merged(below: &Value, above: &Value) -> Value {
    match (below, above) {
        (Value::Map(below), Value::Map(above)) => {
            let mut map = below.clone();
            for (key, value) in above {
                let both = match map.get(key) {
                    Some(old) => merged(old, value),
                    None => value.clone(),
                };
                map.insert(key.clone(), both);
            }
            Value::Map(map)
        }
        (_, above) => above.clone(),
    }
}

fn shown(chart: &HelmChart) -> Map {
    let mut map = Map::new();
    put(&mut map, "name", &chart.name);
    put(&mut map, "version", &chart.version);
    put(&mut map, "repo", &chart.repo);
    put(&mut map, "releaseName", &chart.release_name);
    put(&mut map, "namespace", &chart.namespace);
    put(&mut map, "valuesFile", &chart.values_file);
    map
}
