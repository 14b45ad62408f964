package automate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"k8s.io/utils/clock"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/image/edit"
)

// batch knows since when changes wait for others. It may be lost, which makes them wait anew.
type batch struct {
	pending     string // a digest of the changes that wait
	first, last time.Time
	alarm       clock.Timer
}

// wait tells how much longer changes wait: until none came for the quiet time, and no longer than at most.
func (b *batch) wait(spec *imagev1.Batch, changes []edit.Change, now time.Time) time.Duration {
	if b.alarm != nil {
		b.alarm.Stop()
	}
	if spec == nil || spec.Quiet == nil || spec.Quiet.Duration <= 0 {
		return 0
	}
	if b.pending == "" {
		b.first = now
	}
	if id := digestOf(changes); b.pending != id {
		b.pending, b.last = id, now
	}
	atMost := 10 * spec.Quiet.Duration
	if spec.AtMost != nil {
		atMost = spec.AtMost.Duration
	}
	return min(b.last.Add(spec.Quiet.Duration).Sub(now), b.first.Add(atMost).Sub(now))
}

func (b *batch) done() {
	if b.alarm != nil {
		b.alarm.Stop()
	}
	*b = batch{}
}

// digestOf tells sets of changes apart.
func digestOf(changes []edit.Change) string {
	h := sha256.New()
	for _, c := range changes {
		fmt.Fprintf(h, "%q %q %q\n", c.File, c.Setter, c.New)
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// maxUndone is how often a value that was set may be set back before it is left alone: two automations would
// else commit for ever.
const maxUndone = 2

// undone knows what was set to what, and how often in a row.
type undone struct{ set map[place]setting }

// place is a value, wherever in its file it is.
type place struct {
	file, container, setter string
	object                  edit.Object
}

type setting struct {
	value string
	times int
}

const maxPlaces = 20_000 // that are remembered

func placeOf(c edit.Change) place { return place{c.File, c.Container, c.Setter, c.Object} }

// check refuses to set what was set and undone over and over, though the image stayed the same.
func (u *undone) check(changes []edit.Change) error {
	for _, c := range changes {
		if s := u.set[placeOf(c)]; s.value == c.New && s.times > maxUndone {
			return fault.New(imagev1.UpdateFailedReason,
				"%s:%d: '%s' was set %d times, and each time somebody set it back to '%s'", c.File, c.Line, c.New,
				s.times, c.Old).
				WithHint("Let one automation have it: correct the marker, the bindings or spec.policySelector. Then " +
					"ask for a reconcile").Final()
		}
	}
	return nil
}

func (u *undone) remember(changes []edit.Change) {
	if u.set == nil || len(u.set) > maxPlaces {
		u.set = map[place]setting{}
	}
	for _, c := range changes {
		s := u.set[placeOf(c)]
		if s.value != c.New {
			s = setting{value: c.New}
		}
		s.times++
		u.set[placeOf(c)] = s
	}
}

// forgive is for when somebody changed the automation, or asked for it.
func (u *undone) forgive() { u.set = nil }
