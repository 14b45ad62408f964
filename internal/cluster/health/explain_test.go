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

// createEvent creates an event about an object.
func (f *fixture) createEvent(t Target, name, kind, reason, message, at string) {
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

func TestExplainReturnsLastWarningOfVolume(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.apply(claim)
	data := f.target("", "v1", "PersistentVolumeClaim", "data")
	f.setTargets([]Target{data})
	waiting := f.await(data, InProgress)
	f.createEvent(data, "first", "Warning", "ProvisioningFailed", `storageclass "old" not found`,
		"2026-11-21T12:00:00Z")
	f.createEvent(data, "second", "Warning", "ProvisioningFailed", `storageclass "none" not found`+
		strings.Repeat(".", 2000),
		"2026-11-21T12:00:01Z")
	f.createEvent(data, "third", "Normal", "WaitForFirstConsumer", "waiting", "2026-11-21T12:00:02Z")
	got := f.Explain(context.Background(), waiting)
	if !strings.Contains(got, `ProvisioningFailed: storageclass "none" not found`) || len(got) > 600 {
		t.Errorf("got %q", got)
	}
}

func TestExplainDeletedObject(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.apply(deployment)
	target := f.target("apps", "v1", "Deployment", "app")
	f.setTargets([]Target{target})
	f.await(target, Current)
	f.remove(target)
	if got := f.Explain(context.Background(), f.await(target, NotFound)); !strings.Contains(got, "does not exist") {
		t.Errorf("got %q", got)
	}
}

func TestThousandObjectsNeedFewRequests(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const many = 1000
	var targets []Target
	for i := range many {
		targets = append(targets, f.target("", "v1", "ConfigMap", fmt.Sprintf("c%d", i)))
	}
	f.setTargets(targets)
	testenv.Eventually(t, "first list", func() error {
		if _, synced := f.Results(owner); !synced {
			return fmt.Errorf("not observed yet")
		}
		return nil
	})
	for i := range many {
		f.apply(fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%d, namespace: %%s}\n", i))
	}
	testenv.Eventually(t, "all objects to be current", func() error {
		results, _ := f.Results(owner)
		for _, r := range results {
			if r.Status != Current {
				return fmt.Errorf("%+v", r)
			}
		}
		return nil
	})
	const few = 20 // lists if the server does not stream them, and watches that the server ended
	if requests, watches := f.requests.Load(), f.opened.Load(); requests > few || watches > few {
		t.Errorf("%d requests and %d watches", requests, watches)
	}
}
