package health

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

const claim = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: %s, annotations: {playground.sluice.dev/fail: pending}}
spec: {accessModes: [ReadWriteOnce], storageClassName: none, resources: {requests: {storage: 1Gi}}}
`

// warn records an event about an object, as the controllers of the cluster do.
func (f *fixture) warn(t Target, name, kind, reason, message, at string) {
	f.t.Helper()
	m, err := f.mapper.RESTMapping(t.groupKind(), t.Version)
	if err != nil {
		f.t.Fatal(err)
	}
	o, err := f.admin.Resource(m.Resource).Namespace(t.Namespace).Get(context.Background(), t.Name, metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	f.apply(fmt.Sprintf(`apiVersion: v1
kind: Event
metadata: {name: %s, namespace: "%%s"}
involvedObject: {kind: %s, name: %s, namespace: "%%s", uid: %s}
type: %s
reason: %s
message: %q
lastTimestamp: %q
`, name, t.Kind, t.Name, o.GetUID(), kind, reason, message, at))
}

func TestVolumesThatDoNotComeAreExplained(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.apply(claim)
	data := f.target("", "v1", "PersistentVolumeClaim", "data")
	f.ask([]Target{data})
	waiting := f.await(data, InProgress)
	f.warn(data, "first", "Warning", "ProvisioningFailed", `storageclass "old" not found`, "2026-11-21T12:00:00Z")
	f.warn(data, "second", "Warning", "ProvisioningFailed", `storageclass "none" not found`+strings.Repeat(".", 2000),
		"2026-11-21T12:00:01Z")
	f.warn(data, "third", "Normal", "WaitForFirstConsumer", "waiting", "2026-11-21T12:00:02Z")
	said := f.Explain(context.Background(), waiting)
	if !strings.Contains(said, `ProvisioningFailed: storageclass "none" not found`) || len(said) > 600 {
		t.Errorf("it says %q", said)
	}
}

func TestObjectsThatGoWhileTheyAreWaitedFor(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.apply(deployment)
	target := f.target("apps", "v1", "Deployment", "app")
	f.ask([]Target{target})
	f.await(target, Current)
	f.remove(target)
	if said := f.Explain(context.Background(), f.await(target, NotFound)); !strings.Contains(said, "no such object") {
		t.Errorf("it says %q", said)
	}
}

func TestAThousandObjectsAreWatchedAndNotAsked(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const many = 1000
	var targets []Target
	for i := range many {
		targets = append(targets, f.target("", "v1", "ConfigMap", fmt.Sprintf("c%d", i)))
	}
	f.ask(targets)
	testenv.Eventually(t, "the watch begins", func() error {
		if _, synced := f.Results(owner); !synced {
			return fmt.Errorf("not observed yet")
		}
		return nil
	})
	for i := range many {
		f.apply(fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%d, namespace: %%s}\n", i))
	}
	testenv.Eventually(t, "all are there", func() error {
		results, _ := f.Results(owner)
		for _, r := range results {
			if r.Status != Current {
				return fmt.Errorf("%+v", r)
			}
		}
		return nil
	})
	const few = 20 // lists where the server cannot stream them, and watches that it ended
	if asked, watches := f.requests.Load(), f.opened.Load(); asked > few || watches > few {
		t.Errorf("%d requests and %d watches", asked, watches)
	}
}
