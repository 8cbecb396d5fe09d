//! Charts, rendered by the `helm` program.

use kiln_value::{Map, Value};

use crate::at::At;
use crate::error::{Error, Result};
use crate::host::{Argument, Command, Finished};
use crate::kustomization::HelmChart;
use crate::objects::Purpose;
use crate::paths;
use crate::resource::Resource;
use crate::session::Session;
use crate::steps::{Generate, put, trouble};
use crate::target::Target;

/// A chart, checked and ready to render.
pub(crate) struct Chart {
    chart: HelmChart,
    root: String,
    home: String,
}

impl Chart {
    /// Checks an entry of `helmCharts`.
    ///
    /// # Errors
    /// When charts are not allowed, or the entry lacks something.
    pub(crate) fn configured(
        mut chart: HelmChart,
        target: &Target,
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
        Self::check(&chart, session).map_err(|error| {
            trouble(error, "HelmChartInflationGenerator", shown(&chart), &At::default())
        })?;
        let home = if chart.chart_home.is_empty() { "charts" } else { &chart.chart_home };
        let root = target.root.path().to_owned();
        let mut home = paths::absolute(&root, home);
        // Several versions of one chart live side by side.
        if !chart.version.is_empty() && !chart.repo.is_empty() {
            home = paths::join(&home, &format!("{}-{}", chart.name, chart.version));
        }
        Ok(Chart { chart, root, home })
    }

    fn check(chart: &HelmChart, session: &Session<'_>) -> Result<()> {
        if session.options.helm.is_none() {
            return Err(Error::new("must specify --enable-helm")
                .hint("build with --enable-helm to let helm render charts"));
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
            directory: self.root.clone(),
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
        if chart.repo.is_empty() {
            return Err(Error::new(format!(
                "no repo specified for pull, no chart found at '{}'",
                self.chart_directory()
            )));
        }
        let mut words: Vec<Argument> =
            ["pull", "--untar", "--untardir", &self.home].map(Argument::from).to_vec();
        if chart.repo.starts_with("oci://") {
            words.push(format!("{}/{}", chart.repo.trim_end_matches('/'), chart.name).into());
        } else {
            words.extend(["--repo", &chart.repo, &chart.name].map(Argument::from));
        }
        if !chart.version.is_empty() {
            words.extend(["--version", &chart.version].map(Argument::from));
        }
        if chart.devel {
            words.push("--devel".into());
        }
        self.helm(words, None, session).map(drop)
    }

    fn chart_directory(&self) -> String {
        paths::join(&self.home, &self.chart.name)
    }

    /// The values for the chart: its file and the ones written in place, merged as asked.
    fn values(&self, session: &Session<'_>) -> Result<Vec<u8>> {
        let chart = &self.chart;
        let path = if chart.values_file.is_empty() {
            paths::join(&self.chart_directory(), "values.yaml")
        } else {
            paths::absolute(&self.root, &chart.values_file)
        };
        let inline = &chart.values_inline;
        if chart.values_merge == "replace" && !inline.is_null() {
            return Ok(kiln_yaml::emit(inline).into_bytes());
        }
        let file = session
            .files
            .system()
            .read(&path, session.options.max_file_size)
            .map_err(|error| Error::new(error.to_string()))?;
        if inline.is_null() {
            return Ok(file);
        }
        let options = session.files.limited(kiln_yaml::ReadOptions::kustomization());
        let documents = kiln_yaml::read_bytes(&session.shown(&path), &file, options)
            .map_err(|diagnostic| crate::output::yaml_error(&diagnostic))?;
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
        let mut pair = |flag: &str, value: &str| {
            if !value.is_empty() {
                words.extend([Argument::from(flag), Argument::from(value)]);
            }
        };
        pair("--namespace", &chart.namespace);
        pair("--name-template", &chart.name_template);
        words.extend([Argument::from("-f"), Argument::File]);
        let mut pair = |flag: &str, value: &str| {
            if !value.is_empty() {
                words.extend([Argument::from(flag), Argument::from(value)]);
            }
        };
        for file in &chart.additional_values_files {
            pair("-f", file);
        }
        let api_versions =
            if chart.api_versions.is_empty() { &options.api_versions } else { &chart.api_versions };
        for version in api_versions {
            pair("--api-versions", version);
        }
        let kube_version =
            if chart.kube_version.is_empty() { &options.kube_version } else { &chart.kube_version };
        pair("--kube-version", kube_version);
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

impl Generate for Chart {
    fn kind(&self) -> &str {
        "HelmChartInflationGenerator"
    }

    fn generate(&self, session: &Session<'_>) -> Result<Vec<Resource>> {
        self.check_version(session)?;
        if session.files.system().resolve(&self.chart_directory()).is_err() {
            self.pull(session)?;
        }
        let values = self.values(session)?;
        let finished = self.helm(self.template_words(session), Some(values), session)?;
        let name = format!("chart {}", self.chart.name);
        // Some versions write notes before the first document.
        let output = &finished.output;
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

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    #[test]
    fn values_merge_map_by_map() {
        let file = value!({"a": {"b": 1, "c": [1]}, "d": 1});
        let inline = value!({"a": {"b": 2, "c": [2]}, "e": 3});
        assert_eq!(merged(&file, &inline), value!({"a": {"b": 2, "c": [2]}, "d": 1, "e": 3}));
        assert_eq!(merged(&inline, &file), value!({"a": {"b": 1, "c": [1]}, "d": 1, "e": 3}));
    }
}
