package mcp_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/cluster/risk"
	"github.com/sluice-gitops/sluice/internal/review"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/ui"
	"github.com/sluice-gitops/sluice/internal/ui/mcp"
)

// reviewed returns the service of a repository.
func (s *site) reviewed(url string) *review.Service {
	s.Helper()
	dir := s.TempDir()
	for name, content := range map[string]string{"token": "s3cret-of-the-host",
		"review.yaml": "repositories: [{name: fleet, type: gitea, url: " + url + ", tokenFile: token}]\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			s.Fatal(err)
		}
	}
	config, err := review.ReadConfig(filepath.Join(dir, "review.yaml"), risk.None)
	if err != nil {
		s.Fatal(err)
	}
	service, err := review.New(review.Options{Config: config, Dir: filepath.Join(dir, "clones"), Client: s.client,
		Kubernetes: review.ReadOnly(s.config), Log: logr.Discard()})
	if err != nil {
		s.Fatal(err)
	}
	return service
}

// agent returns a session over HTTP of a ServiceAccount that may read what deploys in the namespace, and has the verbs
// for reviews.
func (s *site) agent(address, name string, verbs ...string) *sdk.ClientSession {
	s.Helper()
	s.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}})
	s.create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{
		kustomizev1.GroupVersion.Group, sourcev1.GroupVersion.Group, helmv2.GroupVersion.Group},
		Resources: []string{"*"}, Verbs: []string{"list", "get"}}}})
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.namespace, Name: name}}
	s.create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}})
	if len(verbs) > 0 {
		all := metav1.ObjectMeta{Name: s.namespace + "-" + name}
		for _, o := range []client.Object{&rbacv1.ClusterRole{ObjectMeta: all, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{gatingv1.GroupVersion.Group}, Resources: []string{ui.ReviewsResource}, Verbs: verbs}}},
			&rbacv1.ClusterRoleBinding{ObjectMeta: all, Subjects: subjects,
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: all.Name}}} {
			if err := s.client.Create(s.Context(), o); err != nil {
				s.Fatal(err)
			}
		}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	request := &authenticationv1.TokenRequest{}
	if err := s.client.SubResource("token").Create(s.Context(), account, request); err != nil {
		s.Fatal(err)
	}
	return s.session(&sdk.StreamableClientTransport{Endpoint: address + mcp.Path,
		HTTPClient: &http.Client{Transport: withToken(request.Status.Token)}})
}

// TestChangesOfReviewedRepositories previews and proposes changes with the rights of the user, without a clone.
func TestChangesOfReviewedRepositories(t *testing.T) {
	host := testenv.NewGitea(t)
	host.Init("o/r")
	configMap := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: known}\ndata: {a: new}\n"
	head := host.Commit("o/r", map[string]string{"app/a.yaml": configMap})
	url := host.Host + "/o/r"
	s := newSite(t, writes)
	s.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "known"}, Data: map[string]string{"a": "of-others"}})
	s.create(&sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}, Spec: sourcev1.GitRepositorySpec{
		URL: url, Interval: meta.DurationOf(time.Hour), Reference: &sourcev1.GitRepositoryRef{Branch: "main"}}})
	ks := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Name: "app"}, Spec: kustomizev1.KustomizationSpec{
		Interval: meta.DurationOf(time.Hour), Path: "./app", Prune: true, TargetNamespace: s.namespace,
		SourceRef: kustomizev1.SourceReference{Kind: "GitRepository",
			NamespacedName: meta.NamespacedName{Name: "fleet"}}}}
	ks.Spec.Gates = []meta.GateReference{{Name: "release"}}
	s.create(ks)
	s.create(&gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Name: "release"}, Spec: gatingv1.GateSpec{
		Interval: meta.DurationOf(time.Hour), Default: gatingv1.Closed}})
	changes := mcp.NewReviewed(s.reviewed(url))
	change := map[string]any{"files": []map[string]any{
		{"path": "app/a.yaml", "content": configMap + "immutable: true\n"},
		{"path": "app/b.yaml", "content": strings.Replace(configMap, "known", "added", 1)}}}
	all := newSite(t, writes, func(o *mcp.Options) { o.Local.Config, o.Changes = s.config, changes })
	session := all.connect()
	if r := all.call(session, "preview_change", change); r.failed || !strings.Contains(r.raw, `"name":"added"`) ||
		!strings.Contains(r.raw, "of-others") {
		t.Errorf("the preview is %s", r.raw)
	}
	if r := all.call(session, "simulate_gates", change); !strings.Contains(r.raw, "release") {
		t.Errorf("the simulation is %s", r.raw)
	}
	all.fails(session, "is not the name of a branch", "preview_change", map[string]any{"branch": "a:refs/heads/main"})
	all.fails(session, "must be one of those that are reviewed: fleet", "preview_change",
		map[string]any{"branch": "main", "repository": "../x"})

	web := newSite(t, writes, func(o *mcp.Options) { o.Local, o.Changes = nil, changes })
	address := web.serve()
	few := s.agent(address, "few", "get")
	testenv.Eventually(t, "the rights", func() error { // the API server's authorizer lags behind
		change["namespace"] = s.namespace
		r := web.call(few, "preview_change", change)
		delete(change, "namespace")
		if strings.Contains(r.raw, "of-others") {
			t.Fatalf("the preview shows what the user may not read: %s", r.raw)
		}
		if r.failed || !strings.Contains(r.raw, "app/b.yaml") {
			return errors.New(r.raw)
		}
		return nil
	})
	change["title"] = "Add a ConfigMap"
	web.fails(few, "you may not propose changes", "propose_change", change)
	web.fails(s.agent(address, "none"), "you may not see reviews", "preview_change", map[string]any{"branch": "main"})

	if r := all.call(session, "propose_change", change); r.failed || !strings.Contains(r.raw, "/o/r/pulls/7") {
		t.Errorf("the proposal is %s", r.raw)
	}
	pulls := host.Pulls()
	if len(pulls) != 1 || !strings.HasPrefix(pulls[0]["head"], "sluice-mcp/add-a-configmap-") {
		t.Fatalf("the pull requests are %v", pulls)
	}
	if now := strings.TrimSpace(host.Run("o/r", "rev-parse", "main")); now != head {
		t.Errorf("main is at %s, it was at %s", now, head)
	}
	if file := host.Run("o/r", "show", pulls[0]["head"]+":app/b.yaml"); !strings.Contains(file, "added") {
		t.Errorf("the branch has %q", file)
	}
	if strings.Contains(all.logged()+web.logged(), "s3cret-of-the-host") {
		t.Error("the log has the token")
	}
}
