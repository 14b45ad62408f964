package waves

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/api/meta"
)

var start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

const gap = time.Minute

var threeWaves = []Wave{
	{Name: "canary", Soak: time.Hour},
	{Name: "eu", Max: &meta.Amount{Number: 1}},
	{},
}

// member returns an object that has a revision, and is Ready at it.
func member(id string, wave int, has string, change ...func(*Member)) Member {
	m := Member{ID: id, Name: "Kustomization '" + id + "'", Wave: wave, Has: has, Ready: true, Identity: id + has}
	for _, c := range change {
		c(&m)
	}
	return m
}

func notReady(m *Member) { m.Ready = false }

func suspended(m *Member) { m.IsSuspended, m.Problem = true, "is suspended" }

func failed(m *Member) { m.Ready, m.Failed, m.Problem = false, true, "is not Ready: broken" }

func tried(revision string) func(*Member) { return func(m *Member) { m.Tried = revision } }

func wants(revision string) func(*Member) { return func(m *Member) { m.Wants = revision } }

// summary describes a decision: who may take the revision, the wave in progress, and the waves that passed.
func summary(d Decision) string {
	var picked []string
	for id, ok := range d.Picked {
		if ok {
			picked = append(picked, id)
		}
	}
	slices.Sort(picked)
	return fmt.Sprintf("%s %d %s", picked, d.Current, d.Passed)
}

func TestDecide(t *testing.T) {
	soaking := State{Revision: "2", Since: start.Add(-time.Hour), Observed: start}
	for name, c := range map[string]struct {
		members []Member
		state   State
		want    string
		text    string
	}{
		"no object": {want: "[] 3 []", text: "all objects have revision '2'; waves 'canary', 'eu' select no object"},
		"first wave": {
			members: []Member{member("a", 0, "1"), member("b", 0, "1"), member("c", 1, "1"), member("d", 2, "1")},
			want:    "[a b] 0 []", text: "wave 'canary': 0 of 2 have revision '2' and are Ready"},
		"nothing applied yet": {members: []Member{member("a", 0, "2", notReady), member("n", 1, "", notReady)},
			want: "[] 0 []", text: "wave 'canary': 0 of 1"},
		"soak starts": {members: []Member{member("a", 0, "2"), member("c", 1, "1")},
			want: "[] 0 []", text: "1 of 1 have revision '2' and are Ready, soaks until 2026-11-20T13:00:00Z (1h0m0s"},
		"empty first wave": {members: []Member{member("c", 1, "1"), member("d", 2, "1")},
			want: "[c] 1 []", text: "0 of 1 have revision '2' and are Ready, 1 at a time; wave 'canary' selects no"},
		"one at a time": {state: State{Revision: "2", Passed: []string{"canary"}},
			members: []Member{member("a", 0, "2"), member("c", 1, "1"), member("d", 1, "1")}, want: "[c] 1 [canary]"},
		"moving counts": {state: State{Revision: "2", Passed: []string{"canary"}},
			members: []Member{member("a", 0, "2"), member("c", 1, "1"), member("d", 1, "2", notReady)},
			want:    "[] 1 [canary]"},
		"picked counts": {state: State{Revision: "2", Passed: []string{"canary"}, Picked: map[string]bool{"d": true}},
			members: []Member{member("a", 0, "2"), member("c", 1, "1"), member("d", 1, "1")}, want: "[d] 1 [canary]"},
		"last wave": {state: State{Revision: "2", Passed: []string{"canary", "eu"}},
			members: []Member{member("a", 0, "2"), member("c", 1, "2"), member("e", 2, "1")},
			want:    "[e] 2 [canary eu]", text: "the last wave (objects that no wave selects): 0 of 1"},
		"passed wave is unhealthy": {state: State{Revision: "2", Passed: []string{"canary"}},
			members: []Member{member("a", 0, "2", failed), member("c", 1, "1")}, want: "[] 0 [canary]",
			text: "waits: Kustomization 'a' is not Ready: broken"},
		"passed wave is Ready again": {state: State{Revision: "2", Passed: []string{"canary"}},
			members: []Member{member("a", 0, "2"), member("c", 1, "1")}, want: "[c] 1 [canary]"},
		"another revision starts again": {state: State{Revision: "1", Passed: []string{"canary", "eu"},
			Picked: map[string]bool{"e": true}}, want: "[a] 0 []",
			members: []Member{member("a", 0, "1"), member("c", 1, "1"), member("e", 2, "0")}},
		"suspended": {members: []Member{member("a", 0, "1", suspended), member("b", 0, "1"), member("c", 1, "1")},
			want: "[b] 0 []", text: "waits: Kustomization 'a' is suspended. Resume it, or change its labels"},
		"suspended with the revision": {members: []Member{member("a", 0, "2", suspended), member("c", 1, "1")},
			want: "[] 0 []", text: "is suspended"},
		"failed with the revision": {want: "[] 0 []", text: "waits: Kustomization 'a' is not Ready: broken",
			members: []Member{member("a", 0, "2", failed), member("b", 0, "1"), member("c", 1, "1")}},
		"cannot apply the revision": {want: "[] 0 []", text: "waits: Kustomization 'a' is not Ready: broken",
			members: []Member{member("a", 0, "1", failed, tried("2")), member("b", 0, "1")}},
		"failed with an older revision": {members: []Member{member("a", 0, "1", failed), member("b", 0, "1")},
			want: "[a b] 0 []"},
		"moves elsewhere": {members: []Member{member("a", 0, "1", wants("3")), member("b", 0, "1", wants("2"))},
			want: "[b] 0 []", text: "waits: Kustomization 'a' moves to revision '3', not to this one"},
		"soak of others": {state: soaking, members: []Member{member("a", 0, "2")}, want: "[] 0 []"},
		"removed wave": {state: State{Revision: "2", Passed: []string{"gone", "canary"}},
			members: []Member{member("a", 0, "2"), member("c", 1, "1")}, want: "[c] 1 [canary]"},
	} {
		t.Run(name, func(t *testing.T) {
			d := Decide(threeWaves, c.members, "2", c.state, start, gap)
			if got, text := summary(d), d.Describe(threeWaves); got != c.want || !strings.Contains(text, c.text) {
				t.Errorf("got %s (%s), want %s (%s)", got, text, c.want, c.text)
			}
		})
	}
}

func TestSoak(t *testing.T) {
	ready := []Member{member("a", 0, "2"), member("c", 1, "1")}
	at := func(minutes int) time.Time { return start.Add(time.Duration(minutes) * time.Minute) }
	observe := func(s State, members []Member, at time.Time) Decision {
		return Decide(threeWaves, members, "2", s, at, gap)
	}
	first := observe(State{}, ready, start)
	running := first
	for n := range 59 {
		running = observe(running.State, ready, at(n+1))
	}
	if got := summary(running); got != "[] 0 []" {
		t.Errorf("after 59 minutes: %s", got)
	}
	if got := summary(observe(running.State, ready, at(60))); got != "[c] 1 [canary]" {
		t.Errorf("after 60 minutes: %s", got)
	}
	restarted := running.State
	restarted.Picked = nil
	if got := summary(observe(restarted, ready, at(60))); got != "[c] 1 [canary]" {
		t.Errorf("after a restart: %s", got)
	}
	restarted.Settles = at(61)
	if d := observe(restarted, ready, at(60)); summary(d) != "[] 0 []" || !d.Until.Equal(at(61)) {
		t.Errorf("soon after a restart: %s until %s", summary(d), d.Until)
	}
	for name, c := range map[string]struct {
		members []Member
		at      time.Time
		until   time.Time
	}{
		"not observed": {members: ready, at: at(119), until: at(120)},
		"interrupted": {
			members: []Member{member("a", 0, "2", func(m *Member) { m.Identity = "b" })}, at: at(60), until: at(120)},
		"new member":             {members: append(ready, member("b", 0, "2")), at: at(60), until: at(120)},
		"clock was set back":     {members: ready, at: at(10), until: at(70)},
		"clock before the start": {members: ready, at: at(-100), until: at(-40)},
	} {
		t.Run(name, func(t *testing.T) {
			d := observe(running.State, c.members, c.at)
			if summary(d) != "[] 0 []" || !d.Until.Equal(c.until) {
				t.Errorf("got %s until %s, want %s", summary(d), d.Until, c.until)
			}
		})
	}
}

func TestWaits(t *testing.T) {
	members := []Member{member("a", 0, "1"), member("c", 1, "1"), member("d", 1, "1"), member("e", 2, "1")}
	later := func(change func(*Member)) []Member {
		all := slices.Clone(members)
		change(&all[0])
		return all
	}
	for name, c := range map[string]struct {
		members  []Member
		state    State
		of       int
		revision string
		want     string
	}{
		"next wave": {members: members, of: 1, revision: "2", want: "holds wave 'eu' until wave 'canary' is Ready"},
		"last wave": {members: members, of: 3, revision: "2",
			want: "holds the last wave (objects that no wave selects) until wave 'canary' is Ready"},
		"soak": {members: later(func(m *Member) { *m = member("a", 0, "2") }), of: 1, revision: "2",
			want: "holds wave 'eu' until 2026-11-20T13:00:00Z, when the soak of wave 'canary' ends"},
		"failure": {members: later(func(m *Member) { *m = member("a", 0, "2", failed) }), of: 1, revision: "2",
			want: "holds wave 'eu' until wave 'canary' is Ready: Kustomization 'a' failed with the revision"},
		"limit": {members: later(func(m *Member) { *m = member("a", 0, "2") }), of: 2, revision: "2",
			state: State{Revision: "2", Passed: []string{"canary"}},
			want:  "lets at most 1 of wave 'eu' move at a time"},
		"other revision": {members: members, of: 1, revision: "1",
			want: "lets its waves move to revision '2' first"},
		"own wave is held": {members: later(suspended), of: 0, revision: "2",
			want: "holds wave 'canary': Kustomization 'a' is suspended. Resume it, or change its labels so that it " +
				"belongs to a later wave"},
	} {
		t.Run(name, func(t *testing.T) {
			d := Decide(threeWaves, c.members, "2", c.state, start, gap)
			if got := d.Waits(threeWaves, &c.members[c.of], c.revision).Text(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
