package campaign

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/config"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestCampaignTampering writes every field of the status of every kind, as a tenant with all verbs on all resources of
// its namespace. With the admission policies nothing is accepted. Without them, an administrator writes the values that
// the policies refused, and no gate may let a change pass by them.
func TestCampaignTampering(t *testing.T) {
	const short, full = 1, 20 // values of each field
	e := begin(t, short, full)
	n, victim := newTenant(t, testenv.NewGit(t)), newTenant(t, testenv.NewGit(t))
	account := n.account()
	asTenant, err := dynamic.NewForConfig(account)
	if err != nil {
		t.Fatal(err)
	}
	asAdmin, err := dynamic.NewForConfig(testenv.Cluster(t))
	if err != nil {
		t.Fatal(err)
	}
	kinds := slices.DeleteFunc(servedKinds(t), func(k served) bool {
		_, hasStatus := k.schema.Properties["status"]
		return k.Version != k.stored || !hasStatus
	})
	c := start(t, settings{namespace: "flux-system", flags: []string{"--no-cross-namespace-refs"}})
	n.commit("first")
	victim.commit("secret of the victim")
	victim.create(victim.source("app"))
	n.gated(asAdmin, kinds)
	n.has(c, "first")
	n.close()
	n.commit("second")
	n.fetch()
	n.handled(&kustomizev1.Kustomization{}, "app")
	remove := policies(t)
	refused, accepted := 0, 0
	e.each(func(_ int, random *rand.Rand) {
		for _, k := range kinds {
			refused += n.tamper(asTenant, k, random, false)
		}
	})
	remove()
	e.each(func(_ int, random *rand.Rand) {
		for _, k := range kinds {
			accepted += n.tamper(asAdmin, k, random, true)
			n.request(&kustomizev1.Kustomization{}, "app")
		}
		n.handled(&kustomizev1.Kustomization{}, "app")
		c.mustLive()
		if got, err := n.value("app"); err != nil || got != "first" {
			t.Errorf("behind the closed gate, the value is '%s' (%v)", got, err)
		}
	})
	e.count /= 2
	e.note("%d writes of a tenant refused, %d written by an administrator passed no gate", refused, accepted)
}

// account returns access as a service account with all verbs on all resources of the namespace.
func (n *tenant) account() *rest.Config {
	n.Helper()
	sa := &corev1.ServiceAccount{ObjectMeta: n.named("tenant")}
	n.create(sa, &rbacv1.Role{ObjectMeta: n.named("tenant"),
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}},
		&rbacv1.RoleBinding{ObjectMeta: n.named("tenant"),
			RoleRef:  rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "tenant"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "tenant", Namespace: n.namespace}}})
	request := &authenticationv1.TokenRequest{}
	if err := n.client.SubResource("token").Create(context.Background(), sa, request); err != nil {
		n.Fatal(err)
	}
	own := rest.AnonymousClientConfig(testenv.Cluster(n))
	own.BearerToken, own.QPS = request.Status.Token, -1
	return own
}

// gated creates an object of each kind: a suspended example, and the gate and the Kustomization behind it.
func (n *tenant) gated(objects dynamic.Interface, kinds []served) {
	n.Helper()
	gate := &gatingv1.Gate{ObjectMeta: n.named("gate"),
		Spec: gatingv1.GateSpec{Default: gatingv1.Opened, Interval: hour}}
	n.create(gate, n.source("app"), n.app("app", func(k *kustomizev1.Kustomization) {
		k.Spec.Gates = []meta.GateReference{{Name: "gate"}}
	}))
	for _, k := range kinds {
		if names[k.Kind] != "" {
			continue
		}
		o := &unstructured.Unstructured{Object: k.examples[0]}
		o = o.DeepCopy()
		o.SetNamespace(n.namespace)
		o.SetName("it")
		delete(o.Object, "status")
		if spec, ok := o.Object["spec"].(map[string]any); ok {
			if _, has := k.schema.Properties["spec"].Properties["suspend"]; has {
				spec["suspend"] = true
			}
		}
		if _, err := objects.Resource(k.gvr()).Namespace(n.namespace).Create(context.Background(), o,
			metav1.CreateOptions{}); err != nil {
			n.Fatal(err)
		}
	}
}

// names are the objects that are at work; those of other kinds are called "it".
var names = map[string]string{"Gate": "gate", "Kustomization": "app", "GitRepository": "app"}

func (k served) gvr() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.Group, Version: k.Version, Resource: k.resource}
}

// close closes the gate by a request and waits until it is closed.
func (n *tenant) close() {
	n.Helper()
	gate := &gatingv1.Gate{}
	n.request(gate, "gate")
	patch := `{"spec":{"default":"closed"}}`
	n.patchSpec(gate, "gate", patch)
	n.handled(gate, "gate")
}

// tamper writes a value to each field of a status. It fails the test if a tenant's write is accepted.
func (n *tenant) tamper(objects dynamic.Interface, k served, random *rand.Rand, isAdmin bool) (writes int) {
	n.Helper()
	status := k.schema.Properties["status"]
	name := names[k.Kind]
	if name == "" {
		name = "it"
	}
	for _, field := range slices.Sorted(maps.Keys(status.Properties)) {
		property := status.Properties[field]
		patch, err := json.Marshal(map[string]any{"status": map[string]any{field: valueOf(&property,
			random, 0)}})
		if err != nil {
			n.Fatal(err)
		}
		attempt := func() error {
			_, err := objects.Resource(k.gvr()).Namespace(n.namespace).Patch(context.Background(), name,
				types.MergePatchType, patch, metav1.PatchOptions{}, "status")
			return err
		}
		err = attempt()
		switch {
		case err == nil && !isAdmin:
			n.Errorf("the tenant wrote the status of %s: %s", k.Kind, patch)
		case err == nil, apierrors.IsForbidden(err) && !isAdmin:
			writes++
		case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		default:
			n.Error(fmt.Errorf("%s: %w", k.Kind, err))
		}
	}
	return writes
}

// policies installs the admission policies, waits until they are in force, and returns a function that removes them.
func policies(t *testing.T) (remove func()) {
	t.Helper()
	objects, err := config.Policies()
	if err != nil {
		t.Fatal(err)
	}
	c := cluster(t)
	n := newTenant(t, nil)
	account, err := dynamic.NewForConfig(n.account())
	if err != nil {
		t.Fatal(err)
	}
	remove = func() {
		for _, o := range objects {
			if err := c.Delete(context.Background(), o.DeepCopy()); err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		}
	}
	t.Cleanup(remove)
	for _, o := range objects {
		if err := c.Create(context.Background(), o.DeepCopy()); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	n.create(&gatingv1.Gate{ObjectMeta: n.named("gate"),
		Spec: gatingv1.GateSpec{Default: gatingv1.Opened, Interval: hour}})
	gates := account.Resource(gatingv1.GroupVersion.WithResource("gates")).Namespace(n.namespace)
	testenv.Eventually(t, "the policies are in force", func() error {
		_, err := gates.Patch(context.Background(), "gate", types.MergePatchType,
			[]byte(`{"status":{"observedGeneration":1}}`),
			metav1.PatchOptions{}, "status")
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("the result is %w", err)
		}
		return nil
	})
	return remove
}
