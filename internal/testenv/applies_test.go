package testenv

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

func TestAppliesAreByObject(t *testing.T) {
	client, err := kubernetes.NewForConfig(Cluster(t))
	if err != nil {
		t.Fatal(err)
	}
	ns := Namespace(t)
	log := NewAuditLog(t)
	apply := func(name string, dryRun ...string) {
		t.Helper()
		text := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q}}`, name)
		if _, err := client.CoreV1().ConfigMaps(ns).Patch(t.Context(), name, types.ApplyPatchType, []byte(text),
			metav1.PatchOptions{FieldManager: "test", DryRun: dryRun}); err != nil {
			t.Fatal(err)
		}
	}
	apply("one", metav1.DryRunAll)
	apply("one")
	apply("one")
	apply("two")
	Eventually(t, "the audit log has the requests", func() error {
		found := log.Applies(t, ns, "configmaps")
		if one, two := len(found["configmaps/one"]), len(found["configmaps/two"]); one != 2 || two != 1 ||
			len(found) != 2 {
			return fmt.Errorf("%d and %d applies of %d objects, want 2 and 1 of 2", one, two, len(found))
		}
		return nil
	})
	if found := log.Applies(t, ns, "secrets"); len(found) != 0 {
		t.Errorf("applies of secrets: %v", found)
	}
}

func TestRecordedBetween(t *testing.T) {
	at := func(received, answered int, agent string) Request {
		start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		return Request{UserAgent: agent, Received: start.Add(time.Duration(received) * time.Second),
			Answered: start.Add(time.Duration(answered) * time.Second)}
	}
	apply, again := at(10, 12, "a"), at(20, 22, "b")
	for name, c := range map[string]struct {
		status Request
		want   bool
	}{
		"between":                       {at(13, 14, "a"), true},
		"before the apply":              {at(8, 9, "a"), false},
		"sent before the answer":        {at(11, 14, "a"), false},
		"answered after the next apply": {at(19, 21, "a"), false},
		"of another process":            {at(13, 14, "b"), false},
	} {
		if _, got := RecordedBetween(apply, again, []Request{c.status}); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
