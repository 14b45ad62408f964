package artifact

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/api/meta"
)

func TestCollectKeepsWhatRetentionSays(t *testing.T) {
	for reason, c := range map[string]struct {
		after []time.Duration // between one artifact and the next, and from the last until now
		keep  int             // the current one
		want  []int
	}{
		"the previous artifact is kept until the TTL": {after: []time.Duration{time.Hour, time.Second}, keep: 1,
			want: []int{0, 1}},
		"after the TTL it is removed": {after: []time.Duration{time.Hour, time.Minute}, keep: 1,
			want: []int{1}},
		"many updates: no more than the count": {after: []time.Duration{1, 1, 1, 1}, keep: 3, want: []int{2, 3}},
		"only the current artifact":            {after: []time.Duration{100 * time.Hour}, want: []int{0}},
		"the current artifact is always kept": {after: []time.Duration{time.Hour, time.Hour, time.Hour},
			want: []int{0, 2}},
	} {
		t.Run(reason, func(t *testing.T) {
			clk := newClock()
			s := openStore(t, t.TempDir(), clk)
			var all []*meta.Artifact
			for i, d := range c.after {
				all = append(all, put(t, s, FromMap(map[string]string{"a": "x"}), string(rune('a'+i)), nil))
				clk.SetTime(clk.Now().Add(d))
			}
			removed, err := s.Collect(webapp, all[c.keep])
			must(t, err)
			var left []int
			for i, a := range all {
				if s.Verify(t.Context(), webapp, a) == nil {
					left = append(left, i)
				}
			}
			if !slices.Equal(left, c.want) || len(removed) != len(all)-len(c.want) {
				t.Errorf("left %v, removed %v, want %v", left, removed, c.want)
			}
			if got := names(t, filepath.Join(s.dir, webapp.dir())); len(got) != 2*len(c.want) {
				t.Errorf("remaining files: %q", got)
			}
		})
	}
}

func TestRemoveAndCollectOrphans(t *testing.T) {
	s := openStore(t, t.TempDir(), newClock())
	keys := []Key{webapp, {Kind: "GitRepository", Namespace: "apps", Name: "gone"},
		{Kind: "GitRepository", Namespace: "old", Name: "gone"},
		{Kind: "Bucket", Namespace: "apps", Name: "gone"}}
	var all []*meta.Artifact
	for _, k := range keys {
		a, err := s.Put(t.Context(), k, FromMap(map[string]string{"a": k.Name}), "v1", nil)
		must(t, err)
		all = append(all, a)
	}
	removed, err := s.CollectOrphans("GitRepository", "", keys[:1])
	must(t, err)
	if len(removed) > 0 {
		t.Errorf("removed artifacts that this process put: %v", removed)
	}
	clk := newClock()
	clk.SetTime(clk.Now().Add(time.Minute))
	s = openStore(t, s.dir, clk)
	if removed, err := s.CollectOrphans("GitRepository", "elsewhere", nil); err != nil || len(removed) > 0 {
		t.Errorf("removed artifacts of other namespaces: %v, %v", removed, err)
	}
	removed, err = s.CollectOrphans("GitRepository", "", keys[:1])
	must(t, err)
	if want := []string{"gitrepository/apps/gone", "gitrepository/old/gone"}; !slices.Equal(removed, want) {
		t.Errorf("removed %v, want %v", removed, want)
	}
	must(t, s.Remove(keys[3]))
	must(t, s.Remove(keys[3])) // again
	for i, a := range all {
		_, err := s.Tree(*a)
		if (err == nil) != (i == 0) {
			t.Errorf("%s: %v", a.Path, err)
		}
	}
}

func TestCheckAllFindsWhatIsDamaged(t *testing.T) {
	s := openStore(t, t.TempDir(), newClock())
	first := put(t, s, FromMap(manyFiles(50, 1)), "v1", nil)
	second := put(t, s, FromMap(manyFiles(50, 2)), "v2", first)
	s = openStore(t, s.dir, newClock())
	if damaged := s.CheckAll(t.Context()); len(damaged) > 0 {
		t.Errorf("damaged: %v", damaged)
	}
	damage(t, filepath.Join(s.dir, first.Path), 99)
	s = openStore(t, s.dir, newClock())
	if damaged := s.CheckAll(t.Context()); !slices.Equal(damaged, []string{first.Path}) {
		t.Errorf("damaged: %v", damaged)
	}
	must(t, s.Verify(t.Context(), webapp, second))
	if got := names(t, filepath.Join(s.dir, webapp.dir())); len(got) != 2 {
		t.Errorf("remaining files: %q", got)
	}
}
