// Command openapi writes what internal/offline/schema needs of the OpenAPI documents of Kubernetes: the fields of all
// kinds, their types and which of them are required. It reads the documents from the Go module of Kubernetes.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/sluice-gitops/sluice/internal/offline/schema"
)

const (
	document  = "api/openapi-spec/swagger.json"
	directory = "internal/offline/schema"
)

func main() {
	for _, release := range schema.Releases {
		if err := write(release); err != nil {
			fmt.Fprintln(os.Stderr, "Error:", err)
			os.Exit(1)
		}
	}
}

func write(release string) error {
	dir, err := download(release)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(filepath.Join(dir, document))
	if err != nil {
		return err
	}
	var d struct {
		Definitions map[string]any `json:"definitions"`
	}
	if err := json.Unmarshal(content, &d); err != nil {
		return err
	}
	for name, definition := range d.Definitions {
		if strings.HasSuffix(name, ".api.resource.Quantity") {
			definition.(map[string]any)["format"] = "quantity"
		}
	}
	text, err := json.Marshal(reduce(d.Definitions, true))
	if err != nil {
		return err
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	_, err = z.Write(text)
	if err := errors.Join(err, z.Close()); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(directory, schema.File(release)), b.Bytes(), 0o644)
}

// download returns the directory of the module of a release of Kubernetes.
func download(release string) (string, error) {
	out, err := exec.Command("go", "mod", "download", "-json", "k8s.io/kubernetes@v"+release).Output()
	if err != nil {
		return "", fmt.Errorf("cannot download k8s.io/kubernetes@v%s: %w", release, err)
	}
	var module struct{ Dir string }
	return module.Dir, json.Unmarshal(out, &module)
}

// kept are the keywords of schemas that are needed.
var kept = map[string]bool{"type": true, "format": true, "properties": true, "additionalProperties": true,
	"items": true, "required": true, "enum": true, "$ref": true, "x-kubernetes-group-version-kind": true}

// reduce removes the keywords of schemas that are not needed. areNames says that the keys of a map are names.
func reduce(v any, areNames bool) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, value := range v {
			if areNames || kept[key] {
				out[key] = reduce(value, !areNames && key == "properties")
			}
		}
		return out
	case []any:
		for i := range v {
			if _, isMap := v[i].(map[string]any); !isMap {
				v[i] = reduce(v[i], false)
			}
		}
	}
	return v
}
