// Package state answers what people ask about an installation, from objects that it reads. The command line and the web
// UI print the same answers.
package state

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// clockSkew is how far the clocks of a controller and a reader may differ without an alarm.
	clockSkew = 10 * time.Second
	// leasePrefix begins the names of all Leases of the controllers.
	leasePrefix = "sluice-"
	// nameLabel and name are the label of the Deployments of an installation.
	nameLabel, name = "app.kubernetes.io/name", "sluice"
)

// Problems returns why the controllers of a namespace may not work, in sentences for people: states of objects may be
// old then. It returns none for controllers that run outside of the cluster without leases, and if the reader may not
// read Leases and Deployments.
func Problems(ctx context.Context, c client.Reader, namespace string, now time.Time) []string {
	var problems []string
	var leases coordinationv1.LeaseList
	if err := c.List(ctx, &leases, client.InNamespace(namespace)); err == nil {
		if last := newest(leases.Items); last != nil && isExpired(last, now) {
			renewed := last.Spec.RenewTime.Time
			problems = append(problems, fmt.Sprintf("the controllers have not renewed Lease '%s/%s' for %s: they are "+
				"down, or cannot reach the API server. What you see is the state of %s. Run sluice check", namespace,
				last.Name, now.Sub(renewed).Round(time.Second), renewed.UTC().Format(time.RFC3339)))
		}
	}
	var deployments appsv1.DeploymentList
	err := c.List(ctx, &deployments, client.InNamespace(namespace), client.MatchingLabels{nameLabel: name})
	if err != nil {
		return problems
	}
	for _, d := range deployments.Items {
		if want := ptr.Deref(d.Spec.Replicas, 1); d.Status.AvailableReplicas == 0 {
			problems = append(problems, fmt.Sprintf("Deployment '%s/%s' has 0 of %d replicas available: its "+
				"controllers do not run. Run kubectl -n %s describe pod -l app=%s", namespace, d.Name, want, namespace,
				d.Name))
		}
	}
	return problems
}

// newest returns the Lease of the controllers that was renewed last, or nil. Leases of processes that ended, such as
// those of other replicas, stay behind: only if none is renewed, no controller works.
func newest(leases []coordinationv1.Lease) *coordinationv1.Lease {
	var last *coordinationv1.Lease
	for i := range leases {
		l := &leases[i]
		if strings.HasPrefix(l.Name, leasePrefix) && l.Spec.RenewTime != nil &&
			(last == nil || l.Spec.RenewTime.After(last.Spec.RenewTime.Time)) {
			last = l
		}
	}
	return last
}

// isExpired reports whether the holder of a Lease has lost it.
func isExpired(l *coordinationv1.Lease, now time.Time) bool {
	duration := time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0)) * time.Second
	return l.Spec.RenewTime.Add(duration + clockSkew).Before(now)
}
