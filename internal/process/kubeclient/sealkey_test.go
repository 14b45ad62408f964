package kubeclient_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestReplicasOfAHubShareAKey starts replicas with the rights and the empty Secret that an installation has.
func TestReplicasOfAHubShareAKey(t *testing.T) {
	t.Parallel()
	cfg, namespace := testenv.Cluster(t), testenv.Namespace(t)
	admin, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const name = "sluice-hub-session"
	in := metav1.ObjectMeta{Namespace: namespace, Name: name}
	secrets := func(verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: verbs}
	}
	own := secrets("update")
	own.ResourceNames = []string{name}
	for _, o := range []client.Object{&corev1.Secret{ObjectMeta: in},
		&rbacv1.Role{ObjectMeta: in, Rules: []rbacv1.PolicyRule{secrets("get", "list", "watch"), own}},
		&rbacv1.RoleBinding{ObjectMeta: in,
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: namespace}}}} {
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	limited := rest.CopyConfig(cfg)
	limited.Impersonate.UserName = namespace
	c, err := client.New(limited, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the API server knows the rights", func() error {
		return c.Get(t.Context(), client.ObjectKeyFromObject(&corev1.Secret{ObjectMeta: in}), &corev1.Secret{})
	})
	var keys [4][]byte
	group := guard.NewGroup("replicas of a hub")
	for n := range keys {
		group.Go(func() (err error) {
			keys[n], err = kubeclient.HubSessionKey(t.Context(), c, namespace)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		if len(k) < 32 || !slices.Equal(k, keys[0]) {
			t.Errorf("the keys are %x", keys)
		}
	}
}
