package health

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestCausesThatAlternateAreReportedOnce feeds looks of a rollout to the record of its cause.
func TestCausesThatAlternateAreReportedOnce(t *testing.T) {
	start := time.Now()
	c := &causes{owners: map[string]*cause{"a": {since: start}}}
	changes := 0
	look := func(after time.Duration, reason string) {
		class := ""
		if reason != "" {
			class = classOf(reason)
		}
		if c.found("a", reason, class, start.Add(after)) {
			changes++
		}
	}
	look(2*time.Second, "pod a-1: "+notReady)
	if changes != 0 {
		t.Error("a pod that has just started is a cause")
	}
	look(4*time.Second, "pod a-1: container c: ErrImagePull: no such image")
	for n := range 20 {
		reason := []string{"ImagePullBackOff: Back-off pulling", "ErrImagePull: no such image"}[n%2]
		look(5*time.Second, fmt.Sprintf("pod a-%d: container c: %s", n, reason))
		if n%4 == 0 {
			look(5*time.Second, "") // between two pods
		}
	}
	if got := c.owners["a"].text; changes != 1 || !strings.Contains(got, "ErrImagePull") {
		t.Errorf("the cause changed %d times: %s", changes, got)
	}
	look(20*time.Second, "")
	look(22*time.Second, "")
	if changes != 2 || c.owners["a"].text != "" {
		t.Errorf("a cause that is gone is kept: %+v", c.owners["a"])
	}
	for n := range 2 * manyChanges {
		look(30*time.Second, fmt.Sprintf("Reason%c: x", 'A'+n))
	}
	if next := c.owners["a"].next; !next.Equal(start.Add(30*time.Second + lookLimit)) {
		t.Errorf("a cause that changes often is looked at again after %s", next.Sub(start.Add(30*time.Second)))
	}
}

// TestLooksAreBounded has many owners that wait.
func TestLooksAreBounded(t *testing.T) {
	now := time.Now()
	c := &causes{running: true, owners: map[string]*cause{}}
	for n := range 100 {
		c.owners[fmt.Sprint(n)] = &cause{since: now, next: now.Add(-time.Duration(n) * time.Second)}
	}
	due, isDone := c.due(now)
	if len(due) != looksPerSecond || due[0] != "99" || isDone {
		t.Errorf("looks at %v, done: %t", due, isDone)
	}
	clear(c.owners)
	if _, isDone := c.due(now); !isDone || c.running {
		t.Error("looks go on although no caller waits")
	}
}
