package main

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	clock "time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/ext"
	"github.com/kyverno/kyverno/pkg/cel/compiler"
	"github.com/kyverno/kyverno/pkg/cel/libs"
	"github.com/kyverno/sdk/extensions/cel/libs/generator"
	"github.com/kyverno/sdk/extensions/cel/libs/gzip"
	"github.com/kyverno/sdk/extensions/cel/libs/hash"
	"github.com/kyverno/sdk/extensions/cel/libs/image"
	kyvernojson "github.com/kyverno/sdk/extensions/cel/libs/json"
	kyvernomath "github.com/kyverno/sdk/extensions/cel/libs/math"
	"github.com/kyverno/sdk/extensions/cel/libs/random"
	"github.com/kyverno/sdk/extensions/cel/libs/resource"
	"github.com/kyverno/sdk/extensions/cel/libs/time"
	"github.com/kyverno/sdk/extensions/cel/libs/transform"
	"github.com/kyverno/sdk/extensions/cel/libs/user"
	"github.com/kyverno/sdk/extensions/cel/libs/x509"
	kyvernoyaml "github.com/kyverno/sdk/extensions/cel/libs/yaml"
	"k8s.io/apimachinery/pkg/util/version"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/lazy"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"
)

// The version that the compilers of MutatingPolicy and GeneratingPolicy give for themselves.
var policyCompiler = version.MajorMinor(2, 0)

// recordCEL compiles and runs `expression`, with `variables` declared as dyn and bound to their values, in the named
// `environment`. `policyVariables` are the `spec.variables` of a policy: expressions, each seen by those after it.
func recordCEL(cases []map[string]any) []map[string]any {
	results := make([]map[string]any, 0, len(cases))
	for _, input := range cases {
		results = append(results, caught(func() map[string]any {
			value, stage, err := evaluateCEL(input)
			if err != nil {
				message, _, _ := strings.Cut(err.Error(), "\n")
				return map[string]any{"error": stage + ": " + message}
			}
			return map[string]any{"output": literal(value)}
		}))
	}
	return results
}

func evaluateCEL(input map[string]any) (value ref.Val, stage string, err error) {
	env, provider, err := celEnvironment(input["environment"])
	if err != nil {
		return nil, "environment", err
	}
	bound := map[string]any{compiler.ExceptionsKey: libs.Exception{}}
	variables, _ := input["variables"].(map[string]any)
	for name, value := range variables {
		bound[name] = kubernetesNumbers(value)
		if !declared(env, name) {
			if env, err = env.Extend(cel.Variable(name, cel.DynType)); err != nil {
				return nil, "environment", err
			}
		}
	}
	lazily := lazy.NewMapValue(compiler.VariablesType)
	bound[compiler.VariablesKey] = lazily
	composed, _ := input["policyVariables"].([]any)
	for _, entry := range composed {
		variable := entry.(map[string]any)
		name := variable["name"].(string)
		ast, issues := env.Compile(variable["expression"].(string))
		if issues.Err() != nil {
			return nil, "compile", issues.Err()
		}
		provider.RegisterField(name, ast.OutputType())
		program, err := env.Program(ast)
		if err != nil {
			return nil, "compile", err
		}
		lazily.Append(name, func(*lazy.MapValue) ref.Val {
			value, _, err := program.Eval(bound)
			if value != nil {
				return value
			}
			return types.WrapErr(err)
		})
	}
	ast, issues := env.Compile(input["expression"].(string))
	if issues.Err() != nil {
		return nil, "compile", issues.Err()
	}
	program, err := env.Program(ast)
	if err != nil {
		return nil, "compile", err
	}
	value, _, err = program.Eval(bound)
	return value, "evaluate", err
}

func declared(env *cel.Env, name string) bool {
	for _, variable := range env.Variables() {
		if variable.Name() == name {
			return true
		}
	}
	return false
}

func celEnvironment(name any) (*cel.Env, *compiler.VariablesProvider, error) {
	switch name {
	case nil, "policy":
		return mutatingEnvironment()
	case "generating":
		return generatingEnvironment()
	case "standard":
		env, err := cel.NewEnv(
			cel.DefaultUTCTimeZone(true), cel.CrossTypeNumericComparisons(true), cel.EnableIdentifierEscapeSyntax(),
			cel.OptionalTypes(),
			ext.Bindings(), ext.Encoders(), ext.Lists(), ext.Math(), ext.Network(), ext.Regex(), ext.Sets(), ext.Strings(),
			ext.TwoVarComprehensions(),
		)
		return env, nil, err
	}
	return nil, nil, fmt.Errorf("there is no environment %v", name)
}

// mutatingEnvironment has what the compiler of MutatingPolicy declares, without what asks a cluster, a registry or the network.
func mutatingEnvironment() (*cel.Env, *compiler.VariablesProvider, error) {
	base := environment.MustBaseEnvSet(policyCompiler)
	env, err := base.Env(environment.StoredExpressions)
	if err != nil {
		return nil, nil, err
	}
	provider := compiler.NewVariablesProvider(env.CELTypeProvider())
	patches := cel.Types(types.NewObjectType("Object"), types.NewObjectType("JSONPatch"))
	options, err := admission(append(compiler.DefaultEnvOptionsWithCompat(), patches), provider)
	if err != nil {
		return nil, nil, err
	}
	options = append(options, common.ResolverEnvOption(&mutation.DynamicTypeResolver{}))
	libraries := append(kyvernoLibraries(), environment.UnversionedLib(library.JSONPatch), user.Lib(user.Latest()))
	extended, err := base.Extend(
		environment.VersionedOptions{IntroducedVersion: policyCompiler, EnvOptions: options},
		environment.VersionedOptions{IntroducedVersion: policyCompiler, EnvOptions: libraries},
	)
	if err != nil {
		return nil, nil, err
	}
	env, err = extended.Env(environment.StoredExpressions)
	return env, provider, err
}

// generatingEnvironment has what the compiler of GeneratingPolicy declares, within the same limits.
func generatingEnvironment() (*cel.Env, *compiler.VariablesProvider, error) {
	base, err := cel.NewEnv(compiler.DynamicResourceEnvOptionsWithCompat()...)
	if err != nil {
		return nil, nil, err
	}
	provider := compiler.NewVariablesProvider(base.CELTypeProvider())
	options, err := admission(compiler.DynamicResourceEnvOptionsWithCompat(), provider)
	if err != nil {
		return nil, nil, err
	}
	options = append(options, kyvernoLibraries()...)
	options = append(options, generator.Lib(generator.Context{ContextInterface: libs.NewFakeContextProvider()}, "", generator.Latest()))
	env, err := cel.NewEnv(options...)
	return env, provider, err
}

// admission adds the variables that a request for admission binds, and their types.
func admission(options []cel.EnvOption, provider *compiler.VariablesProvider) ([]cel.EnvOption, error) {
	options = append(options,
		cel.Variable(compiler.NamespaceObjectKey, compiler.NamespaceType.CelType()),
		cel.Variable(compiler.ObjectKey, cel.DynType),
		cel.Variable(compiler.OldObjectKey, cel.DynType),
		cel.Variable(compiler.RequestKey, compiler.RequestType.CelType()),
		cel.Types(compiler.NamespaceType.CelType()),
		cel.Types(compiler.RequestType.CelType()),
		cel.Variable(compiler.VariablesKey, compiler.VariablesType),
	)
	declarations, err := apiservercel.NewDeclTypeProvider(compiler.NamespaceType, compiler.RequestType).EnvOptions(provider)
	return append(options, declarations...), err
}

func kyvernoLibraries() []cel.EnvOption {
	return []cel.EnvOption{
		ext.NativeTypes(reflect.TypeFor[libs.Exception](), ext.ParseStructTags(true)),
		cel.Variable(compiler.ExceptionsKey, types.NewObjectType("libs.Exception")),
		resource.Lib(resource.Context{ContextInterface: libs.NewFakeContextProvider()}, "", resource.Latest()),
		image.Lib(image.Latest()),
		hash.Lib(hash.Latest()),
		kyvernomath.Lib(kyvernomath.Latest()),
		kyvernojson.Lib(&kyvernojson.JsonImpl{}, kyvernojson.Latest()),
		kyvernoyaml.Lib(&kyvernoyaml.YamlImpl{}, kyvernoyaml.Latest()),
		random.Lib(random.Latest()),
		x509.Lib(x509.Latest()),
		time.Lib(time.Latest()),
		transform.Lib(transform.Latest()),
		gzip.Lib(gzip.Latest()),
	}
}

// kubernetesNumbers turns whole numbers into integers, as they are in Kubernetes objects.
func kubernetesNumbers(value any) any {
	switch value := value.(type) {
	case float64:
		if value == math.Trunc(value) && math.Abs(value) < 1<<53 {
			return int64(value)
		}
	case []any:
		for i := range value {
			value[i] = kubernetesNumbers(value[i])
		}
	case map[string]any:
		for key := range value {
			value[key] = kubernetesNumbers(value[key])
		}
	}
	return value
}

// literal writes a value so that types stay apart, as CEL would write it where it can.
func literal(value ref.Val) string {
	switch value := value.(type) {
	case types.Null:
		return "null"
	case types.Bool:
		return strconv.FormatBool(bool(value))
	case types.Int:
		return strconv.FormatInt(int64(value), 10)
	case types.Uint:
		return strconv.FormatUint(uint64(value), 10) + "u"
	case types.Double:
		return double(float64(value))
	case types.String:
		return quoted(string(value))
	case types.Bytes:
		return bytesLiteral(value)
	case types.Duration:
		return `duration("` + seconds(value.Duration) + `")`
	case types.Timestamp:
		return `timestamp("` + value.UTC().Format(clock.RFC3339Nano) + `")`
	case *types.Optional:
		if value.HasValue() {
			return "optional.of(" + literal(value.GetValue()) + ")"
		}
		return "optional.none()"
	case *types.Type:
		return "type(" + value.TypeName() + ")"
	case *mutation.JSONPatchVal:
		return jsonPatch(value)
	case *dynamic.ObjectVal:
		fields, err := value.ConvertToNative(reflect.TypeFor[map[string]any]())
		if err != nil {
			return "no literal: " + err.Error()
		}
		return value.Type().TypeName() + literal(types.DefaultTypeAdapter.NativeToValue(fields))
	case traits.Lister:
		var elements []string
		for at := value.Iterator(); at.HasNext() == types.True; {
			elements = append(elements, literal(at.Next()))
		}
		return "[" + strings.Join(elements, ", ") + "]"
	case traits.Mapper:
		var entries []string
		for at := value.Iterator(); at.HasNext() == types.True; {
			key := at.Next()
			entries = append(entries, literal(key)+": "+literal(value.Get(key)))
		}
		slices.Sort(entries)
		return "{" + strings.Join(entries, ", ") + "}"
	}
	if text, ok := value.Value().(fmt.Stringer); ok {
		return value.Type().TypeName() + "(" + quoted(text.String()) + ")"
	}
	return value.Type().TypeName()
}

func jsonPatch(patch *mutation.JSONPatchVal) string {
	var fields []string
	for _, field := range []struct{ name, text string }{{"from", patch.From}, {"op", patch.Op}, {"path", patch.Path}} {
		if field.text != "" {
			fields = append(fields, quoted(field.name)+": "+quoted(field.text))
		}
	}
	if patch.Val != nil {
		fields = append(fields, `"value": `+literal(patch.Val))
	}
	return "JSONPatch{" + strings.Join(fields, ", ") + "}"
}

// double writes a float with a point or an exponent, which an integer never has.
func double(x float64) string {
	switch magnitude := math.Abs(x); {
	case math.IsNaN(x):
		return `double("NaN")`
	case math.IsInf(x, 1):
		return `double("Infinity")`
	case math.IsInf(x, -1):
		return `double("-Infinity")`
	case magnitude != 0 && magnitude < 1e-7, magnitude >= 1e21:
		mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(x, 'e', -1, 64), "e")
		power, _ := strconv.Atoi(exponent)
		return mantissa + "e" + strconv.Itoa(power)
	}
	text := strconv.FormatFloat(x, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

func seconds(span clock.Duration) string {
	text := fmt.Sprintf("%d.%09d", span/clock.Second, (span % clock.Second).Abs())
	if span < 0 && span > -clock.Second {
		text = "-" + text
	}
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".") + "s"
}

func quoted(text string) string {
	var out strings.Builder
	out.WriteByte('"')
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			out.WriteByte('\\')
			out.WriteRune(c)
		case c == '\n':
			out.WriteString(`\n`)
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(&out, `\u%04x`, c)
		default:
			out.WriteRune(c)
		}
	}
	out.WriteByte('"')
	return out.String()
}

func bytesLiteral(data []byte) string {
	var out strings.Builder
	out.WriteString(`b"`)
	for _, c := range data {
		switch {
		case c == '"' || c == '\\':
			out.WriteByte('\\')
			out.WriteByte(c)
		case c < ' ' || c > '~':
			fmt.Fprintf(&out, `\x%02x`, c)
		default:
			out.WriteByte(c)
		}
	}
	out.WriteByte('"')
	return out.String()
}
