package automate

import (
	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/image/edit"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	maxReverts = 2      // how often a value may be reverted before the automation stops to set it
	maxPlaces  = 20_000 // that are counted
)

// reverts counts how often a value that was pushed to the checked out branch was found undone there, which means that
// another author reverted it. It keeps two automations from overwriting each other's commits without end. Pushes to
// another branch are not counted: the checked out branch lacks them until they are merged.
type reverts struct{ set map[place]setting }

// place identifies a value independent of its line in the file. Several values of an object may be one place.
type place struct {
	file, container, setter string
	object                  edit.Object
}

type setting struct {
	value  string
	undone int
	pushed bool // since it was found undone
}

func placeOf(c edit.Change) place {
	return place{file: c.File, container: c.Container, setter: c.Setter, object: c.Object}
}

// check returns an error if one of the values was set and reverted too often. The changes must be those that the
// branch that is checked out lacks. A push counts as undone once.
func (r *reverts) check(changes []edit.Change) error {
	for _, c := range changes {
		s, ok := r.set[placeOf(c)]
		if !ok || s.value != c.New {
			continue
		}
		if s.pushed {
			s.undone, s.pushed = s.undone+1, false
			r.set[placeOf(c)] = s
		}
		if s.undone > maxReverts {
			return fault.New(imagev1.UpdateFailedReason, "%s:%d: '%s' was set %d times and reverted to '%s' each time",
				c.File, c.Line, c.New, s.undone, c.Old).
				WithHint("Let only one automation set this value: correct the marker, the bindings or " +
					"spec.policySelector. Then request a reconciliation").Final()
		}
	}
	return nil
}

// add records values that were pushed to the branch that is checked out.
func (r *reverts) add(changes []edit.Change) {
	if r.set == nil || len(r.set) > maxPlaces {
		r.set = map[place]setting{}
	}
	for _, c := range changes {
		s := r.set[placeOf(c)]
		if s.value != c.New {
			s = setting{value: c.New}
		}
		s.pushed = true
		r.set[placeOf(c)] = s
	}
}

// reset is called when the automation was changed or a reconciliation was requested.
func (r *reverts) reset() { r.set = nil }
