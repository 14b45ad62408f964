package lru

import (
	"slices"
	"strconv"
	"testing"
)

// keys are those kept, the one used last at the end.
func keys(c *Cache[int]) []string {
	var all []string
	for _, e := range c.kept {
		all = append(all, e.key)
	}
	return all
}

func TestWhatWasUsedLastIsKept(t *testing.T) {
	for what, tc := range map[string]struct {
		bounds Bounds
		sizes  map[string]int64 // 1 where none is set
		use    []string         // in this order; those that are kept are asked for, others are added
		want   []string
	}{
		"within the bounds": {Bounds{3, 3}, nil, []string{"a", "b", "c"}, []string{"a", "b", "c"}},
		"by number":         {Bounds{2, 9}, nil, []string{"a", "b", "c"}, []string{"b", "c"}},
		"by size": {Bounds{0, 3}, map[string]int64{"c": 2}, []string{"a", "b", "c"},
			[]string{"b", "c"}},
		"use counts":              {Bounds{2, 9}, nil, []string{"a", "b", "a", "c"}, []string{"a", "c"}},
		"one beyond the bounds":   {Bounds{2, 2}, map[string]int64{"b": 3}, []string{"a", "b"}, nil},
		"one that takes all room": {Bounds{2, 2}, map[string]int64{"b": 2}, []string{"a", "b"}, []string{"b"}},
	} {
		t.Run(what, func(t *testing.T) {
			c := &Cache[int]{}
			for _, key := range tc.use {
				if _, ok := c.Get(key); !ok {
					c.Keep(key, 0, max(1, tc.sizes[key]), tc.bounds)
				}
			}
			if got := keys(c); !slices.Equal(got, tc.want) || c.Len() != len(tc.want) {
				t.Errorf("%q are kept, want %q", got, tc.want)
			}
		})
	}
}

func TestAValueTakesThePlaceOfTheOneBefore(t *testing.T) {
	c := &Cache[string]{}
	for i := range 3 {
		c.Keep("a", strconv.Itoa(i), 1, Bounds{Bytes: 9})
	}
	if got, ok := c.Get("a"); got != "2" || !ok || c.Len() != 1 {
		t.Errorf("got %q, %v; %d are kept", got, ok, c.Len())
	}
	if got, ok := c.Get("b"); got != "" || ok {
		t.Errorf("got %q, %v of what was never kept", got, ok)
	}
}
