package ui

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/oidcprovider"
)

// inCluster is the UI that the controllers serve, with a login provider.
type inCluster struct {
	options  options.UIOptions
	provider *oidcprovider.Provider
}

func newInCluster(t *testing.T) *inCluster {
	t.Helper()
	addr := testenv.FreeAddress(t)
	provider := oidcprovider.New(t, "http://"+addr+"/login/callback")
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(oidcprovider.ClientSecret), 0o600); err != nil {
		t.Fatal(err)
	}
	return &inCluster{provider: provider, options: options.UIOptions{Addr: addr, ExternalURL: "http://" + addr,
		LoginOptions: options.LoginOptions{Session: time.Hour, TokenLogin: true, Issuer: provider.URL,
			ClientID: oidcprovider.ClientID, ClientSecretFile: secret, Scopes: []string{"profile"},
			UsernameClaim: "sub", UsernamePrefix: "-", GroupsClaim: "groups"}}}
}

// people are alice, whose team may read the namespace shop and write its gates, and bob, who may do nothing.
func (c *inCluster) people(w *world) {
	w.Helper()
	c.provider.SetUser("alice", map[string]any{"groups": []string{"shop-team"}})
	c.provider.SetUser("bob", map[string]any{"groups": []string{"others"}})
	name := metav1.ObjectMeta{Namespace: "shop", Name: "shop-team"}
	w.Create(&rbacv1.Role{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get", "list"},
		APIGroups: []string{"*"}, Resources: []string{"*"}}}})
	w.Create(&rbacv1.RoleBinding{ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role",
		Name: name.Name}, Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind,
		Name: "shop-team"}}})
}
