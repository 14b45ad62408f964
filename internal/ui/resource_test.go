package ui

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
