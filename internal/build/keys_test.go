package build

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/testenv/allocation"
)

// TestManyEqualKeysTakeLittleMemory has files of 80 kB. The library makes a line of an error of each pair of equal
// keys, which took 60 GB for one of them.
func TestManyEqualKeysTakeLittleMemory(t *testing.T) {
	const n = 10_000
	head := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	small := map[string]string{}
	for i := range 500 {
		small[fmt.Sprintf("%03d.yaml", i)] = head + "data:\n" + strings.Repeat("  a:\n", 300)
	}
	for name, files := range map[string]map[string]string{
		"in data":        {"a.yaml": head + "data:\n" + strings.Repeat("  a: x\n", n)},
		"at the top":     {"a.yaml": head + strings.Repeat("a: x\n", n)},
		"in flow style":  {"a.yaml": head + "data: {" + strings.Repeat("a: x, ", n) + "}\n"},
		"lists as keys":  {"a.yaml": head + "data:\n" + strings.Repeat("  [x]: x\n", n)},
		"in small files": small,
		"in a patch": {"a.yaml": head + "data:\n" + strings.Repeat("  a: x\n", n), "b.yaml": head,
			"kustomization.yaml": "resources: [b.yaml]\npatches: [{path: a.yaml}]\n"},
		"in an inline patch": {"b.yaml": head, "kustomization.yaml": "resources: [b.yaml]\npatches:\n" +
			"- patch: |\n    " + strings.ReplaceAll(head, "\n", "\n    ") + "data:\n" +
			strings.Repeat("      a: x\n", n)},
		"in a plugin": {"a.yaml": strings.Repeat("kind: x\n", n), "b.yaml": head,
			"kustomization.yaml": "resources: [b.yaml]\ntransformers: [a.yaml]\n"},
	} {
		var err error
		bytes := allocation.Bytes(func() {
			_, err = Build(t.Context(), Request{Tree: artifact.FromMap(files)})
		})
		if err == nil || !strings.Contains(err.Error(), "already defined at line") || len(err.Error()) > 10_000 {
			t.Errorf("%s: %.300v", name, err)
		}
		if bytes > 200<<20 {
			t.Errorf("%s: %d MiB were allocated", name, bytes>>20)
		}
	}
}

// TestManyDirectivesTakeLittleTime has 25,000 of them, each of which is compared with all others when one is parsed.
func TestManyDirectivesTakeLittleTime(t *testing.T) {
	var directives strings.Builder
	for i := range 25_000 {
		fmt.Fprintf(&directives, "%%TAG !e%d! tag:x,2000:\n", i)
	}
	text := directives.String() + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	for _, files := range []map[string]string{{"a.yaml": text}, {"kustomization.yaml": text}} {
		_, err := Build(t.Context(), Request{Tree: artifact.FromMap(files)})
		if err == nil || !strings.Contains(err.Error(), "it has more than 100 %TAG directives") {
			t.Errorf("got %.300v", err)
		}
	}
}
