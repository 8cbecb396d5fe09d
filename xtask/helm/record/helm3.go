package main

import (
	"fmt"
	"io"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	kubefake "helm.sh/helm/v3/pkg/kube/fake"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage"
	"helm.sh/helm/v3/pkg/storage/driver"
	"helm.sh/helm/v3/pkg/strvals"
)

// What Helm 3 makes of a case: of a single template its text, of files what `helm template` prints.
func render3(one testCase) (string, error) {
	var files []*loader.BufferedFile
	for _, f := range one.chartFiles() {
		files = append(files, &loader.BufferedFile{Name: f.name, Data: f.data})
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
	version, err := chartutil.ParseKubeVersion(one.kubeVersion())
	if err != nil {
		return "", fmt.Errorf("invalid kube version '%s': %s", one.kubeVersion(), err)
	}
	if one.Template != "" {
		return single3(loaded, values, one, version)
	}
	if loaded.Metadata.Type != "" && loaded.Metadata.Type != "application" {
		return "", fmt.Errorf("%s charts are not installable", loaded.Metadata.Type)
	}
	if required := loaded.Metadata.Dependencies; required != nil {
		if err := action.CheckDependencies(loaded, required); err != nil {
			return "", fmt.Errorf("An error occurred while checking for chart dependencies. You may need to run `helm dependency build` to fetch missing dependencies: %w", err)
		}
	}
	memory := driver.NewMemory()
	memory.SetNamespace(one.namespace())
	configuration := &action.Configuration{
		Capabilities: chartutil.DefaultCapabilities,
		KubeClient:   &kubefake.PrintingKubeClient{Out: io.Discard},
		Releases:     storage.Init(memory),
		Log:          func(string, ...interface{}) {},
	}
	client := action.NewInstall(configuration)
	client.DryRun = true
	client.DryRunOption = "true"
	client.ClientOnly = true
	client.Replace = true
	client.ReleaseName = one.release()
	client.Namespace = one.namespace()
	client.KubeVersion = version
	client.APIVersions = one.Options.APIVersions
	client.IncludeCRDs = one.Options.IncludeCRDs
	client.IsUpgrade = one.Options.IsUpgrade
	rendered, err := client.Run(loaded, values)
	if err != nil {
		return "", err
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

func single3(loaded *chart.Chart, values map[string]any, one testCase, version *chartutil.KubeVersion) (string, error) {
	if err := chartutil.ProcessDependenciesWithMerge(loaded, values); err != nil {
		return "", err
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *version
	capabilities.APIVersions = append(capabilities.APIVersions, one.Options.APIVersions...)
	release := chartutil.ReleaseOptions{
		Name:      one.release(),
		Namespace: one.namespace(),
		Revision:  1,
		IsInstall: !one.Options.IsUpgrade,
		IsUpgrade: one.Options.IsUpgrade,
	}
	all, err := chartutil.ToRenderValues(loaded, values, release, capabilities)
	if err != nil {
		return "", err
	}
	rendered, err := engine.Render(loaded, all)
	if err != nil {
		return "", err
	}
	return rendered[templatePath(loaded.Name())], nil
}
