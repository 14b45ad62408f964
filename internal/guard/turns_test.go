package guard

import (
	"context"
	"errors"
	"slices"
	"testing"
)

// hold takes a place of an owner, which must be free.
func hold(t *testing.T, turns *Turns, owner string) (done func()) {
	t.Helper()
	if !isFree(turns, owner) {
		t.Fatalf("%s has to wait", owner)
	}
	done, err := turns.Take(t.Context(), owner)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// isFree reports whether an owner may have a place at once.
func isFree(turns *Turns, owner string) bool {
	w := &turn{owner: owner, granted: make(chan struct{})}
	turns.mu.Lock()
	defer turns.mu.Unlock()
	turns.waiting = append(turns.waiting, w)
	turns.grant()
	if i := slices.Index(turns.waiting, w); i >= 0 {
		turns.waiting = slices.Delete(turns.waiting, i, i+1)
		return false
	}
	turns.add(owner, -1)
	return true
}

func TestAnOwnerLeavesPlacesToOthers(t *testing.T) {
	turns := NewTurns(4)
	first := hold(t, turns, "hostile")
	hold(t, turns, "hostile")
	if isFree(turns, "hostile") {
		t.Error("one owner has more than half of the places")
	}
	hold(t, turns, "other")
	if isFree(turns, "other") || isFree(turns, "hostile") {
		t.Error("the last place is not for a third owner")
	}
	third := hold(t, turns, "third")
	if isFree(turns, "fourth") {
		t.Error("there are more than four places")
	}
	third()
	first()
	hold(t, turns, "fourth")
	hold(t, turns, "third")
}

func TestOnePlaceIsForEverybody(t *testing.T) {
	turns := NewTurns(0)
	done := hold(t, turns, "a")
	if isFree(turns, "a") || isFree(turns, "b") {
		t.Error("there is more than one place")
	}
	done()
	hold(t, turns, "b")
}

func TestTurnsAreInTheOrderOfArrival(t *testing.T) {
	turns := NewTurns(1)
	done := hold(t, turns, "a")
	order := make(chan string, 3)
	for i, owner := range []string{"a", "b", "a"} {
		Go("a turn", func() {
			done, err := turns.Take(context.Background(), owner)
			if err == nil {
				order <- owner
				done()
			}
		})
		for waiting := 0; waiting <= i; {
			turns.mu.Lock()
			waiting = len(turns.waiting)
			turns.mu.Unlock()
		}
	}
	done()
	for _, want := range []string{"a", "b", "a"} {
		if got := <-order; got != want {
			t.Errorf("the next is %s, want %s", got, want)
		}
	}
}

func TestATurnEndsWithItsContext(t *testing.T) {
	turns := NewTurns(1)
	done := hold(t, turns, "a")
	stop := errors.New("the object was deleted")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	if _, err := turns.Take(ctx, "b"); !errors.Is(err, stop) {
		t.Errorf("the error is %v", err)
	}
	done()
	hold(t, turns, "c")
	if len(turns.waiting) != 0 {
		t.Error("a turn is left")
	}
}
