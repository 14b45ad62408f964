package localbuild

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/internal/build/decrypt"
)

const kustomization = `apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: app}
spec:
  interval: 1m
  prune: true
  path: ./deploy
  sourceRef: {kind: GitRepository, name: app}
`

func write(t *testing.T, dir, name, content string) string {
	t.Helper()
	full := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return full
}

func TestValidate(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		want    string
	}{
		"nothing to build":     {want: "--path is missing"},
		"offline without file": {options: Options{Path: ".", Offline: true}, want: "--kustomization-file"},
		"source without a kind": {options: Options{Sources: map[string]string{"a/b": "."}},
			want: "KIND/NAMESPACE/NAME"},
		"valid": {options: Options{Path: ".", File: "app.yaml", Offline: true}},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.options.Validate()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestBuildFindsBaseAboveSpecPath checks that files beside spec.path are part of the source.
func TestBuildFindsBaseAboveSpecPath(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "base/app.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app}\n")
	write(t, dir, "base/kustomization.yaml", "resources: [app.yaml]\n")
	write(t, dir, "deploy/kustomization.yaml", "resources: [../base]\n")
	file := write(t, t.TempDir(), "app.yaml", kustomization)
	b := New(Options{Path: filepath.Join(dir, "deploy"), File: file, Offline: true}, nil, nil)
	var names []string
	err := b.Build(t.Context(), types.NamespacedName{Namespace: "apps", Name: "app"}, func(r *Result) error {
		for _, o := range r.Objects {
			names = append(names, o.GetKind()+"/"+o.GetName()+" of "+
				o.GetLabels()["kustomize.toolkit.fluxcd.io/namespace"])
		}
		return nil
	})
	if want := "[ConfigMap/app of apps]"; err != nil || fmt.Sprint(names) != want {
		t.Errorf("got %v (%v), want %s", names, err, want)
	}
}

func TestBuildSkipsNestedKustomizationWithoutSource(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "deploy/nested.yaml", strings.NewReplacer("{name: app}", "{name: nested, namespace: apps}",
		"GitRepository, name: app", "Bucket, name: other").Replace(kustomization))
	file := write(t, t.TempDir(), "app.yaml", kustomization)
	var skipped []string
	b := New(Options{Path: filepath.Join(dir, "deploy"), File: file, Offline: true, Recursive: true}, nil,
		func(message string) { skipped = append(skipped, message) })
	err := b.Build(t.Context(), types.NamespacedName{Namespace: "apps", Name: "app"},
		func(*Result) error { return nil })
	if err != nil || len(skipped) != 1 || !strings.Contains(skipped[0], "--local-sources Bucket/apps/other=DIRECTORY") {
		t.Errorf("skipped %q (%v)", skipped, err)
	}
}

func TestUnmask(t *testing.T) {
	o := &unstructured.Unstructured{Object: map[string]any{
		"kind": "Secret", "data": map[string]any{"a": "Kioq", "b": "bmV3"}, // *** and new
		"stringData": map[string]any{"c": decrypt.Redacted}, "list": []any{decrypt.Redacted, "x"},
	}}
	live := &unstructured.Unstructured{Object: map[string]any{
		"kind": "Secret", "data": map[string]any{"a": "bGl2ZQ==", "b": "b2xk", "c": "cw=="}, // live, old, s
		"list": []any{"y"},
	}}
	if !HasMasked(o.Object) || HasMasked(live.Object) {
		t.Error("masked values are not found")
	}
	Unmask(o, live)
	want := "map[data:map[a:bGl2ZQ== b:bmV3] kind:Secret list:[y x] stringData:map[c:s]]"
	if got := fmt.Sprint(o.Object); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
