// Measures cel-go on the CEL workloads: its side of `cargo xtask bench cel`.
//
// `--list` prints the workloads, `WORKLOAD cel-go` runs one, both as JSON; the names of the workloads are
// those of the programs that compete.
package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	who     = "cel-go"
	module  = "github.com/google/cel-go"
	compile = "compile the six, 1,000 times"
	rounds  = 1000
)

//go:embed expressions.txt
var expressionLines string

//go:embed pod.json
var pod []byte

type contest struct {
	Workload     string `json:"workload"`
	Who          string `json:"who"`
	Version      string `json:"version"`
	Peak         bool   `json:"peak"`
	Instructions bool   `json:"instructions"`
}

type outcome struct {
	Seconds float64 `json:"seconds"`
	Check   *string `json:"check"`
}

func main() {
	log.SetFlags(0)
	expressions := strings.Split(strings.TrimSpace(expressionLines), "\n")
	workloads := append(expressions[:len(expressions):len(expressions)], compile)
	args := os.Args[1:]
	switch {
	case len(args) == 1 && args[0] == "--list":
		for _, workload := range workloads {
			show(contest{Workload: workload, Who: who, Version: version()})
		}
	case len(args) == 2 && args[0] == compile && args[1] == who:
		show(compileAll(expressions))
	case len(args) == 2 && slices.Contains(expressions, args[0]) && args[1] == who:
		show(evaluate(args[0]))
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

// version is the one that go.mod pins.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range info.Deps {
			if dependency.Path == module {
				return strings.TrimPrefix(dependency.Version, "v")
			}
		}
	}
	return "of unknown version"
}

func environment() *cel.Env {
	env, err := cel.NewEnv(
		cel.OptionalTypes(),
		ext.Bindings(), ext.Encoders(), ext.Lists(), ext.Math(), ext.Network(), ext.Regex(), ext.Sets(),
		ext.Strings(), ext.TwoVarComprehensions(),
		cel.Variable("object", cel.DynType),
	)
	if err != nil {
		log.Fatal(err)
	}
	return env
}

// plan parses, checks and plans. Policies run more often than they are compiled, so the planner optimises,
// as it does in Kubernetes.
func plan(env *cel.Env, expression string) cel.Program {
	ast, issues := env.Compile(expression)
	if issues.Err() != nil {
		log.Fatal(issues.Err())
	}
	program, err := env.Program(ast, cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		log.Fatal(err)
	}
	return program
}

func evaluate(expression string) outcome {
	program := plan(environment(), expression)
	// Plain maps, which cel-go looks into faster than into its own values. No expression reads a number, so
	// that they are all float64 makes no difference.
	var object map[string]any
	if err := json.Unmarshal(pod, &object); err != nil {
		log.Fatal(err)
	}
	activation, err := cel.NewActivation(map[string]any{"object": object})
	if err != nil {
		log.Fatal(err)
	}
	run := func() ref.Val {
		result, _, err := program.Eval(activation)
		if err != nil {
			log.Fatal(err)
		}
		return result
	}
	check := toJSON(run())
	return outcome{Seconds: often(func() { sink = run() }), Check: &check}
}

func compileAll(expressions []string) outcome {
	env := environment()
	work := func() {
		for range rounds {
			for _, expression := range expressions {
				program = plan(env, expression)
			}
		}
	}
	work()
	begin := time.Now()
	work()
	return outcome{Seconds: time.Since(begin).Seconds()}
}

// Results go here, so that no compiler drops the work.
var (
	sink    ref.Val
	program cel.Program
)

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

func toJSON(value ref.Val) string {
	native, err := value.ConvertToNative(reflect.TypeFor[*structpb.Value]())
	if err != nil {
		log.Fatal(err)
	}
	text, err := json.Marshal(native.(*structpb.Value).AsInterface())
	if err != nil {
		log.Fatal(err)
	}
	return string(text)
}
