package gate

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/reconcile/decision"
)

var releaseKey = types.NamespacedName{Namespace: "ops", Name: "release"}

func withWaves(names ...string) func(*gatingv1.Gate) {
	return func(g *gatingv1.Gate) {
		for _, name := range names {
			g.Spec.Waves = append(g.Spec.Waves, gatingv1.Wave{Name: name,
				Selector: metav1.LabelSelector{MatchLabels: map[string]string{"wave": name}}})
		}
	}
}

func withWaveAndSource(wave, source string) func(*kustomizev1.Kustomization) {
	return func(k *kustomizev1.Kustomization) {
		k.Labels = map[string]string{"wave": wave}
		k.Spec.SourceRef = kustomizev1.SourceReference{Kind: "GitRepository",
			NamespacedName: meta.NamespacedName{Name: source}}
		k.Spec.Gates = append(k.Spec.Gates, meta.GateReference{Name: "release", Namespace: "ops"})
	}
}

// asks returns why a gate with waves holds a revision of an object; empty if it does not.
func (s *testIndex) asks(k *kustomizev1.Kustomization, revision string) string {
	o := decision.Object{Kind: kustomizations.Kind, Namespace: k.Namespace, Name: k.Name}
	for _, g := range s.Snapshot(s.GatesFor(s.ref(k), k), k) {
		switch d := decision.Decide(g, o, decision.Change{Revision: revision}, s.now); {
		case d.Holds():
			return d.Text()
		case d.NeedsTurn:
			return s.TakeTurn(g.Key, s.ref(k), k, revision).Text()
		}
	}
	return ""
}

func TestWavesOfDifferentSources(t *testing.T) {
	canary := kustomization("ops", "canary", withWaveAndSource("canary", "app"))
	app := kustomization("ops", "app", withWaveAndSource("", "app"))
	other := kustomization("ops", "other", withWaveAndSource("", "other"))
	s := newTestIndex(t, canary, app, other)
	s.Put(newGate("ops", "release", gatingv1.Opened, withWaves("canary")))
	if text := s.asks(app, "main@sha1:1"); !strings.Contains(text, "until wave 'canary' is Ready") {
		t.Errorf("got %q", text)
	}
	if text := s.asks(canary, "main@sha1:1"); text != "" {
		t.Errorf("the first wave waits: %s", text)
	}
	if text := s.asks(other, "main@sha1:2"); text != "" {
		t.Errorf("another source waits: %s", text)
	}
	all, _, err := s.WaveProgress(s.gates[releaseKey].gate)
	if err != nil || len(all) != 2 || all[0].Source != "GitRepository/ops/app" || all[0].Wave != "canary" ||
		all[1].Source != "GitRepository/ops/other" || all[1].Wave != "" {
		t.Errorf("progress is %+v, %v", all, err)
	}
	s.Delete(releaseKey)
	if text := s.asks(app, "main@sha1:1"); text != "is not found" {
		t.Errorf("deleted gate: %q", text)
	}
}

// lockedClock counts how often the time is read while a lock is held, and how often while it is not.
type lockedClock struct {
	clock.PassiveClock
	lock            *sync.Mutex
	inside, outside int
}

func (c *lockedClock) Now() time.Time {
	if c.lock.TryLock() {
		c.lock.Unlock()
		c.outside++
	} else {
		c.inside++
	}
	return c.PassiveClock.Now()
}

// TestWavesReadTheTimeUnderTheLock is about a soak, which begins again if the clock is set back: a time from before
// another decision looks as if it was.
func TestWavesReadTheTimeUnderTheLock(t *testing.T) {
	canary := kustomization("ops", "canary", withWaveAndSource("canary", "app"))
	s := newTestIndex(t, canary)
	s.Put(newGate("ops", "release", gatingv1.Opened, withWaves("canary")))
	if text := s.asks(canary, "main@sha1:1"); text != "" {
		t.Fatalf("the first wave waits: %s", text)
	}
	c := &lockedClock{PassiveClock: s.Clock, lock: &s.waves.mu}
	s.Clock = c
	if _, _, err := s.WaveProgress(s.gates[releaseKey].gate); err != nil || c.inside == 0 || c.outside > 0 {
		t.Errorf("the time was read %d times with the lock and %d times without it, %v", c.inside, c.outside, err)
	}
}

func TestObjectsThatAreNotBehindTheGate(t *testing.T) {
	for name, c := range map[string]struct {
		blocked bool
		want    string
	}{
		"cross-namespace references are allowed": {want: "until wave 'canary' is Ready"},
		"cross-namespace references are blocked": {blocked: true},
	} {
		t.Run(name, func(t *testing.T) {
			stranger := kustomization("apps", "canary", withWaveAndSource("canary", "app"))
			stranger.Spec.SourceRef.Namespace = "ops"
			app := kustomization("ops", "app", withWaveAndSource("", "app"))
			s := newTestIndex(t, stranger, app)
			s.NoCrossNamespaceRefs = c.blocked
			s.Put(newGate("ops", "release", gatingv1.Opened, withWaves("canary")))
			if text := s.asks(app, "main@sha1:1"); (text == "") != (c.want == "") || !strings.Contains(text, c.want) {
				t.Errorf("got %q, want %q", text, c.want)
			}
		})
	}
}

func TestWavesOfOpenAndClosedGates(t *testing.T) {
	app := kustomization("ops", "app", withWaveAndSource("", "app"))
	canary := kustomization("ops", "canary", withWaveAndSource("canary", "app"))
	overridden := func(g *gatingv1.Gate) {
		g.Status.Why = &gatingv1.Explanation{Reason: gatingv1.WhyOverridden}
	}
	for name, c := range map[string]struct {
		gate *gatingv1.Gate
		want string
	}{
		"closed": {gate: newGate("ops", "release", gatingv1.Closed, withWaves("canary")), want: "is closed"},
		"open": {gate: newGate("ops", "release", gatingv1.Opened, withWaves("canary")),
			want: "holds the last wave (objects that no wave selects) until wave 'canary' is Ready"},
		"overridden": {gate: newGate("ops", "release", gatingv1.Opened, withWaves("canary"), overridden)},
		"another revision is approved": {gate: newGate("ops", "release", gatingv1.Opened, withWaves("canary"),
			func(g *gatingv1.Gate) { g.Status.ApprovedRevisions = []string{"sha1:2"} }),
			want: "allows only revision 'sha1:2'"},
		"approved": {gate: newGate("ops", "release", gatingv1.Opened, withWaves("canary"),
			func(g *gatingv1.Gate) { g.Status.ApprovedRevisions = []string{"sha1:1"} }),
			want: "holds the last wave (objects that no wave selects) until wave 'canary' is Ready"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestIndex(t, app, canary)
			s.Put(c.gate)
			if text := s.asks(app, "main@sha1:1"); text != c.want {
				t.Errorf("got %q, want %q", text, c.want)
			}
		})
	}
	s := newTestIndex(t, app, canary)
	s.SeparateGates = true
	s.Put(newGate("ops", "release", gatingv1.Opened, withWaves("canary")))
	if text := s.asks(canary, "main@sha1:1"); !strings.Contains(text, "need the gating controller in the process") {
		t.Errorf("without the gating controller: %q", text)
	}
}

func TestBoundsOfWaves(t *testing.T) {
	for name, c := range map[string]struct {
		objects, sources int
		want             string
	}{
		"objects": {objects: gatingv1.MaxWaveMembers + 1, sources: 1, want: "spec.waves divides 1001 objects, but at " +
			"most 1000 can be divided. Use several gates, each for a part of the objects"},
		"sources": {objects: 101, sources: 101, want: "spec.waves divides the objects of 101 sources, but at most " +
			"100 are possible. Use several gates, each for a part of the sources"},
		"within": {objects: 200, sources: 100},
	} {
		t.Run(name, func(t *testing.T) {
			var all []*kustomizev1.Kustomization
			for n := range c.objects {
				all = append(all, kustomization("ops", fmt.Sprint("k", n),
					withWaveAndSource("", fmt.Sprint("s", n%c.sources))))
			}
			s := newTestIndex(t, all...)
			gate := newGate("ops", "release", gatingv1.Opened, withWaves("canary"))
			s.Put(gate)
			_, _, err := s.WaveProgress(gate)
			if text := fmt.Sprint(err); (err == nil) != (c.want == "") || !strings.Contains(text, c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if text := s.asks(all[0], "main@sha1:1"); !strings.Contains(text, c.want) {
				t.Errorf("the answer to an object is %q", text)
			}
		})
	}
}

// TestEventOfAnObjectListsNothing changes objects behind a gate with waves.
func TestEventOfAnObjectListsNothing(t *testing.T) {
	app := kustomization("ops", "app", withWaveAndSource("", "app"))
	s := newTestIndex(t, app)
	s.Put(newGate("ops", "release", gatingv1.Opened, withWaves("canary")))
	lists := s.lists
	for n := range 10 {
		k := kustomization("ops", fmt.Sprint("k", n), withWaveAndSource("canary", "app"))
		s.ObserveMember(s.ref(k), k)
	}
	if s.asks(app, "main@sha1:1") == "" {
		t.Error("an object of the last wave does not wait for 10 objects of the first one")
	}
	for n := range 10 {
		s.ObserveMember(reconcile.RefTo(kustomizations, "ops", fmt.Sprint("k", n)), nil)
	}
	if text := s.asks(app, "main@sha1:1"); text != "" {
		t.Errorf("after the others were deleted: %q", text)
	}
	if s.lists != lists {
		t.Errorf("%d lists of all objects", s.lists-lists)
	}
}

// TestWavesAreDecidedWithAllObjects starts with a part of the objects, as informers deliver them one by one: a wave
// whose objects are not known yet must not seem to be empty.
func TestWavesAreDecidedWithAllObjects(t *testing.T) {
	const revision = "main@sha1:1"
	app := kustomization("ops", "app", withWaveAndSource("", "app"))
	canary := kustomization("ops", "canary", withWaveAndSource("canary", "app"))
	soaking := func() *gatingv1.Gate {
		return newGate("ops", "release", gatingv1.Opened, withWaves("canary"), func(g *gatingv1.Gate) {
			g.Status.Waves = []gatingv1.WaveProgress{{Kind: "Kustomization", Source: "GitRepository/ops/app",
				Revision: revision, Wave: "canary"}}
		})
	}
	t.Run("while informers start", func(t *testing.T) {
		loaded := false
		s := newTestIndex(t)
		s.synced = []func() bool{func() bool { return loaded }}
		s.Put(soaking())
		s.ObserveMember(s.ref(app), app)
		if text := s.asks(app, revision); text != "has not decided about the wave of the object yet" {
			t.Errorf("got %q", text)
		}
		before, next, err := s.WaveProgress(s.gates[releaseKey].gate)
		if err != nil || len(before) != 1 || before[0].Wave != "canary" || !next.After(s.now) {
			t.Errorf("progress is %+v until %s, %v", before, next, err)
		}
		s.ObserveMember(s.ref(canary), canary)
		loaded = true
		if text := s.asks(app, revision); !strings.Contains(text, "until wave 'canary' is Ready") {
			t.Errorf("got %q", text)
		}
	})
	t.Run("while a gate lists its objects", func(t *testing.T) {
		s := newTestIndex(t, app, canary)
		s.Put(soaking())
		if text := s.asks(app, revision); !strings.Contains(text, "until wave 'canary' is Ready") {
			t.Errorf("got %q", text)
		}
	})
}
