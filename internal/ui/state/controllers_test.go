package state

import (
	"slices"
	"testing"
	"time"
)

func TestCurrentLeasesAreThoseThatAreHeld(t *testing.T) {
	now := time.Now()
	old := Leader{Holder: "old", Renewed: now.Add(-time.Hour), Lost: true}
	older := Leader{Holder: "older", Renewed: now.Add(-2 * time.Hour), Lost: true}
	held := Leader{Holder: "held", Renewed: now}
	for _, c := range []struct{ all, want []Leader }{
		{nil, nil},
		{[]Leader{older, held, old}, []Leader{held}},
		{[]Leader{older, old}, []Leader{old}},
	} {
		if got := current(c.all); !slices.Equal(got, c.want) {
			t.Errorf("current(%v) = %v, want %v", c.all, got, c.want)
		}
	}
}
