package build

import (
	"testing"

	"github.com/sluice-gitops/sluice/internal/artifact"
)

// TestFieldsAreLocated finds the line of a field in every place where a repository may set it.
func TestFieldsAreLocated(t *testing.T) {
	const deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n" +
		"spec:\n  selector: {}\n  replica: 1\n"
	const list = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: apps/v1\n  kind: Deployment\n  metadata:\n" +
		"    name: web\n  spec:\n    a.b: {c: 1}\n    l:\n    - {}\n    - replica: 1\n"
	for name, tc := range map[string]struct {
		files       map[string]string
		field, want string
	}{
		"plain": {files: map[string]string{"a/web.yaml": deployment}, field: "spec.replica",
			want: "a/web.yaml, line 6"},
		"second document": {files: map[string]string{"web.yaml": "# first\n---\n" + deployment}, field: "spec.replica",
			want: "web.yaml, line 8"},
		"other object of the file": {files: map[string]string{"web.yaml": deployment + "---\n# other\n" +
			"apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {}\n"}, field: "spec.replica",
			want: "web.yaml, line 6"},
		"item of a list": {files: map[string]string{"l.yaml": list}, field: "spec.l[1].replica",
			want: "l.yaml, line 12"},
		"dots in a key": {files: map[string]string{"l.yaml": list}, field: "spec.a.b.c", want: "l.yaml, line 9"},
		"prefix": {files: map[string]string{"web.yaml": deployment,
			"kustomization.yaml": "namePrefix: a-\nresources: [web.yaml]\n"}, field: "spec.replica",
			want: "web.yaml, line 6"},
		"patch": {files: map[string]string{"web.yaml": deployment, "patch.yaml": "apiVersion: apps/v1\n" +
			"kind: Deployment\nmetadata: {name: web}\nspec:\n  unknown: 1\n",
			"kustomization.yaml": "resources: [web.yaml]\npatches: [{path: patch.yaml}]\n"},
			field: "spec.unknown", want: "patch.yaml, line 5"},
		"unknown": {files: map[string]string{"web.yaml": deployment}, field: "spec.none", want: "web.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := Build(t.Context(), Request{Tree: artifact.FromMap(tc.files)})
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range result.Objects {
				if o.GetKind() == "Deployment" || o.GetKind() == "List" {
					if got := result.Locate(o, tc.field); got != tc.want {
						t.Errorf("got %q, want %q", got, tc.want)
					}
				}
			}
		})
	}
}
