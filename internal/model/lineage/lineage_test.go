package lineage

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
)

// reader serves objects by Kind/namespace/name.
type reader map[string]client.Object

func (r reader) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	kind := into.GetObjectKind().GroupVersionKind().Kind
	if kind == "" {
		name := fmt.Sprintf("%T", into)
		kind = name[strings.LastIndex(name, ".")+1:]
	}
	o, ok := r[kind+"/"+key.String()]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: kind}, key.Name)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return err
	}
	if u, ok := into.(*unstructured.Unstructured); ok {
		gvk := u.GroupVersionKind()
		u.Object = content
		u.SetGroupVersionKind(gvk)
		return nil
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(content, into)
}

func (r reader) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// cluster returns a Kustomization that applies itself, a Deployment, and a nested Kustomization, with its source.
func cluster() reader {
	ks := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "app",
		Labels: apply.Owner{Group: kustomizev1.GroupVersion.Group, Namespace: "apps", Name: "app"}.Labels()}}
	ks.Spec.SourceRef.Kind, ks.Spec.SourceRef.Name = sourcev1.GitRepositoryKind, "app"
	ks.Status.Inventory = &meta.ResourceInventory{Entries: []meta.ResourceRef{
		{ID: "apps_web_apps_Deployment", Version: "v1"},
		{ID: "apps_app_kustomize.toolkit.fluxcd.io_Kustomization", Version: "v1"},
		{ID: "apps_gone_kustomize.toolkit.fluxcd.io_Kustomization", Version: "v1"},
	}}
	source := &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "app"}}
	source.Spec.URL = "https://me:secret@example.com/app"
	source.Status.Artifact = &meta.Artifact{Revision: "main@sha1:abc"}
	return reader{"Kustomization/apps/app": ks, "GitRepository/apps/app": source}
}

func deployment(labels map[string]string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetAPIVersion("apps/v1")
	o.SetKind("Deployment")
	o.SetNamespace("apps")
	o.SetName("web")
	o.SetLabels(labels)
	return o
}

func TestTrace(t *testing.T) {
	c := cluster()
	sections, err := Trace(t.Context(), c, deployment(c["Kustomization/apps/app"].GetLabels()))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"Deployment/apps/web", "Kustomization/apps/app", "GitRepository/apps/app"}
	if len(sections) != len(want) {
		t.Fatalf("got %d sections: %v", len(sections), sections)
	}
	for i, s := range sections {
		if s.Object != want[i] {
			t.Errorf("section %d is of %s, want %s", i, s.Object, want[i])
		}
		for _, f := range s.Facts {
			if f.Value == "" || strings.Contains(f.Value, "secret") || f.Name == "Note" {
				t.Errorf("unexpected fact %+v of %s", f, s.Object)
			}
		}
	}
	if _, err := Trace(t.Context(), c, deployment(nil)); err == nil ||
		!strings.Contains(err.Error(), "not managed by") {
		t.Errorf("an object that nothing applied: %v", err)
	}
}

func TestTraceWarnsAboutCopiedLabels(t *testing.T) {
	c := cluster()
	o := deployment(c["Kustomization/apps/app"].GetLabels())
	o.SetName("copy")
	sections, err := Trace(t.Context(), c, o)
	if err != nil || !strings.Contains(fmt.Sprint(sections), "its inventory does not list Deployment/apps/copy") {
		t.Errorf("got %v (%v)", sections, err)
	}
}

func TestTree(t *testing.T) {
	top := apply.Ref{Group: kustomizev1.GroupVersion.Group, Version: "v1", Kind: kustomizev1.KustomizationKind,
		Namespace: "apps", Name: "app"}
	for compact, want := range map[bool]string{
		false: "Kustomization/apps/app\n├── Deployment/apps/web\n├── Kustomization/apps/app\n" +
			"└── Kustomization/apps/gone",
		true: "Kustomization/apps/app\n├── Kustomization/apps/app\n└── Kustomization/apps/gone",
	} {
		n, err := Tree(t.Context(), cluster(), top, compact)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(n.Lines(), "\n"); got != want {
			t.Errorf("compact=%t gives\n%s, want\n%s", compact, got, want)
		}
	}
}

func TestSources(t *testing.T) {
	chart := &sourcev1.HelmChart{}
	chart.Spec.SourceRef = sourcev1.LocalHelmChartSourceReference{Kind: sourcev1.HelmRepositoryKind, Name: "charts"}
	generator := &extensionsv1beta1.ArtifactGenerator{}
	generator.Spec.Sources = []extensionsv1beta1.SourceReference{{Kind: sourcev1.BucketKind, Name: "a"},
		{Kind: sourcev1.OCIRepositoryKind, Namespace: "other", Name: "b"}}
	external := &sourcev1.ExternalArtifact{}
	for want, o := range map[string]client.Object{
		"HelmRepository//charts ": chart, "Bucket//a OCIRepository/other/b ": generator, "": external,
	} {
		got := ""
		for _, r := range Sources(o) {
			got += r.Kind + "/" + r.Namespace + "/" + r.Name + " "
		}
		if got != want {
			t.Errorf("%T has sources %q, want %q", o, got, want)
		}
	}
}
