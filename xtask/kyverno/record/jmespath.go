package main

import (
	"encoding/json"

	"github.com/kyverno/kyverno/pkg/config"
	"github.com/kyverno/kyverno/pkg/engine/jmespath"
)

// recordJMESPath searches `data` with `expression`.
func recordJMESPath(cases []map[string]any) []map[string]any {
	functions := jmespath.New(config.NewDefaultConfiguration(false))
	results := make([]map[string]any, 0, len(cases))
	for _, input := range cases {
		results = append(results, caught(func() map[string]any {
			// A policy's context is decoded by Go's own rules: every number is a float.
			var data any
			if err := json.Unmarshal([]byte(text(input["data"])), &data); err != nil {
				return map[string]any{"error": err.Error()}
			}
			found, err := functions.Search(input["expression"].(string), data)
			if err == nil {
				// What JSON cannot say, NaN for one, is no result that a policy can use.
				_, err = json.Marshal(found)
			}
			if err != nil {
				return map[string]any{"error": err.Error()}
			}
			return map[string]any{"output": found}
		}))
	}
	return results
}
