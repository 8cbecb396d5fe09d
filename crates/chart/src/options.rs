//! How a chart is rendered.

use crate::capabilities::KubeVersion;

/// How a chart is rendered.
#[derive(Clone, Debug)]
pub struct ChartOptions {
    /// What differs between the versions of Helm.
    pub helm: HelmVersion,
    /// What `.Release` says.
    pub release: Release,
    pub kube_version: KubeVersion,
    /// `--api-versions`: what there is besides the API versions of Kubernetes.
    pub api_versions: Vec<String>,
    pub include_crds: bool,
    pub skip_tests: bool,
    pub no_hooks: bool,
    /// `--skip-schema-validation`
    pub skip_schema: bool,
    /// How much a chart may cost.
    pub limits: ChartLimits,
}

impl Default for ChartOptions {
    fn default() -> Self {
        ChartOptions {
            helm: HelmVersion::V3,
            release: Release::default(),
            kube_version: KubeVersion::default(),
            api_versions: Vec::new(),
            include_crds: false,
            skip_tests: false,
            no_hooks: false,
            skip_schema: false,
            limits: ChartLimits::default(),
        }
    }
}

/// What `.Release` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The name of the release.
    pub name: String,
    /// Where it is installed.
    pub namespace: String,
    /// Whether it is upgraded rather than installed.
    pub is_upgrade: bool,
}

impl Default for Release {
    fn default() -> Self {
        Release {
            name: "release-name".to_owned(),
            namespace: "default".to_owned(),
            is_upgrade: false,
        }
    }
}

/// What differs between the versions of Helm, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelmVersion {
    /// Whether nulls of a chart's own values are gone when values are merged.
    pub clean_default_nulls: bool,
    /// Whether all documents of a values file count, not the first alone.
    pub all_value_documents: bool,
    /// Whether `.Chart` is a map, so that a field it does not have is nothing rather than an error.
    pub chart_is_map: bool,
    /// Whether documents end where a line begins with `---`, and keep their last line ends.
    pub split_at_line_start: bool,
    /// Whether webhook configurations come last.
    pub webhooks_last: bool,
    /// Whether `mustToYaml` and its like are there, and how the type of values is named.
    pub is_4: bool,
}

impl HelmVersion {
    /// Helm 3.21.
    pub const V3: HelmVersion = HelmVersion {
        clean_default_nulls: false,
        all_value_documents: false,
        chart_is_map: false,
        split_at_line_start: false,
        webhooks_last: false,
        is_4: false,
    };

    /// Helm 4.2.
    pub const V4: HelmVersion = HelmVersion {
        clean_default_nulls: true,
        all_value_documents: true,
        chart_is_map: true,
        split_at_line_start: true,
        webhooks_last: true,
        is_4: true,
    };
}

/// How much a chart may cost. Whatever goes beyond is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChartLimits {
    /// Files of a chart with all its subcharts.
    pub files: usize,
    /// Bytes of one file; Helm allows as many.
    pub file_bytes: usize,
    /// Bytes of all files together, unpacked; Helm allows as many.
    pub chart_bytes: usize,
    /// How deep charts may lie in charts.
    pub subchart_depth: usize,
    /// Bytes of all templates together.
    pub template_bytes: usize,
    /// Steps of all renderings together.
    pub steps: u64,
    /// Bytes that all renderings together may make.
    pub bytes: u64,
    /// How many levels of templates, control structures and calls may be open.
    pub depth: usize,
}

impl Default for ChartLimits {
    fn default() -> Self {
        ChartLimits {
            files: 20_000,
            file_bytes: 5 << 20,
            chart_bytes: 100 << 20,
            subchart_depth: 16,
            template_bytes: 32 << 20,
            steps: 200_000_000,
            bytes: 1 << 30,
            depth: 300,
        }
    }
}
