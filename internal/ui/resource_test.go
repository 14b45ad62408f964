package ui

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

func TestResourceShowsAnObjectWithoutItsSecrets(t *testing.T) {
	s := newSite(t, everyone)
	s.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "token", Labels: s.managed("app"),
		Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: `{"stringData":{"key":"hunter2"}}`}},
		StringData: map[string]string{"key": "hunter2"}})
	at := "/api/v1/resource?namespace=" + s.namespace
	got := read[resource](s, at+"&kind=Secret&name=token")
	if strings.Contains(got.YAML, "hunter2") || strings.Contains(got.YAML, "aHVudGVyMg") ||
		strings.Contains(got.YAML, "managedFields") || !strings.Contains(got.YAML, "key: ") {
		t.Errorf("the manifest is\n%s", got.YAML)
	}
	if got.AppliedBy != "Kustomization/"+s.namespace+"/app" {
		t.Errorf("it was applied by %q", got.AppliedBy)
	}
	s.workload("web", "one\n")
	testenv.Eventually(t, "the conditions of a Deployment are shown", func() error {
		if got := read[resource](s, at+"&group=apps&kind=Deployment&name=web"); len(got.Conditions) == 0 {
			return fmt.Errorf("none: %s", got.YAML)
		}
		return nil
	})
	for query, want := range map[string]int{"&kind=Nothing&name=x": http.StatusBadRequest,
		"&kind=Secret&name=gone": http.StatusNotFound} {
		if status, body := s.request(http.MethodGet, at+query, ""); status != want {
			t.Errorf("%s: %d %s", query, status, body)
		}
	}
	denied := newSiteAs(t, everyone, "without-rights")
	status, body := denied.request(http.MethodGet,
		"/api/v1/resource?kind=Secret&name=x&namespace="+denied.namespace, "")
	if status != http.StatusForbidden || !strings.Contains(body, "Ask an administrator") {
		t.Errorf("without rights: %d %s", status, body)
	}
}

func TestResourceShowsWhatIsNotFromGit(t *testing.T) {
	s := newSite(t, everyone)
	apply := func(manager, text string) {
		t.Helper()
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		o.SetNamespace(s.namespace)
		if err := s.client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o),
			client.FieldOwner(manager)); err != nil {
			t.Fatal(err)
		}
	}
	const head = "apiVersion: v1\nmetadata: {name: x}\n"
	at := "/api/v1/resource?namespace=" + s.namespace + "&name=x&kind="
	apply("kubectl-edit", head+"kind: ConfigMap\ndata: {mine: by hand}\n")
	if got := read[resource](s, at+"ConfigMap"); got.Declared {
		t.Errorf("nothing declares it: %+v", got)
	}
	apply("kustomize-controller", head+"kind: ConfigMap\ndata: {also: git, ours: git}\n")
	got := read[resource](s, at+"ConfigMap")
	if !got.Declared || len(got.Foreign) != 1 || got.Foreign[0].Path != "data.mine" ||
		got.Foreign[0].Value != `"by hand"` || got.Foreign[0].Manager != "kubectl-edit" {
		t.Errorf("fields of others are %+v", got.Foreign)
	}
	changed := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "x"}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"data": {"ours": "by hand"}}`))
	if err := s.client.Patch(t.Context(), changed, patch, client.FieldOwner("kubectl-edit")); err != nil {
		t.Fatal(err)
	}
	got = read[resource](s, at+"ConfigMap")
	if len(got.Foreign) != 2 || got.Foreign[1].Path != "data.ours" || got.Foreign[1].Value != `"by hand"` {
		t.Errorf("a declared field that was changed is not found: %+v", got.Foreign)
	}
	if !strings.Contains(got.Managed, "kubectl-edit") {
		t.Errorf("managed fields are\n%s", got.Managed)
	}
	apply("kustomize-controller", head+"kind: Secret\ndata: {ours: YQ==}\n")
	apply("kubectl-edit", head+"kind: Secret\ndata: {mine: aHVudGVyMg==}\n")
	status, text := s.request(http.MethodGet, at+"Secret", "")
	if status != http.StatusOK || strings.Contains(text, "hunter2") || strings.Contains(text, "aHVudGVyMg") ||
		!strings.Contains(text, `"path":"data.mine"`) {
		t.Errorf("of a Secret: %d %s", status, text)
	}
	apply("kustomize-controller", head+"kind: Service\nspec: {ports: [{port: 80, name: a}], selector: {app: x}}\n")
	apply("someone", head+"kind: Service\nspec: {ports: [{port: 81, name: b}]}\n")
	ports := read[resource](s, at+"Service").Foreign
	found := slices.ContainsFunc(ports, func(f foreignField) bool {
		return strings.HasSuffix(f.Path, ".name") && f.Value == `"b"` && f.Manager == "someone"
	})
	if !found {
		t.Errorf("an item of a list is not found by its key: %+v", ports)
	}
}
