package migrate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// identity is what must not change of an object.
type identity struct {
	uid, version string
	finalizers   string
}

// kinds of Flux, and of what its objects applied.
var (
	fluxKinds = []schema.GroupVersionKind{
		{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "GitRepository"},
		{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "HelmRepository"},
		{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "HelmChart"},
		{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization"},
		{Group: "helm.toolkit.fluxcd.io", Version: "v2", Kind: "HelmRelease"},
		{Group: "image.toolkit.fluxcd.io", Version: "v1", Kind: "ImageRepository"},
		{Group: "image.toolkit.fluxcd.io", Version: "v1", Kind: "ImagePolicy"},
		{Group: "image.toolkit.fluxcd.io", Version: "v1", Kind: "ImageUpdateAutomation"},
		{Group: "notification.toolkit.fluxcd.io", Version: "v1beta3", Kind: "Provider"},
		{Group: "notification.toolkit.fluxcd.io", Version: "v1beta3", Kind: "Alert"},
		{Group: "notification.toolkit.fluxcd.io", Version: "v1", Kind: "Receiver"},
	}
	appliedKinds = []schema.GroupVersionKind{
		{Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "Secret"}, {Version: "v1", Kind: "Pod"},
		{Group: "apps", Version: "v1", Kind: "Deployment"}, {Group: "apps", Version: "v1", Kind: "ReplicaSet"},
	}
)

// snapshot returns the identities of the objects of the teams.
func (f *flux) snapshot(kinds []schema.GroupVersionKind) map[string]identity {
	f.Helper()
	found := map[string]identity{}
	for _, team := range f.teams {
		for _, gvk := range kinds {
			l := &unstructured.UnstructuredList{}
			l.SetGroupVersionKind(gvk)
			if err := f.List(f.Context(), l, client.InNamespace(team)); err != nil {
				f.Fatal(err)
			}
			for _, u := range l.Items {
				found[gvk.Kind+"/"+team+"/"+u.GetName()] = identity{uid: string(u.GetUID()),
					version: u.GetResourceVersion(), finalizers: strings.Join(u.GetFinalizers(), ",")}
			}
		}
	}
	return found
}

// settle waits until the workloads of the teams are available, so that the playground writes nothing to them later.
func (f *flux) settle() {
	f.Helper()
	testenv.Eventually(f, "all workloads are available", func() error {
		for _, team := range f.teams {
			l := &appsv1.DeploymentList{}
			if err := f.List(f.Context(), l, client.InNamespace(team)); err != nil {
				return err
			}
			for _, d := range l.Items {
				if *d.Spec.Replicas == 0 {
					continue
				}
				if d.Status.AvailableReplicas != 1 || d.Status.ObservedGeneration != d.Generation ||
					!slices.ContainsFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
						return c.Type == appsv1.DeploymentProgressing && c.Reason == "NewReplicaSetAvailable"
					}) {
					return fmt.Errorf("Deployment %s: %+v", d.Name, d.Status)
				}
			}
		}
		return nil
	})
}

// writes returns the requests that wrote applied objects: those in the namespaces of the teams and of the recorded
// objects, and cluster-scoped ones with their names.
func (f *flux) writes(log *testenv.AuditLog) (found []string) {
	f.Helper()
	namespaces := append([]string{recorded}, f.teams...)
	isOfTest := func(r testenv.Request) bool {
		return slices.Contains(namespaces, r.Namespace) || r.Namespace == "" && slices.ContainsFunc(namespaces,
			func(n string) bool {
				return r.Name == n || strings.HasPrefix(r.Name, n+"-") || strings.Contains(r.Name, "."+n+".")
			})
	}
	for _, r := range log.Requests(f, testenv.Request{}) {
		isWrite := slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, r.Verb)
		isApplied := !strings.HasSuffix(r.Group, ".fluxcd.io") && r.Group != operatorGroup &&
			r.Resource != "events" && r.Subresource != "token"
		if isOfTest(r) && isWrite && isApplied && !strings.Contains(r.URI, "dryRun=All") {
			found = append(found, r.Verb+" "+r.URI+" by "+r.UserAgent)
		}
	}
	return found
}

// recorded is the namespace of the recorded objects, and the beginning of the names of those without a namespace.
const recorded = "rec"

func (f *flux) same(what string, before, after map[string]identity, versions bool) {
	f.Helper()
	if len(before) != len(after) {
		f.Errorf("%s: %d objects, want %d", what, len(after), len(before))
	}
	for name, b := range before {
		a := after[name]
		if a.uid != b.uid || !strings.Contains(a.finalizers, b.finalizers) || versions && a.version != b.version {
			f.Errorf("%s: %s was %+v and is %+v", what, name, b, a)
		}
	}
}

func TestMigrationAndRollback(t *testing.T) {
	f := newFlux(t)
	w := f.fill()
	f.settle()
	want := 62
	if w.recorded != nil {
		want += 3
	}
	if w.count != want {
		t.Fatalf("the test has %d objects of Flux, want %d", w.count, want)
	}
	objects, applied := f.snapshot(fluxKinds), f.snapshot(appliedKinds)
	log := testenv.NewAuditLog(t)

	report := f.sluice("migrate", "flux").wants(t, 0, "nothing was changed. Run the command with --yes")
	t.Log(report.out)
	if strings.Contains(report.out, "not compared") || strings.Contains(report.out, "configured") {
		t.Errorf("the report names changes or objects that were not compared:\n%s", report.out)
	}
	f.same("after the report", objects, f.snapshot(fluxKinds), true)
	f.same("after the report", applied, f.snapshot(appliedKinds), true)

	f.runSluice()
	f.sluice("migrate", "flux", "--yes").wants(t, 0, "Sluice reconciles what Flux reconciled")
	f.same("after the migration", objects, f.snapshot(fluxKinds), false)
	f.same("after the migration", applied, f.snapshot(appliedKinds), true)
	if found := f.writes(log); len(found) > 0 {
		t.Errorf("the migration wrote %d applied objects:\n%s", len(found), strings.Join(found, "\n"))
	}
	for name := range fluxVersions {
		if n := f.replicas(name); n != 0 {
			t.Errorf("Deployment %s has %d replicas", name, n)
		}
	}
	f.hasDeploymentArgs("--concurrent=20", "--no-remote-bases=false",
		"--feature-gates=StrictPostBuildSubstitutions=false")

	f.sluice("migrate", "flux", "--rollback", "--yes").wants(t, 0, "Flux runs as before")
	f.same("after the rollback", objects, f.snapshot(fluxKinds), false)
	f.same("after the rollback", applied, f.snapshot(appliedKinds), true)
	if found := f.writes(log); len(found) > 0 {
		t.Errorf("the rollback wrote %d applied objects:\n%s", len(found), strings.Join(found, "\n"))
	}
	for name := range fluxVersions {
		if n := f.replicas(name); n != 1 {
			t.Errorf("Deployment %s has %d replicas", name, n)
		}
	}
	f.definitionsAreFlux()
	f.isRestored()
}

// hasDeploymentArgs checks arguments of our Deployment.
func (f *flux) hasDeploymentArgs(args ...string) {
	f.Helper()
	d := &appsv1.Deployment{}
	if err := f.Get(f.Context(), client.ObjectKey{Namespace: f.namespace, Name: "sluice"}, d); err != nil {
		f.Fatal(err)
	}
	for _, want := range args {
		if got := d.Spec.Template.Spec.Containers[0].Args; !slices.Contains(got, want) {
			f.Errorf("the arguments %q lack %s", got, want)
		}
	}
}

// definitionsAreFlux checks that the definitions are those of Flux, with only their versions stored.
func (f *flux) definitionsAreFlux() {
	f.Helper()
	for _, want := range fluxDefinitions(f.T) {
		live := want.DeepCopy()
		if err := f.Get(f.Context(), client.ObjectKeyFromObject(want), live); err != nil {
			f.Fatal(err)
		}
		got, _, _ := unstructured.NestedSlice(live.Object, "spec", "versions")
		versions, _, _ := unstructured.NestedSlice(want.Object, "spec", "versions")
		if len(got) != len(versions) || live.GetLabels()["app.kubernetes.io/name"] != "" {
			f.Errorf("%s was not restored: %d versions, labels %v", want.GetName(), len(got), live.GetLabels())
		}
	}
}

// isRestored checks that Services select the Pods of Flux, and that nothing of ours is left.
func (f *flux) isRestored() {
	f.Helper()
	s := &corev1.Service{}
	if err := f.Get(f.Context(), client.ObjectKey{Namespace: f.namespace, Name: "source-controller"}, s); err != nil {
		f.Fatal(err)
	}
	if s.Spec.Selector["app"] != "source-controller" {
		f.Errorf("the Service selects %v", s.Spec.Selector)
	}
	for _, o := range []client.Object{&appsv1.Deployment{}, &corev1.ServiceAccount{}} {
		key := client.ObjectKey{Namespace: f.namespace, Name: "sluice"}
		testenv.Eventually(f, fmt.Sprintf("%T is deleted", o), func() error {
			if err := f.Get(f.Context(), key, o); client.IgnoreNotFound(err) != nil || err == nil {
				return fmt.Errorf("it exists: %w", err)
			}
			return nil
		})
	}
}
