package bench

import (
	"flag"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

var touched = flag.Int("touched", 2000, "how many Kustomizations BenchmarkTouch has")

// BenchmarkTouch changes one of many Kustomizations of a repository by a commit, and another one by a further commit
// while the others still note the first. It measures how long each change takes, from the request to fetch it, and
// until all have noted the revision.
func BenchmarkTouch(b *testing.B) {
	f := newFleet(b, *touched, func(app int, version string) []string {
		return []string{configMap(appName(app), version)}
	})
	head := f.commit("1", f.all()...)
	f.declare()
	t := newTable(fmt.Sprintf("%d Kustomizations, two commits that touch one each", *touched), "",
		"the change is applied, s", "all have noted it, s", "status writes", "CPU s", "API server CPU s")
	for b.Loop() {
		wait := f.follow(head)
		p := startController(b, f.namespace)
		wait()
		for round := range 3 {
			quiet(b)
			log, before := testenv.NewAuditLog(b), p.usage()
			f.commit(fmt.Sprint("first", round), 7)
			first := f.pullAndTime(7, fmt.Sprint("first", round))
			head = f.commit(fmt.Sprint("second", round), 1500%*touched)
			wait := f.follow(head)
			second := f.pullAndTime(1500%*touched, fmt.Sprint("second", round))
			wait()
			used := since(before, p.usage())
			statuses := p.requests(log, testenv.Request{Verb: "patch", Resource: "kustomizations",
				Subresource: "status"})
			t.row("first", first.Seconds(), "", "", "", "")
			t.row("second, meanwhile", second.Seconds(), used.took.Seconds(), statuses, used.cpu.Seconds(),
				used.server.Seconds())
		}
		p.stop()
		quiet(b)
		before, start := cpuTime(b, testenv.ClusterPID(b)), time.Now()
		f.noteBare()
		t.row("bare loop of status writes", "", time.Since(start).Seconds(), *touched, "",
			(cpuTime(b, testenv.ClusterPID(b)) - before).Seconds())
	}
}

// noteBare notes another revision in all statuses, without anything else: the least that a commit costs which all
// Kustomizations note.
func (f *fleet) noteBare() {
	f.b.Helper()
	const patch = `{"status":{"lastAppliedRevision":"main@sha1:0000000000000000000000000000000000000000",` +
		`"lastAttemptedRevision":"main@sha1:0000000000000000000000000000000000000000"}}`
	inParallel(f.all(), func(app int) {
		err := f.client.Status().Patch(f.b.Context(), f.kustomization(app),
			client.RawPatch(types.MergePatchType, []byte(patch)))
		if err != nil {
			f.b.Error(err)
		}
	})
}

// pullAndTime asks for a fetch, and returns how long it takes until the ConfigMap of an app has the version.
func (f *fleet) pullAndTime(app int, version string) time.Duration {
	f.b.Helper()
	start := time.Now()
	f.pull()
	name := types.NamespacedName{Namespace: f.namespace, Name: appName(app)}
	for {
		var cm corev1.ConfigMap
		if err := f.client.Get(f.b.Context(), name, &cm); err != nil {
			f.b.Fatal(err)
		}
		if cm.Data["version"] == version {
			return time.Since(start)
		}
		if time.Since(start) > *patient {
			f.b.Fatalf("%s is not applied within %s", name, *patient)
		}
		<-time.After(5 * time.Millisecond)
	}
}
