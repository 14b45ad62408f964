package auth

import (
	"testing"
	"time"
)

// fetched counts how often a credential was fetched for a list of keys, one after the other.
func fetched(t *testing.T, most int, keys ...string) (int, CacheStats) {
	t.Helper()
	var c cache[string]
	var i Identities
	clock, n := at(noon), 0
	for _, key := range keys {
		clock.SetTime(clock.Now().Add(time.Second))
		got, err := c.get(within(t), keeping{clock, most, &i.uses}, keyOf(key), func() (string, time.Time, error) {
			n++
			return key, clock.Now().Add(time.Hour), nil
		})
		if err != nil || got != key {
			t.Fatalf("%q, %v", got, err)
		}
	}
	return n, i.CacheStats()
}

func TestTheCacheIsBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		most, want int
		keys       []string
		stats      CacheStats
	}{
		{0, 2, []string{"a", "b", "a", "b"}, CacheStats{Hits: 2, Got: 2, Kept: 2}},
		{2, 2, []string{"a", "b", "a", "b"}, CacheStats{Hits: 2, Got: 2, Kept: 2}},
		// b was asked for the longest ago when c came
		{2, 4, []string{"a", "b", "a", "c", "a", "b"}, CacheStats{Hits: 2, Got: 4, Evicted: 2, Kept: 2}},
		{1, 4, []string{"a", "b", "a", "b"}, CacheStats{Got: 4, Evicted: 3, Kept: 1}},
		{-1, 3, []string{"a", "a", "a"}, CacheStats{Got: 3}},
	} {
		got, stats := fetched(t, c.most, c.keys...)
		if got != c.want || stats != c.stats {
			t.Errorf("at most %d of %v: fetched %d times, want %d: %+v", c.most, c.keys, got, c.want, stats)
		}
	}
}
