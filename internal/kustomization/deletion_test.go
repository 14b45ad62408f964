package kustomization_test

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
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// remove deletes an object.
func (s *harness) remove(o client.Object, name string) {
	s.Helper()
	o.SetNamespace(s.Namespace)
	o.SetName(name)
	if err := s.Client.Delete(s.Context(), o); err != nil {
		s.Fatal(err)
	}
}

// inventory returns the IDs in the inventory of a Kustomization.
func (s *harness) inventory(name string) string {
	s.Helper()
	k := &kustomizev1.Kustomization{}
	if err := s.Get(k, name); err != nil {
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
	t.Parallel()
	const finalizer = "sluice.test/hold"
	for name, c := range map[string]struct {
		policy      string
		prune, kept bool
	}{
		"MirrorPrune of one that prunes":       {policy: kustomizev1.DeletionPolicyMirrorPrune, prune: true},
		"MirrorPrune of one that does not":     {policy: kustomizev1.DeletionPolicyMirrorPrune, kept: true},
		"none of one that prunes":              {prune: true},
		"none of one that does not":            {kept: true},
		"Delete":                               {policy: kustomizev1.DeletionPolicyDelete},
		"WaitForTermination":                   {policy: kustomizev1.DeletionPolicyWaitForTermination},
		"Orphan":                               {policy: kustomizev1.DeletionPolicyOrphan, prune: true, kept: true},
		"Orphan of one whose way out is wrong": {policy: kustomizev1.DeletionPolicyOrphan, prune: true, kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSteps(t)
			s.system.Clusters.Apply.WaitTimeout = passWaits
			commit := s.Commit("app", map[string]string{
				"a.yaml": system.ConfigMap("a", "1"),
				"kept.yaml": strings.Replace(system.ConfigMap("kept", "1"), "{name: kept}",
					`{name: kept, annotations: {kustomize.toolkit.fluxcd.io/prune: disabled}}`, 1),
			})
			s.apply("app", "app", "", func(k *kustomizev1.Kustomization) {
				k.Spec.DeletionPolicy,
					k.Spec.Prune = c.policy, c.prune
			})
			s.Ready("app", commit)
			wait := c.policy == kustomizev1.DeletionPolicyWaitForTermination
			if wait {
				s.edit("holder", &corev1.ConfigMap{}, "a", fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, finalizer))
			}
			if strings.Contains(name, "way out") {
				s.Patch(&kustomizev1.Kustomization{}, "app", `{"spec":{"kubeConfig":{"secretRef":{"name":"wrong"}}}}`)
			}
			s.removes("app")
			if wait {
				s.NotReady(&kustomizev1.Kustomization{}, "app", "ReconciliationFailed", finalizer)
				s.edit("holder", &corev1.ConfigMap{}, "a", `{"metadata":{"finalizers":null}}`)
				s.Pass("app")
			}
			s.Gone(&kustomizev1.Kustomization{}, "app")
			s.ConfigMapHas("kept", "1")
			if c.kept {
				s.ConfigMapHas("a", "1")
			} else {
				s.Gone(&corev1.ConfigMap{}, "a")
			}
		})
	}
}

func TestDeletionWaitsForTerminationUntilTimeout(t *testing.T) {
	t.Parallel()
	clock := testingclock.NewFakeClock(time.Now())
	s := newSteps(t, func(o *options.Options) { o.Clock = clock })
	s.system.Clusters.Apply.WaitTimeout = passWaits
	commit := s.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	s.apply("app", "app", "", func(k *kustomizev1.Kustomization) {
		k.Spec.DeletionPolicy = kustomizev1.DeletionPolicyWaitForTermination
	})
	s.Ready("app", commit)
	s.edit("holder", &corev1.ConfigMap{}, "a", `{"metadata":{"finalizers":["sluice.test/hold"]}}`)
	s.removes("app")
	s.NotReady(&kustomizev1.Kustomization{}, "app", "ReconciliationFailed", "sluice.test/hold")
	clock.Step(time.Hour)
	s.Pass("app")
	s.Gone(&kustomizev1.Kustomization{}, "app")
	s.HasEvent("app", "PruneFailed", "stopped waiting for the deletion of objects after 2m0s", "ConfigMap/"+
		s.Namespace+"/a")
	s.edit("holder", &corev1.ConfigMap{}, "a", `{"metadata":{"finalizers":null}}`)
	s.Gone(&corev1.ConfigMap{}, "a")
}

func TestPruneDisabledByAnnotation(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	commit := s.Commit("app", map[string]string{
		"a.yaml": system.ConfigMap("a", "1"), "b.yaml": system.ConfigMap("b", "1"),
		"c.yaml": system.ConfigMap("c", "1"),
		"labelled.yaml": strings.Replace(system.ConfigMap("labelled", "1"), "{name: labelled}",
			`{name: labelled, labels: {kustomize.toolkit.fluxcd.io/prune: disabled}}`, 1),
	})
	s.apply("app", "app", "")
	s.Ready("app", commit)
	s.edit("kubectl-annotate", &corev1.ConfigMap{}, "b",
		`{"metadata":{"annotations":{"kustomize.toolkit.fluxcd.io/prune":"Disabled"}}}`)
	commit = s.Commit("app", map[string]string{"a.yaml": "", "b.yaml": "", "labelled.yaml": ""})
	s.Pass("app")
	s.Ready("app", commit)
	s.Gone(&corev1.ConfigMap{}, "a")
	s.ConfigMapHas("b", "1")
	s.ConfigMapHas("labelled", "1")
	if got := s.inventory("app"); got != s.Namespace+"_c__ConfigMap" {
		t.Errorf("inventory: %s", got)
	}
	s.HasEvent("app", "ReconciliationSucceeded", "1 deleted, 2 skipped", "ConfigMap/"+s.Namespace+"/a deleted")
}

func TestDeletionNeedsNoSource(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	commit := s.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	s.apply("app", "app", "")
	s.Ready("app", commit)
	s.remove(&sourcev1.GitRepository{}, "app")
	s.Gone(&sourcev1.GitRepository{}, "app")
	s.Pass("app")
	s.NotReady(&kustomizev1.Kustomization{}, "app", "ArtifactFailed", "not found")
	s.ConfigMapHas("a", "1")
	s.removes("app")
	s.Gone(&kustomizev1.Kustomization{}, "app")
	s.Gone(&corev1.ConfigMap{}, "a")
}

func TestDeletionWithoutServiceAccount(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	commit := s.Commit("app", map[string]string{"a/a.yaml": system.ConfigMap("a", "1"),
		"b/b.yaml": system.ConfigMap("b", "1"),
		"c/c.yaml": system.ConfigMap("c", "1")})
	for _, name := range []string{"a", "b", "c"} {
		account := "deployer-" + name
		s.Create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: account}})
		s.GrantAll(account)
		s.apply(name, "app", name, func(k *kustomizev1.Kustomization) { k.Spec.ServiceAccountName = account })
		s.Ready(name, commit)
	}

	t.Log("without permission, deletion waits and reports the missing permission")
	s.remove(&rbacv1.RoleBinding{}, "deployer-a")
	s.Refused("deployer-a")
	s.removes("a")
	s.NotReady(&kustomizev1.Kustomization{}, "a", "PruneFailed", "system:serviceaccount:"+s.Namespace+":deployer-a")
	s.ConfigMapHas("a", "1")
	s.remove(&rbacv1.Role{}, "deployer-a")
	s.GrantAll("deployer-a")
	s.Pass("a")
	s.Gone(&kustomizev1.Kustomization{}, "a")
	s.Gone(&corev1.ConfigMap{}, "a")

	t.Log("permissions are enough after the service account was deleted")
	s.remove(&corev1.ServiceAccount{}, "deployer-b")
	s.removes("b")
	s.Gone(&kustomizev1.Kustomization{}, "b")
	s.Gone(&corev1.ConfigMap{}, "b")

	t.Log("without service account and permissions, it is deleted and reports the remaining objects")
	s.remove(&corev1.ServiceAccount{}, "deployer-c")
	s.remove(&rbacv1.RoleBinding{}, "deployer-c")
	s.Refused("deployer-c")
	s.removes("c")
	s.Gone(&kustomizev1.Kustomization{}, "c")
	s.ConfigMapHas("c", "1")
	s.HasEvent("c", "PruneFailed", "1 object left in the cluster", "deployer-c")
}

// TestDeletedNamespace deletes a namespace of a tenant. For that of the controllers, see
// TestWorkloadsStayWhenTheNamespaceOfTheControllersIsDeleted.
func TestDeletedNamespace(t *testing.T) {
	t.Parallel()
	s := newHarness(t, system.AllNamespaces, func(o *options.Options) { o.RuntimeNamespace = testenv.Namespace(t) })
	other, labels := testenv.Namespace(t), map[string]string{"test": s.Namespace}
	commit := s.Git.Commit("app", map[string]string{"near/a.yaml": system.ConfigMap("near", "1"),
		"far/a.yaml": system.ConfigMap("far", "1")})
	s.GitRepository("app", labelled(labels))
	s.Create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "deployer"}})
	s.GrantAll("deployer")
	s.Kustomization("near", "app", "near", func(k *kustomizev1.Kustomization) {
		k.Labels, k.Spec.ServiceAccountName = labels, "deployer"
	})
	s.Kustomization("far", "app", "far", func(k *kustomizev1.Kustomization) {
		k.Labels, k.Spec.TargetNamespace = labels, other
	})
	s.Ready("near", commit)
	s.Ready("far", commit)
	if err := s.Client.Delete(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}}); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the namespace is deleted", func() error {
		err := s.Client.Get(t.Context(), types.NamespacedName{Name: s.Namespace}, &corev1.Namespace{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it still exists"))
	})
	err := s.Client.Get(t.Context(), types.NamespacedName{Namespace: other, Name: "far"}, &corev1.ConfigMap{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the object in the other namespace was not deleted: %v", err)
	}
}

func TestFailedOrEmptyBuildPrunesNothing(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	commit := s.Commit("app", map[string]string{"deploy/a.yaml": system.ConfigMap("a", "1"),
		"deploy/b.yaml": system.ConfigMap("b", "1")})
	s.apply("app", "app", "deploy")
	s.Ready("app", commit)
	whole := s.inventory("app")
	stands := func() {
		t.Helper()
		s.ConfigMapHas("a", "1")
		s.ConfigMapHas("b", "1")
		if got := s.inventory("app"); got != whole {
			t.Errorf("inventory before: %s, now: %s", whole, got)
		}
	}
	for _, c := range []struct {
		files   map[string]string
		reason  string
		message string
	}{
		{files: map[string]string{"deploy/a.yaml": "", "deploy/b.yaml": "kind: [", "deploy/c.md": "-"},
			reason:  "BuildFailed",
			message: "deploy/b.yaml"},
		{files: map[string]string{"deploy/b.yaml": ""}, reason: "BuildFailed", message: "; or add a " +
			"kustomization.yaml with 'resources: []' at spec.path. Otherwise check spec.path, and which files the " +
			"source ignores"},
		{files: map[string]string{"deploy/c.md": "", "other": "-"}, reason: "ArtifactFailed",
			message: "kustomization path not found"},
		{files: map[string]string{"deploy/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Not_A_Name}\n"},
			reason: "ReconciliationFailed", message: "Not_A_Name"},
	} {
		s.Commit("app", c.files)
		s.Pass("app")
		s.NotReady(&kustomizev1.Kustomization{}, "app", c.reason, c.message)
		stands()
	}

	t.Log("a source that declares to be empty")
	commit = s.Commit("app", map[string]string{"deploy/a.yaml": "", "deploy/kustomization.yaml": "resources: []\n"})
	s.Pass("app")
	s.Ready("app", commit)
	s.Gone(&corev1.ConfigMap{}, "a")
	s.Gone(&corev1.ConfigMap{}, "b")
	if got := s.inventory("app"); got != "" {
		t.Errorf("inventory: %s", got)
	}
}

func TestFailedPruneKeepsInventory(t *testing.T) {
	t.Parallel()
	s := newHarness(t)
	commit := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1"),
		"b.yaml": system.ConfigMap("b", "1")})
	s.GitRepository("app")
	s.Kustomization("app", "app", "")
	s.Ready("app", commit)
	whole := s.inventory("app")
	s.forbidDeletion()

	for _, files := range []map[string]string{{"b.yaml": ""}, {"c.yaml": system.ConfigMap("c", "1")}} {
		s.Git.Commit("app", files)
		s.RequestFetch("app")
		s.NotReady(&kustomizev1.Kustomization{}, "app", "PruneFailed", "ConfigMap/"+s.Namespace+"/b")
		if got := s.inventory("app"); !strings.Contains(got, s.Namespace+"_b_") {
			t.Errorf("inventory before: %s, now: %s", whole, got)
		}
	}
	s.ConfigMapHas("c", "1")
	s.Stop()
	s.Start()
	policy := &admissionv1.ValidatingAdmissionPolicyBinding{}
	policy.SetName(s.Namespace)
	if err := s.Client.Delete(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	s.Gone(&corev1.ConfigMap{}, "b")
	testenv.Eventually(t, "the inventory is updated", func() error {
		if got := s.inventory("app"); strings.Contains(got, "_b_") {
			return errors.New(got)
		}
		return nil
	})
}

// forbidDeletion makes the API server reject deletion of ConfigMaps in the namespace.
func (s *harness) forbidDeletion() {
	s.Helper()
	name := metav1.ObjectMeta{Name: s.Namespace}
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
			PolicyName: s.Namespace, ValidationActions: []admissionv1.ValidationAction{deny},
			MatchResources: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{
					MatchLabels: map[string]string{"kubernetes.io/metadata.name": s.Namespace}}},
		}}
	s.Create(policy)
	s.Create(binding)
	s.Cleanup(func() {
		for _, o := range []client.Object{binding, policy} {
			if err := s.Client.Delete(context.Background(), o); client.IgnoreNotFound(err) != nil {
				s.Error(err)
			}
		}
	})
	probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "probe"}}
	s.Create(probe)
	testenv.Eventually(s, "deletion is forbidden", func() error {
		if err := s.Client.Delete(s.Context(), probe, client.DryRunAll); err == nil {
			return errors.New("deletion is allowed")
		}
		return nil
	})
}

// TestEventsOfADeletionThatFinalizersHold removes an object with a finalizer from git, and then the finalizer.
func TestEventsOfADeletionThatFinalizersHold(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	commit := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1"),
		"b.yaml": system.ConfigMap("b", "1")})
	s.GitRepository("app")
	s.Kustomization("app", "app", "", func(k *kustomizev1.Kustomization) { k.Spec.Prune = true })
	s.Ready("app", commit)
	s.edit("holder", &corev1.ConfigMap{}, "a", `{"metadata":{"finalizers":["sluice.test/hold"]}}`)
	commit = s.Git.Commit("app", map[string]string{"a.yaml": testenv.Delete})
	s.RequestFetch("app")
	s.Ready("app", commit)
	held := "ConfigMap/" + s.Namespace + "/a"
	s.HasEvent("app", meta.ReconciliationSucceededReason,
		held+" deletion requested, held by finalizers: sluice.test/hold")
	var events corev1.EventList
	if err := s.Client.List(t.Context(), &events, client.InNamespace(s.Namespace)); err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if strings.Contains(e.Message, held+" deleted") {
			t.Errorf("while a finalizer holds the object, an event says: %s", e.Message)
		}
	}
	s.edit("holder", &corev1.ConfigMap{}, "a", `{"metadata":{"finalizers":null}}`)
	s.HasEvent("app", "Progressing", held+" deleted")
}
