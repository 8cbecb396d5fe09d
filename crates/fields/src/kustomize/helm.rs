//! Charts.

use crate::{FieldTable, any, boolean, one_of, string, strings, table};

/// `helmGlobals`.
pub static HELM_GLOBALS: FieldTable = FieldTable::new(
    "Helm globals",
    "Settings of all charts.",
    &[
        string("chartHome", "Directory of charts.").default("charts").example("vendor/charts"),
        string("configHome", "Directory of Helm's configuration.")
            .default("a temporary one")
            .example("helm-config"),
    ],
);

/// An entry of `helmCharts`, or the configuration of a HelmChartInflationGenerator.
pub static HELM_CHART: FieldTable = FieldTable::new(
    "Helm chart",
    "An entry of `helmCharts`. `helm template` renders it.",
    &[
        string("name", "Name of the chart.").required().example("ingress-nginx"),
        string("version", "Version.").default("the newest").example("4.12.1"),
        string("repo", "Address of the repository, or `oci://`.")
            .example("https://charts.example.com"),
        string("releaseName", "Name of the release.").example("ingress"),
        string("namespace", "Namespace of the release.").example("ingress"),
        strings("additionalValuesFiles", "More files with values, which count more.")
            .example("[values-prod.yaml]"),
        string("valuesFile", "File with values.").default("the chart's own").example("values.yaml"),
        any("valuesInline", "Values.").example("{controller: {replicaCount: 2}}"),
        one_of(
            "valuesMerge",
            &["merge", "override", "replace"],
            "How `valuesInline` and `valuesFile` are combined.",
        )
        .default("override")
        .example("merge"),
        boolean("includeCRDs", "Whether definitions of the chart are rendered.")
            .default("false")
            .example("true"),
        boolean("skipHooks", "Whether hooks are left out.").default("false").example("true"),
        strings("apiVersions", "API versions that templates see.")
            .example("[monitoring.coreos.com/v1]"),
        string("kubeVersion", "Version of Kubernetes that templates see.").example("'1.36'"),
        string("nameTemplate", "Template of the release's name.").example("'{{ randAlpha 5 }}'"),
        boolean("skipTests", "Whether tests of the chart are left out.")
            .default("false")
            .example("true"),
        boolean("debug", "Whether `helm` prints what it does.").default("false").example("true"),
        boolean("devel", "Whether versions under development count.")
            .default("false")
            .example("true"),
        string("chartHome", "As in `helmGlobals`, for a HelmChartInflationGenerator.")
            .example("vendor/charts"),
        string("configHome", "As in `helmGlobals`, for a HelmChartInflationGenerator.")
            .example("helm-config"),
    ],
);

/// A `Chart` of `helm.kustomize.io`.
pub static CHART_RESOURCE: FieldTable = FieldTable::new(
    "Chart",
    "A chart as an entry of `generators`, rendered by Kiln without a flag. `groupVersion` does as well as `apiVersion`, and it needs no name.",
    &[table("generate", &CHART_RESOURCE_ARGUMENTS, "What to render.").required()],
);

/// `generate` of a `Chart`.
pub static CHART_RESOURCE_ARGUMENTS: FieldTable = FieldTable::new(
    "Chart to generate",
    "`generate` of a Chart.",
    &[
        string("chart", "Path of the chart from the kustomization: a directory or a package.")
            .required()
            .example("./charts/wordpress"),
        any("values", "Values, over those of the chart.").example("{replicas: 2}"),
        string("releaseName", "Name of the release.")
            .default("the name of the Chart, or of its directory")
            .example("blog")
            .only_kiln(),
        string("namespace", "Namespace of the release.")
            .default("that of the kustomization")
            .example("shop")
            .only_kiln(),
        boolean("includeCRDs", "Whether definitions of the chart are rendered.")
            .default("false")
            .example("true")
            .only_kiln(),
        boolean("skipHooks", "Whether hooks are left out.")
            .default("false")
            .example("true")
            .only_kiln(),
        boolean("skipTests", "Whether tests of the chart are left out.")
            .default("false")
            .example("true")
            .only_kiln(),
    ],
);

/// An entry of `helmChartInflationGenerator`.
pub static HELM_CHART_ARGS: FieldTable = FieldTable::new(
    "Old Helm chart",
    "An entry of `helmChartInflationGenerator`.",
    &[
        string("chartName", "Name of the chart.")
            .example("ingress-nginx")
            .deprecated("helmCharts[].name"),
        string("chartVersion", "Version.").example("4.12.1").deprecated("helmCharts[].version"),
        string("chartRepoUrl", "Address of the repository.")
            .example("https://charts.example.com")
            .deprecated("helmCharts[].repo"),
        string("chartHome", "Directory of charts.")
            .example("vendor/charts")
            .deprecated("helmGlobals.chartHome"),
        string("chartRepoName", "Name of the repository.").example("example").ignored(),
        string("helmBin", "Program. Use `--helm-command`.").example("helm").ignored(),
        string("helmHome", "Directory of Helm's configuration.")
            .example("helm-config")
            .deprecated("helmGlobals.configHome"),
        string("values", "File with values.")
            .example("values.yaml")
            .deprecated("helmCharts[].valuesFile"),
        any("valuesLocal", "Values.")
            .example("{replicaCount: 2}")
            .deprecated("helmCharts[].valuesInline"),
        string("valuesMerge", "How they are combined.")
            .example("merge")
            .deprecated("helmCharts[].valuesMerge"),
        string("releaseName", "Name of the release.")
            .example("ingress")
            .deprecated("helmCharts[].releaseName"),
        string("releaseNamespace", "Namespace of the release.").example("ingress").ignored(),
        strings("extraArgs", "More arguments for `helm`.").example("[--debug]").ignored(),
    ],
);
