package queue

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestOwnersDoNotPushOutOthers has an owner that appends without end, before and after a restart.
func TestOwnersDoNotPushOutOthers(t *testing.T) {
	dir := t.TempDir()
	limits := Limits{Bytes: 20 << 10, Segment: 2 << 10, Owner: func(data []byte) string { return string(data[:1]) }}
	record := func(owner string, i int) []byte { return []byte(fmt.Sprintf("%s%03d%0100d", owner, i, 0)) }
	q := open(t, dir, limits)
	flood := func() (refused int) {
		for i := range 500 {
			if err := q.Append(record("h", i), start); errors.Is(err, ErrShare) {
				refused++
			} else if err != nil {
				t.Fatal(err)
			}
		}
		return refused
	}
	if n := flood(); n > 0 {
		t.Errorf("%d records are refused while no other owner has any", n)
	}
	add := func(owner string, i int) {
		t.Helper()
		if err := q.Append(record(owner, i), start); err != nil {
			t.Fatal(err)
		}
	}
	add("v", 1)
	if flood() != 500 {
		t.Error("an owner with nearly the whole queue gets more, while another has records")
	}
	add("v", 2)
	q = open(t, dir, limits) // as after a kill
	flood()
	add("v", 3)
	q.TakeDropped()
	flood()
	if n := q.TakeDropped(); n > 0 {
		t.Errorf("%d records are dropped to make room for the owner", n)
	}
	victims := 0
	for _, r := range take(t, q) {
		if strings.HasPrefix(r, "v") {
			victims++
		}
	}
	if victims != 3 {
		t.Errorf("%d records of the other owner are left, want 3", victims)
	}
	add("h", 1) // the queue has room again
}
