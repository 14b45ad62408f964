package state

import (
	"context"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxControllers is how many Deployments, and how many Leases, are listed.
const maxControllers = 50

// Deployed is a Deployment of the controllers.
type Deployed struct {
	Name    string `json:"name"`
	Ready   int32  `json:"ready"`
	Desired int32  `json:"desired"`
}

// Leader is a process that holds a Lease of the controllers.
type Leader struct {
	Lease   string    `json:"lease"`
	Holder  string    `json:"holder"`
	Renewed time.Time `json:"renewed"`
	Lost    bool      `json:"lost"` // not renewed in time, so no process leads
}

// Controllers are the processes of an installation.
type Controllers struct {
	Deployments []Deployed `json:"deployments"`
	Leaders     []Leader   `json:"leaders"`
	Hidden      []string   `json:"hidden"` // why something is not known
}

// ReadControllers reads the Deployments and Leases of the controllers of a namespace, and notes what is hidden from the
// reader.
func ReadControllers(ctx context.Context, c client.Reader, namespace string, now time.Time) *Controllers {
	found := &Controllers{Deployments: []Deployed{}, Leaders: []Leader{}, Hidden: []string{}}
	var deployments appsv1.DeploymentList
	err := c.List(ctx, &deployments, client.InNamespace(namespace), client.MatchingLabels{nameLabel: name},
		client.Limit(maxControllers))
	if err != nil {
		found.Hidden = append(found.Hidden, "you may not list Deployments in namespace '"+namespace+"'")
	}
	for _, d := range deployments.Items {
		found.Deployments = append(found.Deployments, Deployed{Name: d.Name, Ready: d.Status.ReadyReplicas,
			Desired: ptr.Deref(d.Spec.Replicas, 1)})
	}
	var leases coordinationv1.LeaseList
	if err := c.List(ctx, &leases, client.InNamespace(namespace)); err != nil {
		found.Hidden = append(found.Hidden, "you may not list Leases in namespace '"+namespace+"'")
	}
	for _, l := range leases.Items {
		if strings.HasPrefix(l.Name, leasePrefix) && l.Spec.RenewTime != nil && len(found.Leaders) < maxControllers {
			found.Leaders = append(found.Leaders, Leader{Lease: l.Name, Holder: ptr.Deref(l.Spec.HolderIdentity, ""),
				Renewed: l.Spec.RenewTime.Time, Lost: isExpired(&l, now)})
		}
	}
	found.Leaders = current(found.Leaders)
	return found
}

// current returns the Leases that are held, by their renewal; the last one if none is. The Leases of processes that
// ended stay behind.
func current(leaders []Leader) []Leader {
	slices.SortStableFunc(leaders, func(a, b Leader) int { return b.Renewed.Compare(a.Renewed) })
	held := slices.DeleteFunc(slices.Clone(leaders), func(l Leader) bool { return l.Lost })
	if len(held) == 0 {
		return leaders[:min(len(leaders), 1)]
	}
	return held
}
