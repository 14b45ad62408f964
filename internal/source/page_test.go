package source_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestPageAboutSourceKinds does what docs/design/add-a-source-kind.md says to an overlay of the code, generates the
// definition and the copies of the kind that the page adds, and runs the tests of the page.
func TestPageAboutSourceKinds(t *testing.T) {
	testenv.Full(t) // it compiles most packages again
	const page = "design/add-a-source-kind.md"
	files := testenv.Blocks(t, page, "go")
	if len(files) != 3 {
		t.Fatalf("the page has %d files", len(files))
	}
	o := testenv.NewOverlay(t)
	copyForGenerator(o)
	for i, name := range []string{"api/source/v1/httparchive.go", "internal/source/httparchive.go",
		"internal/source/httparchive_test.go"} {
		o.Write(name, files[i])
	}
	o.Apply(testenv.Blocks(t, page, "diff")...)
	generate(o)
	out := o.Test("-run", "^TestHTTPArchive", "./internal/source")
	for _, name := range []string{"TestHTTPArchiveContract", "TestHTTPArchive"} {
		if !strings.Contains(out, "--- PASS: "+name+" ") {
			t.Errorf("%s did not run:\n%s", name, out)
		}
	}
}

// copyForGenerator copies what the generators of `make generate` read.
func copyForGenerator(o *testenv.Overlay) {
	o.Helper()
	for _, pattern := range []string{"go.mod", "go.sum", "hack/joinmarkers", "hack/tools/go.*", "api/*/*.go",
		"api/*/*/*.go"} {
		found, err := filepath.Glob(filepath.Join(o.Root, filepath.FromSlash(pattern)))
		if err != nil || len(found) == 0 {
			o.Fatalf("%s: %d files, %v", pattern, len(found), err)
		}
		for _, file := range found {
			rel, err := filepath.Rel(o.Root, file)
			if err != nil {
				o.Fatal(err)
			}
			content, err := os.ReadFile(file)
			if err != nil {
				o.Fatal(err)
			}
			to := filepath.Join(o.Dir, rel)
			if err := os.MkdirAll(filepath.Dir(to), 0o750); err != nil {
				o.Fatal(err)
			}
			if err := os.WriteFile(to, content, 0o700); err != nil {
				o.Fatal(err)
			}
		}
	}
}

// generate runs the commands of `make generate` that the page needs.
func generate(o *testenv.Overlay) {
	o.Helper()
	o.Run(o.Dir, "", "bash", "-euc", `
		git init -q
		tool="go tool -modfile=$PWD/hack/tools/go.mod controller-gen"
		$tool object paths=./api/source/v1
		hack/joinmarkers .cache/api
		cd .cache/api
		$tool crd:generateEmbeddedObjectMeta=false paths=./api/source/v1 output:crd:artifacts:config=../../config/crd`)
	o.Use("api/source/v1/zz_generated.deepcopy.go")
	o.Use("config/crd/source.toolkit.fluxcd.io_httparchives.yaml")
}
