// Package waves decides which of the objects behind a gate may take a revision, in waves. The decision depends only on
// the waves, on the objects, on what was decided before, and on the time.
package waves

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-gitops/sluice/api/meta"
)

// Wave is a part of the objects.
type Wave struct {
	Name string       // empty: the last wave, of the objects that no other one selects
	Max  *meta.Amount // how many may take a revision at a time; nil: all
	Soak time.Duration
}

// Member is an object behind the gate.
type Member struct {
	ID       string // unique; members take a revision in this order
	Name     string // for messages, such as Kustomization 'apps/web'
	Wave     int    // index of its wave
	Has      string // the revision that gates let through last
	Tried    string // the revision that it tried last, if that can be another one
	Ready    bool   // at the revision that it has, with its current generation
	Problem  string // why it is not Ready, or does not take a revision, such as "is suspended"; empty if it moves
	Failed   bool   // it does not become Ready by itself
	Wants    string // the revision that it asked for last; empty if that is not known
	Identity string // changes with the object, its generation, and each interruption of its readiness

	IsSuspended bool
}

// has reports whether an object is Ready at a revision.
func (m *Member) has(revision string) bool { return m.Has == revision && m.Ready && !m.IsSuspended }

// moves reports whether an object took a revision and is not Ready at it.
func (m *Member) moves(revision string) bool { return m.Has == revision && !m.has(revision) }

// State is what is known of one roll-out. All but Picked and Settles survives a restart.
type State struct {
	Revision string
	Passed   []string // names of the waves that have been Ready at the revision for their soak

	Since, Observed time.Time // since when the wave in progress is Ready, and when that was observed last; may be zero
	Digest          string    // of its members
	// Settles is the time before which no soak ends. After a restart, it is not known at once whether objects that were
	// Ready still are.
	Settles time.Time

	Picked map[string]bool // members that may take the revision, and are not Ready at it
}

// Decision is what may happen next.
type Decision struct {
	State
	Current     int       // index of the wave in progress; the number of waves if all members have the revision
	Until       time.Time // when its soak ends; zero if none is running
	Hold        string    // why the wave in progress does not get Ready by itself; empty if it does
	Held        string    // the same, without details that change often
	Done, Total int       // members of the wave in progress
	Empty       []string  // waves before it that no object belongs to
}

// IsComplete reports whether all members have the revision.
func (d *Decision) IsComplete(waves []Wave) bool { return d.Current >= len(waves) }

// Admits reports whether a member may take the revision.
func (d *Decision) Admits(m *Member) bool { return d.Picked[m.ID] || m.Has == d.Revision }

// Decide returns what may happen next. maxGap is for how long the members may be unobserved; a longer time does not
// count as soak. A revision other than the one of the state starts with the first wave.
//
// A wave is in progress until all its members are Ready at the revision, and have been for its soak. Until then no
// member of a later wave is picked. A wave that was Ready for its soak once holds the later ones only while one of its
// members is not Ready.
func Decide(waves []Wave, members []Member, revision string, s State, now time.Time, maxGap time.Duration) Decision {
	d := Decision{State: State{Revision: revision, Picked: map[string]bool{}}, Current: len(waves)}
	if s.Revision == revision {
		d.Settles = s.Settles
		for i := range members {
			if m := &members[i]; s.Picked[m.ID] && !m.has(revision) {
				d.Picked[m.ID] = true
			}
		}
		d.Passed = slices.DeleteFunc(slices.Clone(s.Passed), func(name string) bool {
			return !slices.ContainsFunc(waves, func(w Wave) bool { return w.Name == name })
		})
	}
	groups := make([][]*Member, len(waves))
	for i := range members {
		if m := &members[i]; m.Wave >= 0 && m.Wave < len(waves) {
			groups[m.Wave] = append(groups[m.Wave], m)
		}
	}
	for i, w := range waves {
		group := groups[i]
		if len(group) == 0 {
			if w.Name != "" {
				d.Empty = append(d.Empty, w.Name)
			}
			continue
		}
		d.Done, d.Total = d.count(group), len(group)
		if d.Done < d.Total {
			d.Current = i
			d.pick(w, group, s.Picked)
			return d
		}
		if !d.soaked(w, group, s, now, maxGap) {
			d.Current = i
			return d
		}
	}
	return d
}

// count returns how many members are Ready at the revision.
func (d *Decision) count(group []*Member) (done int) {
	for _, m := range group {
		if m.has(d.Revision) {
			done++
		}
	}
	return done
}

// pick picks members of the wave in progress, as many as may move at a time. Those that were moving when the revision
// changed come first.
func (d *Decision) pick(w Wave, group []*Member, before map[string]bool) {
	slices.SortFunc(group, func(a, b *Member) int { return cmp.Compare(a.ID, b.ID) })
	moving := 0
	var candidates []*Member
	for _, m := range group {
		switch {
		case m.has(d.Revision):
		case m.Failed && (m.Has == d.Revision || m.Tried == d.Revision) && d.Hold == "":
			d.Hold, d.Held = m.Name+" "+m.Problem, m.Name+" failed with the revision"
		}
		switch {
		case d.Picked[m.ID] || m.moves(d.Revision):
			moving++
		case m.Has != d.Revision && !m.IsSuspended && (m.Wants == "" || m.Wants == d.Revision):
			candidates = append(candidates, m)
		}
	}
	slices.SortStableFunc(candidates, func(a, b *Member) int {
		return cmp.Compare(rank(before[a.ID]), rank(before[b.ID]))
	})
	for _, m := range candidates {
		if d.Hold != "" || moving >= w.Max.Of(len(group)) {
			break
		}
		d.Picked[m.ID] = true
		moving++
	}
	if d.Hold == "" {
		d.Hold, d.Held = obstacle(group, d.Revision)
	}
}

func rank(first bool) int {
	if first {
		return 0
	}
	return 1
}

// obstacle returns why a wave does not get Ready by itself, with details that change often and without; empty if it
// does.
func obstacle(group []*Member, revision string) (text, stable string) {
	for _, m := range group {
		switch {
		case m.has(revision):
		case m.IsSuspended:
			text = m.Name + " is suspended. Resume it, or change its labels so that it belongs to a later wave"
			return text, text
		case m.Wants != "" && m.Wants != revision:
			text = fmt.Sprintf("%s moves to revision '%s', not to this one", m.Name, m.Wants)
			return text, text
		case m.Problem != "":
			return m.Name + " " + m.Problem, ""
		}
	}
	return "", ""
}

// soaked reports whether a wave that is Ready has been so for its soak, now or before.
func (d *Decision) soaked(w Wave, group []*Member, s State, now time.Time, maxGap time.Duration) bool {
	if slices.Contains(d.Passed, w.Name) || w.Name == "" {
		return true
	}
	digest, since := digestOf(w, group, d.Revision), now
	if s.Revision == d.Revision && s.Digest == digest && !s.Since.IsZero() && !s.Observed.After(now) {
		since = s.Since
		if gap := now.Sub(s.Observed); gap > maxGap {
			since = since.Add(gap)
		}
		if since.After(now) {
			since = now
		}
	}
	until := since.Add(w.Soak)
	if d.Settles.After(until) {
		until = d.Settles
	}
	if until.After(now) {
		d.Since, d.Observed, d.Digest, d.Until = since, now, digest, until
		return false
	}
	d.Passed = append(d.Passed, w.Name)
	return true
}

// digestOf identifies the members of a wave, their generations, and since when they are Ready.
func digestOf(w Wave, group []*Member, revision string) string {
	identities := []string{w.Name, revision}
	for _, m := range group {
		identities = append(identities, m.Identity)
	}
	slices.Sort(identities)
	sum := sha256.Sum256([]byte(strings.Join(identities, "\n")))
	return hex.EncodeToString(sum[:16])
}
