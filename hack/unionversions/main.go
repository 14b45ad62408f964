// Command unionversions gives every served version of a CustomResourceDefinition the fields of all its versions.
//
// The definitions convert by strategy None: the API server drops fields that the schema of the version of a request
// does not have. A client that writes through an older version would delete the fields that only newer versions have.
//
// usage: unionversions DIR
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: unionversions DIR")
		os.Exit(2)
	}
	files, err := filepath.Glob(filepath.Join(os.Args[1], "*.yaml"))
	for _, file := range files {
		if err == nil {
			err = rewrite(file)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "unionversions:", err)
		os.Exit(1)
	}
}

// rewrite completes the versions of the definition in a file. A file with one version is left as it is.
func rewrite(file string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var definition map[string]any
	if err := yaml.Unmarshal(raw, &definition); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	schemas := schemasOf(definition)
	if len(schemas) < 2 {
		return nil
	}
	for _, to := range schemas {
		for _, from := range schemas {
			complete(to, from)
		}
	}
	out, err := yaml.Marshal(definition)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, append([]byte("---\n"), out...), 0o644)
}

// schemasOf returns the schema of each version.
func schemasOf(definition map[string]any) []map[string]any {
	spec, _ := definition["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	var out []map[string]any
	for _, v := range versions {
		version, _ := v.(map[string]any)
		schema, _ := version["schema"].(map[string]any)
		if root, ok := schema["openAPIV3Schema"].(map[string]any); ok {
			out = append(out, root)
		}
	}
	return out
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
