package manager

import (
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

func (s *system) secret(name string, data map[string]string) {
	s.Helper()
	s.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}, StringData: data})
}

func TestRemoteClustersAreAppliedTo(t *testing.T) {
	s := newSystem(t)
	raw, err := os.ReadFile(testenv.Kubeconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	s.secret("remote", map[string]string{"config": string(raw)})
	commit := s.git.Commit("app", map[string]string{"a.yaml": cm("far", "1")})
	s.source("app")
	via := func(name, key string) func(*kustomizev1.Kustomization) {
		return func(k *kustomizev1.Kustomization) {
			k.Spec.KubeConfig = &kustomizev1.KubeConfigReference{SecretRef: &meta.SecretKeyReference{Name: name,
				Key: key}}
		}
	}
	s.sync("app", "app", "", via("remote", "config"))
	s.ready("app", commit)
	s.configMap("far", "1")

	t.Log("what is wrong with the access is told, without telling the access")
	s.secret("exec", map[string]string{"value": "apiVersion: v1\nkind: Config\nusers: [{name: u, user: {exec: " +
		"{command: /bin/true, apiVersion: client.authentication.k8s.io/v1}}}]\n"})
	s.sync("absent", "app", "", via("absent", ""))
	s.sync("keyless", "app", "", via("remote", ""))
	s.sync("runs", "app", "", via("exec", ""))
	s.sync("denied", "app", "", via("remote", "config"),
		func(k *kustomizev1.Kustomization) { k.Spec.ServiceAccountName = "nobody" })
	s.fails(&kustomizev1.Kustomization{}, "absent", "AuthenticationFailed", "not found")
	s.fails(&kustomizev1.Kustomization{}, "keyless", "AuthenticationFailed", "has no key value or value.yaml")
	s.fails(&kustomizev1.Kustomization{}, "runs", "AuthenticationFailed", "runs a program")
	s.fails(&kustomizev1.Kustomization{}, "denied", "ReconciliationFailed", "nobody")

	t.Log("it goes although the way to its cluster is gone")
	if err := s.client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace,
		Name: "remote"}}); err != nil {
		t.Fatal(err)
	}
	k := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "app"}}
	if err := s.client.Delete(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	s.gone(k, "app")
	s.configMap("far", "1")
}

func TestRemoteClustersByTokensOfTheirOwn(t *testing.T) {
	s := newSystem(t)
	cfg := testenv.Cluster(t)
	commit := s.git.Commit("app", map[string]string{"a.yaml": cm("far", "1")})
	s.source("app")
	s.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "deployer"}})
	s.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "oidc"},
		Data: map[string]string{
			"provider": "generic", "address": cfg.Host, "ca.crt": string(cfg.CAData), "serviceAccountName": "deployer",
			"audiences": "https://kubernetes.default.svc.cluster.local",
		}})
	s.sync("app", "app", "", func(k *kustomizev1.Kustomization) {
		k.Spec.KubeConfig = &kustomizev1.KubeConfigReference{ConfigMapRef: &meta.LocalObjectReference{Name: "oidc"}}
	})
	s.fails(&kustomizev1.Kustomization{}, "app", "ReconciliationFailed", "system:serviceaccount:"+s.namespace+
		":deployer")
	s.grant("deployer")
	s.annotate(&kustomizev1.Kustomization{}, "app")
	s.ready("app", commit)
}

func TestReadyExpressionsDecideInPlaceOfReady(t *testing.T) {
	s := newSystem(t)
	commit := s.git.Commit("app", map[string]string{"base/a.yaml": cm("base", "1"), "top/a.yaml": cm("top", "1")})
	s.source("app")
	depend := func(expr string) func(*kustomizev1.Kustomization) {
		return func(k *kustomizev1.Kustomization) {
			k.Labels = map[string]string{"wants": "2"}
			k.Spec.DependsOn = []kustomizev1.DependencyReference{{NamespacedName: meta.NamespacedName{Name: "base"},
				ReadyExpr: expr}}
		}
	}
	s.sync("top", "app", "top", depend(`self.metadata.labels.wants == dep.metadata.labels.version && dep.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')`))
	s.sync("wrong", "app", "top", depend(`dep.`))
	s.sync("base", "app", "base", func(k *kustomizev1.Kustomization) { k.Labels = map[string]string{"version": "1"} })
	s.ready("base", commit)
	s.fails(&kustomizev1.Kustomization{}, "wrong", "InvalidCELExpression", "Syntax error")
	s.fails(&kustomizev1.Kustomization{}, "top", "DependencyNotReady", "does not hold")
	s.patch(&kustomizev1.Kustomization{}, "base", `{"metadata":{"labels":{"version":"2"}}}`)
	s.ready("top", commit)
}

func TestHealthExpressionsThatCannotBeReadAreTold(t *testing.T) {
	s := newSystem(t)
	s.git.Commit("app", map[string]string{"a.yaml": cm("a", "1")})
	s.source("app")
	s.sync("app", "app", "", func(k *kustomizev1.Kustomization) {
		k.Spec.Wait = true
		k.Spec.HealthCheckExprs = []kustomizev1.HealthCheckExpr{{APIVersion: "v1", Kind: "ConfigMap",
			Current: "data.k =="}}
	})
	s.fails(&kustomizev1.Kustomization{}, "app", "InvalidCELExpression", "for ConfigMap of v1")
}

func TestAChainDoesNotWaitForWhatARevisionLeavesAlone(t *testing.T) {
	s := newSystem(t)
	files := map[string]string{}
	const length = 6
	for i := range length {
		files[fmt.Sprintf("p%d/a.yaml", i)] = cm(fmt.Sprintf("c%d", i), "1")
	}
	commit := s.git.Commit("app", files)
	s.source("app")
	for i := range length {
		s.sync(fmt.Sprintf("p%d", i), "app", fmt.Sprintf("p%d", i), func(k *kustomizev1.Kustomization) {
			if i > 0 {
				k.Spec.DependsOn = []kustomizev1.DependencyReference{
					{NamespacedName: meta.NamespacedName{Name: fmt.Sprintf("p%d", i-1)}}}
			}
		})
	}
	last := fmt.Sprintf("p%d", length-1)
	s.ready(last, commit)
	s.requests.reset()
	commit = s.git.Commit("app", map[string]string{last + "/a.yaml": cm(fmt.Sprintf("c%d", length-1), "2")})
	s.pull("app")
	s.ready(last, commit)
	for i := range length {
		s.ready(fmt.Sprintf("p%d", i), commit)
	}
	for _, l := range s.requests.about("/kustomizations/" + last + "/status") {
		if strings.HasPrefix(l, "PATCH") {
			continue
		}
		t.Errorf("unexpected: %s", l)
	}
	for i := range length - 1 {
		if n := len(s.requests.about(fmt.Sprintf("/kustomizations/p%d/status", i))); n > 1 {
			t.Errorf("p%d, which the revision leaves alone, was written %d times", i, n)
		}
	}
}
