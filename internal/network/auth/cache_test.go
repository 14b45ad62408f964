package auth

import (
	"testing"
	"time"
)

// fetched returns how often a credential was fetched for a list of keys, one after the other.
func fetched(t *testing.T, capacity int, keys ...string) (int, CacheStats) {
	t.Helper()
	var c cache[string]
	var i Identities
	clock, n := at(noon), 0
	for _, key := range keys {
		clock.SetTime(clock.Now().Add(time.Second))
		got, err := c.get(within(t), cacheOptions{clock: clock, capacity: capacity, counts: &i.cacheCounts}, keyOf(key),
			func() (string, time.Time, error) {
				n++
				return key, clock.Now().Add(time.Hour), nil
			})
		if err != nil || got != key {
			t.Fatalf("%q, %v", got, err)
		}
	}
	return n, i.CacheStats()
}

func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		capacity, want int
		keys           []string
		stats          CacheStats
	}{
		{capacity: 0, want: 2, keys: []string{"a", "b", "a", "b"}, stats: CacheStats{Hits: 2, Fetched: 2, Entries: 2}},
		{capacity: 2, want: 2, keys: []string{"a", "b", "a", "b"}, stats: CacheStats{Hits: 2, Fetched: 2, Entries: 2}},
		// b is the least recently used one when c is added
		{capacity: 2, want: 4, keys: []string{"a", "b", "a", "c", "a", "b"},
			stats: CacheStats{Hits: 2, Fetched: 4, Evicted: 2, Entries: 2}},
		{capacity: 1, want: 4, keys: []string{"a", "b", "a", "b"},
			stats: CacheStats{Fetched: 4, Evicted: 3, Entries: 1}},
		{capacity: -1, want: 3, keys: []string{"a", "a", "a"}, stats: CacheStats{Fetched: 3}},
	} {
		got, stats := fetched(t, c.capacity, c.keys...)
		if got != c.want || stats != c.stats {
			t.Errorf("capacity %d, keys %v: %d fetches, want %d; stats %+v, want %+v", c.capacity, c.keys, got, c.want,
				stats, c.stats)
		}
	}
}
