// Command unionversions adds the older versions to generated CustomResourceDefinitions, and gives every served version
// the fields of all versions.
//
// The older versions have no Go types. OLDER has a file for each definition that lists them, without the fields that
// are equal in the current version.
//
// The definitions convert by strategy None: the API server drops fields that the schema of the version of a request
// does not have. A client that writes through an older version would delete the fields that only newer versions have.
//
// usage: unionversions DIR OLDER
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: unionversions DIR OLDER")
		os.Exit(2)
	}
	files, err := filepath.Glob(filepath.Join(os.Args[1], "*.yaml"))
	for _, file := range files {
		if err == nil {
			err = rewrite(file, filepath.Join(os.Args[2], filepath.Base(file)))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "unionversions:", err)
		os.Exit(1)
	}
}

// rewrite completes the definition in a file. A file without older versions is left as it is.
func rewrite(file, olderFile string) error {
	var definition map[string]any
	if err := read(file, &definition); err != nil {
		return err
	}
	var older []any
	if err := read(olderFile, &older); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	versions, _, err := unstructured.NestedSlice(definition, "spec", "versions")
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if len(versions) != 1 {
		return fmt.Errorf("%s: expected one generated version, got %d", file, len(versions))
	}
	if slices.ContainsFunc(older, func(v any) bool { return v.(map[string]any)["storage"] == true }) {
		versions[0].(map[string]any)["storage"] = false
	}
	versions = append(versions, older...)
	slices.SortFunc(versions, func(a, b any) int { return strings.Compare(nameOf(a), nameOf(b)) })
	for _, to := range versions {
		for _, from := range versions {
			complete(schemaOf(to), schemaOf(from))
		}
	}
	if err := unstructured.SetNestedSlice(definition, versions, "spec", "versions"); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	out, err := yaml.Marshal(definition)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, append([]byte("---\n"), out...), 0o644)
}

func nameOf(version any) string { return fmt.Sprint(version.(map[string]any)["name"]) }

func schemaOf(version any) map[string]any {
	schema, _ := version.(map[string]any)["schema"].(map[string]any)
	root, _ := schema["openAPIV3Schema"].(map[string]any)
	return root
}

// read decodes a YAML file.
func read(file string, into any) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	json, err := yaml.YAMLToJSON(raw)
	if err == nil {
		err = utiljson.Unmarshal(json, into) // whole numbers stay whole
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// complete adds the properties of a schema that another schema of the same object lacks.
func complete(to, from map[string]any) {
	if to["type"] != from["type"] {
		return
	}
	for _, nested := range []string{"items", "additionalProperties"} {
		a, inBoth := to[nested].(map[string]any)
		if b, ok := from[nested].(map[string]any); ok && inBoth {
			complete(a, b)
		}
	}
	missing, ok := from["properties"].(map[string]any)
	if !ok {
		return
	}
	have, ok := to["properties"].(map[string]any)
	if !ok {
		if to["additionalProperties"] != nil || to["x-kubernetes-preserve-unknown-fields"] == true {
			return // it drops nothing
		}
		have = map[string]any{}
		to["properties"] = have
	}
	for name, property := range missing {
		schema, _ := property.(map[string]any)
		if own, exists := have[name].(map[string]any); exists {
			complete(own, schema)
			continue
		}
		added := runtime.DeepCopyJSON(schema)
		delete(added, "default") // it would add the field to objects of an older version
		have[name] = added
	}
}
