package manifest

import (
	"bytes"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
)

func TestDecodeSkipsEmptyDocuments(t *testing.T) {
	objects, err := Decode([]byte("# comment\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n# x\n" +
		"---\n" +
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"b"}}`))
	if err != nil || len(objects) != 2 || objects[0].GetName() != "a" || objects[1].GetKind() != "Secret" {
		t.Fatalf("got %v (%v)", objects, err)
	}
	var b bytes.Buffer
	if err := Encode(&b, objects...); err != nil {
		t.Fatal(err)
	}
	again, err := Decode(b.Bytes())
	if err != nil || len(again) != 2 {
		t.Errorf("decoding the encoded objects gives %v (%v)", again, err)
	}
	if _, err := Decode([]byte("a: [")); err == nil {
		t.Error("invalid YAML is accepted")
	}
}

func TestDeclarationOmitsWhatTheClusterAdds(t *testing.T) {
	o := &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{
		Namespace: "apps", Name: "app", UID: "u", ResourceVersion: "7", Labels: map[string]string{"team": "a"},
		Annotations: map[string]string{meta.ReconcileRequestAnnotation: "now",
			corev1.LastAppliedConfigAnnotation: "{}", "note": "kept"},
	}}
	o.Spec.URL, o.Status.ObservedGeneration = "https://example.com/app", 1
	u, err := Declaration(o)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Encode(&b, u); err != nil {
		t.Fatal(err)
	}
	want := "---\napiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata:\n  annotations:\n" +
		"    note: kept\n  labels:\n    team: a\n  name: app\n  namespace: apps\nspec:\n  interval: 0s\n" +
		"  url: https://example.com/app\n"
	if b.String() != want {
		t.Errorf("got\n%s, want\n%s", b.String(), want)
	}
}
