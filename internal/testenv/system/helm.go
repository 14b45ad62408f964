package system

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// HelmRepository makes the HelmRepository "charts" of a server, with its login and authority.
func (s *System) HelmRepository(h *testenv.Helm, change ...func(*sourcev1.HelmRepositorySpec)) {
	s.Helper()
	s.Secret("login", map[string]string{"username": testenv.HelmUser, "password": testenv.HelmPassword})
	s.Secret("authority", map[string]string{"ca.crt": string(h.CA)})
	r := &sourcev1.HelmRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "charts"},
		Spec: sourcev1.HelmRepositorySpec{
			URL: h.URL, Interval: metav1.Duration{Duration: time.Hour},
			SecretRef:     &meta.LocalObjectReference{Name: "login"},
			CertSecretRef: &meta.LocalObjectReference{Name: "authority"},
		},
	}
	for _, c := range change {
		c(&r.Spec)
	}
	s.Create(r)
}

// HelmChart makes a HelmChart of the chart "app" in the HelmRepository "charts".
func (s *System) HelmChart(name string, change ...func(*sourcev1.HelmChartSpec)) {
	s.Helper()
	c := &sourcev1.HelmChart{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name},
		Spec: sourcev1.HelmChartSpec{
			Chart: "app", Interval: metav1.Duration{Duration: time.Hour},
			SourceRef: sourcev1.LocalHelmChartSourceReference{Kind: sourcev1.HelmRepositoryKind, Name: "charts"},
		},
	}
	for _, f := range change {
		f(&c.Spec)
	}
	s.Create(c)
}

// Reconcile asks for a pass of an object and waits until it is over.
func (s *System) Reconcile(o reconcile.Object, name string) {
	s.Helper()
	s.RequestReconcile(o, name)
	testenv.Eventually(s, name+" was reconciled", func() error {
		if err := s.Get(o, name); err != nil {
			return err
		}
		if want := o.GetAnnotations()[meta.ReconcileRequestAnnotation]; o.CommonStatus().
			LastHandledReconcileAt != want {
			return fmt.Errorf("%s, not %s", o.CommonStatus().LastHandledReconcileAt, want)
		}
		return nil
	})
}
