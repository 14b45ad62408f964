package state

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestProblems(t *testing.T) {
	now := time.Date(2026, 11, 28, 14, 2, 42, 0, time.UTC)
	lease := func(name string, ago time.Duration) client.Object {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: name},
			Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: ptr.To[int32](15),
				RenewTime: ptr.To(metav1.NewMicroTime(now.Add(-ago)))}}
	}
	deployment := func(available int32) client.Object {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "sluice",
			Labels: map[string]string{nameLabel: name}}, Status: appsv1.DeploymentStatus{AvailableReplicas: available}}
	}
	for label, c := range map[string]struct {
		objects []client.Object
		want    []string
	}{
		"nothing is installed": {},
		"works": {
			objects: []client.Object{lease("sluice-leader-election", 20*time.Second), deployment(1)}},
		"a replica ended, others work": {
			objects: []client.Object{lease("sluice-replica-a", time.Hour),
				lease("sluice-replica-b", time.Second)}},
		"the lease of another program": {objects: []client.Object{lease("other", time.Hour)}},
		"dead": {objects: []client.Object{lease("sluice-leader-election", 42*time.Second), deployment(1)},
			want: []string{"have not renewed Lease 'flux-system/sluice-leader-election' for 42s"}},
		"the time of the last state": {objects: []client.Object{lease("sluice-leader-election", 42*time.Second)},
			want: []string{"the state of 2026-11-28T14:02:00Z"}},
		"no replica is available": {objects: []client.Object{deployment(0)},
			want: []string{"0 of 1 replicas available"}},
	} {
		t.Run(label, func(t *testing.T) {
			got := Problems(t.Context(), fake.NewClientBuilder().WithObjects(c.objects...).Build(), "flux-system", now)
			if len(got) != len(c.want) {
				t.Fatalf("got %q, want %q", got, c.want)
			}
			for i := range got {
				if !strings.Contains(got[i], c.want[i]) {
					t.Errorf("got %q, want %q", got[i], c.want[i])
				}
			}
		})
	}
}
