// Records what Go's text/template with sprig makes of the tables in crates/gotemplate/tests/cases.
//
// Its argument is the name of the table. It reads {"cases": [...]} as JSON and prints {"recorded": ..., "results": [...]},
// one result for each case. A template that renders differently when it is rendered again has no place in a table:
// the program names it and stops.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"text/template"
	"time"

	"github.com/Masterminds/sprig/v3"
)

const sprigModule = "github.com/Masterminds/sprig/v3"

// How often a template is rendered to find out whether its text depends on chance, as the order of keys does.
const renderings = 6

type testCase struct {
	Template  string `json:"template"`
	Data      any    `json:"data"`
	Functions string `json:"functions"`
	Option    string `json:"option"`
}

type result struct {
	Output *string `json:"output,omitempty"`
	Error  *string `json:"error,omitempty"`
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 || os.Args[1] != "gotemplate" {
		log.Fatal("usage: templates gotemplate")
	}
	// Dates print in the zone of the machine unless a template names one.
	time.Local = time.UTC
	var table struct {
		Cases []testCase `json:"cases"`
	}
	if err := json.NewDecoder(os.Stdin).Decode(&table); err != nil {
		log.Fatal(err)
	}
	results := make([]result, 0, len(table.Cases))
	for _, one := range table.Cases {
		results = append(results, record(one))
	}
	answer := map[string]any{"recorded": versions(), "results": results}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(answer); err != nil {
		log.Fatal(err)
	}
}

func record(one testCase) result {
	text, failure := render(one)
	for range renderings - 1 {
		again, failureAgain := render(one)
		if again != text || failureAgain != failure {
			log.Fatalf("%s: renders as %q%s and as %q%s", one.Template, text, failure, again, failureAgain)
		}
	}
	if failure != "" {
		return result{Error: &failure}
	}
	return result{Output: &text}
}

// The text, or how it failed: functions may change the data they are given, so every rendering has its own.
func render(one testCase) (text, failure string) {
	defer func() {
		if recovered := recover(); recovered != nil {
			text, failure = "", fmt.Sprintf("panic: %v", recovered)
		}
	}()
	root := template.New("main")
	switch one.Functions {
	case "", "sprig":
		root.Funcs(functions())
	case "builtin":
	default:
		log.Fatalf("%s: functions are builtin or sprig, not %s", one.Template, one.Functions)
	}
	if one.Option != "" {
		root.Option(one.Option)
	}
	parsed, err := root.Parse(one.Template)
	if err != nil {
		return "", err.Error()
	}
	var out strings.Builder
	if err := parsed.Execute(&out, clone(one.Data)); err != nil {
		return "", err.Error()
	}
	return out.String(), ""
}

// The functions that ModRules offer.
func functions() template.FuncMap {
	all := sprig.GenericFuncMap()
	delete(all, "env")
	delete(all, "expandenv")
	return all
}

func clone(data any) any {
	text, err := json.Marshal(data)
	if err != nil {
		log.Fatal(err)
	}
	var copied any
	if err := json.Unmarshal(text, &copied); err != nil {
		log.Fatal(err)
	}
	return copied
}

func versions() string {
	version := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == sprigModule {
				version = module.Version
			}
		}
	}
	return fmt.Sprintf("Go %s text/template, sprig %s", strings.TrimPrefix(runtime.Version(), "go"), version)
}
