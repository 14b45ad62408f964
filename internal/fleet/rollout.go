package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// RolloutPath is where clusters ask how far a revision has come. See [Question].
const RolloutPath = "/fleet/v1/rollout"

// maxWaiting is how many clusters an [Rollout] names.
const maxWaiting = 3

// Question asks how far the revisions of a source have come in clusters. The parameters of the request have the names
// of the fields.
type Question struct {
	Labels map[string]string // of the clusters; all clusters without labels
	Share  int               // percent of them that must be Ready at the revision
	Source string            // Kind/namespace/name, in each cluster
	At     string            // a revision, to learn whether it has failed; may be empty
	// Except is the name of a cluster that does not count.
	Except string
}

// Rollout is how far the revisions of a source have come in the clusters of a [Question]. Its size does not depend on
// the number of clusters.
type Rollout struct {
	Time     time.Time `json:"time"`     // of the hub
	Clusters int       `json:"clusters"` // that have the labels
	Needed   int       `json:"needed"`   // clusters that must be Ready at a revision
	// Revision is the one that most clusters are Ready at, or of several with enough clusters the one that got there
	// last. Ready is how many are. Since is when the last one that is needed became Ready, by the clock of the hub;
	// zero if too few are.
	Revision string    `json:"revision,omitempty"`
	Ready    int       `json:"ready"`
	Since    time.Time `json:"since,omitzero"`
	// HasFailed is true if so many clusters are not Ready at the revision that was asked for that the others are too
	// few.
	HasFailed bool     `json:"failed,omitempty"`
	Waiting   []string `json:"waiting,omitempty"` // what some of the other clusters wait for
}

// Answer answers a question about clusters.
func (q Question) Answer(clusters []Cluster, now time.Time) Rollout {
	out := Rollout{Time: now}
	byDigest := map[string][]arrival{}
	failed := 0
	for _, c := range clusters {
		if c.Name == q.Except || !hasLabels(c.Labels, q.Labels) {
			continue
		}
		out.Clusters++
		r, problem := c.at(q.Source)
		if problem == "" {
			d := digest(r.Revision)
			byDigest[d] = append(byDigest[d], arrival{r.Revision, r.Since.Add(-time.Duration(c.Skew) * time.Second)})
			continue
		}
		if r != nil && q.At != "" && digest(r.Revision) == digest(q.At) {
			failed++
		}
		if len(out.Waiting) < maxWaiting {
			out.Waiting = append(out.Waiting, "cluster '"+c.Name+"' "+problem)
		}
	}
	out.Needed = max((out.Clusters*q.Share+99)/100, 1)
	out.HasFailed = failed > 0 && out.Clusters-failed < out.Needed
	for _, d := range slices.Sorted(maps.Keys(byDigest)) {
		out.consider(byDigest[d])
	}
	return out
}

// arrival is when a cluster became Ready at a revision.
type arrival struct {
	revision string
	since    time.Time
}

// consider takes a revision that clusters are Ready at if it is better than the one before.
func (r *Rollout) consider(all []arrival) {
	slices.SortFunc(all, func(a, b arrival) int {
		return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.revision, b.revision))
	})
	var since time.Time
	if len(all) >= r.Needed {
		since = all[r.Needed-1].since
	}
	if since.Before(r.Since) || since.Equal(r.Since) && len(all) <= r.Ready {
		return
	}
	r.Revision, r.Ready, r.Since = all[0].revision, len(all), since
}

// at returns the revision of a source in a cluster, and why the cluster is not Ready at it.
func (c *Cluster) at(source string) (r *Revision, problem string) {
	if c.Summary != nil {
		if i := slices.IndexFunc(c.Summary.Revisions, func(r Revision) bool { return r.Source == source }); i >= 0 {
			r = &c.Summary.Revisions[i]
		}
	}
	switch {
	case c.Status == Expected:
		return nil, "has never reported"
	case c.Status == Silent:
		return nil, "is silent"
	case r == nil:
		return nil, "does not report " + source
	case r.Current < r.Objects || r.Since.IsZero():
		return r, fmt.Sprintf("has %d of %d objects Ready at revision '%s'", r.Current, r.Objects, r.Revision)
	}
	return r, ""
}

// digest returns the part of a revision that identifies its content, such as sha1:<hex> of main@sha1:<hex>.
func digest(revision string) string {
	if _, d, ok := strings.Cut(revision, "@"); ok {
		return d
	}
	return revision
}

func hasLabels(all, wanted map[string]string) bool {
	for key, value := range wanted {
		if got, ok := all[key]; !ok || got != value {
			return false
		}
	}
	return true
}
