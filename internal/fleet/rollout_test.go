package fleet

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// edge returns a cluster of stage canary whose source is Ready at a revision for some minutes.
func edge(name, revision string, minutes int, edit ...func(*Cluster)) Cluster {
	c := Cluster{Name: name, Status: Reporting, Labels: map[string]string{"stage": "canary"}, Summary: &Summary{
		Revisions: []Revision{{Source: "GitRepository/a/b", Revision: revision, Objects: 2, Current: 2,
			Since: noon.Add(-time.Duration(minutes) * time.Minute)}}}}
	for _, f := range edit {
		f(&c)
	}
	return c
}

func moving(c *Cluster) { c.Summary.Revisions[0].Current = 1 }

func TestRollout(t *testing.T) {
	status := func(s Status) func(*Cluster) { return func(c *Cluster) { c.Status = s } }
	all := func(cs ...Cluster) []Cluster { return cs }
	for _, test := range []struct {
		name     string
		clusters []Cluster
		share    int
		at       string
		want     string // revision, ready/needed/clusters, minutes since
		failed   bool
		waits    string
	}{
		{name: "none", clusters: all(), share: 100, want: " 0/1/0 0"},
		{name: "other labels", clusters: all(edge("a", "r1", 5, func(c *Cluster) { c.Labels = nil })), share: 100,
			want: " 0/1/0 0"},
		{name: "all", clusters: all(edge("a", "main@sha1:1", 5), edge("b", "v1@sha1:1", 3)), share: 100,
			want: "main@sha1:1 2/2/2 3"},
		{name: "two revisions", clusters: all(edge("a", "r1", 5), edge("b", "r2", 3)), share: 100, want: "r1 1/2/2 0"},
		{name: "a share", clusters: all(edge("a", "r2", 5), edge("b", "r2", 3), edge("c", "r2", 1, moving)),
			share: 50, want: "r2 2/2/3 3", waits: "cluster 'c' has 1 of 2 objects Ready at revision 'r2'"},
		{name: "a share rounds up", clusters: all(edge("a", "r2", 5), edge("b", "r1", 3), edge("c", "r1", 2)),
			share: 67, want: "r1 2/3/3 0"},
		{name: "more do not matter", clusters: all(edge("a", "r2", 5), edge("b", "r2", 3), edge("c", "r2", 1)),
			share: 60, want: "r2 3/2/3 3"},
		{name: "the later of two", clusters: all(edge("a", "r1", 50), edge("b", "r1", 50), edge("c", "r2", 5)),
			share: 30, want: "r2 1/1/3 5"},
		{name: "silent", clusters: all(edge("a", "r1", 5), edge("b", "r1", 3, status(Silent))), share: 100,
			want: "r1 1/2/2 0", waits: "cluster 'b' is silent"},
		{name: "expected", clusters: all(Cluster{Name: "a", Status: Expected,
			Labels: map[string]string{"stage": "canary"}}), share: 100, want: " 0/1/1 0",
			waits: "cluster 'a' has never reported"},
		{name: "no such source", clusters: all(edge("a", "r1", 5, func(c *Cluster) { c.Summary.Revisions = nil })),
			share: 100, want: " 0/1/1 0", waits: "cluster 'a' does not report GitRepository/a/b"},
		{name: "the asking cluster", clusters: all(edge("me", "r0", 5), edge("a", "r1", 3)), share: 100,
			want: "r1 1/1/1 3"},
		{name: "skew", clusters: all(edge("a", "r1", -50, func(c *Cluster) { c.Skew = 3600 })), share: 100,
			want: "r1 1/1/1 10"},
		{name: "failed", clusters: all(edge("a", "r1", 5), edge("b", "r1", 3, moving)), share: 100, at: "r1",
			want: "r1 1/2/2 0", failed: true},
		{name: "failed in few", clusters: all(edge("a", "r1", 5), edge("b", "r1", 3, moving)), share: 50, at: "r1",
			want: "r1 1/1/2 5"},
		{name: "moves on", clusters: all(edge("a", "r1", 5), edge("b", "r2", 3, moving)), share: 100, at: "r1",
			want: "r1 1/2/2 0"},
	} {
		q := Question{Labels: map[string]string{"stage": "canary"}, Share: test.share, Source: "GitRepository/a/b",
			At: test.at, Except: "me"}
		r := q.Answer(test.clusters, noon)
		minutes := 0
		if !r.Since.IsZero() {
			minutes = int(noon.Sub(r.Since).Minutes())
		}
		got := strings.Join([]string{r.Revision, ratio(r.Ready, r.Needed, r.Clusters), ratio(minutes)}, " ")
		if got != test.want || r.HasFailed != test.failed ||
			test.waits != "" && strings.Join(r.Waiting, "") != test.waits {
			t.Errorf("%s: %s, failed %t, waits %q; want %s", test.name, got, r.HasFailed, r.Waiting, test.want)
		}
	}
}

func ratio(numbers ...int) string {
	var texts []string
	for _, n := range numbers {
		texts = append(texts, strconv.Itoa(n))
	}
	return strings.Join(texts, "/")
}
