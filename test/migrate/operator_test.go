package migrate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/config"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

const (
	operatorName  = "flux-operator"
	operatorGroup = "fluxcd.controlplane.io"
)

// installOperator creates the Deployment of Flux Operator, its definitions and a FluxInstance.
func (f *flux) installOperator() {
	f.Helper()
	all, err := config.Definitions()
	if err != nil {
		f.Fatal(err)
	}
	for _, u := range all {
		if group, _, _ := unstructured.NestedString(u.Object, "spec", "group"); group != operatorGroup {
			continue
		}
		u.SetLabels(map[string]string{"app.kubernetes.io/name": operatorName})
		f.create(u)
		testenv.Eventually(f, u.GetName()+" is served", func() error { return f.isServed(u) })
	}
	labels := map[string]string{"app.kubernetes.io/name": operatorName}
	f.create(&appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: operatorName, Labels: labels},
		Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "manager", Args: []string{"--log-level=info"},
					Image: "ghcr.io/controlplaneio-fluxcd/flux-operator:v0.58.1"}}}}}})
	f.create(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: operatorName},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("0_1"), LeaseDurationSeconds: ptr.To[int32](1),
			RenewTime: ptr.To(metav1.NewMicroTime(time.Now()))}})
	instances := f.define(operatorGroup, "FluxInstance")
	f.Cleanup(func() { _ = f.Delete(f.Context(), instances) }) // the control plane ends with the tests
	instance := &unstructured.Unstructured{Object: object{"spec": object{
		"cluster": object{"domain": "corp.local", "networkPolicy": false}}}}
	instance.SetGroupVersionKind(schema.GroupVersionKind{Group: operatorGroup, Version: "v1", Kind: "FluxInstance"})
	instance.SetNamespace(f.namespace)
	instance.SetName("flux")
	testenv.Eventually(f, "the kind is served", func() error { return f.Create(f.Context(), instance.DeepCopy()) })
}

// operatorSet creates a provider, a ResourceSet, and what that applied, as Flux Operator leaves them.
func (w *world) operatorSet(team string) {
	w.Helper()
	const finalizer = "fluxcd.controlplane.io/finalizer"
	w.put(operatorName, operatorGroup+"/v1", "ResourceSetInputProvider", team, "tenants",
		object{"type": "Static", "defaultValues": object{"tenant": "a"}},
		ready("ReconciliationSucceeded", "", object{"exportedInputs": []any{object{"id": "1", "tenant": "a"}}}))
	u := &unstructured.Unstructured{Object: object{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": object{"name": "tenant-a", "namespace": team, "labels": object{
			"resourceset.fluxcd.controlplane.io/name":      "tenants",
			"resourceset.fluxcd.controlplane.io/namespace": team}},
		"data": object{"tenant": "a"}}}
	if err := w.Apply(w.Context(), client.ApplyConfigurationFromUnstructured(u),
		client.FieldOwner(operatorName)); err != nil {
		w.Fatal(err)
	}
	w.put(operatorName, operatorGroup+"/v1", "ResourceSet", team, "tenants",
		object{"inputsFrom": []any{object{"name": "tenants"}}, "resources": []any{object{"apiVersion": "v1",
			"kind": "ConfigMap", "metadata": object{"name": "tenant-<< inputs.tenant >>", "namespace": team},
			"data": object{"tenant": "<< inputs.tenant >>"}}}},
		ready("ReconciliationSucceeded", "Reconciliation finished in 52s", object{
			"inventory": object{"entries": []any{entry(u)}}, "lastAppliedRevision": "sha256:1"}))
	for _, kind := range []string{"ResourceSet", "ResourceSetInputProvider"} {
		w.merge(schema.GroupVersionKind{Group: operatorGroup, Version: "v1", Kind: kind}, team, "tenants",
			fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, finalizer))
	}
}

// TestFluxOperatorMoves takes over ResourceSets, their providers and what they applied, and gives them back.
func TestFluxOperatorMoves(t *testing.T) {
	testenv.Full(t)
	f := newFlux(t)
	f.installOperator()
	w := f.small()
	team := f.teams[0]
	w.operatorSet(team)
	set := schema.GroupVersionKind{Group: operatorGroup, Version: "v1", Kind: "ResourceSet"}
	objects, applied := f.snapshot([]schema.GroupVersionKind{set}), f.snapshot(appliedKinds)
	log := testenv.NewAuditLog(t)
	f.runSluice()

	f.sluice("migrate", "flux", "--namespaces", team).wants(t, 1, "would reconcile the objects of the namespaces").
		lacks(t, "Deployment '"+f.namespace+"/"+operatorName+"'")
	f.sluice("migrate", "flux").wants(t, 0, "ResourceSet/"+team+"/tenants", "--cluster-domain=corp.local",
		"sluice install -n "+f.namespace, "--network-policy=false", "resourceset-controller", "Do not delete it").
		lacks(t, "would start it again")
	f.sluice("migrate", "flux", "--yes").wants(t, 0, "Sluice reconciles what Flux reconciled")
	if n := f.replicas(operatorName); n != 0 {
		t.Errorf("Flux Operator has %d replicas", n)
	}
	if found := f.writes(log); len(found) > 0 {
		t.Errorf("the migration wrote applied objects:\n%s", strings.Join(found, "\n"))
	}
	f.same("ResourceSets", objects, f.snapshot([]schema.GroupVersionKind{set}), false)
	f.same("applied objects", applied, f.snapshot(appliedKinds), true)

	f.sluice("migrate", "flux", "--rollback", "--yes").wants(t, 0, "Flux runs as before")
	if n := f.replicas(operatorName); n != 1 {
		t.Errorf("Flux Operator has %d replicas after the rollback", n)
	}
	definition := &unstructured.Unstructured{}
	definition.SetGroupVersionKind(definitionKind)
	if err := f.Get(t.Context(), client.ObjectKey{Name: "resourcesets." + operatorGroup}, definition); err != nil ||
		definition.GetLabels()["app.kubernetes.io/name"] != operatorName {
		t.Errorf("the definition was not restored: %v %v", definition.GetLabels(), err)
	}
	f.same("after the rollback", objects, f.snapshot([]schema.GroupVersionKind{set}), false)
	f.same("after the rollback", applied, f.snapshot(appliedKinds), true)
}
