package main

import (
	"encoding/json"
	"errors"

	"github.com/go-logr/logr"
	"github.com/kyverno/kyverno/pkg/engine/mutate/patch"
	"github.com/kyverno/kyverno/pkg/engine/pattern"
	"github.com/kyverno/kyverno/pkg/engine/validate"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// recordPattern answers three questions: whether a `value` meets a leaf `pattern`, whether a `resource` meets a tree
// `pattern` as a validate rule has it, and which plain patch is left of a `patch` with anchors for a `resource`.
func recordPattern(cases []map[string]any) []map[string]any {
	results := make([]map[string]any, 0, len(cases))
	for _, input := range cases {
		results = append(results, caught(func() map[string]any {
			if wanted, ok := input["patch"]; ok {
				return resolvePatch(wanted, input["resource"])
			}
			if value, ok := input["value"]; ok {
				return map[string]any{"output": pattern.Validate(logr.Discard(), value, input["pattern"])}
			}
			return matchTree(input["pattern"], input["resource"])
		}))
	}
	return results
}

func matchTree(wanted, resource any) map[string]any {
	err := validate.MatchPattern(logr.Discard(), resource, wanted)
	var mismatch *validate.PatternError
	switch {
	case err == nil:
		return map[string]any{"output": map[string]any{"result": "pass"}}
	case !errors.As(err, &mismatch):
		return map[string]any{"error": err.Error()}
	case mismatch.Skip:
		return map[string]any{"output": map[string]any{"result": "skip"}}
	case mismatch.Path == "":
		// A validate rule says then that it failed to run.
		return map[string]any{"output": map[string]any{"result": "error"}}
	default:
		return map[string]any{"output": map[string]any{"result": "fail", "path": mismatch.Path}}
	}
}

// resolvePatch gives null where a condition does not hold, so that nothing is patched.
func resolvePatch(wanted, resource any) map[string]any {
	patchNode, resourceNode := yaml.MustParse(text(wanted)), yaml.MustParse(text(resource))
	err := patch.PreProcessPattern(logr.Discard(), patchNode, resourceNode)
	var condition patch.ConditionError
	var global patch.GlobalConditionError
	if errors.As(err, &condition) || errors.As(err, &global) {
		return map[string]any{"output": nil}
	}
	if err != nil {
		return map[string]any{"error": err.Error()}
	}
	plain, err := patchNode.MarshalJSON()
	if err != nil {
		return map[string]any{"error": err.Error()}
	}
	return map[string]any{"output": json.RawMessage(plain)}
}

func text(value any) string {
	encoded, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(encoded)
}
