package manager

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// remove deletes an object by its name.
func (s *system) remove(o client.Object, name string) {
	s.Helper()
	o.SetNamespace(s.namespace)
	o.SetName(name)
	if err := s.client.Delete(s.Context(), o); err != nil {
		s.Fatal(err)
	}
}

// inventory returns the IDs of what a Kustomization says that it applied.
func (s *system) inventory(name string) string {
	s.Helper()
	k := &kustomizev1.Kustomization{}
	if err := s.get(k, name); err != nil {
		s.Fatal(err)
	}
	var ids []string
	if k.Status.Inventory != nil {
		for _, e := range k.Status.Inventory.Entries {
			ids = append(ids, e.ID)
		}
	}
	return strings.Join(ids, " ")
}

func TestDeletionPolicies(t *testing.T) {
	const finalizer = "sluice.test/hold"
	for name, c := range map[string]struct {
		policy      string
		prune, kept bool
	}{
		"MirrorPrune of one that prunes":       {kustomizev1.DeletionPolicyMirrorPrune, true, false},
		"MirrorPrune of one that does not":     {kustomizev1.DeletionPolicyMirrorPrune, false, true},
		"none of one that prunes":              {"", true, false},
		"none of one that does not":            {"", false, true},
		"Delete":                               {kustomizev1.DeletionPolicyDelete, false, false},
		"WaitForTermination":                   {kustomizev1.DeletionPolicyWaitForTermination, false, false},
		"Orphan":                               {kustomizev1.DeletionPolicyOrphan, true, true},
		"Orphan of one whose way out is wrong": {kustomizev1.DeletionPolicyOrphan, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSystem(t)
			commit := s.git.Commit("app", map[string]string{
				"a.yaml": cm("a", "1"),
				"kept.yaml": strings.Replace(cm("kept", "1"), "{name: kept}",
					`{name: kept, annotations: {kustomize.toolkit.fluxcd.io/prune: disabled}}`, 1),
			})
			s.source("app")
			s.sync("app", "app", "", func(k *kustomizev1.Kustomization) {
				k.Spec.DeletionPolicy,
					k.Spec.Prune = c.policy, c.prune
			})
			s.ready("app", commit)
			wait := c.policy == kustomizev1.DeletionPolicyWaitForTermination
			if wait {
				s.edit("holder", &corev1.ConfigMap{}, "a", fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, finalizer))
			}
			if strings.Contains(name, "way out") {
				s.patch(&kustomizev1.Kustomization{}, "app", `{"spec":{"kubeConfig":{"secretRef":{"name":"wrong"}}}}`)
			}
			s.remove(&kustomizev1.Kustomization{}, "app")
			if wait {
				s.fails(&kustomizev1.Kustomization{}, "app", "ReconciliationFailed", finalizer)
				s.edit("holder", &corev1.ConfigMap{}, "a", `{"metadata":{"finalizers":null}}`)
			}
			s.gone(&kustomizev1.Kustomization{}, "app")
			s.configMap("kept", "1")
			if c.kept {
				s.configMap("a", "1")
			} else {
				s.gone(&corev1.ConfigMap{}, "a")
			}
		})
	}
}

func TestTerminationIsWaitedForUntilTheTimeout(t *testing.T) {
	s := newSystem(t)
	commit := s.git.Commit("app", map[string]string{"a.yaml": cm("a", "1")})
	s.source("app")
	s.sync("app", "app", "", func(k *kustomizev1.Kustomization) {
		k.Spec.DeletionPolicy, k.Spec.Timeout = kustomizev1.DeletionPolicyWaitForTermination,
			&metav1.Duration{Duration: 5 * time.Second}
	})
	s.ready("app", commit)
	s.edit("holder", &corev1.ConfigMap{}, "a", `{"metadata":{"finalizers":["sluice.test/hold"]}}`)
	s.remove(&kustomizev1.Kustomization{}, "app")
	s.gone(&kustomizev1.Kustomization{}, "app")
	s.told("app", "PruneFailed", "does not wait beyond 5s", "ConfigMap/"+s.namespace+"/a")
	s.edit("holder", &corev1.ConfigMap{}, "a", `{"metadata":{"finalizers":null}}`)
	s.gone(&corev1.ConfigMap{}, "a")
}

func TestARenamedKustomizationKeepsItsObjects(t *testing.T) {
	s := newSystem(t)
	commit := s.git.Commit("app", map[string]string{"a.yaml": cm("a", "1")})
	s.source("app")
	s.sync("before", "app", "")
	s.ready("before", commit)
	was := &corev1.ConfigMap{}
	if err := s.get(was, "a"); err != nil {
		t.Fatal(err)
	}
	s.sync("after", "app", "", func(k *kustomizev1.Kustomization) {
		k.Spec.DependsOn = []kustomizev1.DependencyReference{{NamespacedName: meta.NamespacedName{Name: "slow"}}}
	})
	s.remove(&kustomizev1.Kustomization{}, "before")
	s.fails(&kustomizev1.Kustomization{}, "before", "PruneFailed", "1 objects are left for other Kustomizations")
	s.patch(&kustomizev1.Kustomization{}, "after", `{"spec":{"dependsOn":null}}`)
	s.ready("after", commit)
	s.gone(&kustomizev1.Kustomization{}, "before")
	is := &corev1.ConfigMap{}
	if err := s.get(is, "a"); err != nil || is.UID != was.UID {
		t.Errorf("it is not the same object: %v", err)
	}
}

func TestWhatSaysSoIsNotPruned(t *testing.T) {
	s := newSystem(t)
	commit := s.git.Commit("app", map[string]string{
		"a.yaml": cm("a", "1"), "b.yaml": cm("b", "1"), "c.yaml": cm("c", "1"),
		"labelled.yaml": strings.Replace(cm("labelled", "1"), "{name: labelled}",
			`{name: labelled, labels: {kustomize.toolkit.fluxcd.io/prune: disabled}}`, 1),
	})
	s.source("app")
	s.sync("app", "app", "")
	s.ready("app", commit)
	s.edit("kubectl-annotate", &corev1.ConfigMap{}, "b",
		`{"metadata":{"annotations":{"kustomize.toolkit.fluxcd.io/prune":"Disabled"}}}`)
	commit = s.git.Commit("app", map[string]string{"a.yaml": "", "b.yaml": "", "labelled.yaml": ""})
	s.pull("app")
	s.ready("app", commit)
	s.gone(&corev1.ConfigMap{}, "a")
	s.configMap("b", "1")
	s.configMap("labelled", "1")
	if got := s.inventory("app"); got != s.namespace+"_c__ConfigMap" {
		t.Errorf("the inventory is %s", got)
	}
	s.told("app", "Progressing", "1 deleted, 2 skipped", "ConfigMap/"+s.namespace+"/a deleted")
}

func TestDeletionNeedsNoSource(t *testing.T) {
	s := newSystem(t)
	commit := s.git.Commit("app", map[string]string{"a.yaml": cm("a", "1")})
	s.source("app")
	s.sync("app", "app", "")
	s.ready("app", commit)
	s.remove(&sourcev1.GitRepository{}, "app")
	s.gone(&sourcev1.GitRepository{}, "app")
	s.fails(&kustomizev1.Kustomization{}, "app", "ArtifactFailed", "not found")
	s.configMap("a", "1")
	s.remove(&kustomizev1.Kustomization{}, "app")
	s.gone(&kustomizev1.Kustomization{}, "app")
	s.gone(&corev1.ConfigMap{}, "a")
}

func TestDeletionWithoutTheAccount(t *testing.T) {
	s := newSystem(t)
	commit := s.git.Commit("app", map[string]string{"a/a.yaml": cm("a", "1"), "b/b.yaml": cm("b", "1"),
		"c/c.yaml": cm("c", "1")})
	s.source("app")
	for _, name := range []string{"a", "b", "c"} {
		account := "deployer-" + name
		s.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: account}})
		s.grant(account)
		s.sync(name, "app", name, func(k *kustomizev1.Kustomization) { k.Spec.ServiceAccountName = account })
		s.ready(name, commit)
	}

	t.Log("one without rights waits, and says for what, until it has them")
	s.remove(&rbacv1.RoleBinding{}, "deployer-a")
	s.refused("deployer-a")
	s.remove(&kustomizev1.Kustomization{}, "a")
	s.fails(&kustomizev1.Kustomization{}, "a", "PruneFailed", "system:serviceaccount:"+s.namespace+":deployer-a")
	s.configMap("a", "1")
	s.remove(&rbacv1.Role{}, "deployer-a")
	s.grant("deployer-a")
	s.gone(&kustomizev1.Kustomization{}, "a")
	s.gone(&corev1.ConfigMap{}, "a")

	t.Log("rights that outlive the account are enough")
	s.remove(&corev1.ServiceAccount{}, "deployer-b")
	s.remove(&kustomizev1.Kustomization{}, "b")
	s.gone(&kustomizev1.Kustomization{}, "b")
	s.gone(&corev1.ConfigMap{}, "b")

	t.Log("without account and rights it goes, and says what stays")
	s.remove(&corev1.ServiceAccount{}, "deployer-c")
	s.remove(&rbacv1.RoleBinding{}, "deployer-c")
	s.refused("deployer-c")
	s.remove(&kustomizev1.Kustomization{}, "c")
	s.gone(&kustomizev1.Kustomization{}, "c")
	s.configMap("c", "1")
	s.told("c", "PruneFailed", "1 objects are left behind", "deployer-c")
}

// refused waits until the API server knows that an account may no longer read ConfigMaps.
func (s *system) refused(account string) {
	s.Helper()
	cfg := testenv.Cluster(s)
	cfg.Impersonate.UserName = "system:serviceaccount:" + s.namespace + ":" + account
	c, err := client.New(cfg, client.Options{Scheme: Scheme()})
	if err != nil {
		s.Fatal(err)
	}
	testenv.Eventually(s, account+" may do nothing", func() error {
		if err := c.Get(s.Context(), types.NamespacedName{Namespace: s.namespace, Name: "any"},
			&corev1.ConfigMap{}); !apierrors.IsForbidden(err) {
			return fmt.Errorf("it may: %w", err)
		}
		return nil
	})
}

func TestANamespaceGoesWithAllThatIsInIt(t *testing.T) {
	s := newSystem(t)
	other := testenv.Namespace(t)
	commit := s.git.Commit("app", map[string]string{"near/a.yaml": cm("near", "1"), "far/a.yaml": cm("far", "1")})
	s.source("app")
	s.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "deployer"}})
	s.grant("deployer")
	s.sync("near", "app", "near", func(k *kustomizev1.Kustomization) { k.Spec.ServiceAccountName = "deployer" })
	s.sync("far", "app", "far", func(k *kustomizev1.Kustomization) { k.Spec.TargetNamespace = other })
	s.ready("near", commit)
	s.ready("far", commit)
	if err := s.client.Delete(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the namespace is gone", func() error {
		err := s.client.Get(t.Context(), types.NamespacedName{Name: s.namespace}, &corev1.Namespace{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("still there"))
	})
	err := s.client.Get(t.Context(), types.NamespacedName{Namespace: other, Name: "far"}, &corev1.ConfigMap{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("what was applied elsewhere is left: %v", err)
	}
}

func TestAFailedOrEmptyBuildPrunesNothing(t *testing.T) {
	s := newSystem(t)
	commit := s.git.Commit("app", map[string]string{"deploy/a.yaml": cm("a", "1"), "deploy/b.yaml": cm("b", "1")})
	s.source("app")
	s.sync("app", "app", "deploy")
	s.ready("app", commit)
	whole := s.inventory("app")
	stands := func() {
		t.Helper()
		s.configMap("a", "1")
		s.configMap("b", "1")
		if got := s.inventory("app"); got != whole {
			t.Errorf("the inventory is %s", got)
		}
	}
	for _, c := range []struct {
		files  map[string]string
		reason string
		says   string
	}{
		{map[string]string{"deploy/a.yaml": "", "deploy/b.yaml": "kind: [", "deploy/c.md": "-"}, "BuildFailed",
			"deploy/b.yaml"},
		{map[string]string{"deploy/b.yaml": ""}, "BuildFailed", "no objects"},
		{map[string]string{"deploy/c.md": "", "other": "-"}, "ArtifactFailed", "kustomization path not found"},
		{map[string]string{"deploy/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Not_A_Name}\n"},
			"ReconciliationFailed", "Not_A_Name"},
	} {
		s.git.Commit("app", c.files)
		s.pull("app")
		s.fails(&kustomizev1.Kustomization{}, "app", c.reason, c.says)
		stands()
	}

	t.Log("one that says so is empty")
	commit = s.git.Commit("app", map[string]string{"deploy/a.yaml": "", "deploy/kustomization.yaml": "resources: []\n"})
	s.pull("app")
	s.ready("app", commit)
	s.gone(&corev1.ConfigMap{}, "a")
	s.gone(&corev1.ConfigMap{}, "b")
	if got := s.inventory("app"); got != "" {
		t.Errorf("the inventory is %s", got)
	}
}

func TestWhatCannotBePrunedIsNotForgotten(t *testing.T) {
	s := newSystem(t)
	commit := s.git.Commit("app", map[string]string{"a.yaml": cm("a", "1"), "b.yaml": cm("b", "1")})
	s.source("app")
	s.sync("app", "app", "")
	s.ready("app", commit)
	whole := s.inventory("app")
	s.forbidDeletion()

	for _, files := range []map[string]string{{"b.yaml": ""}, {"c.yaml": cm("c", "1")}} {
		s.git.Commit("app", files)
		s.pull("app")
		s.fails(&kustomizev1.Kustomization{}, "app", "PruneFailed", "ConfigMap/"+s.namespace+"/b")
		if got := s.inventory("app"); !strings.Contains(got, s.namespace+"_b_") {
			t.Errorf("the inventory was %s and is %s", whole, got)
		}
	}
	s.configMap("c", "1")
	s.stop()
	s.start()
	policy := &admissionv1.ValidatingAdmissionPolicyBinding{}
	policy.SetName(s.namespace)
	if err := s.client.Delete(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	s.gone(&corev1.ConfigMap{}, "b")
	testenv.Eventually(t, "the inventory is right", func() error {
		if got := s.inventory("app"); strings.Contains(got, "_b_") {
			return errors.New(got)
		}
		return nil
	})
}

// forbidDeletion has the API server refuse to delete ConfigMaps of the namespace.
func (s *system) forbidDeletion() {
	s.Helper()
	name := metav1.ObjectMeta{Name: s.namespace}
	deny := admissionv1.Deny
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: name, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{
			ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Delete},
				Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
					Resources: []string{"configmaps"}},
			}}}},
		Validations: []admissionv1.Validation{{Expression: "false", Message: "nothing is deleted here"}},
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: name,
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: s.namespace, ValidationActions: []admissionv1.ValidationAction{deny},
			MatchResources: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{
					MatchLabels: map[string]string{"kubernetes.io/metadata.name": s.namespace}}},
		}}
	s.create(policy)
	s.create(binding)
	s.Cleanup(func() {
		for _, o := range []client.Object{binding, policy} {
			if err := s.client.Delete(context.Background(), o); client.IgnoreNotFound(err) != nil {
				s.Error(err)
			}
		}
	})
	probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "probe"}}
	s.create(probe)
	testenv.Eventually(s, "deletion is forbidden", func() error {
		if err := s.client.Delete(s.Context(), probe, client.DryRunAll); err == nil {
			return errors.New("it is not")
		}
		return nil
	})
}
