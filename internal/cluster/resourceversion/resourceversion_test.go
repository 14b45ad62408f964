package resourceversion

import "testing"

func TestNewer(t *testing.T) {
	for _, c := range []struct {
		a, b  string
		newer bool
	}{
		{a: "2", b: "1", newer: true},
		{a: "10", b: "9", newer: true},
		{a: "99999999999999999999999", b: "9", newer: true},
		{a: "1", b: "2"},
		{a: "1", b: "1"},
		{a: "", b: "1"},
		{a: "1", b: ""},
		{a: "1", b: "0"},
		{a: "x", b: "1"},
		{a: "01", b: "1"},
	} {
		if got := Newer(c.a, c.b); got != c.newer {
			t.Errorf("Newer(%q, %q) = %t", c.a, c.b, got)
		}
	}
}
