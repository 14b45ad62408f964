package promotion

import (
	"fmt"
	"strings"
	"time"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/fleet"
)

// CheckOfClusters returns what a check of clusters asks for.
func CheckOfClusters(c *gatingv1.ClustersCheck, maxGap time.Duration) Check {
	asked := *c
	asked.Soak, asked.OnHubLost = nil, ""
	return newCheck(asked, c.Soak, maxGap)
}

// ClusterMembers returns the clusters of an answer as one member, which is Ready at a revision when enough of them are.
// At is the revision that the hub was asked about. The time since when they are Ready is on the clock of now.
func ClusterMembers(r *fleet.Rollout, at string, now time.Time) []Member {
	if r.Clusters == 0 {
		return nil
	}
	if !r.Since.IsZero() {
		return []Member{{Name: fmt.Sprintf("a share of %d of %d clusters", r.Ready, r.Clusters), Revision: r.Revision,
			Identity: r.Revision + " " + r.Since.UTC().Format(time.RFC3339Nano), Since: now.Add(r.Since.Sub(r.Time))}}
	}
	m := Member{Name: fmt.Sprintf("of %d clusters", r.Clusters),
		Problem: fmt.Sprintf("%d must be Ready at one revision, and %d are", r.Needed, r.Ready)}
	if len(r.Waiting) > 0 {
		m.Problem += ": " + strings.Join(r.Waiting, ", ")
	}
	if r.HasFailed {
		m.Revision = at
	}
	return []Member{m}
}
