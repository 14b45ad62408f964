package waves

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/api/meta"
)

// fleet is objects that act at random, and the gate that orders them.
type fleet struct {
	*testing.T
	random    *rand.Rand
	waves     []Wave
	members   []Member
	revision  string
	state     State
	now       time.Time
	taking    map[string]bool // those that were let through, and were not Ready since
	wasReady  map[string]bool // wave and revision: all members were Ready for the soak
	readyFrom map[int]time.Time
}

func newFleet(t *testing.T, seed uint64) *fleet {
	f := &fleet{T: t, random: rand.New(rand.NewPCG(seed, 1)), now: start, revision: "r1", taking: map[string]bool{},
		wasReady: map[string]bool{}, readyFrom: map[int]time.Time{}}
	for i := range 1 + f.random.IntN(4) {
		w := Wave{Name: fmt.Sprintf("w%d", i), Soak: time.Duration(f.random.IntN(3)) * time.Minute}
		switch f.random.IntN(3) {
		case 0:
			w.Max = &meta.Amount{Number: int32(1 + f.random.IntN(3))}
		case 1:
			w.Max = &meta.Amount{Number: int32(1 + f.random.IntN(100)), IsPercent: true}
		}
		f.waves = append(f.waves, w)
	}
	f.waves = append(f.waves, Wave{})
	for i := range f.random.IntN(12) {
		f.members = append(f.members, member(fmt.Sprintf("m%02d", i), f.random.IntN(len(f.waves)), "r0"))
	}
	return f
}

// group returns the members of a wave.
func (f *fleet) group(wave int) (all []*Member) {
	for i := range f.members {
		if f.members[i].Wave == wave {
			all = append(all, &f.members[i])
		}
	}
	return all
}

// isReady reports whether all members of a wave are Ready at the revision.
func (f *fleet) isReady(wave int) bool {
	return !slices.ContainsFunc(f.group(wave), func(m *Member) bool { return !m.has(f.revision) })
}

// step lets something happen at random, and decides.
func (f *fleet) step(n int) {
	switch m := f.any(); f.random.IntN(16) {
	case 0:
		if f.random.IntN(8) == 0 {
			f.revision = fmt.Sprintf("r%d", n)
			f.taking, f.readyFrom = map[string]bool{}, map[int]time.Time{}
		}
	case 1:
		f.now = f.now.Add(time.Duration(f.random.IntN(120)) * time.Second)
	case 2:
		if m != nil && f.random.IntN(4) == 0 {
			m.Ready, m.Failed, m.Problem = false, true, "failed"
		}
	case 3:
		if m != nil && f.random.IntN(4) == 0 {
			m.IsSuspended = !m.IsSuspended
		}
	case 4:
		if len(f.taking) == 0 { // what is let through in memory only is lost
			f.state.Picked = nil
		}
	default:
		f.work(m, n)
	}
	f.decide()
}

func (f *fleet) any() *Member {
	if len(f.members) == 0 {
		return nil
	}
	return &f.members[f.random.IntN(len(f.members))]
}

// work lets a member take the revision that it was let through to, or become Ready with it.
func (f *fleet) work(m *Member, n int) {
	switch {
	case m == nil || m.IsSuspended:
	case f.taking[m.ID] && m.Has != f.revision:
		m.Has, m.Ready, m.Failed, m.Problem = f.revision, false, false, ""
	case !m.Ready && m.Has != "":
		m.Ready, m.Failed, m.Problem, m.Identity = true, false, "", fmt.Sprint(m.ID, n)
	}
	if m != nil && m.has(f.revision) {
		delete(f.taking, m.ID)
	}
}

// observe records since when waves are Ready.
func (f *fleet) observe() {
	for i := range f.waves {
		if from, known := f.readyFrom[i]; !f.isReady(i) {
			delete(f.readyFrom, i)
		} else if !known || from.After(f.now) {
			f.readyFrom[i] = f.now
		}
	}
}

// decide decides, and checks what is let through in addition to before.
func (f *fleet) decide() {
	d := Decide(f.waves, f.members, f.revision, f.state, f.now, gap)
	f.state = d.State
	f.observe()
	for i := range f.waves {
		if from, ready := f.readyFrom[i]; ready && !f.now.Before(from.Add(f.waves[i].Soak)) {
			f.wasReady[fmt.Sprint(i, f.revision)] = true
		}
	}
	for i := range f.members {
		m := &f.members[i]
		if !d.Picked[m.ID] || f.taking[m.ID] || m.Has == f.revision {
			continue
		}
		f.taking[m.ID] = true
		for earlier := range m.Wave {
			if !f.isReady(earlier) {
				f.Fatalf("%s of wave %d is let through, but wave %d is not Ready", m.ID, m.Wave, earlier)
			}
			if len(f.group(earlier)) > 0 && !f.wasReady[fmt.Sprint(earlier, f.revision)] {
				f.Fatalf("%s of wave %d is let through, but wave %d was not Ready for its soak", m.ID, m.Wave, earlier)
			}
		}
		moving, group := 0, f.group(m.Wave)
		for _, other := range group {
			if f.taking[other.ID] {
				moving++
			}
		}
		if limit := f.waves[m.Wave].Max.Of(len(group)); moving > limit {
			f.Fatalf("%d of wave %d move at a time, more than %d: %+v", moving, m.Wave, limit, f.members)
		}
	}
}

// finish repairs everything, and expects that all members get the revision.
func (f *fleet) finish() {
	for range 400 {
		f.now = f.now.Add(20 * time.Second)
		for i := range f.members {
			m := &f.members[i]
			if m.IsSuspended = false; m.Failed {
				m.Failed, m.Problem = false, ""
			}
			f.work(m, 0)
		}
		f.decide()
		if d := Decide(f.waves, f.members, f.revision, f.state, f.now, gap); d.IsComplete(f.waves) {
			return
		}
	}
	f.Fatalf("not all members get revision %s: %+v, %+v", f.revision, f.state, f.members)
}

// FuzzWaves lets objects act at random. Never more of them than allowed take a revision at a time, none does before its
// wave, and all have it in the end.
func FuzzWaves(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		fleet := newFleet(t, seed)
		for n := range 200 {
			fleet.step(n + 2)
		}
		fleet.finish()
	})
}
