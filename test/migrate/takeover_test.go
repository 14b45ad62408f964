package migrate

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

var kustomizationKind = schema.GroupVersionKind{Group: "kustomize.toolkit.fluxcd.io", Version: "v1",
	Kind: "Kustomization"}

// merge applies a JSON merge patch to an object.
func (f *flux) merge(gvk schema.GroupVersionKind, namespace, name, patch string) {
	f.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	u.SetNamespace(namespace)
	u.SetName(name)
	if err := f.Patch(f.Context(), u, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		f.Fatal(err)
	}
}

// small fills the first namespace with a few objects: a source, a Kustomization and what that applied.
func (f *flux) small() *world {
	f.Helper()
	w := f.world()
	for _, team := range f.teams {
		w.sources(team)
		w.app(team, "app-0")
	}
	f.settle()
	return w
}

// TestUnhealthyMigrationGoesBack breaks a source, and objects that were Ready with Flux are not Ready with Sluice.
func TestUnhealthyMigrationGoesBack(t *testing.T) {
	testenv.Full(t)
	f := newFlux(t)
	w := f.small()
	w.app(f.teams[0], "app-1")
	f.merge(kustomizationKind, f.teams[0], "app-1", `{"spec":{"path":"./missing"}}`)
	w.readyAgain("app-1")
	f.settle()
	applied := f.snapshot(appliedKinds)
	f.runSluice()
	f.sluice("migrate", "flux", "--no-diff", "--yes", "--ready-timeout", "20s").wants(t, 1,
		"the migration failed and was rolled back; Flux runs again", "app-1", "rolling back")
	for name := range fluxVersions {
		if n := f.replicas(name); n != 1 {
			t.Errorf("Deployment %s has %d replicas", name, n)
		}
	}
	f.same("after the rollback", applied, f.snapshot(appliedKinds), true)
	f.isRestored()
	f.sluice("migrate", "flux", "--rollback", "--yes").wants(t, 1, "nothing to roll back")
}

// TestInterruptedMigrationContinues stops the command while it waits for Sluice, which does not run yet.
func TestInterruptedMigrationContinues(t *testing.T) {
	testenv.Full(t)
	f := newFlux(t)
	f.small()
	suspended := `{"spec":{"suspend":true}}`
	f.merge(kustomizationKind, f.teams[1], "app-0", suspended)
	kill := f.begin("migrate", "flux", "--yes")
	testenv.Eventually(t, "Flux is stopped and Sluice is installed", func() error {
		return f.Get(f.Context(), client.ObjectKey{Namespace: f.namespace, Name: "sluice"}, &appsv1.Deployment{})
	})
	kill()
	f.sluice("migrate", "flux").wants(t, 0, "a migration was interrupted in step")
	f.runSluice()
	f.sluice("migrate", "flux", "--yes").wants(t, 0, "Sluice reconciles what Flux reconciled")
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kustomizationKind)
	if err := f.Get(f.Context(), client.ObjectKey{Namespace: f.teams[1], Name: "app-0"}, u); err != nil {
		t.Fatal(err)
	}
	if s, _, _ := unstructured.NestedBool(u.Object, "spec", "suspend"); !s {
		t.Error("the suspended Kustomization was resumed")
	}
	f.sluice("migrate", "flux", "--rollback", "--yes").wants(t, 0, "Flux runs as before")
}

// TestSyncIsSuspended checks that the Kustomization that deploys Flux is found, suspended and resumed.
func TestSyncIsSuspended(t *testing.T) {
	testenv.Full(t)
	f := newFlux(t)
	w := f.small()
	w.sync()
	f.sluice("migrate", "flux", "--no-diff").wants(t, 1, "deploys Flux (source-controller) from git", "--suspend-sync",
		"the migration is blocked: 1 problem")
	f.runSluice()
	f.dir = t.TempDir()
	export := filepath.Join(f.dir, "clusters", "prod", "flux-system")
	f.sluice("migrate", "flux", "--suspend-sync", "--export", f.dir+"/clusters/prod/flux-system", "--yes").
		wants(t, 0, "commit the files of --export")
	b, err := os.ReadFile(filepath.Join(export, "gotk-components.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"name: kustomizations.kustomize.toolkit.fluxcd.io", "kind: Deployment",
		"namespace: " + f.namespace, "--concurrent=20"} {
		if !strings.Contains(string(b), text) {
			t.Errorf("the exported file lacks %q", text)
		}
	}
	if !f.isSuspended("flux-system") {
		t.Error("the sync is not suspended")
	}
	// The repository of the test does not deploy Sluice, so the sync must not run: it has no such path.
	f.sluice("resume", "kustomization", "flux-system", "--timeout", "1ms")
	f.sluice("suspend", "kustomization", "flux-system")
	f.sluice("migrate", "flux", "--rollback", "--yes").wants(t, 0, "Flux runs as before")
	if f.isSuspended("flux-system") {
		t.Error("the rollback did not resume the sync")
	}
}

// sync creates the objects by which Flux deploys itself from git.
func (w *world) sync() {
	w.Helper()
	w.put("source-controller", "source.toolkit.fluxcd.io/v1", "GitRepository", w.namespace, "flux-system",
		object{"url": w.git.URL + "/fleet", "interval": "1h", "ref": object{"branch": "main"}}, nil)
	w.put("kustomize-controller", "kustomize.toolkit.fluxcd.io/v1", "Kustomization", w.namespace, "flux-system",
		object{"interval": "1h", "path": "./clusters/prod", "prune": true,
			"sourceRef": object{"kind": "GitRepository", "name": "flux-system"}},
		ready("ReconciliationSucceeded", "Applied", object{"inventory": object{"entries": []any{
			object{"id": w.namespace + "_source-controller_apps_Deployment", "v": "v1"}}}}))
}

func (f *flux) isSuspended(name string) bool {
	f.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kustomizationKind)
	if err := f.Get(f.Context(), client.ObjectKey{Namespace: f.namespace, Name: name}, u); err != nil {
		f.Fatal(err)
	}
	s, _, _ := unstructured.NestedBool(u.Object, "spec", "suspend")
	return s
}

// TestSideBySide takes over two controllers, goes back, and takes over two namespaces.
func TestSideBySide(t *testing.T) {
	f := newFlux(t)
	f.small()
	f.runSluice()
	f.sluice("migrate", "flux", "--controllers", "source-controller,kustomize-controller", "--yes").
		wants(t, 0, "Sluice reconciles")
	for name := range fluxVersions {
		want := int32(1)
		if name == "source-controller" || name == "kustomize-controller" {
			want = 0
		}
		if n := f.replicas(name); n != want {
			t.Errorf("Deployment %s has %d replicas, want %d", name, n, want)
		}
	}
	f.hasDeploymentArgs("--controllers="+strings.Join([]string{"source-controller", "kustomize-controller",
		"gating-controller"}, ","), "--events-addr=http://notification-controller."+f.namespace+
		".svc.cluster.local./")
	f.selects("source-controller", "sluice")
	f.selects("notification-controller", "notification-controller")
	f.sluice("migrate", "flux", "--rollback", "--yes").wants(t, 0)

	namespaces := strings.Join(f.teams, ",")
	f.sluice("migrate", "flux", "--namespaces", namespaces).wants(t, 1,
		"Deployment '"+f.namespace+"/helm-controller' would reconcile the objects of the namespaces as well",
		"--watch-label-selector=!sharding.fluxcd.io/key")
	f.shardFlux()
	f.sluice("migrate", "flux", "--namespaces", f.teams[0], "--yes").wants(t, 0)
	f.sluice("migrate", "flux", "--namespaces", namespaces, "--yes").wants(t, 0)
	for name := range fluxVersions {
		if n := f.replicas(name); n != 1 {
			t.Errorf("Deployment %s has %d replicas, want 1", name, n)
		}
	}
	f.hasDeploymentArgs("--watch-label-selector=sharding.fluxcd.io/key=sluice")
	f.selects("source-controller", "source-controller")
	f.selects("sluice-source-controller", "sluice")
	for _, team := range f.teams {
		f.hasShard(team, "sluice")
	}
	f.sluice("migrate", "flux", "--rollback", "--yes").wants(t, 0)
	f.hasShard(f.teams[0], "")
}

// shardFlux makes the controllers of Flux leave out objects of shards.
func (f *flux) shardFlux() {
	f.Helper()
	for name := range fluxVersions {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name}}
		patch := `[{"op":"add","path":"/spec/template/spec/containers/0/args/-",` +
			`"value":"--watch-label-selector=!sharding.fluxcd.io/key"}]`
		if err := f.Patch(f.Context(), d, client.RawPatch(types.JSONPatchType, []byte(patch))); err != nil {
			f.Fatal(err)
		}
	}
}

func (f *flux) selects(service, app string) {
	f.Helper()
	s := &corev1.Service{}
	if err := f.Get(f.Context(), client.ObjectKey{Namespace: f.namespace, Name: service}, s); err != nil {
		f.Fatal(err)
	}
	if s.Spec.Selector["app"] != app {
		f.Errorf("Service %s selects %v, want %s", service, s.Spec.Selector, app)
	}
}

func (f *flux) hasShard(team, want string) {
	f.Helper()
	l := &unstructured.UnstructuredList{}
	l.SetGroupVersionKind(kustomizationKind)
	if err := f.List(f.Context(), l, client.InNamespace(team)); err != nil {
		f.Fatal(err)
	}
	for _, u := range l.Items {
		if got := u.GetLabels()["sharding.fluxcd.io/key"]; got != want {
			f.Error(fmt.Errorf("Kustomization %s/%s is in shard %q, want %q", team, u.GetName(), got, want))
		}
	}
}
