// Package migrate tests sluice migrate with the built binary and a real API server. By default, Flux itself does not
// run here: its Deployments are of the playground, which runs nothing in Pods, and its objects are created as its
// controllers leave them, with their status, managed fields, labels, inventories and finalizers. With SLUICE_FLUX, its
// released kustomize-controller and helm-controller apply and install what is migrated; see released_test.go.
package migrate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/config"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// versions of Flux 2.8, which stores Alerts and Providers in v1beta3.
var fluxVersions = map[string]string{
	"source-controller": "v1.8.0", "kustomize-controller": "v1.8.0", "helm-controller": "v1.5.0",
	"notification-controller": "v1.8.0", "image-reflector-controller": "v1.1.0",
	"image-automation-controller": "v1.1.0",
}

// flux is an installation of Flux in a namespace of the test, and two namespaces with objects.
type flux struct {
	*testing.T
	client.Client
	namespace string
	teams     []string
	dir       string // of exported files
}

func newFlux(t *testing.T) *flux {
	t.Helper()
	t.Parallel()
	testenv.Exclusive(t) // migrations replace the definitions of all kinds
	cfg := testenv.Cluster(t)
	cfg.WarningHandler = rest.NoWarnings{} // about finalizers without a path
	c, err := client.New(cfg, client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	f := &flux{T: t, Client: c, namespace: testenv.Namespace(t)}
	f.teams = []string{testenv.Namespace(t), testenv.Namespace(t)}
	f.installDefinitions()
	for name, version := range fluxVersions {
		f.installController(name, version)
	}
	for _, name := range []string{"source-controller", "notification-controller"} {
		f.create(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name},
			Spec: corev1.ServiceSpec{Selector: map[string]string{"app": name},
				Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("http")}}}})
	}
	return f
}

func (f *flux) create(o client.Object) {
	f.Helper()
	if err := f.Create(f.Context(), o); err != nil {
		f.Fatalf("cannot create %T %s/%s: %v", o, o.GetNamespace(), o.GetName(), err)
	}
}

// notOfFlux are the groups that Flux does not have.
var notOfFlux = []string{"gating.toolkit.fluxcd.io", "inputs.toolkit.fluxcd.io", "fluxcd.controlplane.io"}

// fluxDefinitions returns our definitions without what Flux 2.8 does not have.
func fluxDefinitions(t *testing.T) (definitions []*unstructured.Unstructured) {
	t.Helper()
	all, err := config.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range all {
		group, _, _ := unstructured.NestedString(u.Object, "spec", "group")
		if slices.Contains(notOfFlux, group) || strings.HasPrefix(u.GetName(), "imageupdatejobs.") {
			continue
		}
		u.SetLabels(map[string]string{"app.kubernetes.io/part-of": "flux"})
		if strings.HasPrefix(u.GetName(), "alerts.") || strings.HasPrefix(u.GetName(), "providers.") {
			withoutV1(u)
		}
		definitions = append(definitions, u)
	}
	return definitions
}

func withoutV1(u *unstructured.Unstructured) {
	all, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
	var kept []any
	for _, raw := range all {
		v := raw.(map[string]any)
		if v["name"] != "v1" {
			v["storage"] = v["name"] == "v1beta3"
			kept = append(kept, v)
		}
	}
	_ = unstructured.SetNestedSlice(u.Object, kept, "spec", "versions") // the path exists
}

// installDefinitions installs the definitions of Flux.
func (f *flux) installDefinitions() {
	f.Helper()
	for _, u := range fluxDefinitions(f.T) {
		if err := f.Client.Create(f.Context(), u, client.FieldOwner("flux")); err != nil {
			f.Fatal(err)
		}
	}
	testenv.Eventually(f, "the definitions are served", func() error {
		for _, u := range fluxDefinitions(f.T) {
			if err := f.isServed(u); err != nil {
				return err
			}
		}
		return nil
	})
}

// isServed returns an error unless objects of the stored version can be listed.
func (f *flux) isServed(definition *unstructured.Unstructured) error {
	group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind")
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, raw := range versions {
		if v := raw.(map[string]any); v["storage"] == true {
			l := &unstructured.UnstructuredList{}
			l.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: v["name"].(string), Kind: kind})
			c, err := client.New(testenv.Cluster(f), client.Options{Scheme: kubeclient.Scheme()})
			if err != nil {
				return err
			}
			return c.List(f.Context(), l)
		}
	}
	return fmt.Errorf("no version of %s is stored", definition.GetName())
}

// installController creates the Deployment of a controller and the lease of its leader election.
func (f *flux) installController(name, version string) {
	f.Helper()
	labels := map[string]string{"app": name}
	args := []string{"--events-addr=http://notification-controller.$(RUNTIME_NAMESPACE).svc.cluster.local./",
		"--watch-all-namespaces=true", "--log-level=info", "--log-encoding=json", "--enable-leader-election"}
	switch name {
	case "source-controller":
		args = append(args, "--storage-path=/data",
			"--storage-adv-addr=source-controller.$(RUNTIME_NAMESPACE).svc.cluster.local.")
	case "kustomize-controller":
		args = append(args, "--concurrent=20", "--feature-gates=DisableStatusPollerCache=true")
	case "helm-controller":
		args = append(args, "--concurrent=15", "--oom-watch-interval=500ms")
	}
	f.create(&appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name,
			Labels: map[string]string{"app.kubernetes.io/part-of": "flux", "app.kubernetes.io/component": name}},
		Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Args: args,
					Image: "ghcr.io/fluxcd/" + name + ":" + version,
					Env:   []corev1.EnvVar{{Name: "RUNTIME_NAMESPACE", Value: f.namespace}}}}}}},
	})
	f.create(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name + "-leader-election"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To(name + "-0_1"), LeaseDurationSeconds: ptr.To[int32](1),
			RenewTime: ptr.To(metav1.NewMicroTime(time.Now()))},
	})
}

// replicas returns the replicas of a Deployment that are wanted.
func (f *flux) replicas(name string) int32 {
	f.Helper()
	d := &appsv1.Deployment{}
	if err := f.Get(f.Context(), client.ObjectKey{Namespace: f.namespace, Name: name}, d); err != nil {
		f.Fatal(err)
	}
	return *d.Spec.Replicas
}
