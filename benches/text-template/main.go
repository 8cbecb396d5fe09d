// Measures Go's text/template with sprig: its side of the templates in `cargo xtask bench kubemod`.
//
// `--list` prints the workloads, `WORKLOAD text/template` runs one, both as JSON; a workload is the template
// itself.
package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/Masterminds/sprig/v3"
)

const who = "text/template"

//go:embed templates.txt
var templateLines string

//go:embed deployment.json
var deployment []byte

type contest struct {
	Workload     string `json:"workload"`
	Who          string `json:"who"`
	Version      string `json:"version"`
	Peak         bool   `json:"peak"`
	Instructions bool   `json:"instructions"`
}

type outcome struct {
	Seconds float64 `json:"seconds"`
	Check   string  `json:"check"`
}

func main() {
	log.SetFlags(0)
	templates := strings.Split(strings.TrimSpace(templateLines), "\n")
	args := os.Args[1:]
	switch {
	case len(args) == 1 && args[0] == "--list":
		version := "of " + strings.Replace(runtime.Version(), "go", "Go ", 1) + " with sprig 3.2.2"
		for _, text := range templates {
			show(contest{Workload: text, Who: who, Version: version})
		}
	case len(args) == 2 && slices.Contains(templates, args[0]) && args[1] == who:
		show(render(args[0]))
	default:
		log.Fatal("usage: --list, or a workload and a contender of that list")
	}
}

func show(value any) {
	text, err := json.Marshal(value)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(text))
}

func render(text string) outcome {
	parsed := template.Must(template.New("value").Funcs(sprig.GenericFuncMap()).Parse(text))
	var object map[string]any
	if err := json.Unmarshal(deployment, &object); err != nil {
		log.Fatal(err)
	}
	context := struct {
		Namespace string
		Target    map[string]any
	}{"team-3", object}
	run := func() string {
		var out strings.Builder
		if err := parsed.Execute(&out, &context); err != nil {
			log.Fatal(err)
		}
		return out.String()
	}
	check := run()
	return outcome{Seconds: often(func() { sink = run() }), Check: check}
}

// Results go here, so that no compiler drops the work.
var sink string

// often gives the seconds of one call on average, over about a fifth of a second of them.
func often(work func()) float64 {
	for count := 1; ; {
		begin := time.Now()
		for range count {
			work()
		}
		took := time.Since(begin).Seconds()
		if took > 0.2 {
			return took / float64(count)
		}
		if took < 0.02 {
			count *= 10
		} else {
			count *= 2
		}
	}
}
