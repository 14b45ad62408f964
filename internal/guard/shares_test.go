package guard

import "testing"

func TestAnOwnerHasAtMostHalfOfWhatOthersLeave(t *testing.T) {
	s := NewShares(16)
	for i, step := range []struct {
		owner string
		n     int64
		given bool
	}{
		{"a", 9, false}, {"a", 8, true}, {"a", 1, false}, {"b", 5, false}, {"b", 4, true},
		{"c", 3, false}, {"c", 2, true},
	} {
		if got := s.Take(step.owner, step.n); got != step.given {
			t.Errorf("step %d: %s got %d: %t, want %t", i, step.owner, step.n, got, step.given)
		}
	}
	s.Give("a", 8)
	if !s.Take("c", 4) || s.Take("c", 1) {
		t.Error("what an owner gave back is not shared")
	}
}
