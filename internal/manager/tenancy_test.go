package manager

import (
	"encoding/base64"
	"fmt"
	"os"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// loginAs returns access to the cluster by a token of a service account, and by nothing else.
func (s *system) loginAs(cfg *rest.Config, account string) *rest.Config {
	s.Helper()
	request := &authenticationv1.TokenRequest{}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: account}}
	if err := s.client.SubResource("token").Create(s.Context(), sa, request); err != nil {
		s.Fatal(err)
	}
	own := rest.AnonymousClientConfig(cfg)
	own.BearerToken = request.Status.Token
	return own
}

// may lets a service account do something in the namespace, and nothing else.
func (s *system) may(account string, rules ...rbacv1.PolicyRule) {
	s.Helper()
	s.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: account}})
	s.create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: account}, Rules: rules})
	s.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: account},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: account, Namespace: s.namespace}},
	})
}

func rule(group, resources string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: strings.Split(resources, ","), Verbs: verbs}
}

func as(account string) func(*kustomizev1.Kustomization) {
	return func(k *kustomizev1.Kustomization) { k.Spec.ServiceAccountName = account }
}

func TestARoleInOneNamespaceIsEnough(t *testing.T) {
	s := prepareSystem(t)
	s.runsAs = "controller"
	s.may(s.runsAs, rule("*", "*", "*"))
	s.start()
	commit := s.git.Commit("app", map[string]string{"a.yaml": cm("a", "1"), "d.yaml": webDeployment("web:1", "")})
	s.source("app")
	s.sync("app", "app", "", waits(forever))
	s.ready("app", commit)
	s.told("app", "ReconciliationSucceeded", commit)

	t.Log("drift is seen, and pruning works")
	s.patch(&corev1.ConfigMap{}, "a", `{"data":{"k":"drifted"}}`)
	s.configMap("a", "1")
	commit = s.git.Commit("app", map[string]string{"a.yaml": ""})
	s.pull("app")
	s.ready("app", commit)
	s.gone(&corev1.ConfigMap{}, "a")
	for _, request := range s.requests.about("/") {
		if _, path, _ := strings.Cut(request, " "); strings.Contains(path, "watch=") &&
			!strings.Contains(path, "/namespaces/"+s.namespace+"/") && !strings.Contains(path, "labelSelector") {
			t.Errorf("a watch outside of the namespace: %s", request)
		}
	}
}

func TestWhatAnAccountMayNotDoIsToldWithTheVerb(t *testing.T) {
	s := newSystem(t)
	user := "system:serviceaccount:" + s.namespace + ":"
	commit := s.git.Commit("app", map[string]string{"both/a.yaml": cm("a", "1"),
		"both/s.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n", "one/a.yaml": cm("b", "1")})
	s.source("app")
	s.may("configs", rule("", "configmaps", "get", "list", "watch", "create", "patch"))
	s.may("reader", rule("", "configmaps", "get", "list", "watch"))

	s.sync("both", "app", "both", as("configs"))
	s.fails(&kustomizev1.Kustomization{}, "both", "ReconciliationFailed", `User "`+user+`configs" cannot`)
	s.fails(&kustomizev1.Kustomization{}, "both", "ReconciliationFailed", `resource "secrets"`)
	s.gone(&corev1.ConfigMap{}, "a")

	s.sync("reader", "app", "one", as("reader"))
	s.fails(&kustomizev1.Kustomization{}, "reader", "ReconciliationFailed", `User "`+user+
		`reader" cannot patch resource "configmaps"`)

	s.sync("nobody", "app", "one", as("nobody"))
	s.fails(&kustomizev1.Kustomization{}, "nobody", "ReconciliationFailed", "ServiceAccount '"+s.namespace+
		"/nobody' not found")
	s.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "nobody"}})
	s.grant("nobody")
	s.annotate(&kustomizev1.Kustomization{}, "nobody")
	s.ready("nobody", commit)

	t.Log("pruning is done as the account, too")
	s.sync("pruner", "app", "one", as("configs"), func(k *kustomizev1.Kustomization) { k.Spec.NamePrefix = "x-" })
	s.ready("pruner", commit)
	s.patch(&kustomizev1.Kustomization{}, "pruner", `{"spec":{"namePrefix":"y-"}}`)
	s.fails(&kustomizev1.Kustomization{}, "pruner", "PruneFailed", `User "`+user+
		`configs" cannot delete resource "configmaps"`)
	s.configMap("x-b", "1")
}

func TestHealthIsReadAsTheAccount(t *testing.T) {
	s := newSystem(t)
	s.git.Commit("app", map[string]string{"a.yaml": cm("a", "1")})
	s.source("app")
	s.may("configs", rule("", "configmaps", "get", "list", "watch", "create", "patch"))
	s.sync("app", "app", "", as("configs"), func(k *kustomizev1.Kustomization) {
		k.Spec.Timeout = &metav1.Duration{Duration: runsOut}
		k.Spec.HealthChecks = []meta.ObjectReference{{APIVersion: "v1", Kind: "Secret", Name: "sops-age",
			Namespace: s.namespace}}
	})
	s.fails(&kustomizev1.Kustomization{}, "app", "HealthCheckFailed", `User "system:serviceaccount:`+s.namespace+
		`:configs" cannot`)
}

func TestTheDefaultAccountStandsInForNone(t *testing.T) {
	s := newSystem(t, func(o *Options) { o.DefaultAccount = "tenant" })
	commit := s.git.Commit("app", map[string]string{"a.yaml": cm("a", "1")})
	s.source("app")
	s.sync("app", "app", "")
	s.fails(&kustomizev1.Kustomization{}, "app", "ReconciliationFailed", "ServiceAccount '"+s.namespace+
		"/tenant' not found")
	s.may("tenant", rule("", "configmaps", "*"))
	s.annotate(&kustomizev1.Kustomization{}, "app")
	s.ready("app", commit)
	s.sync("own", "app", "", as("own"))
	s.fails(&kustomizev1.Kustomization{}, "own", "ReconciliationFailed", "ServiceAccount '"+s.namespace+
		"/own' not found")
}

func TestReferencesIntoOtherNamespacesCanBeForbidden(t *testing.T) {
	s := newSystem(t, everywhere, func(o *Options) { o.NoCrossNamespaceRefs = true })
	commit := s.git.Commit("app", map[string]string{"a.yaml": cm("a", "1")})
	labels := map[string]string{"test": s.namespace}
	s.source("app", labelled(labels))
	other := func(k *kustomizev1.Kustomization) { k.Labels, k.Spec.SourceRef.Namespace = labels, "kube-system" }
	s.sync("source", "app", "", other)
	s.sync("dependency", "app", "", func(k *kustomizev1.Kustomization) {
		k.Labels = labels
		k.Spec.DependsOn = []kustomizev1.DependencyReference{
			{NamespacedName: meta.NamespacedName{Namespace: "kube-system", Name: "x"}}}
	})
	s.sync("own", "app", "", func(k *kustomizev1.Kustomization) {
		k.Labels, k.Spec.SourceRef.Namespace = labels,
			s.namespace
	})
	s.ready("own", commit)
	s.fails(&kustomizev1.Kustomization{}, "source", "AccessDenied", "spec.sourceRef refers to namespace 'kube-system'")
	s.fails(&kustomizev1.Kustomization{}, "dependency", "AccessDenied",
		"spec.dependsOn refers to namespace 'kube-system'")
}

func TestTheAccountIsImpersonatedInTheOtherCluster(t *testing.T) {
	s := newSystem(t)
	raw, err := os.ReadFile(testenv.Kubeconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	s.secret("remote", map[string]string{"value": string(raw)})
	commit := s.git.Commit("app", map[string]string{"a.yaml": cm("a", "1")})
	s.source("app")
	s.may("configs", rule("", "configmaps", "*"))
	s.may("nothing")
	remote := func(k *kustomizev1.Kustomization) {
		k.Spec.KubeConfig = &kustomizev1.KubeConfigReference{SecretRef: &meta.SecretKeyReference{Name: "remote"}}
	}
	audit := testenv.NewAuditLog(t)
	s.sync("app", "app", "", remote, as("configs"))
	s.ready("app", commit)
	user := "system:serviceaccount:" + s.namespace + ":configs"
	if audit.Count(t, testenv.Request{Verb: "patch", Resource: "configmaps", Name: "a", User: user}) == 0 {
		t.Error("it was not applied as " + user)
	}
	s.sync("denied", "app", "", remote, as("nothing"))
	s.fails(&kustomizev1.Kustomization{}, "denied", "ReconciliationFailed", `User "system:serviceaccount:`+s.namespace+
		`:nothing" cannot`)
}

// A kubeconfig that is refused, or whose token ended, is corrected by a new one and nothing else.
func TestExpiredCredentialsAreToldAndRecoveredFrom(t *testing.T) {
	s := newSystem(t)
	cfg := testenv.Cluster(t)
	kubeconfig := func(token string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"x","contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],
			"clusters":[{"name":"c","cluster":{"server":%q,"certificate-authority-data":%q}}],"users":[{"name":"u","user":{"token":%q}}]}`,
			cfg.Host, base64.StdEncoding.EncodeToString(cfg.CAData), token)
	}
	s.may("deployer", rule("*", "*", "*"))
	s.put(&corev1.Secret{StringData: map[string]string{"value": kubeconfig("s3cret-expired")}}, "remote")
	commit := s.git.Commit("app", map[string]string{"a.yaml": cm("a", "1")})
	s.source("app")
	s.sync("app", "app", "", func(k *kustomizev1.Kustomization) {
		k.Spec.KubeConfig = &kustomizev1.KubeConfigReference{SecretRef: &meta.SecretKeyReference{Name: "remote"}}
	})
	k := &kustomizev1.Kustomization{}
	s.fails(k, "app", "ReconciliationFailed", "does not accept the credentials")
	if strings.Contains(fmt.Sprint(k.Status), "s3cret") {
		t.Errorf("the status tells the token: %+v", k.Status)
	}
	s.patch(&corev1.Secret{}, "remote", fmt.Sprintf(`{"stringData":{"value":%q}}`,
		kubeconfig(s.loginAs(cfg, "deployer").BearerToken)))
	s.ready("app", commit)
}
