package ui

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	common "helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/helm/storage"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// store stores a version of the release "app", as Helm does.
func (s *site) store(number int, manifest string) {
	s.Helper()
	d := storage.New(s.login.user.Cluster.CoreV1().Secrets(s.namespace))
	err := d.Create(fmt.Sprintf("sh.helm.release.v1.app.v%d", number), &release.Release{Name: "app", Version: number,
		Namespace: s.namespace, Manifest: manifest, Info: &release.Info{Status: common.StatusDeployed}})
	if err != nil {
		s.Fatal(err)
	}
}

func manifestOf(kind, name, field, value string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: %s\nmetadata: {name: %s}\n%s: {a: %s}\n", kind, name, field, value)
}

func TestVersionsOfAHelmReleaseAreCompared(t *testing.T) {
	s := newSite(t, everyone)
	hr := &helmv2.HelmRelease{ObjectMeta: metav1.ObjectMeta{Name: "app"}, Spec: helmv2.HelmReleaseSpec{
		ChartRef:   &helmv2.ChartReference{Kind: "OCIRepository", Name: "app"},
		ValuesFrom: []meta.ValuesReference{{Kind: "ConfigMap", Name: "defaults"}},
		Values:     &apiextensionsv1.JSON{Raw: []byte(`{"replicas":3}`)}}}
	s.create(hr)
	hr.Status.StorageNamespace = s.namespace
	for _, number := range []int{3, 2, 1} {
		hr.Status.History = append(hr.Status.History, helmv2.Snapshot{Name: "app", Namespace: s.namespace,
			Version: number, ChartName: "app", ChartVersion: fmt.Sprintf("1.0.%d", number), Status: "deployed",
			Digest: "sha256:a", ConfigDigest: "sha256:b", FirstDeployed: meta.TimeOf(time.Now()),
			LastDeployed: meta.TimeOf(time.Now())})
	}
	if err := s.client.Status().Update(t.Context(), hr); err != nil {
		t.Fatal(err)
	}
	s.store(2, manifestOf("ConfigMap", "same", "data", "x")+manifestOf("ConfigMap", "changed", "data", "old")+
		manifestOf("ConfigMap", "gone", "data", "x")+manifestOf("Secret", "login", "stringData", "old-password"))
	s.store(3, manifestOf("ConfigMap", "same", "data", "x")+manifestOf("ConfigMap", "changed", "data", "new")+
		manifestOf("ConfigMap", "made", "data", "x")+manifestOf("Secret", "login", "stringData", "new-password"))
	object := "/api/v1/objects/HelmRelease/" + s.namespace + "/app"
	const values = "values:\n  replicas: 3\nvaluesFrom:\n- kind: ConfigMap\n  name: defaults\n"
	if d := read[detail](s, object); d.Values != values {
		t.Errorf("the values are %q", d.Values)
	}
	status, body := s.request(http.MethodGet, object+"/diff?from=2&to=3", "")
	for _, want := range []string{`"object":"ConfigMap/changed","action":"configured","diff":"~ data.a: old → new"`,
		`"object":"ConfigMap/gone","action":"deleted"`, `"object":"ConfigMap/made","action":"created"`,
		`"object":"Secret/login","action":"configured"`} {
		if status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%d: %s is not in %s", status, want, body)
		}
	}
	for _, not := range []string{"same", "old-password", "new-password"} {
		if strings.Contains(body, not) {
			t.Errorf("%s is in %s", not, body)
		}
	}
	if d := read[releaseDiff](s, object+"/diff?from=0&to=2"); len(d.Changes) != 4 {
		t.Errorf("the first version has %+v", d)
	}
	for query, want := range map[string]int{"from=1&to=2": http.StatusNotFound, "from=2&to=9": http.StatusBadRequest,
		"from=-1&to=2": http.StatusBadRequest, "from=2&to=x": http.StatusBadRequest} {
		if status, body := s.request(http.MethodGet, object+"/diff?"+query, ""); status != want {
			t.Errorf("%s: %d %s", query, status, body)
		}
	}
	if d := read[detail](s, object); len(d.History) != 3 || d.History[0].Version != 3 {
		t.Errorf("the history is %+v", d.History)
	}
}

func TestDifferenceOfReleasesIsBounded(t *testing.T) {
	objects := map[apply.Ref]*unstructured.Unstructured{}
	for n := range maxDiffObjects + 10 {
		objects[apply.Ref{Kind: "ConfigMap", Name: fmt.Sprint(n)}] = &unstructured.Unstructured{}
	}
	d := &releaseDiff{}
	d.compare(map[apply.Ref]*unstructured.Unstructured{}, objects)
	if len(d.Changes) != maxDiffObjects || d.Omitted != 10 {
		t.Errorf("%d changes, %d omitted", len(d.Changes), d.Omitted)
	}
}

func TestHistoryOfAKustomizationLinksToCommits(t *testing.T) {
	s := newSite(t, everyone)
	s.create(&sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Name: "repo"}, Spec: sourcev1.GitRepositorySpec{
		URL: "https://github.com/acme/fleet.git"}})
	ks := kustomization("app")
	s.create(ks)
	a, b := strings.Repeat("a", 40), strings.Repeat("b", 40)
	for _, revision := range []string{"main@sha1:" + b, "main@sha1:" + a, "latest@sha256:" + strings.Repeat("c", 64)} {
		ks.Status.History = append(ks.Status.History, kustomizev1.Snapshot{Reconciliation: meta.Reconciliation{
			Digest: "sha256:x", FirstReconciled: meta.TimeOf(time.Now()), LastReconciled: meta.TimeOf(time.Now()),
			LastReconciledStatus: "ReconciliationSucceeded", TotalReconciliations: 1,
			Metadata: map[string]string{"revision": revision}}})
	}
	if err := s.client.Status().Update(t.Context(), ks); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the history links to commits", func() error {
		h := read[detail](s, "/api/v1/objects/Kustomization/"+s.namespace+"/app").History
		page := "https://github.com/acme/fleet"
		if len(h) != 3 || h[0].Commit != page+"/commit/"+b || h[0].Compare != page+"/compare/"+a+"..."+b ||
			h[1].Compare != "" || h[2].Commit != "" {
			return fmt.Errorf("%+v", h)
		}
		return nil
	})
	at := "/api/v1/objects/Kustomization/" + s.namespace + "/app/diff?to=main@sha1:" + b + "&from="
	if got := read[map[string]string](s, at+"main@sha1:"+a); got["compare"] !=
		"https://github.com/acme/fleet/compare/"+a+"..."+b {
		t.Errorf("two revisions are compared at %v", got)
	}
	for _, wrong := range []string{"main@sha1:" + strings.Repeat("d", 40), "latest@sha256:" +
		strings.Repeat("c", 64)} {
		if status, body := s.request(http.MethodGet, at+wrong, ""); status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", wrong, status, body)
		}
	}
}
