package kustomization_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// may creates a service account with these permissions in the namespace only.
func (s *harness) may(account string, rules ...rbacv1.PolicyRule) {
	s.Helper()
	s.Create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: account}})
	s.Create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: account}, Rules: rules})
	s.Create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: account},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: account, Namespace: s.Namespace}},
	})
}

func rule(group, resources string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: strings.Split(resources, ","), Verbs: verbs}
}

// as sets the service account of a Kustomization.
func as(account string) func(*kustomizev1.Kustomization) {
	return func(k *kustomizev1.Kustomization) { k.Spec.ServiceAccountName = account }
}

func TestRoleInOneNamespaceIsEnough(t *testing.T) {
	t.Parallel()
	s := prepareHarness(t)
	s.RunsAs = "controller"
	s.may(s.RunsAs, rule("*", "*", "*"))
	s.Allowed(s.RunsAs)
	s.Start()
	commit := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1"),
		"d.yaml": system.WebDeployment("web:1", "")})
	s.GitRepository("app")
	s.Kustomization("app", "app", "", system.WaitForHealth(system.NoTimeout))
	s.Ready("app", commit)
	s.HasEvent("app", "ReconciliationSucceeded", commit)

	t.Log("drift is detected, and pruning works")
	s.Patch(&corev1.ConfigMap{}, "a", `{"data":{"k":"drifted"}}`)
	s.ConfigMapHas("a", "1")
	commit = s.Git.Commit("app", map[string]string{"a.yaml": ""})
	s.RequestFetch("app")
	s.Ready("app", commit)
	s.Gone(&corev1.ConfigMap{}, "a")
	for _, request := range s.Requests.Matching("/") {
		if _, path, _ := strings.Cut(request, " "); strings.Contains(path, "watch=") &&
			!strings.Contains(path, "/namespaces/"+s.Namespace+"/") && !strings.Contains(path, "labelSelector") {
			t.Errorf("watch outside the namespace: %s", request)
		}
	}
}

func TestMissingPermissionsAreNamed(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	user := "system:serviceaccount:" + s.Namespace + ":"
	commit := s.Commit("app", map[string]string{"both/a.yaml": system.ConfigMap("a", "1"),
		"both/s.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n", "one/a.yaml": system.ConfigMap("b", "1")})
	s.may("configs", rule("", "configmaps", "get", "list", "watch", "create", "patch"))
	s.may("reader", rule("", "configmaps", "get", "list", "watch"))

	s.apply("both", "app", "both", as("configs"))
	s.NotReady(&kustomizev1.Kustomization{}, "both", "ReconciliationFailed", `User "`+user+`configs" cannot`)
	s.NotReady(&kustomizev1.Kustomization{}, "both", "ReconciliationFailed", `resource "secrets"`)
	s.Gone(&corev1.ConfigMap{}, "a")

	s.apply("reader", "app", "one", as("reader"))
	s.NotReady(&kustomizev1.Kustomization{}, "reader", "ReconciliationFailed", `User "`+user+
		`reader" cannot patch resource "configmaps"`)

	s.apply("absent", "app", "one", as("absent"))
	s.NotReady(&kustomizev1.Kustomization{}, "absent", "ReconciliationFailed", "ServiceAccount '"+s.Namespace+
		"/absent' not found")
	s.Create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "absent"}})
	s.GrantAll("absent")
	s.request("absent")
	s.Ready("absent", commit)

	t.Log("pruning uses the service account as well")
	s.apply("pruner", "app", "one", as("configs"),
		func(k *kustomizev1.Kustomization) { k.Spec.NamePrefix = "x-" })
	s.Ready("pruner", commit)
	s.patch("pruner", `{"spec":{"namePrefix":"y-"}}`)
	s.NotReady(&kustomizev1.Kustomization{}, "pruner", "PruneFailed", `User "`+user+
		`configs" cannot delete resource "configmaps"`)
	s.ConfigMapHas("x-b", "1")
}

func TestHealthChecksUseServiceAccount(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	s.GitRepository("app")
	s.may("configs", rule("", "configmaps", "get", "list", "watch", "create", "patch"))
	s.Kustomization("app", "app", "", as("configs"), func(k *kustomizev1.Kustomization) {
		k.Spec.Timeout = &meta.Duration{Duration: runsOut}
		k.Spec.HealthChecks = []meta.ObjectReference{{APIVersion: "v1", Kind: "Secret", Name: "sops-age",
			Namespace: s.Namespace}}
	})
	s.NotReady(&kustomizev1.Kustomization{}, "app", "HealthCheckFailed", `User "system:serviceaccount:`+s.Namespace+
		`:configs" cannot`)
}

func TestDefaultServiceAccount(t *testing.T) {
	t.Parallel()
	s := newSteps(t, func(o *options.Options) { o.DefaultAccount = "tenant" })
	commit := s.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	s.apply("app", "app", "")
	s.NotReady(&kustomizev1.Kustomization{}, "app", "ReconciliationFailed", "ServiceAccount '"+s.Namespace+
		"/tenant' not found")
	s.may("tenant", rule("", "configmaps", "*"))
	s.request("app")
	s.Ready("app", commit)
	s.apply("own", "app", "", as("own"))
	s.NotReady(&kustomizev1.Kustomization{}, "own", "ReconciliationFailed", "ServiceAccount '"+s.Namespace+
		"/own' not found")
}

func TestCrossNamespaceReferencesForbidden(t *testing.T) {
	t.Parallel()
	s := newSteps(t, system.AllNamespaces, func(o *options.Options) { o.NoCrossNamespaceRefs = true })
	commit := s.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	other := func(k *kustomizev1.Kustomization) { k.Spec.SourceRef.Namespace = "kube-system" }
	s.apply("source", "app", "", other)
	s.apply("dependency", "app", "", func(k *kustomizev1.Kustomization) {
		k.Spec.DependsOn = []kustomizev1.DependencyReference{
			{NamespacedName: meta.NamespacedName{Namespace: "kube-system", Name: "x"}}}
	})
	s.apply("own", "app", "", func(k *kustomizev1.Kustomization) { k.Spec.SourceRef.Namespace = s.Namespace })
	s.Ready("own", commit)
	s.NotReady(&kustomizev1.Kustomization{}, "source", "AccessDenied",
		"spec.sourceRef refers to namespace 'kube-system'")
	s.NotReady(&kustomizev1.Kustomization{}, "dependency", "AccessDenied",
		"spec.dependsOn refers to namespace 'kube-system'")
}

func TestImpersonationInRemoteCluster(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	raw, err := os.ReadFile(testenv.Kubeconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	s.Secret("remote", map[string]string{"value": string(raw)})
	commit := s.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	s.may("configs", rule("", "configmaps", "*"))
	s.may("nothing")
	remote := func(k *kustomizev1.Kustomization) {
		k.Spec.KubeConfig = &kustomizev1.KubeConfigReference{SecretRef: &meta.SecretKeyReference{Name: "remote"}}
	}
	audit := testenv.NewAuditLog(t)
	s.apply("app", "app", "", remote, as("configs"))
	s.Ready("app", commit)
	user := "system:serviceaccount:" + s.Namespace + ":configs"
	testenv.Eventually(t, "the object is applied as "+user, func() error { // a request is logged after its response
		if audit.Count(t, testenv.Request{Verb: "patch", Resource: "configmaps", Name: "a", User: user}) == 0 {
			return errors.New("it was not")
		}
		return nil
	})
	s.apply("denied", "app", "", remote, as("nothing"))
	s.NotReady(&kustomizev1.Kustomization{}, "denied", "ReconciliationFailed", `User "system:serviceaccount:`+
		s.Namespace+
		`:nothing" cannot`)
}

// A kubeconfig with rejected or expired credentials is replaced by a new one.
func TestExpiredCredentialsAreReplaced(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	cfg := testenv.Cluster(t)
	kubeconfig := func(token string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"x",
			"contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],
			"clusters":[{"name":"c","cluster":{"server":%q,"certificate-authority-data":%q}}],
			"users":[{"name":"u","user":{"token":%q}}]}`,
			cfg.Host, base64.StdEncoding.EncodeToString(cfg.CAData), token)
	}
	s.may("deployer", rule("*", "*", "*"))
	s.put(&corev1.Secret{StringData: map[string]string{"value": kubeconfig("s3cret-expired")}}, "remote")
	commit := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	s.GitRepository("app")
	s.Kustomization("app", "app", "", func(k *kustomizev1.Kustomization) {
		k.Spec.KubeConfig = &kustomizev1.KubeConfigReference{SecretRef: &meta.SecretKeyReference{Name: "remote"}}
	})
	k := &kustomizev1.Kustomization{}
	s.NotReady(k, "app", "ReconciliationFailed", "does not accept the credentials")
	if strings.Contains(fmt.Sprint(k.Status), "s3cret") {
		t.Errorf("the status contains the token: %+v", k.Status)
	}
	s.Patch(&corev1.Secret{}, "remote", fmt.Sprintf(`{"stringData":{"value":%q}}`,
		kubeconfig(s.ServiceAccountConfig(cfg, "deployer").BearerToken)))
	s.Ready("app", commit)
}
