package lru

import (
	"slices"
	"strconv"
	"testing"
)

// keys returns the keys of a cache, the last used one at the end, and checks its counts.
func keys(t *testing.T, c *Cache[string, int]) []string {
	t.Helper()
	var all []string
	var size int64
	for e := c.order.Back(); e != nil; e = e.Prev() {
		all = append(all, e.Value.(*entry[string, int]).key)
		size += e.Value.(*entry[string, int]).size
	}
	if c.Len() != len(all) || c.Size() != size || len(c.entries) != len(all) {
		t.Errorf("Len is %d, Size is %d, %d entries; want %d, %d", c.Len(), c.Size(), len(c.entries), len(all), size)
	}
	return all
}

func TestAddEvictsLeastRecentlyUsed(t *testing.T) {
	for name, tc := range map[string]struct {
		limits Limits
		sizes  map[string]int64 // 1 if missing
		use    []string         // each key is read if it exists, and added otherwise
		want   []string
	}{
		"within the limits": {limits: Limits{Count: 3, Size: 3}, use: []string{"a", "b", "c"},
			want: []string{"a", "b", "c"}},
		"no limits": {use: []string{"a", "b", "c"}, want: []string{"a", "b", "c"}},
		"count": {limits: Limits{Count: 2, Size: 9}, use: []string{"a", "b", "c"},
			want: []string{"b", "c"}},
		"size": {limits: Limits{Count: 0, Size: 3}, sizes: map[string]int64{"c": 2}, use: []string{"a", "b", "c"},
			want: []string{"b", "c"}},
		"reading is use": {limits: Limits{Count: 2, Size: 9}, use: []string{"a", "b", "a", "c"},
			want: []string{"a", "c"}},
		"value larger than the limit": {limits: Limits{Count: 2, Size: 2}, sizes: map[string]int64{"b": 3},
			use: []string{"a", "b"}},
		"value as large as the limit": {limits: Limits{Count: 2, Size: 2}, sizes: map[string]int64{"b": 2},
			use: []string{"a", "b"}, want: []string{"b"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := &Cache[string, int]{}
			for _, key := range tc.use {
				if _, ok := c.Get(key); !ok {
					c.Add(key, 0, max(1, tc.sizes[key]), tc.limits)
				}
			}
			if got := keys(t, c); !slices.Equal(got, tc.want) {
				t.Errorf("got keys %q, want %q", got, tc.want)
			}
		})
	}
}

func TestAddReplacesValue(t *testing.T) {
	c := &Cache[string, string]{}
	for i := range 3 {
		c.Add("a", strconv.Itoa(i), 1, Limits{Size: 9})
	}
	if got, ok := c.Get("a"); got != "2" || !ok || c.Len() != 1 || c.Size() != 1 {
		t.Errorf("got %q, %v; Len is %d, Size is %d", got, ok, c.Len(), c.Size())
	}
	if got, ok := c.Get("b"); got != "" || ok {
		t.Errorf("got %q, %v for a missing key", got, ok)
	}
}

func TestRemoveOldest(t *testing.T) {
	c := &Cache[string, int]{}
	if _, _, ok := c.Oldest(); ok {
		t.Error("an empty cache has an oldest value")
	}
	for i, key := range []string{"a", "b", "c"} {
		c.Add(key, i, 1, Limits{})
	}
	c.Get("a")
	if key, value, ok := c.Oldest(); key != "b" || value != 1 || !ok {
		t.Errorf("got %q, %d, %v", key, value, ok)
	}
	c.Remove("b")
	c.Remove("b")
	if got := keys(t, c); !slices.Equal(got, []string{"c", "a"}) {
		t.Errorf("got keys %q", got)
	}
}
