package build

import (
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-gitops/sluice/internal/artifact"
)

func FuzzWeigh(f *testing.F) {
	f.Add([]byte(ouroboros))
	f.Add([]byte(bomb(3)))
	f.Add([]byte(cm("a") + "---\n" + utf16(cm("b"))))
	f.Add([]byte("a: &a [x]\nb: {<<: *a, c: [*a, *a]}\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		fs := newFilesystem(t.Context(), artifact.FromMap(nil))
		if fs.weighText("a.yaml", content) != nil {
			return
		}
		// An accepted document has no recursive alias, so following its aliases must end.
		_ = documents(content, func(doc *yaml.Node) error {
			parseManifests("a.yaml", doc)
			return nil
		})
	})
}
