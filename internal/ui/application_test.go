package ui

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build/expand"
	"github.com/sluice-gitops/sluice/internal/ui/state"
	"github.com/sluice-gitops/sluice/internal/ui/view"
)

// applied creates a Kustomization whose inventory has ConfigMaps.
func (s *site) applied(name string, edit func(*kustomizev1.Kustomization), maps ...string) {
	s.Helper()
	ks := kustomization(name)
	if edit != nil {
		edit(ks)
	}
	s.create(ks)
	ks.Status.Inventory = &meta.ResourceInventory{}
	for _, m := range maps {
		ks.Status.Inventory.Entries = append(ks.Status.Inventory.Entries,
			meta.ResourceRef{ID: s.namespace + "_" + m + "__ConfigMap", Version: "v1"})
	}
	if err := s.client.Status().Update(s.Context(), ks); err != nil {
		s.Fatal(err)
	}
}

func TestDriftListsWhatDiffersFromGit(t *testing.T) {
	s := newSite(t, everyone)
	s.applied("app", nil, "same", "edited", "gone")
	for name, manager := range map[string]string{"same": "kustomize-controller", "edited": "kustomize-controller"} {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"name": name, "namespace": s.namespace},
			"data":     map[string]any{"a": "1", "b": "2"}}}
		if err := s.client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o),
			client.FieldOwner(manager)); err != nil {
			t.Fatal(err)
		}
	}
	edited := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "edited"}}
	before := edited.DeepCopy()
	edited.Data = map[string]string{"b": "by hand"}
	if err := s.client.Patch(t.Context(), edited, client.MergeFrom(before), client.FieldOwner("kubectl")); err != nil {
		t.Fatal(err)
	}
	got := read[drift](s, "/api/v1/objects/Kustomization/"+s.namespace+"/app/drift")
	if got.Equal != 1 || len(got.Objects) != 2 || !got.Objects[1].Missing || got.Objects[0].Name != "edited" ||
		len(got.Objects[0].Fields) != 1 || got.Objects[0].Fields[0].Path != "data.b" {
		t.Errorf("%+v", got)
	}
}

// archive returns an artifact with one file.
func archive(t *testing.T, name, content string) oneArtifact {
	t.Helper()
	var b bytes.Buffer
	packed := gzip.NewWriter(&b)
	files := tar.NewWriter(packed)
	header := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg}
	if err := files.WriteHeader(header); err != nil {
		t.Fatal(err)
	}
	_, err := files.Write([]byte(content))
	if err := errors.Join(err, files.Close(), packed.Close()); err != nil {
		t.Fatal(err)
	}
	return oneArtifact(b.String())
}

func TestDriftShowsGitsValueBesideTheLiveOne(t *testing.T) {
	s := newSite(t, everyone)
	const revision = "main@sha1:1"
	repo := &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Name: "repo"},
		Spec: sourcev1.GitRepositorySpec{URL: "https://git.example/r"}}
	s.create(repo)
	repo.Status.Artifact = &meta.Artifact{Path: "a/b/c/1.tar.gz", URL: "http://x/1.tar.gz", Revision: revision,
		Digest: "sha256:" + strings.Repeat("0", 64), LastUpdateTime: meta.Time{Time: metav1.Now().Time}}
	if err := s.client.Status().Update(t.Context(), repo); err != nil {
		t.Fatal(err)
	}
	manifest := `{apiVersion: v1, kind: ConfigMap, metadata: {name: edited, namespace: ` + s.namespace + `},
		data: {a: "1", b: "2", c: "3", empty: ""}}`
	s.ui.Artifacts = archive(t, "edited.yaml", manifest)
	s.applied("app", nil, "edited", "other")
	for name, data := range map[string]map[string]any{"edited": {"a": "1", "b": "2", "c": "3"}, "other": {"a": "1"}} {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"name": name, "namespace": s.namespace, "labels": map[string]any{
				"kustomize.toolkit.fluxcd.io/name": "app", "kustomize.toolkit.fluxcd.io/namespace": s.namespace}},
			"data": data}}
		if err := s.client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o),
			client.FieldOwner("kustomize-controller")); err != nil {
			t.Fatal(err)
		}
	}
	byHand := []byte(`{"data": {"b": "by hand", "c": null, "d": "added"}}`)
	edited := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "edited"}}
	if err := s.client.Patch(t.Context(), edited, client.RawPatch(types.MergePatchType, byHand),
		client.FieldOwner("kubectl")); err != nil {
		t.Fatal(err)
	}
	at := "/api/v1/objects/Kustomization/" + s.namespace + "/app/drift"
	if got := read[drift](s, at); got.Git != "" || !strings.Contains(got.GitError, revision) ||
		len(got.Objects[0].Fields) != 2 {
		t.Errorf("before the revision is applied: %+v", got)
	}
	ks := kustomization("app")
	if err := s.client.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: "app"}, ks); err != nil {
		t.Fatal(err)
	}
	ks.Status.LastAppliedRevision = revision
	if err := s.client.Status().Update(t.Context(), ks); err != nil {
		t.Fatal(err)
	}
	got := read[drift](s, at+"?kind=ConfigMap&name=edited&namespace="+s.namespace)
	var fields []string
	for _, f := range got.Objects[0].Fields {
		fields = append(fields, f.Path+" "+f.Value+" "+f.Git+" "+f.Manager)
	}
	want := []string{`data.b "by hand" "2" kubectl`, `data.d "added"  kubectl`, `data.c  "3" `}
	if got.Objects[0].File != "edited.yaml" {
		t.Errorf("the file is %q", got.Objects[0].File)
	}
	if got.Git != revision || got.GitError != "" || got.Equal != 0 || !slices.Equal(fields, want) {
		t.Errorf("%+v: %q, want %q", got, fields, want)
	}
	if all := read[drift](s, at); all.Equal != 1 {
		t.Errorf("an object that git does not declare any more: %+v", all)
	}
}

func TestObjectsInAnotherClusterAreNotReadHere(t *testing.T) {
	s := newSite(t, everyone)
	s.applied("remote", func(ks *kustomizev1.Kustomization) {
		ks.Spec.KubeConfig = &meta.KubeConfigReference{SecretRef: &meta.SecretKeyReference{Name: "prod"}}
	}, "there")
	tree := read[state.Tree](s, "/api/v1/objects/Kustomization/"+s.namespace+"/remote/tree")
	if b := tree.Top.Below; len(b) != 1 || b[0].Status != state.StatusHidden ||
		!strings.Contains(b[0].Message, "another cluster") {
		t.Errorf("%+v", tree.Top)
	}
	status, body := s.request(http.MethodGet, "/api/v1/objects/Kustomization/"+s.namespace+"/remote/drift", "")
	if status != http.StatusBadRequest || !strings.Contains(body, s.namespace+"/prod") {
		t.Errorf("%d %s", status, body)
	}
}

// inProcess renders ResourceSets without a child.
type inProcess struct{}

func (inProcess) Expand(_ context.Context, _ string, q expand.Request) (*expand.Result, error) {
	return expand.Expand(q)
}

func TestInputsSayWhichObjectsTheyRender(t *testing.T) {
	s := newSite(t, everyone)
	s.ui.Templates = inProcess{}
	s.create(&controlplanev1.ResourceSet{ObjectMeta: metav1.ObjectMeta{Name: "teams"},
		Spec: controlplanev1.ResourceSetSpec{
			Inputs: []controlplanev1.InputSet{
				{"team": {Raw: []byte(`"red"`)}}, {"team": {Raw: []byte(`"blue"`)}}},
			Resources: []apiextensionsv1.JSON{{Raw: []byte(`{"apiVersion": "v1", "kind": "ConfigMap",
				"metadata": {"name": "<< inputs.team >>", "namespace": "apps"}}`)}, {Raw: []byte(
				`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared", "namespace": "apps"}}`)}},
		}})
	got := read[inputs](s, "/api/v1/objects/ResourceSet/"+s.namespace+"/teams/inputs")
	if len(got.Inputs) != 2 || got.Error != "" {
		t.Fatalf("%+v", got)
	}
	first, second := got.Inputs[0], got.Inputs[1]
	if first.Values != "team: red\n" || first.From != "ResourceSet/"+s.namespace+"/teams" ||
		!slices.Equal(first.Objects, []string{"ConfigMap/apps/red", "ConfigMap/apps/shared"}) ||
		!slices.Equal(second.Objects, []string{"ConfigMap/apps/blue"}) {
		t.Errorf("%+v\n%+v", first, second)
	}
}

// oneArtifact is an artifact of any source.
type oneArtifact string

func (a oneArtifact) Open(context.Context, artifact.Key, meta.Artifact) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(string(a))), nil
}

func TestArtifactIsForWhoMayReadItsSource(t *testing.T) {
	s := newSite(t, everyone)
	s.ui.Artifacts = oneArtifact("content")
	repo := &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Name: "repo"},
		Spec: sourcev1.GitRepositorySpec{URL: "https://git.example/r"}}
	s.create(repo)
	at := "/api/v1/objects/GitRepository/" + s.namespace + "/repo/artifact"
	if status, body := s.request(http.MethodGet, at, ""); status != http.StatusNotFound {
		t.Errorf("without an artifact: %d %s", status, body)
	}
	repo.Status.Artifact = &meta.Artifact{Path: "a/b/c/1.tar.gz", URL: "http://x/1.tar.gz", Revision: "main@sha1:1",
		Digest: "sha256:" + strings.Repeat("0", 64), LastUpdateTime: meta.Time{Time: metav1.Now().Time}}
	if err := s.client.Status().Update(t.Context(), repo); err != nil {
		t.Fatal(err)
	}
	if status, body := s.request(http.MethodGet, at, ""); status != http.StatusOK || body != "content" {
		t.Errorf("%d %s", status, body)
	}
	other := newSiteAs(t, everyone, "without-rights")
	other.ui.Artifacts = oneArtifact("content")
	if status, body := other.request(http.MethodGet, at, ""); status != http.StatusForbidden {
		t.Errorf("without rights: %d %s", status, body)
	}
}

func TestGroupsCountByNamespaceSourceAndLabel(t *testing.T) {
	s := newSite(t, everyone)
	for name, team := range map[string]string{"a": "red", "b": "red", "c": ""} {
		ks := kustomization(name)
		if team != "" {
			ks.Labels = map[string]string{"team": team, "kustomize.toolkit.fluxcd.io/name": "x"}
		}
		s.create(ks)
		s.awaitItem("Kustomization/" + s.namespace + "/" + name)
	}
	in := "namespace=" + s.namespace
	got := read[view.Groups](s, "/api/v1/groups?by=team&"+in)
	if len(got.Groups) != 2 || got.Groups[0].Name != "red" || got.Groups[1].Name != "" ||
		!slices.Equal(got.Labels, []string{"team"}) {
		t.Errorf("%+v", got)
	}
	if got := read[view.Groups](s, "/api/v1/groups?by=source&"+in); len(got.Groups) != 1 ||
		got.Groups[0].Name != "GitRepository/"+s.namespace+"/repo" {
		t.Errorf("%+v", got)
	}
	if p := read[page](s, "/api/v1/items?by=team&group=red&"+in); p.Total != 2 {
		t.Errorf("%+v", p)
	}
	if p := read[page](s, "/api/v1/items?by=team&group=&"+in); p.Total != 1 || p.Items[0].Name != "c" {
		t.Errorf("%+v", p)
	}
}
