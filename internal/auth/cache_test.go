package auth

import (
	"testing"
	"time"
)

// fetched counts how often a credential was fetched for a list of keys, one after the other.
func fetched(t *testing.T, most int, keys ...string) int {
	t.Helper()
	var c cache[string]
	clock, n := at(noon), 0
	for _, key := range keys {
		clock.SetTime(clock.Now().Add(time.Second))
		got, err := c.get(within(t), keeping{clock, most}, keyOf(key), func() (string, time.Time, error) {
			n++
			return key, clock.Now().Add(time.Hour), nil
		})
		if err != nil || got != key {
			t.Fatalf("%q, %v", got, err)
		}
	}
	return n
}

func TestTheCacheIsBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		most, want int
		keys       []string
	}{
		{0, 2, []string{"a", "b", "a", "b"}},
		{2, 2, []string{"a", "b", "a", "b"}},
		{2, 4, []string{"a", "b", "a", "c", "a", "b"}}, // b was asked for the longest ago when c came
		{1, 4, []string{"a", "b", "a", "b"}},
		{-1, 3, []string{"a", "a", "a"}},
	} {
		if got := fetched(t, c.most, c.keys...); got != c.want {
			t.Errorf("at most %d of %v: fetched %d times, want %d", c.most, c.keys, got, c.want)
		}
	}
}
