package manager

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// everywhere lets the controllers of a test see all namespaces, but only its objects there.
func everywhere(o *Options) {
	o.WatchAllNamespaces = true
	o.WatchLabelSelector = "test=" + o.RuntimeNamespace
}

func after(names ...string) func(*kustomizev1.Kustomization) {
	return func(k *kustomizev1.Kustomization) {
		for _, name := range names {
			k.Spec.DependsOn = append(k.Spec.DependsOn,
				kustomizev1.DependencyReference{NamespacedName: meta.NamespacedName{Name: name}})
		}
	}
}

func TestCyclesAreNamedAndEndWithTheirCause(t *testing.T) {
	s := newSystem(t)
	commit := s.git.Commit("app", map[string]string{"a.yaml": cm("a", "1")})
	s.source("app")
	in := func(name string) string { return s.namespace + "/" + name }
	depends := func(name, on string) {
		s.sync(name, "app", "", after(on), func(k *kustomizev1.Kustomization) { k.Spec.NamePrefix = name + "-" })
	}
	depends("a", "b")
	depends("c", "a")
	s.fails(&kustomizev1.Kustomization{}, "c", "DependencyNotReady", "dependency '"+in("a")+"' is not ready")
	depends("b", "c")
	depends("self", "self")
	depends("late", "missing")
	for name, says := range map[string]string{
		"a": in("a") + " → " + in("b") + " → " + in("c") + " → " + in("a"),
		"b": in("b") + " → " + in("c") + " → " + in("a") + " → " + in("b"),
		"c": in("c") + " → " + in("a") + " → " + in("b") + " → " + in("c"), "self": in("self") + " → " + in("self"),
		"late": "dependency '" + in("missing") + "' not found",
	} {
		s.fails(&kustomizev1.Kustomization{}, name, "DependencyNotReady", says)
	}
	s.patch(&kustomizev1.Kustomization{}, "c", `{"spec":{"dependsOn":null}}`)
	s.patch(&kustomizev1.Kustomization{}, "self", `{"spec":{"dependsOn":null}}`)
	s.sync("missing", "app", "", func(k *kustomizev1.Kustomization) { k.Spec.NamePrefix = "missing-" })
	for _, name := range []string{"a", "b", "c", "self", "late"} {
		s.ready(name, commit)
	}
}

func TestDependenciesInOtherNamespaces(t *testing.T) {
	s := newSystem(t, everywhere)
	other := testenv.Namespace(t)
	labels := map[string]string{"test": s.namespace}
	s.git.Commit("app", map[string]string{"base/d.yaml": webDeployment("web:1", "not-ready"),
		"top/a.yaml": cm("top", "1")})
	s.source("app", labelled(labels))
	s.sync("base", "app", "base", waits(forever), func(k *kustomizev1.Kustomization) {
		k.Namespace, k.Labels, k.Spec.SourceRef.Namespace, k.Spec.TargetNamespace = other, labels, s.namespace, other
	})
	s.sync("top", "app", "top", func(k *kustomizev1.Kustomization) {
		k.Labels = labels
		k.Spec.DependsOn = []kustomizev1.DependencyReference{
			{NamespacedName: meta.NamespacedName{Namespace: other, Name: "base"}}}
	})
	s.fails(&kustomizev1.Kustomization{}, "top", "DependencyNotReady", "dependency '"+other+"/base' is not ready")
	s.gone(&corev1.ConfigMap{}, "top")
	commit := s.git.Commit("app", map[string]string{"base/d.yaml": webDeployment("web:2", "")})
	s.pull("app")
	s.ready("top", commit)
}

func TestReferencesThatAreNotWatchedAreRefused(t *testing.T) {
	s := newSystem(t)
	s.git.Commit("app", map[string]string{"a.yaml": cm("a", "1")})
	s.source("app")
	s.sync("app", "app", "", func(k *kustomizev1.Kustomization) { k.Spec.SourceRef.Namespace = "default" })
	s.fails(&kustomizev1.Kustomization{}, "app", "AccessDenied", "--watch-all-namespaces=false")
}

func TestReadinessCanBeAskedForBesideAnExpression(t *testing.T) {
	s := newSystem(t, func(o *Options) { o.FeatureGates = map[string]string{"AdditiveCELDependencyCheck": "true"} })
	s.git.Commit("app", map[string]string{"base/d.yaml": webDeployment("web:1", "not-ready"),
		"top/a.yaml": cm("top", "1")})
	s.source("app")
	s.sync("base", "app", "base", waits(forever))
	s.sync("top", "app", "top", func(k *kustomizev1.Kustomization) {
		k.Spec.DependsOn = []kustomizev1.DependencyReference{{NamespacedName: meta.NamespacedName{Name: "base"},
			ReadyExpr: "dep.metadata.name == 'base'"}}
	})
	s.fails(&kustomizev1.Kustomization{}, "top", "DependencyNotReady", "dependency '"+s.namespace+"/base' is not ready")
	commit := s.git.Commit("app", map[string]string{"base/d.yaml": webDeployment("web:2", "")})
	s.pull("app")
	s.ready("top", commit)
}

func TestSuspendedKustomizationsAreLeftAloneUntilTheyResume(t *testing.T) {
	s := newSystem(t)
	first := s.git.Commit("app", map[string]string{"a.yaml": cm("a", "1")})
	s.source("app")
	s.sync("app", "app", "")
	s.sync("witness", "app", "", func(k *kustomizev1.Kustomization) { k.Spec.NamePrefix = "w-" })
	s.ready("app", first)
	s.patch(&kustomizev1.Kustomization{}, "app", `{"spec":{"suspend":true}}`)
	s.suspended(kustomizev1.KustomizationKind, "app")
	second := s.git.Commit("app", map[string]string{"a.yaml": cm("a", "2")})
	s.pull("app")
	s.annotate(&kustomizev1.Kustomization{}, "app")
	s.ready("witness", second)
	k := &kustomizev1.Kustomization{}
	if err := s.get(k, "app"); err != nil {
		t.Fatal(err)
	}
	if k.Status.LastHandledReconcileAt != "" || !strings.HasSuffix(k.Status.LastAttemptedRevision, first) {
		t.Errorf("a suspended Kustomization was reconciled: %+v", k.Status)
	}
	s.configMap("a", "1")
	s.patch(&kustomizev1.Kustomization{}, "app", `{"spec":{"suspend":false}}`)
	k = s.ready("app", second)
	if k.Status.LastHandledReconcileAt == "" {
		t.Error("the request that came meanwhile was not handled")
	}
}

func TestClustersThatMoveAreFollowedAtOnce(t *testing.T) {
	s := newSystem(t, func(o *Options) { o.KubeConfigAccount = "deployer" })
	cfg := testenv.Cluster(t)
	commit := s.git.Commit("app", map[string]string{"a.yaml": cm("far", "1")})
	s.source("app")
	s.may("deployer", rule("", "configmaps", "*"))
	s.put(&corev1.ConfigMap{Data: map[string]string{
		"provider": "generic", "address": "https://127.0.0.1:1", "ca.crt": string(cfg.CAData),
		"audiences": "https://kubernetes.default.svc.cluster.local",
	}}, "oidc")
	set := func(field, value string) {
		t.Helper()
		s.patch(&corev1.ConfigMap{}, "oidc", fmt.Sprintf(`{"data":{%q:%q}}`, field, value))
	}
	s.sync("app", "app", "", func(k *kustomizev1.Kustomization) {
		k.Spec.KubeConfig = &kustomizev1.KubeConfigReference{ConfigMapRef: &meta.LocalObjectReference{Name: "oidc"}}
	})
	s.fails(&kustomizev1.Kustomization{}, "app", "ReconciliationFailed", "127.0.0.1:1")
	set("provider", "other")
	s.fails(&kustomizev1.Kustomization{}, "app", "AuthenticationFailed", "provider")
	set("address", "http://127.0.0.1")
	set("provider", "generic")
	s.fails(&kustomizev1.Kustomization{}, "app", "AuthenticationFailed", "address")
	set("address", cfg.Host)
	s.ready("app", commit)
}

func labelled(labels map[string]string) func(*sourcev1.GitRepository) {
	return func(g *sourcev1.GitRepository) { g.Labels = labels }
}
