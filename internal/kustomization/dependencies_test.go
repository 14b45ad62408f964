package kustomization_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// dependsOn adds dependencies.
func dependsOn(names ...string) func(*kustomizev1.Kustomization) {
	return func(k *kustomizev1.Kustomization) {
		for _, name := range names {
			k.Spec.DependsOn = append(k.Spec.DependsOn,
				kustomizev1.DependencyReference{NamespacedName: meta.NamespacedName{Name: name}})
		}
	}
}

func TestDependencyCycle(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	commit := s.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	in := func(name string) string { return s.Namespace + "/" + name }
	depends := func(name, on string) {
		s.apply(name, "app", "", dependsOn(on),
			func(k *kustomizev1.Kustomization) { k.Spec.NamePrefix = name + "-" })
	}
	depends("a", "b")
	depends("c", "a")
	s.NotReady(&kustomizev1.Kustomization{}, "c", "DependencyNotReady", "dependency '"+in("a")+"' is not ready")
	depends("b", "c")
	depends("self", "self")
	depends("late", "missing")
	s.follow()
	for name, message := range map[string]string{
		"a": in("a") + " → " + in("b") + " → " + in("c") + " → " + in("a"),
		"b": in("b") + " → " + in("c") + " → " + in("a") + " → " + in("b"),
		"c": in("c") + " → " + in("a") + " → " + in("b") + " → " + in("c"), "self": in("self") + " → " + in("self"),
		"late": "dependency '" + in("missing") + "' not found",
	} {
		s.NotReady(&kustomizev1.Kustomization{}, name, "DependencyNotReady", message)
	}
	s.patch("c", `{"spec":{"dependsOn":null}}`)
	s.patch("self", `{"spec":{"dependsOn":null}}`)
	s.apply("missing", "app", "", func(k *kustomizev1.Kustomization) { k.Spec.NamePrefix = "missing-" })
	s.follow()
	for _, name := range []string{"a", "b", "c", "self", "late"} {
		s.Ready(name, commit)
	}
}

func TestDependenciesInOtherNamespaces(t *testing.T) {
	t.Parallel()
	s := newHarness(t, system.AllNamespaces)
	other := testenv.Namespace(t)
	labels := map[string]string{"test": s.Namespace}
	s.Git.Commit("app", map[string]string{"base/d.yaml": system.WebDeployment("web:1", "not-ready"),
		"top/a.yaml": system.ConfigMap("top", "1")})
	s.GitRepository("app", labelled(labels))
	s.Kustomization("base", "app", "base", system.WaitForHealth(system.NoTimeout), func(k *kustomizev1.Kustomization) {
		k.Namespace, k.Labels, k.Spec.SourceRef.Namespace, k.Spec.TargetNamespace = other, labels, s.Namespace, other
	})
	s.Kustomization("top", "app", "top", func(k *kustomizev1.Kustomization) {
		k.Labels = labels
		k.Spec.DependsOn = []kustomizev1.DependencyReference{
			{NamespacedName: meta.NamespacedName{Namespace: other, Name: "base"}}}
	})
	s.NotReady(&kustomizev1.Kustomization{}, "top", "DependencyNotReady", "dependency '"+other+"/base' is not ready")
	s.Gone(&corev1.ConfigMap{}, "top")
	commit := s.Git.Commit("app", map[string]string{"base/d.yaml": system.WebDeployment("web:2", "")})
	s.RequestFetch("app")
	s.Ready("top", commit)
}

func TestReferencesToUnwatchedNamespacesAreRefused(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	s.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	s.apply("app", "app", "", func(k *kustomizev1.Kustomization) { k.Spec.SourceRef.Namespace = "default" })
	s.NotReady(&kustomizev1.Kustomization{}, "app", "AccessDenied", "--watch-all-namespaces=false")
}

func TestAdditiveReadyExpression(t *testing.T) {
	t.Parallel()
	s := newSteps(t, func(o *options.Options) {
		o.FeatureGates = map[string]string{"AdditiveCELDependencyCheck": "true"}
	})
	s.Commit("app", map[string]string{"base/d.yaml": system.WebDeployment("web:1", "not-ready"),
		"top/a.yaml": system.ConfigMap("top", "1")})
	s.apply("base", "app", "base", system.WaitForHealth(system.NoTimeout))
	s.apply("top", "app", "top", func(k *kustomizev1.Kustomization) {
		k.Spec.DependsOn = []kustomizev1.DependencyReference{{NamespacedName: meta.NamespacedName{Name: "base"},
			ReadyExpr: "dep.metadata.name == 'base'"}}
	})
	s.NotReady(&kustomizev1.Kustomization{}, "top", "DependencyNotReady", "dependency '"+s.Namespace+
		"/base' is not ready")
	commit := s.Commit("app", map[string]string{"base/d.yaml": system.WebDeployment("web:2", "")})
	s.patch("base", `{"spec":{"wait":false}}`)
	s.follow()
	s.Ready("top", commit)
}

func TestSuspendAndResume(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	first := s.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	s.apply("app", "app", "")
	s.Ready("app", first)
	s.patch("app", `{"spec":{"suspend":true}}`)
	second := s.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "2")})
	s.RequestReconcile(&kustomizev1.Kustomization{}, "app")
	s.Pass("app")
	k := &kustomizev1.Kustomization{}
	if err := s.Get(k, "app"); err != nil {
		t.Fatal(err)
	}
	if k.Status.LastHandledReconcileAt != "" || !strings.HasSuffix(k.Status.LastAttemptedRevision, first) {
		t.Errorf("a suspended Kustomization was reconciled: %+v", k.Status)
	}
	s.ConfigMapHas("a", "1")
	s.patch("app", `{"spec":{"suspend":false}}`)
	k = s.Ready("app", second)
	if k.Status.LastHandledReconcileAt == "" {
		t.Error("the reconcile request made while suspended was not handled")
	}
}

func TestChangedKubeConfigIsUsedAtOnce(t *testing.T) {
	t.Parallel()
	s := newHarness(t, func(o *options.Options) { o.KubeConfigAccount = "deployer" })
	cfg := testenv.Cluster(t)
	commit := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("far", "1")})
	s.GitRepository("app")
	s.may("deployer", rule("", "configmaps", "*"))
	s.put(&corev1.ConfigMap{Data: map[string]string{
		"provider": "generic", "address": "https://127.0.0.1:1", "ca.crt": string(cfg.CAData),
		"audiences": "https://kubernetes.default.svc.cluster.local",
	}}, "oidc")
	set := func(field, value string) {
		t.Helper()
		s.Patch(&corev1.ConfigMap{}, "oidc", fmt.Sprintf(`{"data":{%q:%q}}`, field, value))
	}
	s.Kustomization("app", "app", "", func(k *kustomizev1.Kustomization) {
		k.Spec.KubeConfig = &kustomizev1.KubeConfigReference{ConfigMapRef: &meta.LocalObjectReference{Name: "oidc"}}
	})
	s.NotReady(&kustomizev1.Kustomization{}, "app", "ReconciliationFailed", "127.0.0.1:1")
	set("provider", "other")
	s.NotReady(&kustomizev1.Kustomization{}, "app", "AuthenticationFailed", "provider")
	set("address", "http://127.0.0.1")
	set("provider", "generic")
	s.NotReady(&kustomizev1.Kustomization{}, "app", "AuthenticationFailed", "address")
	set("address", cfg.Host)
	s.Ready("app", commit)
}

func labelled(labels map[string]string) func(*sourcev1.GitRepository) {
	return func(g *sourcev1.GitRepository) { g.Labels = labels }
}
