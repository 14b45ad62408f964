package verdict

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
)

// Approval is the approval of one user.
type Approval struct {
	Name       string
	User       string
	Groups     []string
	At         time.Time
	ExpiresAt  time.Time // zero: the approval sets no end
	Revision   string    // empty: any
	Changes    []string  // digests; if there are any, an empty revision approves nothing else
	Withdrawn  bool
	Unverified string // why the author cannot be trusted; empty: the API server verified it
}

// isForChanges reports whether the approval is for the changes that it names only, not for a revision.
func (a Approval) isForChanges() bool { return a.Revision == "" && len(a.Changes) > 0 }

// Rule is the approvals that a gate requires.
type Rule struct {
	Required      int
	Users, Groups []string      // who may approve; anybody if both are empty
	ValidFor      time.Duration // of approvals that set no end; zero: until they are withdrawn
}

// expiry returns when an approval expires; zero: never.
func (r Rule) expiry(a Approval) time.Time {
	switch {
	case !a.ExpiresAt.IsZero():
		return a.ExpiresAt
	case r.ValidFor > 0:
		return a.At.Add(r.ValidFor)
	default:
		return time.Time{}
	}
}

// objection returns why an approval does not count at t; empty if it counts. Closed is when the gate was last closed by
// a request, which revokes earlier approvals.
func (r Rule) objection(a Approval, closed, t time.Time) string {
	expiry := r.expiry(a)
	switch {
	case a.Unverified != "":
		return a.Unverified
	case a.Withdrawn:
		return "withdrawn"
	case a.At.After(t):
		return "its creation time is in the future"
	case !expiry.IsZero() && !expiry.After(t):
		return "expired"
	case !closed.IsZero() && !a.At.After(closed):
		return "created before the gate was closed; approve again"
	case len(r.Users)+len(r.Groups) > 0 && !slices.Contains(r.Users, a.User) &&
		!slices.ContainsFunc(a.Groups, func(g string) bool { return slices.Contains(r.Groups, g) }):
		return fmt.Sprintf("user '%s' is not an approver of this gate", clip(a.User))
	}
	return ""
}

// tally is the count of the approvals that a gate has.
type tally struct {
	all       bool     // there are enough approvals for any revision
	revisions []string // the revisions with enough approvals, if all is false
	users     []string // who approved
	most      int      // the highest number of approvals of one revision
}

func (t tally) enough() bool { return t.all || len(t.revisions) > 0 }

// count counts the users who approve at t, by revision. A user who approves twice counts once.
func (r Rule) count(approvals []Approval, closed, t time.Time) tally {
	authors := map[string]map[string]bool{"": {}} // users by revision
	everyone := map[string]bool{}
	for _, a := range approvals {
		if r.objection(a, closed, t) == "" && !a.isForChanges() {
			if authors[a.Revision] == nil {
				authors[a.Revision] = map[string]bool{}
			}
			authors[a.Revision][a.User], everyone[a.User] = true, true
		}
	}
	result := tally{users: slices.Sorted(maps.Keys(everyone)), most: len(authors[""]),
		all: len(authors[""]) >= r.Required}
	for revision, users := range authors {
		maps.Copy(users, authors[""])
		result.most = max(result.most, len(users))
		if revision != "" && len(users) >= r.Required && !result.all {
			result.revisions = append(result.revisions, revision)
		}
	}
	slices.Sort(result.revisions)
	return result
}

// Observe returns the approvals for the status, newest first.
func (r Rule) Observe(approvals []Approval, closed, t time.Time) []gatingv1.ObservedApproval {
	approvals = slices.Clone(approvals)
	slices.SortFunc(approvals, func(a, b Approval) int {
		return cmp.Or(b.At.Compare(a.At), strings.Compare(a.Name, b.Name))
	})
	var all []gatingv1.ObservedApproval
	for _, a := range approvals[:min(len(approvals), gatingv1.MaxApprovals)] {
		o := gatingv1.ObservedApproval{Name: a.Name, User: clip(a.User), At: seconds(a.At), Revision: a.Revision,
			Message: r.objection(a, closed, t)}
		o.Counts = o.Message == ""
		if expiry := r.expiry(a); !expiry.IsZero() {
			until := seconds(expiry)
			o.Until = &until
		}
		all = append(all, o)
	}
	return all
}

func (r Rule) missing(t tally) string { return fmt.Sprintf("%d of %d approvals", t.most, r.Required) }

// ApprovedChange is a change that enough users approve.
type ApprovedChange struct {
	Digest string
	Until  time.Time // when too few approvals are left; zero: unknown
}

// Changes returns the changes that enough users approve at t, by digest. An approval counts for the changes that it
// names only: one of a whole revision does not say what its user has seen.
func (r Rule) Changes(approvals []Approval, closed, t time.Time) []ApprovedChange {
	expiries := map[string]map[string]time.Time{} // by change and user
	for _, a := range approvals {
		if r.objection(a, closed, t) != "" {
			continue
		}
		for _, change := range a.Changes {
			if expiries[change] == nil {
				expiries[change] = map[string]time.Time{}
			}
			if before, ok := expiries[change][a.User]; !ok || later(r.expiry(a), before) {
				expiries[change][a.User] = r.expiry(a)
			}
		}
	}
	var out []ApprovedChange
	for change, users := range expiries {
		if len(users) < r.Required {
			continue
		}
		ends := slices.SortedFunc(maps.Values(users), func(x, y time.Time) int {
			switch {
			case later(x, y):
				return -1
			case later(y, x):
				return 1
			}
			return 0
		})
		out = append(out, ApprovedChange{Digest: change, Until: ends[r.Required-1]})
	}
	slices.SortFunc(out, func(x, y ApprovedChange) int { return strings.Compare(x.Digest, y.Digest) })
	return out
}

// later reports whether an expiry is later than another. Zero is never.
func later(x, y time.Time) bool { return !y.IsZero() && (x.IsZero() || x.After(y)) }
