package health

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: app, namespace: %s}
spec:
  progressDeadlineSeconds: 600
  selector: {matchLabels: {app: app}}
  template:
    metadata: {labels: {app: app}}
    spec: {containers: [{name: main, image: "app:1"}]}
`

// withFailure returns a deployment whose pods fail in the given way.
func withFailure(how string) string {
	return strings.ReplaceAll(deployment, "labels: {app: app}}\n    spec",
		"labels: {app: app}, annotations: {playground.sluice.dev/fail: "+how+"}}\n    spec")
}

func TestDeploymentStatusFollowsRollout(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	app := f.target("apps", "v1", "Deployment", "app")
	f.setTargets([]Target{app})
	f.await(app, NotFound)
	f.apply(deployment)
	f.await(app, Current)
	before := f.requests.Load()
	f.apply(withFailure("not-ready"))
	f.await(app, InProgress)
	f.apply(deployment)
	f.await(app, Current)
	f.remove(app)
	f.await(app, NotFound)
	if n := f.requests.Load() - before; n != 0 {
		t.Errorf("%d requests besides the watch", n)
	}
	f.Forget(owner)
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.watches(); n != 0 || len(f.owners) != 0 {
		t.Errorf("%d watches and %d owners are left", n, len(f.owners))
	}
}

func TestExplainNamesReasonOfFailure(t *testing.T) {
	for name, c := range map[string]struct {
		before             func(*fixture)
		object, kind, want string
	}{
		"missing image": {
			object: withFailure("image-pull"), kind: "Deployment", want: "ImagePullBackOff",
		},
		"crashing container": {
			object: withFailure("crash-loop"), kind: "Deployment", want: "CrashLoopBackOff",
		},
		"no node with free capacity": {object: withFailure("pending"), kind: "Deployment", want: "0/"},
		"pod not ready":              {object: withFailure("not-ready"), kind: "Deployment", want: "readiness probe"},
		"exhausted quota": {
			before: (*fixture).exhaustQuota, object: deployment, kind: "Deployment", want: "exceeded quota",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			target := f.target("apps", "v1", c.kind, "app")
			if c.before != nil {
				c.before(f)
			}
			f.apply(c.object)
			f.setTargets([]Target{target})
			testenv.Eventually(t, "explanation", func() error {
				results, _ := f.Results(owner)
				if got := f.Explain(context.Background(), results[0]); !strings.Contains(got, c.want) {
					return fmt.Errorf("%+v: %q does not contain %q", results[0], got, c.want)
				}
				return nil
			})
		})
	}
}

// exhaustQuota creates a quota that allows no pod. It waits until the API server refuses one, since the server learns
// of new quotas by a watch and admits pods until then.
func (f *fixture) exhaustQuota() {
	f.t.Helper()
	f.apply("apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: none, namespace: %s}\nspec: {hard: {pods: \"0\"}}")
	pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "refused"},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}}}}
	testenv.Eventually(f.t, "refusal of a pod", func() error {
		_, err := f.admin.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace(f.ns).
			Create(context.Background(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return errors.New("it is admitted")
		}
		if !strings.Contains(err.Error(), "exceeded quota") {
			return err
		}
		return nil
	})
}

func TestJobStatus(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	job := `apiVersion: batch/v1
kind: Job
metadata: {name: %n, namespace: %s}
spec:
  backoffLimit: 0
  suspend: %p
  template:
    metadata: {annotations: {playground.sluice.dev/fail: "%f"}}
    spec: {restartPolicy: Never, containers: [{name: c, image: i}]}
`
	create := func(name, fail, suspend string) {
		f.apply(strings.NewReplacer("%n", name, "%f", fail, "%p", suspend).Replace(job))
	}
	create("good", "", "false")
	create("bad", "job-failed", "false")
	create("suspended", "", "true")
	good, bad, suspended := f.target("batch", "v1", "Job", "good"), f.target("batch", "v1", "Job", "bad"),
		f.target("batch", "v1", "Job", "suspended")
	f.setTargets([]Target{good, bad, suspended})
	f.await(good, Current)
	f.await(suspended, Current)
	got := f.Explain(context.Background(), f.await(bad, Failed))
	if !strings.Contains(got, "exit code 1") {
		t.Errorf("%q does not contain the exit code", got)
	}
}

func TestResultOfDeletedObjectRecordsWhetherItFailed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	target := f.target("batch", "v1", "Job", "bad")
	text := "apiVersion: batch/v1\nkind: Job\nmetadata: {name: bad, namespace: %s}\n" +
		"spec: {backoffLimit: 0, template: {metadata: {annotations: {playground.sluice.dev/fail: job-failed}}, " +
		"spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}\n"
	f.apply(text)
	f.setTargets([]Target{target})
	f.await(target, Failed)
	f.remove(target)
	if r := f.await(target, NotFound); !r.HadFailed {
		t.Errorf("%+v", r)
	}
	f.ExpectVersion(owner, target, "1")
	if r, _ := f.Results(owner); len(r) != 1 || r[0].HadFailed {
		t.Errorf("after it was written again: %+v", r)
	}
}

func TestKindsWithoutStatusAreCurrent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: %s}\n---\n" +
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: health-%s}\n---\n" +
		"apiVersion: v1\nkind: Service\nmetadata: {name: s, namespace: %s}\nspec: {ports: [{port: 80}]}")
	role := Target{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole", Namespace: "",
		Name: "health-" + f.ns}
	t.Cleanup(func() { f.remove(role) })
	targets := []Target{f.target("", "v1", "ConfigMap", "c"), f.target("", "v1", "Service", "s"), role}
	f.setTargets(targets)
	for _, target := range targets {
		f.await(target, Current)
	}
}

const gadgets = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.%s.example.com}
spec:
  group: %s.example.com
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

func TestExpressionsDefineHealth(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	gadget := f.target(f.ns+".example.com", "v1", "Gadget", "g")
	f.apply(gadgets)
	definition := Target{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition", Namespace: "",
		Name: "gadgets." + f.ns +
			".example.com"}
	t.Cleanup(func() { f.remove(definition) })
	check, err := NewCheck(f.ns+".example.com/v1", "Gadget", "status.phase == 'Bound'", "status.phase == 'Pending'",
		"status.phase == 'Lost'")
	if err != nil {
		t.Fatal(err)
	}
	f.setTargets([]Target{gadget}, check)
	f.waitChanged()
	f.setTargets([]Target{gadget}, check)
	f.apply("apiVersion: %s.example.com/v1\nkind: Gadget\nmetadata: {name: g, namespace: %s}")
	if r := f.await(gadget, InProgress); !strings.Contains(r.Message, "no such") {
		t.Errorf("without a status: %q", r.Message)
	}
	for _, c := range []struct{ status, want string }{
		{status: `{"phase":"Pending"}`, want: InProgress}, {status: `{"phase":"Bound"}`, want: Current},
		{status: `{"phase":"Lost"}`, want: Failed},
		{status: `{"phase":"Bound","observedGeneration":7}`, want: InProgress},
		{status: `{"phase":"Bound","observedGeneration":1}`, want: Current},
	} {
		f.setStatus(gadget, `{"status":`+c.status+`}`)
		f.await(gadget, c.want)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.watches(); n != 1 {
		t.Errorf("%d watches, want 1", n)
	}
}

func TestNewCheckNamesFieldOfInvalidExpression(t *testing.T) {
	for field, c := range map[string][3]string{
		"current":    {"status.", "", ""},
		"inProgress": {"true", "unknown == 1", ""},
		"failed":     {"true", "", "'text'"},
	} {
		if _, err := NewCheck("v1", "ConfigMap", c[0], c[1], c[2]); err == nil ||
			!strings.HasPrefix(err.Error(), field+": ") {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestKindInstalledLaterIsWatched(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	gadget := f.target(f.ns+".example.com", "v1", "Gadget", "g")
	f.setTargets([]Target{gadget})
	r := f.await(gadget, NotFound)
	if !strings.Contains(r.Message, "does not serve kind Gadget") {
		t.Errorf("message %q", r.Message)
	}
	drain(f.changed)
	f.apply(gadgets)
	definition := Target{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition", Namespace: "",
		Name: "gadgets." + f.ns +
			".example.com"}
	t.Cleanup(func() { f.remove(definition) })
	f.waitChanged()
	f.setTargets([]Target{gadget}) // as an owner does after a notification
	f.apply("apiVersion: %s.example.com/v1\nkind: Gadget\nmetadata: {name: g, namespace: %s}")
	f.await(gadget, Current) // the object has no conditions

	f.setStatus(gadget, `{"status":{"observedGeneration":0,"conditions":[{"type":"Ready","status":"True"}]}}`)
	f.await(gadget, InProgress)
	f.setStatus(gadget, `{"status":{"observedGeneration":1,"conditions":[{"type":"Ready","status":"True"}]}}`)
	f.await(gadget, Current)
	f.setStatus(gadget, `{"status":{"observedGeneration":1,"conditions":[`+
		`{"type":"Ready","status":"False","message":"out of capacity"},`+
		`{"type":"Stalled","status":"True","message":"out of capacity"}]}}`)
	if r := f.await(gadget, Failed); !strings.Contains(r.Message, "out of capacity") {
		t.Errorf("message %q", r.Message)
	}
	f.mu.Lock()
	if n := f.watches(); n != 1 {
		t.Errorf("%d watches, want 1", n)
	}
	f.mu.Unlock()
	t.Run("kind without a group is found", func(t *testing.T) {
		got, err := f.Watcher.Resolve("", "Gadget", f.ns, "g")
		// other tests define the same kind in other groups
		if err == nil && got != gadget || err != nil && !strings.Contains(err.Error(), f.ns+".example.com") {
			t.Errorf("%v, %v", got, err)
		}
	})
}

func TestOwnersShareWatches(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var many []Target
	for n := range 5 {
		name := fmt.Sprintf("c%d", n)
		f.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", namespace: %s}")
		many = append(many, f.target("", "v1", "ConfigMap", name))
	}
	f.setTargets(many)
	f.SetTargets("team/other", many[1:])
	f.SetTargets("team/single", many[:1])
	for _, target := range many {
		f.await(target, Current)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.watches(); n != 2 { // one of the namespace and one of a single object
		t.Errorf("%d watches, want 2", n)
	}
}

func TestObservationsOlderThanExpectedVersionDoNotCount(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: %s}")
	c := f.target("", "v1", "ConfigMap", "c")
	f.setTargets([]Target{c})
	f.await(c, Current)
	f.mu.Lock()
	observed, _ := f.owners[owner][c].watch.Value(types.NamespacedName{Namespace: f.ns, Name: "c"})
	version := observed.version
	f.mu.Unlock()
	f.ExpectVersion(owner, c, version)
	f.await(c, Current)
	f.ExpectVersion(owner, c, "1"+version)
	f.await(c, InProgress)
	f.ExpectVersion(owner, f.target("", "v1", "ConfigMap", "other"), version) // not a target
	f.ExpectVersion(owner, c, version)
	f.await(c, Current)
}

func TestWatchIsRetriedAfterRightIsGranted(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "system:serviceaccount:%s:default")
	c := f.target("", "v1", "ConfigMap", "c")
	f.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: %s}")
	f.setTargets([]Target{c})
	f.waitChangedTo(c, "may not be watched")
	f.apply(`apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: one, namespace: %s}
rules: [{apiGroups: [""], resources: [configmaps], resourceNames: [c], verbs: [list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: one, namespace: %s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: one}
subjects: [{kind: ServiceAccount, name: default, namespace: %s}]`)
	testenv.Eventually(t, "right to take effect", func() error {
		f.setTargets([]Target{c})
		if r, synced := f.Results(owner); !synced || r[0].Status != Current {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
}

func TestResolve(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, c := range map[string]struct {
		apiVersion, kind string
		want             Target
		wantErr          string
	}{
		"well-known kind without a version": {
			kind: "Deployment",
			want: Target{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "ns", Name: "x"},
		},
		"kind with a version": {
			apiVersion: "apps/v1", kind: "StatefulSet",
			want: Target{Group: "apps", Version: "v1", Kind: "StatefulSet", Namespace: "ns", Name: "x"},
		},
		"kind from discovery": {
			kind: "NetworkPolicy",
			want: Target{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy", Namespace: "ns", Name: "x"},
		},
		"cluster-scoped kind has no namespace": {
			kind: "StorageClass", want: Target{Group: "storage.k8s.io", Version: "v1", Kind: "StorageClass", Name: "x"},
		},
		"well-known name in another group": {
			apiVersion: "example.com/v1", kind: "Deployment",
			want: Target{Group: "example.com", Version: "v1", Kind: "Deployment", Namespace: "ns", Name: "x"},
		},
		"kind of several groups": {
			kind: "Event", wantErr: "several groups serve such a kind: v1, events.k8s.io",
		},
		"unknown kind": {kind: "Gizmo", wantErr: "has no apiVersion, and Gizmo is not a well-known kind. Add " +
			"the apiVersion to the entry of spec.healthChecks"},
		"invalid version": {apiVersion: "a/b/c", kind: "Deployment", wantErr: "is invalid. Use group/version, such " +
			"as apps/v1"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := f.Watcher.Resolve(c.apiVersion, c.kind, "ns", "x")
			if c.wantErr == "" && (err != nil || got != c.want) {
				t.Errorf("%+v, %v", got, err)
			}
			if c.wantErr != "" && (err == nil || !strings.Contains(err.Error(), c.wantErr)) {
				t.Errorf("error %v does not contain %q", err, c.wantErr)
			}
		})
	}
}
