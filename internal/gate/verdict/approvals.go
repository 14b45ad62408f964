package verdict

import (
	"fmt"
	"maps"
	"slices"
	"time"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
)

// Approval is one person's word, by a name that the API server vouches for.
type Approval struct {
	Name      string
	User      string
	Groups    []string
	At        time.Time
	ExpiresAt time.Time // zero: it does not say
	Revision  string    // any when empty
	Withdrawn bool
	Distrust  string // why the API server does not vouch for it, if it does not
}

// Rule says whose approvals a gate needs.
type Rule struct {
	Required      int
	Users, Groups []string
	ValidFor      time.Duration // of approvals that set no end; zero: until they are withdrawn
}

// until returns when an approval no longer counts for its age; zero: never.
func (r Rule) until(a Approval) time.Time {
	switch {
	case !a.ExpiresAt.IsZero():
		return a.ExpiresAt
	case r.ValidFor > 0:
		return a.At.Add(r.ValidFor)
	default:
		return time.Time{}
	}
}

// objection says why an approval does not count at t; empty when it does. An earlier close took back what was
// approved before it.
func (r Rule) objection(a Approval, closed, t time.Time) string {
	until := r.until(a)
	switch {
	case a.Distrust != "":
		return a.Distrust
	case a.Withdrawn:
		return "it was withdrawn"
	case a.At.After(t):
		return "it is of a time to come"
	case !until.IsZero() && !until.After(t):
		return "it expired"
	case !closed.IsZero() && !a.At.After(closed):
		return "the gate was closed after it"
	case len(r.Users)+len(r.Groups) > 0 && !slices.Contains(r.Users, a.User) &&
		!slices.ContainsFunc(a.Groups, func(g string) bool { return slices.Contains(r.Groups, g) }):
		return "its author is none of those who may approve"
	}
	return ""
}

// tally is what approvals come to.
type tally struct {
	all       bool     // there are enough for any revision
	revisions []string // or for these
	users     []string // who approved
	most      int      // approvals that count for one revision, the most of all
}

func (t tally) enough() bool { return t.all || len(t.revisions) > 0 }

// count counts the authors who approve at t, for each revision; one who approves twice counts once.
func (r Rule) count(approvals []Approval, closed, t time.Time) tally {
	authors := map[string]map[string]bool{"": {}} // by revision
	everyone := map[string]bool{}
	for _, a := range approvals {
		if r.objection(a, closed, t) == "" {
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

// observe lists approvals with what becomes of them, the newest first.
func (r Rule) observe(approvals []Approval, closed, t time.Time) []gatingv1.ObservedApproval {
	approvals = slices.Clone(approvals)
	slices.SortFunc(approvals, func(a, b Approval) int {
		if c := b.At.Compare(a.At); c != 0 {
			return c
		}
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	var all []gatingv1.ObservedApproval
	for _, a := range approvals[:min(len(approvals), gatingv1.MaxApprovals)] {
		o := gatingv1.ObservedApproval{Name: a.Name, User: clip(a.User), At: at(a.At), Revision: a.Revision,
			Message: r.objection(a, closed, t)}
		o.Counts = o.Message == ""
		if until := r.until(a); !until.IsZero() {
			u := at(until)
			o.Until = &u
		}
		all = append(all, o)
	}
	return all
}

func (r Rule) missing(t tally) string { return fmt.Sprintf("%d of %d approvals", t.most, r.Required) }
