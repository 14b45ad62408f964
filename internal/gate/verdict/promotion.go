package verdict

import (
	"time"

	"github.com/sluice-gitops/sluice/internal/gate/promotion"
)

// Promotion is the revision that a check allows.
type Promotion struct {
	Revision string    // allowed now; empty if none is
	Next     string    // allowed from NextAt on, if its objects stay Ready
	NextAt   time.Time // zero: no revision soaks
}

// at returns the revision that is allowed at t; empty if none is.
func (p *Promotion) at(t time.Time) string {
	switch {
	case p == nil:
		return ""
	case !p.NextAt.IsZero() && !t.Before(p.NextAt):
		return p.Next
	}
	return p.Revision
}

// narrow limits an open gate to one revision, and reports whether it is one of those that the gate allows otherwise.
// The content of revisions is compared, not the name of their branch.
func (v *Verdict) narrow(revision string) bool {
	if len(v.Revisions) == 0 {
		v.Revisions = []string{promotion.Digest(revision)}
		return true
	}
	for _, r := range v.Revisions {
		if promotion.Same(r, revision) {
			v.Revisions = []string{r}
			return true
		}
	}
	return false
}
