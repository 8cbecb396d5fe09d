// Records what Helm 3 and Helm 4 make of the tables in crates/chart/tests/cases.
//
// Its argument is the name of the table. It reads {"cases": [...]} as JSON and prints {"recorded": ..., "results": [...]},
// one result for each case. A case names the version of Helm whose answer it wants; without one both must give the same
// text, or both must fail: the program names a case where they do not, and stops.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"path"
	"regexp"
	"runtime/debug"
	"strings"
)

type testCase struct {
	Name     string            `json:"name"`
	Template string            `json:"template"`
	Helpers  string            `json:"helpers"`
	Files    map[string]string `json:"files"`
	Values   map[string]any    `json:"values"`
	Set      []string          `json:"set"`
	Helm     int               `json:"helm"`
	Options  struct {
		Release     string   `json:"release"`
		Namespace   string   `json:"namespace"`
		KubeVersion string   `json:"kubeVersion"`
		APIVersions []string `json:"apiVersions"`
		IncludeCRDs bool     `json:"includeCRDs"`
		SkipTests   bool     `json:"skipTests"`
		NoHooks     bool     `json:"noHooks"`
		IsUpgrade   bool     `json:"isUpgrade"`
		Notes       bool     `json:"notes"`
	} `json:"options"`
}

type result struct {
	Output *string `json:"output,omitempty"`
	Error  *string `json:"error,omitempty"`
}

// A file of a chart.
type file struct {
	name string
	data []byte
}

// The version that Kiln renders for unless it is told another one: that of the libraries Helm is built with.
const kubeVersion = "1.36.0"

const chartFile = "apiVersion: v2\nname: app\nversion: 1.2.3\nappVersion: 4.5.6\n"

// What a case of a single template is rendered as.
const templateFile = "templates/t.yaml"

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 || os.Args[1] != "chart" {
		log.Fatal("usage: record chart")
	}
	var table struct {
		Cases []testCase `json:"cases"`
	}
	if err := json.NewDecoder(os.Stdin).Decode(&table); err != nil {
		log.Fatal(err)
	}
	// What Helm says besides is not recorded.
	errors := log.New(os.Stderr, "", 0)
	log.SetOutput(io.Discard)
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	results := make([]result, 0, len(table.Cases))
	for _, one := range table.Cases {
		answer, problem := record(one)
		if problem != "" {
			errors.Fatalf("%s: %s", one.Name, problem)
		}
		results = append(results, answer)
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(map[string]any{"recorded": versions(), "results": results}); err != nil {
		errors.Fatal(err)
	}
}

func record(one testCase) (result, string) {
	switch one.Helm {
	case 3:
		return of(render3(one)), ""
	case 4:
		return of(render4(one)), ""
	}
	three, error3 := render3(one)
	four, error4 := render4(one)
	if (error3 == nil) != (error4 == nil) {
		return result{}, fmt.Sprintf("Helm 3 says %q (%v), Helm 4 says %q (%v)", three, error3, four, error4)
	}
	if error3 == nil && three != four {
		return result{}, fmt.Sprintf("Helm 3 says %q, Helm 4 says %q", three, four)
	}
	return of(three, error3), ""
}

func of(text string, err error) result {
	if err != nil {
		message := strings.ReplaceAll(err.Error(), "\u00a0", " ")
		return result{Error: &message}
	}
	return result{Output: &text}
}

func (one testCase) chartFiles() []file {
	files := map[string]string{"Chart.yaml": chartFile}
	if one.Template != "" {
		files[templateFile] = one.Template
	}
	if one.Helpers != "" {
		files["templates/_helpers.tpl"] = one.Helpers
	}
	for name, text := range one.Files {
		files[name] = text
	}
	var all []file
	for name, text := range files {
		all = append(all, file{name, []byte(text)})
	}
	return all
}

func (one testCase) release() string {
	if one.Options.Release == "" {
		return "release-name"
	}
	return one.Options.Release
}

func (one testCase) namespace() string {
	if one.Options.Namespace == "" {
		return "default"
	}
	return one.Options.Namespace
}

func (one testCase) kubeVersion() string {
	if one.Options.KubeVersion == "" {
		return kubeVersion
	}
	return one.Options.KubeVersion
}

// A copy, because rendering may change values.
func (one testCase) values() map[string]any {
	text, err := json.Marshal(one.Values)
	if err != nil {
		log.Fatal(err)
	}
	values := map[string]any{}
	if err := json.Unmarshal(text, &values); err != nil {
		log.Fatal(err)
	}
	if values == nil {
		values = map[string]any{}
	}
	return values
}

// What `helm template` prints of a release: its manifest, then its hooks.
func printed(manifest string, hooks []hook, one testCase) string {
	var out strings.Builder
	fmt.Fprintln(&out, strings.TrimSpace(manifest))
	for _, h := range hooks {
		if one.Options.NoHooks || one.Options.SkipTests && h.isTest {
			continue
		}
		fmt.Fprintf(&out, "---\n# Source: %s\n%s\n", h.path, h.manifest)
	}
	return out.String()
}

type hook struct {
	path     string
	manifest string
	isTest   bool
}

var goVersion = regexp.MustCompile(`^v`)

func versions() string {
	found := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			found[module.Path] = goVersion.ReplaceAllString(module.Version, "")
		}
	}
	return fmt.Sprintf("Helm %s and %s", found["helm.sh/helm/v3"], found["helm.sh/helm/v4"])
}

func templatePath(chart string) string {
	return path.Join(chart, templateFile)
}
