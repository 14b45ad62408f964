package review

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluice-gitops/sluice/internal/githost"
)

const (
	// refreshPeriod is the least time between two reviews of a pull request that did not change itself, and after a
	// failure.
	refreshPeriod = 10 * time.Minute
	maxPulls      = 500 // of a repository that are reviewed, the newest
)

// inputs are what the result of a review depends on.
type inputs struct {
	head    string // as the host lists it
	base    string // commit of the branch that the pull request lands on
	cluster string // digest of its state
	trusted bool
}

// known is what is known of a pull request.
type known struct {
	inputs  inputs
	at      time.Time // of the last review; zero if there was none
	failed  bool      // for a reason that may go away
	running bool
	backlog string // head when the service started: other ones were pushed since then
	evicted bool   // a person asked for details that were evicted
}

// job is a review to make.
type job struct {
	number int
	inputs inputs
	urgent bool // a person waits for it
	pushed bool // the commit was not reviewed before
}

// plan is what to do about the pull requests of a repository.
type plan struct {
	jobs   []job // the urgent ones first
	open   map[int]githost.ListedRequest
	forget []int // closed, merged, or for other branches
}

// decide returns what to review. Bases are the commits of branches; one that is missing does not count as changed.
func decide(r *Repository, listed []githost.ListedRequest, bases map[string]string, cluster string, has map[int]known,
	now time.Time) plan {
	p := plan{open: map[int]githost.ListedRequest{}}
	slices.SortFunc(listed, func(a, b githost.ListedRequest) int { return cmp.Compare(b.Number, a.Number) })
	for _, l := range listed {
		number := int(l.Number)
		if !r.reviews(l.Base) || len(p.open) == maxPulls {
			continue
		}
		p.open[number] = l
		k := has[number]
		want := inputs{head: l.Commit, base: cmp.Or(bases[l.Base], k.inputs.base), cluster: cluster,
			trusted: r.allows(l.Login, l.Branch)}
		if urgent, due := k.due(want, now); due {
			p.jobs = append(p.jobs, job{number: number, inputs: want, urgent: urgent,
				pushed: k.inputs.head != want.head})
		}
	}
	for number := range has {
		if _, ok := p.open[number]; !ok {
			p.forget = append(p.forget, number)
		}
	}
	slices.Sort(p.forget)
	slices.SortStableFunc(p.jobs, func(a, b job) int { return cmp.Compare(rank(a), rank(b)) })
	return p
}

// rank orders jobs: urgent ones come first, and strangers do not delay others.
func rank(j job) int {
	switch {
	case j.isFirst():
		return 0
	case j.urgent:
		return 1
	}
	return 2
}

// isFirst reports whether an allowed author waits for the review.
func (j job) isFirst() bool { return j.urgent && j.inputs.trusted }

// due reports whether a pull request is reviewed now, and whether a person waits for it.
func (k known) due(want inputs, now time.Time) (urgent, due bool) {
	switch {
	case k.running:
		return false, false // its end causes another look
	case k.at.IsZero() && k.backlog == want.head:
		return false, true
	case k.at.IsZero(), k.inputs.head != want.head, k.inputs.trusted != want.trusted, k.evicted:
		return true, true
	case k.inputs.base != want.base:
		return false, true
	case k.inputs.cluster != want.cluster, k.failed:
		return false, now.Sub(k.at) >= refreshPeriod
	}
	return false, false
}
