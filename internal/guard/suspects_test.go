package guard

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// process is a process with suspects at a time.
func process(t *testing.T, dir string, now *time.Time) *Suspects {
	t.Helper()
	s, err := ReadSuspects(dir, func() time.Time { return *now })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func markers(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, filepath.Ext(e.Name()))
	}
	return names
}

func TestWorkLeavesNoMarker(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	s := process(t, dir, &now)
	w, _, _ := s.Begin("a")
	if m := markers(t, dir); len(m) != 1 || m[0] != running {
		t.Errorf("the markers of the first pass are %q", m)
	}
	w.Done()
	w, _, _ = s.Begin("a")
	if m := markers(t, dir); len(m) != 0 {
		t.Errorf("the markers of the second pass are %q", m)
	}
	b := NewBudget(markShare * 100)
	ctx := WithWork(context.Background(), w)
	l := mustAcquire(ctx, t, b, 99)
	if m := markers(t, dir); len(m) != 0 {
		t.Errorf("the markers of a pass with little memory are %q", m)
	}
	if err := l.Grow(ctx, 1); err != nil || len(markers(t, dir)) != 1 {
		t.Errorf("%v, the markers of a pass with much memory are %q", err, markers(t, dir))
	}
	w.Done()
	if m := markers(t, dir); len(m) != 0 {
		t.Errorf("the markers after the passes are %q", m)
	}
}

func TestSuspectsAreTriedAloneAndLater(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	s := process(t, dir, &now)
	a, _, _ := s.Begin("a")
	a.Mark()
	s.Begin("b")
	innocent, _, _ := s.Begin("c")
	innocent.Done()

	s = process(t, dir, &now) // after a death
	a, wait, _ := s.Begin("a")
	if a == nil || wait != 0 {
		t.Fatalf("a suspect waits for %s after one death", wait)
	}
	a.Mark()
	if w, wait, deaths := s.Begin("b"); w != nil || wait != aloneRetry || deaths != 1 {
		t.Errorf("another suspect waits for %s, %d deaths", wait, deaths)
	}
	if w, _, _ := s.Begin("c"); w == nil {
		t.Error("an object that was not in work waits")
	} else {
		w.Done()
	}

	s = process(t, dir, &now) // a killed it again; b was not in work
	if w, wait, deaths := s.Begin("a"); w != nil || wait != suspectDelay || deaths != 2 {
		t.Errorf("the suspect waits for %s, %d deaths", wait, deaths)
	}
	b, wait, _ := s.Begin("b")
	if b == nil {
		t.Fatalf("a suspect that was not in work waits for %s", wait)
	}
	b.Done()
	now = now.Add(suspectDelay)
	a, wait, _ = s.Begin("a")
	if a == nil {
		t.Fatalf("the suspect waits for %s", wait)
	}
	a.Done()
	if m := markers(t, dir); len(m) != 0 {
		t.Errorf("the markers are %q", m)
	}
	s = process(t, dir, &now)
	if w, wait, _ := s.Begin("a"); w == nil {
		t.Errorf("an object that was cleared waits for %s", wait)
	}
}

func TestDeathsDelayASuspectUpToALimit(t *testing.T) {
	for m, want := range map[suspect]time.Duration{
		{Deaths: largeDeaths, Large: true}:     0,
		{Deaths: largeDeaths + 1, Large: true}: suspectDelay,
		{Deaths: largeDeaths + 2, Large: true}: 2 * suspectDelay,
		{Deaths: 100, Large: true}:             maxSuspectDelay,
		{Deaths: smallDeaths}:                  0,
		{Deaths: smallDeaths + 1}:              suspectDelay,
	} {
		if got := m.delay(); got != want {
			t.Errorf("%+v: %s, want %s", m, got, want)
		}
	}
}

func TestDamagedMarkersAndDeletedObjectsAreForgotten(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	if err := os.WriteFile(filepath.Join(dir, "x"+running), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	process(t, dir, &now).Begin("a")
	s := process(t, dir, &now)
	s.Forget("a")
	if m := markers(t, dir); len(m) != 0 {
		t.Errorf("the markers are %q", m)
	}
	var none *Suspects
	w, _, _ := none.Begin("a")
	w.Mark()
	w.Done()
	none.Forget("a")
}
