package guard

import "testing"

func TestCounterBoundsAllAndEach(t *testing.T) {
	var c Counter
	for _, step := range []struct {
		owner string
		want  bool
	}{{"a", true}, {"a", true}, {"a", false}, {"b", true}, {"c", false}} {
		if got := c.Open(step.owner, 3, 2); got != step.want {
			t.Errorf("%s: %t, want %t", step.owner, got, step.want)
		}
	}
	c.Close("a")
	if !c.Open("c", 3, 2) {
		t.Error("what was closed is still counted")
	}
	for _, owner := range []string{"a", "b", "c"} {
		c.Close(owner)
	}
	if c.total != 0 || len(c.byOwner) != 0 {
		t.Errorf("%d of %d owners are left", c.total, len(c.byOwner))
	}
}
