package ui

import (
	"fmt"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// promotion is a part that soaks in staging before production takes it, and another one whose last commit became
// unhealthy, so that its gate takes it back. awaitRevert waits for that.
func (w *world) promotion() {
	w.readableByGates()
	first := w.Git.Commit("cart", map[string]string{"staging/cart.yaml": configMap("cart-staging", "1"),
		"production/cart.yaml": configMap("cart", "1")})
	w.GitRepository("cart")
	w.Create(&gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "production"},
		Spec: gatingv1.GateSpec{Interval: meta.DurationOf(time.Minute), Default: gatingv1.Opened,
			Checks: []gatingv1.Check{{Name: "staging", Revision: &gatingv1.RevisionCheck{Kind: "Kustomization",
				Name: "cart-staging", Soak: &meta.Duration{Duration: 2 * time.Hour}}}}}})
	w.Kustomization("cart-staging", "cart", "staging")
	w.Kustomization("cart-production", "cart", "production", func(k *kustomizev1.Kustomization) {
		k.Spec.Gated = meta.Gated{Gates: system.GateRefs("production")}
	})

	w.WatchingGate("watched", gatingv1.OnFailureRevert)
	healthy := w.Git.Commit("search", map[string]string{"search.yaml": searchDeployment("")})
	w.GitRepository("search")
	w.Kustomization("search", "search", "./", system.WaitForHealth(3*time.Second),
		func(k *kustomizev1.Kustomization) { k.Spec.Gated = meta.Gated{Gates: system.GateRefs("watched")} })
	w.Ready("search", healthy)
	w.Ready("cart-staging", first)
	w.awaitPending("cart-production", first)
	w.Git.Commit("search", map[string]string{"search.yaml": searchDeployment("not-ready")})
	w.RequestFetch("search")
}

func searchDeployment(fail string) string {
	return strings.NewReplacer("{name: web}", "{name: search}", "{app: web}", "{app: search}").Replace(
		system.WebDeployment("search:1", fail))
}

// readableByGates allows the account of gates to read the objects of their checks.
func (w *world) readableByGates() {
	name := metav1.ObjectMeta{Namespace: "shop", Name: "gates"}
	w.Create(&rbacv1.Role{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get", "list"},
		APIGroups: []string{kustomizev1.GroupVersion.Group}, Resources: []string{"kustomizations"}}}})
	w.Create(&rbacv1.RoleBinding{ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role",
		Name: name.Name}, Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "shop",
		Name: "default"}}})
}

// awaitRevert waits until the part whose last commit is unhealthy has the one before again, and is healthy.
func (w *world) awaitRevert() {
	testenv.Eventually(w, "search goes back", func() error {
		k := &kustomizev1.Kustomization{}
		if err := w.Get(k, "search"); err != nil {
			return err
		}
		if r := k.Status.Reverted; r == nil || k.Status.LastAppliedRevision != r.To {
			return fmt.Errorf("%+v %+v", r, k.Status.Conditions)
		}
		return nil
	})
}
