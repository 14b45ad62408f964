package kustomization_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

func TestRemoteCluster(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	raw, err := os.ReadFile(testenv.Kubeconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	s.Secret("remote", map[string]string{"config": string(raw)})
	commit := s.Commit("app", map[string]string{"a.yaml": system.ConfigMap("far", "1")})
	via := func(name, key string) func(*kustomizev1.Kustomization) {
		return func(k *kustomizev1.Kustomization) {
			k.Spec.KubeConfig = &kustomizev1.KubeConfigReference{SecretRef: &meta.SecretKeyReference{Name: name,
				Key: key}}
		}
	}
	s.apply("app", "app", "", via("remote", "config"))
	s.Ready("app", commit)
	s.ConfigMapHas("far", "1")

	t.Log("errors of the kubeconfig contain no credentials")
	s.Secret("exec", map[string]string{"value": "apiVersion: v1\nkind: Config\nusers: [{name: u, user: {exec: " +
		"{command: /bin/true, apiVersion: client.authentication.k8s.io/v1}}}]\n"})
	s.apply("absent", "app", "", via("absent", ""))
	s.apply("keyless", "app", "", via("remote", ""))
	s.apply("runs", "app", "", via("exec", ""))
	s.apply("denied", "app", "", via("remote", "config"),
		func(k *kustomizev1.Kustomization) { k.Spec.ServiceAccountName = "absent" })
	s.NotReady(&kustomizev1.Kustomization{}, "absent", "ReconciliationFailed", "not found")
	s.NotReady(&kustomizev1.Kustomization{}, "keyless", "AuthenticationFailed", "has no key value or value.yaml")
	s.NotReady(&kustomizev1.Kustomization{}, "runs", "AuthenticationFailed", "runs a program")
	s.NotReady(&kustomizev1.Kustomization{}, "denied", "ReconciliationFailed", "absent")

	t.Log("it is deleted although its cluster is unreachable")
	if err := s.Client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace,
		Name: "remote"}}); err != nil {
		t.Fatal(err)
	}
	s.removes("app")
	s.Gone(&kustomizev1.Kustomization{}, "app")
	s.ConfigMapHas("far", "1")
}

// Without spec.targetNamespace, an object without a namespace is refused unless the kubeconfig gives one.
func TestObjectWithoutNamespace(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	raw, err := os.ReadFile(testenv.Kubeconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.Load(raw)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Contexts[cfg.CurrentContext].Namespace = s.Namespace
	if raw, err = clientcmd.Write(*cfg); err != nil {
		t.Fatal(err)
	}
	s.Secret("remote", map[string]string{"value": string(raw)})
	commit := s.Commit("app", map[string]string{"a.yaml": system.ConfigMap("near", "1")})
	s.apply("app", "app", "", func(k *kustomizev1.Kustomization) { k.Spec.TargetNamespace = "" })
	s.NotReady(&kustomizev1.Kustomization{}, "app", "ReconciliationFailed", "ConfigMap/near in a.yaml: namespace not "+
		"specified. Set metadata.namespace, or spec.targetNamespace of the Kustomization")
	s.patch("app", `{"spec":{"kubeConfig":{"secretRef":{"name":"remote"}}}}`)
	s.Ready("app", commit)
	s.ConfigMapHas("near", "1")
}

func TestRemoteClusterByServiceAccountToken(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	cfg := testenv.Cluster(t)
	commit := s.Commit("app", map[string]string{"a.yaml": system.ConfigMap("far", "1")})
	s.Create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "deployer"}})
	s.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "oidc"},
		Data: map[string]string{
			"provider": "generic", "address": cfg.Host, "ca.crt": string(cfg.CAData), "serviceAccountName": "deployer",
			"audiences": "https://kubernetes.default.svc.cluster.local",
		}})
	s.apply("app", "app", "", func(k *kustomizev1.Kustomization) {
		k.Spec.KubeConfig = &kustomizev1.KubeConfigReference{ConfigMapRef: &meta.LocalObjectReference{Name: "oidc"}}
	})
	s.NotReady(&kustomizev1.Kustomization{}, "app", "ReconciliationFailed", "system:serviceaccount:"+s.Namespace+
		":deployer")
	s.GrantAll("deployer")
	s.request("app")
	s.Ready("app", commit)
}

func TestReadyExpressionReplacesReady(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	commit := s.Commit("app", map[string]string{"base/a.yaml": system.ConfigMap("base", "1"),
		"top/a.yaml": system.ConfigMap("top", "1")})
	depend := func(expr string) func(*kustomizev1.Kustomization) {
		return func(k *kustomizev1.Kustomization) {
			k.Labels = map[string]string{"wants": "2"}
			k.Spec.DependsOn = []kustomizev1.DependencyReference{{NamespacedName: meta.NamespacedName{Name: "base"},
				ReadyExpr: expr}}
		}
	}
	s.apply("top", "app", "top", depend("self.metadata.labels.wants == dep.metadata.labels.version && "+
		"dep.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')"))
	s.apply("wrong", "app", "top", depend(`dep.`))
	s.apply("base", "app", "base", func(k *kustomizev1.Kustomization) {
		k.Labels = map[string]string{"version": "1"}
	})
	s.follow()
	s.Ready("base", commit)
	s.NotReady(&kustomizev1.Kustomization{}, "wrong", "InvalidCELExpression", "Syntax error")
	s.NotReady(&kustomizev1.Kustomization{}, "top", "DependencyNotReady", "is false")
	s.patch("base", `{"metadata":{"labels":{"version":"2"}}}`)
	s.follow()
	s.Ready("top", commit)
}

func TestInvalidHealthExpressions(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	s.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	s.apply("app", "app", "", func(k *kustomizev1.Kustomization) {
		k.Spec.Wait = true
		k.Spec.HealthCheckExprs = []kustomizev1.HealthCheckExpr{{APIVersion: "v1", Kind: "ConfigMap",
			Current: "data.k =="}}
	})
	s.NotReady(&kustomizev1.Kustomization{}, "app", "InvalidCELExpression", "for ConfigMap of v1")
}

func TestChainSkipsUnchangedKustomizations(t *testing.T) {
	t.Parallel()
	s := newHarness(t)
	files := map[string]string{}
	const length = 6
	for i := range length {
		files[fmt.Sprintf("p%d/a.yaml", i)] = system.ConfigMap(fmt.Sprintf("c%d", i), "1")
	}
	commit := s.Git.Commit("app", files)
	s.GitRepository("app")
	for i := range length {
		s.Kustomization(fmt.Sprintf("p%d", i), "app", fmt.Sprintf("p%d", i), func(k *kustomizev1.Kustomization) {
			if i > 0 {
				k.Spec.DependsOn = []kustomizev1.DependencyReference{
					{NamespacedName: meta.NamespacedName{Name: fmt.Sprintf("p%d", i-1)}}}
			}
		})
	}
	last := fmt.Sprintf("p%d", length-1)
	s.Ready(last, commit)
	s.Requests.Reset()
	commit = s.Git.Commit("app", map[string]string{last +
		"/a.yaml": system.ConfigMap(fmt.Sprintf("c%d", length-1), "2")})
	s.RequestFetch("app")
	s.Ready(last, commit)
	for i := range length {
		s.Ready(fmt.Sprintf("p%d", i), commit)
	}
	for _, l := range s.Requests.Matching("/kustomizations/" + last + "/status") {
		if strings.HasPrefix(l, "PATCH") {
			continue
		}
		t.Errorf("unexpected request: %s", l)
	}
	for i := range length - 1 {
		if n := len(s.Requests.Matching(fmt.Sprintf("/kustomizations/p%d/status", i))); n > 1 {
			t.Errorf("status of p%d, which did not change, was written %d times", i, n)
		}
	}
}
