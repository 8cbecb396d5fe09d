// Records what kustomize makes of the trees in crates/kustomize/tests/cases, and what it answers to the calls in
// crates/cli/tests/cases/kustomize-calls.
//
// Every case is built by a process of its own, which is this program started as kustomize: schemas that one build
// loads are global in kustomize and would show in the next one.
package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"

	"sigs.k8s.io/kustomize/kustomize/v5/commands"
)

// asKustomize is set in the environment of the processes that build.
const asKustomize = "RECORD_AS_KUSTOMIZE"

// address matches the places in memory that some messages of kustomize show, which differ from run to run.
var address = regexp.MustCompile(`0x[0-9a-f]{6,}`)

// testCase is one tree, and how it is built.
type testCase struct {
	Name string `json:"name"`
	// Files are the texts of the tree by path.
	Files map[string]string `json:"files"`
	// BinaryFiles are files that are no text, in base64.
	BinaryFiles map[string]string `json:"binaryFiles"`
	// Root is the folder to build, as it would be typed.
	Root string `json:"root"`
	// Flags of `kustomize build`.
	Flags []string `json:"flags"`
	// Command is another command than that, with its arguments.
	Command []string `json:"command"`
	// Input is what the command reads from standard input.
	Input string `json:"input"`
	// Calls are commands that are typed one after the other, each on a line; `<root>` is the folder of the tree.
	Calls string `json:"calls"`
}

type result struct {
	Output *string `json:"output,omitempty"`
	Error  *string `json:"error,omitempty"`
}

func main() {
	if os.Getenv(asKustomize) != "" {
		kustomize()
		return
	}
	if err := record(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// kustomize does what the main function of kustomize does.
func kustomize() {
	defer func() {
		if reason := recover(); reason != nil {
			fmt.Fprintf(os.Stderr, "Error: panic: %v\n", reason)
			os.Exit(2)
		}
	}()
	if err := commands.NewDefaultCommand().Execute(); err != nil {
		os.Exit(1)
	}
}

func record() error {
	var input struct {
		Cases []testCase `json:"cases"`
	}
	if err := json.NewDecoder(os.Stdin).Decode(&input); err != nil {
		return err
	}
	results := make([]result, 0, len(input.Cases))
	for _, c := range input.Cases {
		built, err := build(c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		results = append(results, built)
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(map[string]any{"recorded": versions(), "results": results})
}

func build(c testCase) (result, error) {
	folder, err := os.MkdirTemp("", "tree")
	if err != nil {
		return result{}, err
	}
	defer os.RemoveAll(folder)
	if folder, err = filepath.EvalSymlinks(folder); err != nil {
		return result{}, err
	}
	if err := writeTree(folder, c); err != nil {
		return result{}, err
	}
	program, err := os.Executable()
	if err != nil {
		return result{}, err
	}
	if c.Calls != "" {
		output, err := transcript(program, folder, c.Calls)
		return result{Output: &output}, err
	}
	root := c.Root
	if root == "" {
		root = "."
	}
	words := c.Command
	if len(words) == 0 {
		words = append([]string{"build", root}, c.Flags...)
	}
	command := exec.Command(program, words...)
	command.Dir = folder
	command.Stdin = strings.NewReader(c.Input)
	command.Env = append(os.Environ(), asKustomize+"=1")
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err = command.Run()
	if err == nil {
		output := stdout.String()
		return result{Output: &output}, nil
	}
	// Warnings come before the error.
	_, message, found := strings.Cut("\n"+stderr.String(), "\nError: ")
	if !found {
		return result{}, fmt.Errorf("%w: %s", err, stderr.String())
	}
	// Some commands show their help behind it.
	message, _, _ = strings.Cut(message, "\nUsage:\n")
	message = strings.ReplaceAll(message, folder, "<root>")
	message = strings.TrimRight(address.ReplaceAllString(message, "0x0"), "\n")
	return result{Error: &message}, nil
}

// transcript is what a person sees of calls: each with its standard output, and of those that fail the exit code and the
// first line of the message.
func transcript(program, folder, calls string) (string, error) {
	var seen strings.Builder
	for _, call := range strings.Split(strings.TrimSpace(calls), "\n") {
		words := strings.Fields(strings.ReplaceAll(call, "<root>", folder))
		if len(words) == 0 || words[0] != "kustomize" {
			return "", fmt.Errorf("not a call of kustomize: %s", call)
		}
		command := exec.Command(program, words[1:]...)
		command.Dir = folder
		command.Env = append(os.Environ(), asKustomize+"=1")
		var stdout, stderr bytes.Buffer
		command.Stdout, command.Stderr = &stdout, &stderr
		err := command.Run()
		fmt.Fprintf(&seen, "$ %s\n%s", call, stdout.String())
		if err == nil {
			continue
		}
		_, message, _ := strings.Cut("\n"+stderr.String(), "\nError: ")
		message, _, _ = strings.Cut(message, "\n")
		fmt.Fprintf(&seen, "[exit %d] Error: %s\n", command.ProcessState.ExitCode(), message)
	}
	return strings.ReplaceAll(seen.String(), folder, "<root>"), nil
}

func writeTree(folder string, c testCase) error {
	files := map[string][]byte{}
	for path, text := range c.Files {
		files[path] = []byte(text)
	}
	for path, text := range c.BinaryFiles {
		contents, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		files[path] = contents
	}
	for path, contents := range files {
		path = filepath.Join(folder, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, contents, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// versions names what was recorded, as it was linked in.
func versions() string {
	found := []string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			switch module.Path {
			case "sigs.k8s.io/kustomize/kustomize/v5":
				found = append([]string{"kustomize " + module.Version}, found...)
			case "sigs.k8s.io/kustomize/api":
				found = append(found, "api "+module.Version)
			case "sigs.k8s.io/kustomize/kyaml":
				found = append(found, "kyaml "+module.Version)
			}
		}
	}
	return strings.Join(append(found, runtime.Version()), ", ")
}
