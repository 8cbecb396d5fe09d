// Records what Kyverno itself answers, in the version that this module pins: reads the cases of one table as JSON and writes
// one result for each.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	kjson "sigs.k8s.io/json"
)

var tables = map[string]func(cases []map[string]any) []map[string]any{
	"jmespath": recordJMESPath,
	"pattern":  recordPattern,
	"cel":      recordCEL,
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 || tables[os.Args[1]] == nil {
		return fmt.Errorf("usage: record jmespath|pattern|cel")
	}
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	// As Kubernetes decodes objects: whole numbers are int64.
	var table struct {
		Cases []map[string]any `json:"cases"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(input, &table); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"recorded": "Kyverno " + moduleVersion("github.com/kyverno/kyverno") + ", Go " + runtime.Version()[len("go"):],
		"results":  tables[os.Args[1]](table.Cases),
	})
}

// moduleVersion is the version of a module that this program was built with.
func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, module := range info.Deps {
			if module.Path == path {
				return module.Version
			}
		}
	}
	return "of an unknown version"
}

// caught runs one case; a panic is what Kyverno answers too.
func caught(record func() map[string]any) (result map[string]any) {
	defer func() {
		if reason := recover(); reason != nil {
			result = map[string]any{"error": fmt.Sprintf("panic: %v", reason)}
		}
	}()
	return record()
}
