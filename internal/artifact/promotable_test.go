package artifact

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/api/meta"
)

func TestPromotableArtifactsAreBounded(t *testing.T) {
	store, err := OpenStore(t.TempDir(), "localhost", Retention{TTL: time.Hour, Count: 100})
	if err != nil {
		t.Fatal(err)
	}
	key := Key{Kind: "GitRepository", Namespace: "apps", Name: "app"}
	dir := t.TempDir()
	s := NewPromotableStore(dir, &Fetcher{Store: store, Client: http.DefaultClient})
	start := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	var all []meta.Artifact
	for i := range maxPromotable + 5 {
		tree := FromMap(map[string]string{"a": fmt.Sprint(i)})
		a, err := store.Put(t.Context(), key, tree, fmt.Sprintf("main@sha1:%d", i), nil)
		if err != nil {
			t.Fatal(err)
		}
		a.LastUpdateTime = meta.TimeOf(start.Add(time.Duration(i) * time.Minute))
		all = append(all, *a)
		isAllowed := func(revision string) bool { return revision == "main@sha1:0" }
		if err := s.Add(t.Context(), "uid", key, *a, isAllowed); err != nil {
			t.Fatal(err)
		}
	}
	s = NewPromotableStore(dir, &Fetcher{Store: store, Client: http.DefaultClient}) // of the next process
	kept := s.List("uid", key)
	if len(kept) != maxPromotable || kept[0].Revision != all[len(all)-1].Revision ||
		kept[len(kept)-1].Revision != "main@sha1:0" {
		t.Errorf("kept %d artifacts, from %s to %s", len(kept), kept[0].Revision, kept[len(kept)-1].Revision)
	}
	if _, err := s.Tree("uid", all[0].Digest); err != nil {
		t.Error(err)
	}
	if len(s.List("other", key)) != 0 || len(s.List("uid", Key{Kind: "Bucket", Namespace: "apps", Name: "app"})) != 0 {
		t.Error("artifacts of another owner or source are listed")
	}
	newest := all[len(all)-1]
	newest.LastUpdateTime = meta.TimeOf(newest.LastUpdateTime.Add(-time.Minute))
	if err := s.Drop("uid", key, newest); err != nil || len(s.List("uid", key)) != 1 {
		t.Errorf("after an apply: %d artifacts (%v)", len(s.List("uid", key)), err)
	}
	if err := s.Forget("uid"); err != nil || len(s.List("uid", key)) != 0 {
		t.Errorf("after the deletion: %d artifacts (%v)", len(s.List("uid", key)), err)
	}
}
