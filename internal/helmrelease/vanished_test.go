package helmrelease_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
)

// TestReleaseWithoutSecretIsDeletedByItsInventory deletes the Secret of a release before its HelmRelease, as the
// deletion of a namespace may do. Objects outside of the namespace are deleted all the same, but for one
// that Helm keeps.
func TestReleaseWithoutSecretIsDeletedByItsInventory(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	role := func(name, annotations string) string {
		return "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n" +
			"metadata:\n  name: {{ .Release.Namespace }}-" + name + "\n" + annotations
	}
	h.publish("1.0.0", map[string]string{"templates/role.yaml": role("vanished", ""),
		"templates/kept.yaml": role("kept", "  annotations: {helm.sh/resource-policy: keep}\n")})
	h.release("app")
	h.ready("app", 1)
	if err := h.Client.DeleteAllOf(t.Context(), &corev1.Secret{}, client.InNamespace(h.Namespace),
		client.MatchingLabels{"owner": "helm"}); err != nil {
		t.Fatal(err)
	}
	h.delete("app")
	h.Gone(&helmv2.HelmRelease{}, "app")
	h.Gone(&corev1.ConfigMap{}, "app-config")
	clusterRole := &rbacv1.ClusterRole{}
	if err := h.Client.Get(t.Context(), client.ObjectKey{Name: h.Namespace + "-vanished"}, clusterRole); err == nil {
		t.Error("the ClusterRole is left")
	}
	if err := h.Client.Get(t.Context(), client.ObjectKey{Name: h.Namespace + "-kept"}, clusterRole); err != nil {
		t.Errorf("what Helm keeps was deleted: %v", err)
	}
	_ = h.Client.Delete(t.Context(), clusterRole)
}

// TestReleaseWithoutAccountNamesWhatStays deletes the account of a release before its HelmRelease, as the deletion of a
// namespace may do.
func TestReleaseWithoutAccountNamesWhatStays(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	h.publish("1.0.0", nil)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "deployer"}}
	h.Create(account)
	h.GrantAll("deployer")
	h.release("app", func(s *helmv2.HelmReleaseSpec) { s.ServiceAccountName = "deployer" })
	h.ready("app", 1)
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "deployer"}}
	h.remove(binding, "deployer")
	h.Refused("deployer") // otherwise the release is uninstalled
	h.remove(account, "deployer")
	h.delete("app")
	h.Gone(&helmv2.HelmRelease{}, "app")
	h.HasEvent("app", helmv2.UninstallFailedReason, "release left in the cluster", "credentials",
		"ConfigMap/"+h.Namespace+"/app-config")
}
