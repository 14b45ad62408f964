package helmrelease_test

import (
	"fmt"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/release/common"
	helmrelease "helm.sh/helm/v4/pkg/release/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// newOften returns a harness with a chart, and with the ConfigMap that releases with often read.
func newOften(t *testing.T) *harness {
	t.Helper()
	h := newHarness(t)
	h.publish("1.0.0", nil)
	h.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "values"},
		Data: map[string]string{"values.yaml": "color: green\n"}})
	return h
}

// often makes passes short after each other. Each pass reads the ConfigMap with the values, so it can be counted.
func (h *harness) often(s *helmv2.HelmReleaseSpec) {
	s.Interval = meta.Duration{Duration: 200 * time.Millisecond}
	s.ValuesFrom = []meta.ValuesReference{{Kind: "ConfigMap", Name: "values"}}
}

// passes waits until a release had some passes, and returns how often stored releases were read in them.
func (h *harness) passes(n int) (reads int) {
	h.Helper()
	log := testenv.NewAuditLog(h)
	testenv.Eventually(h, fmt.Sprintf("%d passes", n), func() error {
		if got := log.Count(h, testenv.Request{Verb: "get", Resource: "configmaps", Name: "values",
			Namespace: h.Namespace}); got < n {
			return fmt.Errorf("%d passes", got)
		}
		return nil
	})
	return log.Count(h, testenv.Request{Verb: "list", Resource: "secrets", Namespace: h.Namespace})
}

// readsNothing waits until passes read no stored release.
func (h *harness) readsNothing() {
	h.Helper()
	testenv.Eventually(h, "passes read nothing", func() error {
		if reads := h.passes(5); reads > 0 {
			return fmt.Errorf("5 passes read stored releases %d times", reads)
		}
		return nil
	})
}

// storeFailed stores a failed release of another client after the last one.
func (h *harness) storeFailed(name string) {
	h.Helper()
	last := h.stored(name)[0]
	failed := *last
	failed.Version++
	failed.Info = &helmrelease.Info{Status: common.StatusFailed, Description: "by hand", LastDeployed: time.Now()}
	if err := h.driver().Create(fmt.Sprintf("sh.helm.release.v1.%s.v%d", name, failed.Version), &failed); err != nil {
		h.Fatal(err)
	}
}

func TestReleaseAtRestIsNotRead(t *testing.T) {
	h := newOften(t)
	h.release("app", h.often)
	h.ready("app", 1)
	h.readsNothing()

	h.storeFailed("app")
	h.ready("app", 3)
	h.edit("app", values(map[string]any{"color": "blue"}))
	h.ready("app", 4)
	h.configMap("app-config", "blue")
	h.readsNothing()
}

// TestAtRestWithTheRightsOfATenant has an account that may read the Secrets of its namespace only.
func TestAtRestWithTheRightsOfATenant(t *testing.T) {
	h := newOften(t)
	h.Create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "tenant"}})
	h.Create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "tenant"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: h.Namespace, Name: "tenant"}}})
	h.release("app", h.often, func(s *helmv2.HelmReleaseSpec) { s.ServiceAccountName = "tenant" })
	h.ready("app", 1)
	h.readsNothing()
	h.storeFailed("app")
	h.ready("app", 3)
}
