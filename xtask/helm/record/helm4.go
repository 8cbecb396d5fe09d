package main

import (
	"fmt"
	"io"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	kubefake "helm.sh/helm/v4/pkg/kube/fake"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage"
	"helm.sh/helm/v4/pkg/storage/driver"
	"helm.sh/helm/v4/pkg/strvals"
)

// What Helm 4 makes of a case: of a single template its text, of files what `helm template` prints.
func render4(one testCase) (string, error) {
	var files []*archive.BufferedFile
	for _, f := range one.chartFiles() {
		files = append(files, &archive.BufferedFile{Name: f.name, Data: f.data})
	}
	loaded, err := loader.LoadFiles(files)
	if err != nil {
		return "", err
	}
	values := one.values()
	for _, line := range one.Set {
		if err := strvals.ParseInto(line, values); err != nil {
			return "", fmt.Errorf("failed parsing --set data: %w", err)
		}
	}
	version, err := common.ParseKubeVersion(one.kubeVersion())
	if err != nil {
		return "", fmt.Errorf("invalid kube version '%s': %w", one.kubeVersion(), err)
	}
	if one.Template != "" {
		return single4(loaded, values, one, version)
	}
	if loaded.Metadata.Type != "" && loaded.Metadata.Type != "application" {
		return "", fmt.Errorf("%s charts are not installable", loaded.Metadata.Type)
	}
	for _, required := range loaded.Metadata.Dependencies {
		found := false
		for _, dependency := range loaded.Dependencies() {
			found = found || dependency.Name() == required.Name
		}
		if !found {
			return "", fmt.Errorf("found in Chart.yaml, but missing in charts/ directory: %s", required.Name)
		}
	}
	memory := driver.NewMemory()
	memory.SetNamespace(one.namespace())
	configuration := action.NewConfiguration()
	configuration.Capabilities = common.DefaultCapabilities
	configuration.KubeClient = &kubefake.PrintingKubeClient{Out: io.Discard}
	configuration.Releases = storage.Init(memory)
	client := action.NewInstall(configuration)
	client.DryRunStrategy = action.DryRunClient
	client.Replace = true
	client.ReleaseName = one.release()
	client.Namespace = one.namespace()
	client.KubeVersion = version
	client.APIVersions = one.Options.APIVersions
	client.IncludeCRDs = one.Options.IncludeCRDs
	client.IsUpgrade = one.Options.IsUpgrade
	answer, err := client.Run(loaded, values)
	if err != nil {
		return "", err
	}
	rendered, ok := answer.(*release.Release)
	if !ok {
		return "", fmt.Errorf("a release of type %T", answer)
	}
	if one.Options.Notes {
		return rendered.Info.Notes, nil
	}
	var hooks []hook
	for _, h := range rendered.Hooks {
		isTest := false
		for _, event := range h.Events {
			isTest = isTest || event == release.HookTest
		}
		hooks = append(hooks, hook{h.Path, h.Manifest, isTest})
	}
	return printed(rendered.Manifest, hooks, one), nil
}

func single4(loaded *chart.Chart, values map[string]any, one testCase, version *common.KubeVersion) (string, error) {
	if err := chartutil.ProcessDependencies(loaded, values); err != nil {
		return "", err
	}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *version
	capabilities.APIVersions = append(capabilities.APIVersions, one.Options.APIVersions...)
	release := common.ReleaseOptions{
		Name:      one.release(),
		Namespace: one.namespace(),
		Revision:  1,
		IsInstall: !one.Options.IsUpgrade,
		IsUpgrade: one.Options.IsUpgrade,
	}
	all, err := util.ToRenderValues(loaded, values, release, capabilities)
	if err != nil {
		return "", err
	}
	rendered, err := engine.Render(loaded, all)
	if err != nil {
		return "", err
	}
	return rendered[templatePath(loaded.Name())], nil
}
