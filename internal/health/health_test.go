package health

import (
	"context"
	"fmt"
	"strings"
	"testing"

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

func failing(how string) string {
	return strings.ReplaceAll(deployment, "labels: {app: app}}\n    spec",
		"labels: {app: app}, annotations: {playground.sluice.dev/fail: "+how+"}}\n    spec")
}

func TestADeploymentComesUpAndGoesDown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	app := f.target("apps", "v1", "Deployment", "app")
	f.ask([]Target{app})
	f.await(app, NotFound)
	f.apply(deployment)
	f.await(app, Current)
	before := f.requests.Load()
	f.apply(failing("not-ready"))
	f.await(app, InProgress)
	f.apply(deployment)
	f.await(app, Current)
	f.remove(app)
	f.await(app, NotFound)
	if n := f.requests.Load() - before; n != 0 {
		t.Errorf("%d requests beside the watch", n)
	}
	f.Forget(owner)
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.watches) != 0 || len(f.owners) != 0 {
		t.Errorf("left behind: %v", f.watches)
	}
}

func TestFailuresAreExplained(t *testing.T) {
	for name, c := range map[string]struct{ object, kind, says string }{
		"an image that is not there": {failing("image-pull"), "Deployment", "ImagePullBackOff"},
		"a container that crashes":   {failing("crash-loop"), "Deployment", "CrashLoopBackOff"},
		"no node with room":          {failing("pending"), "Deployment", "0/"},
		"a pod that is not ready":    {failing("not-ready"), "Deployment", "readiness probe"},
		"a quota that admits no pod": {
			"apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: none, namespace: %s}\n" +
				"spec: {hard: {pods: \"0\"}}\n---\n" + deployment, "Deployment", "exceeded quota",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			target := f.target("apps", "v1", c.kind, "app")
			f.apply(c.object)
			f.ask([]Target{target})
			testenv.Eventually(t, "explanation", func() error {
				results, _ := f.Results(owner)
				if said := f.Explain(context.Background(), results[0]); !strings.Contains(said, c.says) {
					return fmt.Errorf("%+v: %q does not say %q", results[0], said, c.says)
				}
				return nil
			})
		})
	}
}

func TestJobs(t *testing.T) {
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
	make := func(name, fail, suspend string) {
		f.apply(strings.NewReplacer("%n", name, "%f", fail, "%p", suspend).Replace(job))
	}
	make("good", "", "false")
	make("bad", "job-failed", "false")
	make("suspended", "", "true")
	good, bad, suspended := f.target("batch", "v1", "Job", "good"), f.target("batch", "v1", "Job", "bad"),
		f.target("batch", "v1", "Job", "suspended")
	f.ask([]Target{good, bad, suspended})
	f.await(good, Current)
	f.await(suspended, Current)
	said := f.Explain(context.Background(), f.await(bad, Failed))
	if !strings.Contains(said, "exit code 1") {
		t.Errorf("%q does not say why", said)
	}
}

func TestWhatFailedBeforeItWent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	target := f.target("batch", "v1", "Job", "bad")
	text := "apiVersion: batch/v1\nkind: Job\nmetadata: {name: bad, namespace: %s}\n" +
		"spec: {backoffLimit: 0, template: {metadata: {annotations: {playground.sluice.dev/fail: job-failed}}, " +
		"spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}\n"
	f.apply(text)
	f.ask([]Target{target})
	f.await(target, Failed)
	f.remove(target)
	if r := f.await(target, NotFound); !r.HadFailed {
		t.Errorf("%+v", r)
	}
	f.ExpectVersion(owner, target, "1")
	if r, _ := f.Results(owner); len(r) != 1 || r[0].HadFailed {
		t.Errorf("once it was written anew: %+v", r)
	}
}

func TestKindsWithoutStatusAreCurrent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: %s}\n---\n" +
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: health-%s}\n---\n" +
		"apiVersion: v1\nkind: Service\nmetadata: {name: s, namespace: %s}\nspec: {ports: [{port: 80}]}")
	role := Target{"rbac.authorization.k8s.io", "v1", "ClusterRole", "", "health-" + f.ns}
	t.Cleanup(func() { f.remove(role) })
	targets := []Target{f.target("", "v1", "ConfigMap", "c"), f.target("", "v1", "Service", "s"), role}
	f.ask(targets)
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
  - {name: v1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

func TestExpressionsSayWhatIsHealthy(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	gadget := f.target(f.ns+".example.com", "v1", "Gadget", "g")
	f.apply(gadgets)
	definition := Target{"apiextensions.k8s.io", "v1", "CustomResourceDefinition", "", "gadgets." + f.ns +
		".example.com"}
	t.Cleanup(func() { f.remove(definition) })
	check, err := NewCheck(f.ns+".example.com/v1", "Gadget", "status.phase == 'Bound'", "status.phase == 'Pending'",
		"status.phase == 'Lost'")
	if err != nil {
		t.Fatal(err)
	}
	f.ask([]Target{gadget}, check)
	f.waitChanged()
	f.ask([]Target{gadget}, check)
	f.apply("apiVersion: %s.example.com/v1\nkind: Gadget\nmetadata: {name: g, namespace: %s}")
	if r := f.await(gadget, InProgress); !strings.Contains(r.Message, "no such") {
		t.Errorf("without a status: %q", r.Message)
	}
	for _, c := range []struct{ status, want string }{
		{`{"phase":"Pending"}`, InProgress}, {`{"phase":"Bound"}`, Current}, {`{"phase":"Lost"}`, Failed},
		{`{"phase":"Bound","observedGeneration":7}`, InProgress}, {`{"phase":"Bound","observedGeneration":1}`, Current},
	} {
		f.setStatus(gadget, `{"status":`+c.status+`}`)
		f.await(gadget, c.want)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.watches) != 1 {
		t.Errorf("watches %v", f.watches)
	}
}

func TestAWrongExpressionIsToldByItsField(t *testing.T) {
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

func TestAKindThatIsInstalledLater(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	gadget := f.target(f.ns+".example.com", "v1", "Gadget", "g")
	f.ask([]Target{gadget})
	r := f.await(gadget, NotFound)
	if !strings.Contains(r.Message, "does not serve kind Gadget") {
		t.Errorf("message %q", r.Message)
	}
	drain(f.changed)
	f.apply(gadgets)
	definition := Target{"apiextensions.k8s.io", "v1", "CustomResourceDefinition", "", "gadgets." + f.ns +
		".example.com"}
	t.Cleanup(func() { f.remove(definition) })
	f.waitChanged()
	f.ask([]Target{gadget}) // as an owner does that is told
	f.apply("apiVersion: %s.example.com/v1\nkind: Gadget\nmetadata: {name: g, namespace: %s}")
	f.await(gadget, Current) // it has no conditions

	f.setStatus(gadget, `{"status":{"observedGeneration":0,"conditions":[{"type":"Ready","status":"True"}]}}`)
	f.await(gadget, InProgress)
	f.setStatus(gadget, `{"status":{"observedGeneration":1,"conditions":[{"type":"Ready","status":"True"}]}}`)
	f.await(gadget, Current)
	f.setStatus(gadget, `{"status":{"observedGeneration":1,"conditions":[{"type":"Ready","status":"False","message":"no luck"},{"type":"Stalled","status":"True","message":"no luck"}]}}`)
	if r := f.await(gadget, Failed); !strings.Contains(r.Message, "no luck") {
		t.Errorf("message %q", r.Message)
	}
	f.mu.Lock()
	if len(f.watches) != 1 {
		t.Errorf("watches %v", f.watches)
	}
	f.mu.Unlock()
	t.Run("a kind whose group is not named is found", func(t *testing.T) {
		got, err := f.Watcher.Resolve("", "Gadget", f.ns, "g")
		// other tests have one too
		if err == nil && got != gadget || err != nil && !strings.Contains(err.Error(), f.ns+".example.com") {
			t.Errorf("%v, %v", got, err)
		}
	})
}

func TestWatchesAreShared(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var many []Target
	for n := range 5 {
		name := fmt.Sprintf("c%d", n)
		f.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", namespace: %s}")
		many = append(many, f.target("", "v1", "ConfigMap", name))
	}
	f.ask(many)
	f.SetTargets("team/other", many[1:])
	f.SetTargets("team/single", many[:1])
	for _, target := range many {
		f.await(target, Current)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.watches) != 2 { // all of the namespace, and the one alone
		t.Errorf("watches %v", f.watches)
	}
}

func TestWhatIsOlderThanTheApplyIsNotTold(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: %s}")
	c := f.target("", "v1", "ConfigMap", "c")
	f.ask([]Target{c})
	f.await(c, Current)
	f.mu.Lock()
	version := f.owners[owner][c].watch.seen[types.NamespacedName{Namespace: f.ns, Name: "c"}].version
	f.mu.Unlock()
	f.ExpectVersion(owner, c, version)
	f.await(c, Current)
	f.ExpectVersion(owner, c, "1"+version)
	f.await(c, InProgress)
	f.ExpectVersion(owner, f.target("", "v1", "ConfigMap", "other"), version) // not asked for
	f.ExpectVersion(owner, c, version)
	f.await(c, Current)
}

func TestARightThatIsMissing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "system:serviceaccount:%s:default")
	c := f.target("", "v1", "ConfigMap", "c")
	f.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: %s}")
	f.ask([]Target{c})
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
	testenv.Eventually(t, "the right", func() error {
		f.ask([]Target{c})
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
		fault            string
	}{
		"a Deployment without a version": {"", "Deployment", Target{"apps", "v1", "Deployment", "ns", "x"}, ""},
		"a kind with a version": {"apps/v1", "StatefulSet",
			Target{"apps", "v1", "StatefulSet", "ns", "x"}, ""},
		"a kind that only the cluster knows": {"", "NetworkPolicy",
			Target{"networking.k8s.io", "v1", "NetworkPolicy", "ns", "x"}, ""},
		"a kind of the cluster has no namespace": {"", "StorageClass",
			Target{"storage.k8s.io", "v1", "StorageClass", "", "x"}, ""},
		"a kind of another group by version": {"example.com/v1", "Deployment",
			Target{"example.com", "v1", "Deployment", "ns", "x"}, ""},
		"a kind of several groups": {"", "Event", Target{},
			"several groups have such a kind: v1, events.k8s.io"},
		"a kind that nobody knows":      {"", "Gizmo", Target{}, "names no apiVersion"},
		"a version that cannot be read": {"a/b/c", "Deployment", Target{}, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := f.Watcher.Resolve(c.apiVersion, c.kind, "ns", "x")
			if c.fault == "" && (err != nil || got != c.want) {
				t.Errorf("%+v, %v", got, err)
			}
			if c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)) {
				t.Errorf("%v does not say %q", err, c.fault)
			}
		})
	}
}
