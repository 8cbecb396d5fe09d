// Reads a version of Kubernetes and writes what Kiln has to know of its kinds: facts of its discovery, its OpenAPI
// document and its Go types, one line each. `cargo xtask kubernetes` runs it.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// What an OpenAPI document says of a type or of a field.
type openAPI struct {
	Ref                  string              `json:"$ref"`
	AllOf                []openAPI           `json:"allOf"`
	Properties           map[string]*openAPI `json:"properties"`
	Items                *openAPI            `json:"items"`
	AdditionalProperties *openAPI            `json:"additionalProperties"`
	Required             []string            `json:"required"`
	Default              any                 `json:"default"`
	ListType             string              `json:"x-kubernetes-list-type"`
	ListMapKeys          []string            `json:"x-kubernetes-list-map-keys"`
	MapType              string              `json:"x-kubernetes-map-type"`
	PatchStrategy        string              `json:"x-kubernetes-patch-strategy"`
	PatchMergeKey        string              `json:"x-kubernetes-patch-merge-key"`
}

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(root string) error {
	definitions, err := describe(root)
	if err != nil {
		return err
	}
	if err := apiextensions.AddToScheme(scheme.Scheme); err != nil {
		return err
	}
	if err := apiregistration.AddToScheme(scheme.Scheme); err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	kinds, err := discover(root)
	if err != nil {
		return err
	}
	for _, line := range kinds {
		fmt.Fprintln(out, line)
	}
	w := walker{definitions: definitions, seen: map[string]reflect.Type{}, inlined: map[string]*openAPI{}}
	for _, line := range w.kinds() {
		fmt.Fprintln(out, line)
	}
	for _, line := range w.types() {
		fmt.Fprintln(out, line)
	}
	return nil
}

// What the OpenAPI documents of all stable groups say of each type.
func describe(root string) (map[string]*openAPI, error) {
	files, err := filepath.Glob(filepath.Join(root, "api/openapi-spec/v3/api*__v*_openapi.json"))
	if err != nil {
		return nil, err
	}
	all := map[string]*openAPI{}
	for _, file := range files {
		var document struct {
			Components struct {
				Schemas map[string]*openAPI `json:"schemas"`
			} `json:"components"`
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, &document); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for name, schema := range document.Components.Schemas {
			all[name] = schema
		}
	}
	return all, nil
}

// discovery -----------------------------------------------------------------------------------------------------------

type resourceList struct {
	GroupVersion string `json:"groupVersion"`
	Resources    []struct {
		Name, SingularName, Group, Version, Kind string
		Namespaced                               bool
		Verbs, ShortNames, Categories            []string
	} `json:"resources"`
}

var stable = regexp.MustCompile(`^v[0-9]+$`)

// The kinds that a server of this version serves unless it is told otherwise, one line each.
func discover(root string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(root, "api/discovery/api*__v*.json"))
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var list resourceList
		if err := json.Unmarshal(text, &list); err != nil {
			return nil, err
		}
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		if !stable.MatchString(gv.Version) {
			continue
		}
		subresources := map[string][]string{}
		for _, r := range list.Resources {
			parent, sub, is := strings.Cut(r.Name, "/")
			if !is {
				continue
			}
			group, version := r.Group, r.Version
			of := ""
			if version != "" && (group != gv.Group || version != gv.Version) {
				of = (schema.GroupVersion{Group: group, Version: version}).String()
			}
			subresources[parent] = append(subresources[parent], fmt.Sprintf("/%s=%s:%s:%s", sub, of, r.Kind, strings.Join(r.Verbs, ",")))
		}
		for _, r := range list.Resources {
			if strings.Contains(r.Name, "/") {
				continue
			}
			scope := "cluster"
			if r.Namespaced {
				scope = "namespaced"
			}
			line := fmt.Sprintf("* %s %s %s %s %s", list.GroupVersion, r.Kind, r.Name, scope, strings.Join(r.Verbs, ","))
			if len(r.ShortNames) > 0 {
				line += " S=" + strings.Join(r.ShortNames, ",")
			}
			if len(r.Categories) > 0 {
				line += " C=" + strings.Join(r.Categories, ",")
			}
			subs := subresources[r.Name]
			sort.Strings(subs)
			for _, s := range subs {
				line += " " + s
			}
			lines = append(lines, line)
		}
	}
	sort.Strings(lines)
	return lines, nil
}

// types ---------------------------------------------------------------------------------------------------------------

type walker struct {
	definitions map[string]*openAPI
	seen        map[string]reflect.Type
	queue       []reflect.Type
	// What the document says of the fields of a type that it does not name, because they stand in another one.
	inlined map[string]*openAPI
}

func (w *walker) kinds() []string {
	var lines []string
	for gvk, t := range scheme.Scheme.AllKnownTypes() {
		if !stable.MatchString(gvk.Version) || gvk.Version == runtime.APIVersionInternal {
			continue
		}
		if !wanted(gvk, t) {
			continue
		}
		lines = append(lines, fmt.Sprintf("@ %s %s %s", gvk.GroupVersion(), gvk.Kind, w.add(t)))
	}
	sort.Strings(lines)
	return lines
}

// Options of requests and lists of kinds are not kinds that objects have.
func wanted(gvk schema.GroupVersionKind, t reflect.Type) bool {
	if t.PkgPath() == reflect.TypeOf(metav1.Status{}).PkgPath() {
		return gvk.Group == "" && (gvk.Kind == "DeleteOptions" || gvk.Kind == "Status")
	}
	switch gvk.Kind {
	case "ConversionReview", "PodLogOptions", "PodStatusResult", "RangeAllocation", "SerializedReference":
		return false
	}
	_, isList := reflect.New(t).Interface().(metav1.ListInterface)
	return !isList || gvk.Kind == "List"
}

// The name of a type in the table, such as `core/v1.PodSpec`.
func (w *walker) add(t reflect.Type) string {
	parts := strings.Split(t.PkgPath(), "/")
	name := strings.Join(parts[len(parts)-2:], "/") + "." + t.Name()
	if _, ok := w.seen[name]; !ok {
		w.seen[name] = t
		w.queue = append(w.queue, t)
	}
	return name
}

func (w *walker) types() []string {
	bodies := map[string][]string{}
	for len(w.queue) > 0 {
		t := w.queue[0]
		w.queue = w.queue[1:]
		bodies[w.add(t)] = w.fields(t)
	}
	names := make([]string, 0, len(bodies))
	for name := range bodies {
		names = append(names, name)
	}
	sort.Strings(names)
	var lines []string
	for _, name := range names {
		head := "= " + name
		if d := w.definition(w.seen[name]); d != nil && d.MapType == "atomic" {
			head += " atomic"
		}
		lines = append(lines, head)
		lines = append(lines, bodies[name]...)
	}
	return lines
}

// What the document says of a type.
func (w *walker) definition(t reflect.Type) *openAPI {
	path := t.PkgPath()
	name := ""
	switch {
	case strings.HasPrefix(path, "k8s.io/api/"):
		name = "io.k8s.api." + strings.ReplaceAll(strings.TrimPrefix(path, "k8s.io/api/"), "/", ".")
	default:
		name = "io." + strings.ReplaceAll(strings.Replace(path, "k8s.io", "k8s", 1), "/", ".")
	}
	return w.definitions[name+"."+t.Name()]
}

func (w *walker) fields(t reflect.Type) []string {
	var lines []string
	definition := w.definition(t)
	for i := range t.NumField() {
		f := t.Field(i)
		tag := strings.Split(f.Tag.Get("json"), ",")
		name, options := tag[0], tag[1:]
		number := protobufNumber(f)
		if f.Type == reflect.TypeOf(metav1.TypeMeta{}) || name == "-" {
			continue
		}
		if f.Anonymous && name == "" || slices.Contains(options, "inline") {
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			if w.definition(inner) == nil {
				w.inlined[inner.String()] = definition
			}
			lines = append(lines, fmt.Sprintf("> %s %s", number, w.add(inner)))
			continue
		}
		ft, flags := f.Type, ""
		if ft.Kind() == reflect.Pointer {
			ft, flags = ft.Elem(), "p"
		}
		if slices.Contains(options, "omitempty") {
			flags += "o"
		}
		if slices.Contains(options, "omitzero") {
			flags += "z"
		}
		var property *openAPI
		if outer := w.inlined[t.String()]; definition == nil && outer != nil {
			property = outer.Properties[name]
		}
		if definition != nil {
			property = definition.Properties[name]
			if slices.Contains(definition.Required, name) {
				flags += "!"
			}
		}
		if flags == "" {
			flags = "-"
		}
		line := fmt.Sprintf("%s %s %s %s", name, number, w.typeName(ft), flags)
		lines = append(lines, line+extras(property, f))
	}
	return lines
}

func extras(property *openAPI, f reflect.StructField) string {
	out := ""
	if property != nil {
		switch property.ListType {
		case "map":
			out += " L=" + strings.Join(property.ListMapKeys, ",")
		case "set":
			out += " L="
		}
		if property.MapType == "atomic" {
			out += " M"
		}
		if property.PatchStrategy != "" {
			out += " P=" + property.PatchStrategy
		}
		if property.PatchMergeKey != "" {
			out += " K=" + property.PatchMergeKey
		}
		if property.Default != nil {
			if text, err := json.Marshal(property.Default); err == nil && !isEmpty(property.Default) {
				out += " D=" + string(text)
			}
		}
	}
	return out
}

func isEmpty(v any) bool {
	switch v := v.(type) {
	case string:
		return v == ""
	case float64:
		return v == 0
	case bool:
		return !v
	case map[string]any:
		return len(v) == 0
	}
	return false
}

func protobufNumber(f reflect.StructField) string {
	parts := strings.Split(f.Tag.Get("protobuf"), ",")
	if len(parts) < 2 {
		return "0"
	}
	return parts[1]
}

func (w *walker) typeName(t reflect.Type) string {
	switch t.String() {
	case "resource.Quantity":
		return "quantity"
	case "intstr.IntOrString":
		return "intorstring"
	case "v1.Time":
		return "time"
	case "v1.MicroTime":
		return "microtime"
	case "v1.Duration":
		return "duration"
	case "runtime.RawExtension":
		return "raw"
	case "v1.FieldsV1":
		return "fields"
	case "v1.JSON":
		return "json"
	case "v1.JSONSchemaPropsOrArray", "v1.JSONSchemaPropsOrBool", "v1.JSONSchemaPropsOrStringArray":
		return "any:" + t.Name()
	}
	switch t.Kind() {
	case reflect.Pointer:
		return w.typeName(t.Elem())
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	case reflect.Int32:
		return "int32"
	case reflect.Int64, reflect.Int:
		return "int64"
	case reflect.Float64, reflect.Float32:
		return "double"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return "[]" + w.typeName(t.Elem())
	case reflect.Map:
		return "{}" + w.typeName(t.Elem())
	case reflect.Struct:
		return w.add(t)
	}
	return "raw"
}
