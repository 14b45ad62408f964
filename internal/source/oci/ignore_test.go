package oci

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/static"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
)

func TestIgnoreRulesOfLayersAreBounded(t *testing.T) {
	t.Parallel()
	r := ociregistry.New(t)
	many := strings.Repeat("a\n", 5001)
	for name, c := range map[string]struct {
		files   map[string]string
		spec    *string
		message string
	}{
		"large file": {files: map[string]string{"dir/.sourceignore": strings.Repeat("#", 1<<20+1)},
			message: `"dir/.sourceignore" exceeds the limit of 1048576 bytes. Use fewer rules: one for a directory ` +
				"excludes everything in it"},
		"many rules": {files: map[string]string{"dir/.sourceignore": many},
			message: `"dir/.sourceignore" exceeds the limit of 5000 rules for a directory`},
		"many rules of the object": {files: map[string]string{"a": "1"}, spec: &many,
			message: "spec.ignore exceeds the limit of 5000 rules for a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			digest := push(t, r, "many", "latest", nil, static.NewLayer(archive(t, c.files), contentType))
			image, err := open(t, r, "many").Pull(t.Context(), digest)
			if err != nil {
				t.Fatal(err)
			}
			layer, err := image.Layer("")
			if err != nil {
				t.Fatal(err)
			}
			_, err = layer.Tree(t.Context(), c.spec)
			requireFault(t, err, "OCIArtifactLayerOperationFailed",
				"has a layer whose ignore rules cannot be applied: "+c.message)
		})
	}
}

// TestRulesApplyBelowTheirDirectory selects files of directories between which the walk returns to others.
func TestRulesApplyBelowTheirDirectory(t *testing.T) {
	tree := artifact.FromMap(map[string]string{
		"a/.sourceignore": "x\n", "a/b/.sourceignore": "!x\ny\n", "a/b/c/x": "", "a/b/c/y": "", "a/b/x": "",
		"a/d/x": "", "a/d/y": "", "a/x": "", "a/y": "", "ab/x": "", "x": "", "y": "",
	})
	selected, err := without(t.Context(), tree, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"a/.sourceignore", "a/b/.sourceignore", "a/b/c/x", "a/b/x", "a/d/y", "a/y", "ab/x", "x", "y"}
	if got := filesOf(t, selected); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCanceledContextEndsSelection(t *testing.T) {
	files := map[string]string{}
	for i := range 5_000 {
		files[fmt.Sprint("file-", i)] = ""
	}
	_, err := without(testenv.CanceledAfter(t.Context(), 1_000), artifact.FromMap(files), nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
