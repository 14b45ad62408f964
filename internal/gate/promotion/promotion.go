// Package promotion decides which revision a check of revisions allows: the last one that all its objects have been
// Ready at for long enough. The result depends only on what was recorded before, on the objects, and on the time.
package promotion

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
)

// Member is one object of a check.
type Member struct {
	Name     string // for messages, such as Kustomization 'staging/app'
	Revision string // that it is Ready at, or else that it was last moving to; empty if there is none
	Problem  string // why it is not Ready at the revision for its current generation, such as "is suspended"
	Identity string // changes with the object, its generation, and each interruption of its readiness
	// Since is when it became Ready at the revision, if that is known. Otherwise it counts from the first observation.
	Since time.Time
}

// Check is what a check asks for.
type Check struct {
	Definition string // of the objects
	Soak       time.Duration
	// MaxGap is for how long the objects may be unobserved. A longer time does not count as Ready.
	MaxGap time.Duration
}

// CheckOf returns what a check of a gate asks for.
func CheckOf(c *gatingv1.RevisionCheck, maxGap time.Duration) Check {
	asked := *c
	asked.Soak = nil
	return newCheck(asked, c.Soak, maxGap)
}

func newCheck(asked any, soak *meta.Duration, maxGap time.Duration) Check {
	definition, err := json.Marshal(asked)
	if err != nil {
		definition = nil // cannot happen: the types have no other form
	}
	out := Check{Definition: string(definition), MaxGap: maxGap}
	if soak != nil {
		out.Soak = max(soak.Duration, 0)
	}
	return out
}

// Advance returns what is known after an observation of the objects. Recorded is what was known before; nil if nothing
// was.
//
// A revision is promoted once all objects have been Ready at it for the soak, as far as they were observed. It stays
// promoted while they move to another revision, until that one is promoted. It does not if an object is found to be not
// Ready at it, or if no object is left.
func (c Check) Advance(recorded *gatingv1.ObservedRevision, members []Member, now time.Time) gatingv1.ObservedRevision {
	before := c.known(recorded)
	next := gatingv1.ObservedRevision{
		Digest: c.digest(members), ObservedAt: timeOf(now), Promoted: before.Promoted, PromotedAt: before.PromotedAt,
	}
	ready := readyAt(members)
	if ready == "" {
		if len(members) == 0 || hasFailed(members, next.Promoted) {
			next.Promoted, next.PromotedAt = "", nil
		}
		return next
	}
	next.Ready, next.Since = ready, timeOf(readySinceOf(members, now))
	switch {
	case before.Digest == next.Digest && !members[0].Since.IsZero() && before.Since != nil:
		next.Since = before.Since // the clusters say that there was no interruption
	case before.Digest == next.Digest && Same(before.Ready, ready) && before.Since != nil && !before.Since.After(now):
		next.Since = before.Since
		if gap := now.Sub(before.ObservedAt.Time); gap > c.MaxGap {
			next.Since = timeOf(before.Since.Add(gap))
		}
	case Same(next.Promoted, ready):
		next.Promoted, next.PromotedAt = "", nil // its readiness was interrupted
	}
	if until := next.Since.Add(c.Soak); until.After(now) {
		next.Until = timeOf(until)
	} else if !Same(next.Promoted, ready) {
		next.Promoted, next.PromotedAt = ready, timeOf(now)
	}
	return next
}

// known returns what was recorded for the same definition, or nothing.
func (c Check) known(recorded *gatingv1.ObservedRevision) gatingv1.ObservedRevision {
	if recorded == nil || recorded.ObservedAt == nil || !strings.HasPrefix(recorded.Digest, c.prefix()) {
		return gatingv1.ObservedRevision{}
	}
	return *recorded
}

// readyAt returns the revision that all members are Ready at; empty if there is none.
func readyAt(members []Member) string {
	for _, m := range members {
		if m.Problem != "" || m.Revision == "" || !Same(m.Revision, members[0].Revision) {
			return ""
		}
	}
	if len(members) == 0 {
		return ""
	}
	return members[0].Revision
}

// readySinceOf returns since when all members are Ready, as far as it is known at now.
func readySinceOf(members []Member, now time.Time) (since time.Time) {
	for _, m := range members {
		if m.Since.IsZero() || m.Since.After(now) {
			return now
		}
		if m.Since.After(since) {
			since = m.Since
		}
	}
	return since
}

// hasFailed reports whether a member is not Ready at a revision that it has or was moving to.
func hasFailed(members []Member, revision string) bool {
	return slices.ContainsFunc(members, func(m Member) bool { return m.Problem != "" && Same(m.Revision, revision) })
}

// Describe says what a check has observed, and what it waits for.
func (c Check) Describe(o gatingv1.ObservedRevision, members []Member) string {
	waits := c.waitsFor(o, members)
	switch {
	case o.Promoted == "":
		return waits
	case waits == "":
		return fmt.Sprintf("allows revision '%s': %s", o.Promoted, readySince(o, members))
	}
	return fmt.Sprintf("allows only revision '%s'; %s", o.Promoted, waits)
}

// waitsFor says what the next promotion waits for; empty if the promoted revision is the one that all members have.
func (c Check) waitsFor(o gatingv1.ObservedRevision, members []Member) string {
	if len(members) == 0 {
		return "no object matches"
	}
	if o.Until != nil {
		return fmt.Sprintf("revision '%s' soaks until %s (%s in total): %s", o.Ready, stamp(o.Until), c.Soak,
			readySince(o, members))
	}
	if o.Ready != "" {
		return ""
	}
	for _, m := range members {
		switch {
		case m.Problem != "" && m.Revision != "":
			return fmt.Sprintf("%s %s at revision '%s'", m.Name, m.Problem, m.Revision)
		case m.Problem != "":
			return m.Name + " " + m.Problem
		case m.Revision == "":
			return m.Name + " has no revision yet"
		case !Same(m.Revision, members[0].Revision):
			return fmt.Sprintf("%s is at revision '%s', but %s at '%s'", members[0].Name, members[0].Revision, m.Name,
				m.Revision)
		}
	}
	return ""
}

// readySince says which members are Ready, and since when.
func readySince(o gatingv1.ObservedRevision, members []Member) string {
	if len(members) == 1 {
		return fmt.Sprintf("%s is Ready at it since %s", members[0].Name, stamp(o.Since))
	}
	return fmt.Sprintf("%d objects, such as %s, are Ready at it since %s", len(members), members[0].Name,
		stamp(o.Since))
}

// Digest returns the part of a revision that identifies its content, such as sha1:<hex> of main@sha1:<hex>.
func Digest(revision string) string {
	if _, digest, ok := strings.Cut(revision, "@"); ok {
		return digest
	}
	return revision
}

// Same reports whether two revisions have the same content. An empty revision is not the same as any other.
func Same(a, b string) bool { return a != "" && Digest(a) == Digest(b) }

// digest identifies the definition and the members. Its first part identifies the definition alone.
func (c Check) digest(members []Member) string {
	identities := make([]string, 0, len(members))
	for _, m := range members {
		identities = append(identities, m.Identity)
	}
	slices.Sort(identities)
	return c.prefix() + short(strings.Join(identities, "\n"))
}

func (c Check) prefix() string { return short(c.Definition) + "-" }

// short returns a digest that is long enough for a status.
func short(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

func timeOf(t time.Time) *meta.Time { return &meta.Time{Time: t} }

func stamp(t *meta.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
