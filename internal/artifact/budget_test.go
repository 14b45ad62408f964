package artifact

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// TestStorageLimitStopsLargeSourcesOnly has a source that exceeds the limit, and others that go on.
func TestStorageLimitStopsLargeSourcesOnly(t *testing.T) {
	dir := t.TempDir()
	budget := NewBudget(dir, 400<<10)
	s, err := OpenStore(dir, "host", Retention{TTL: time.Minute, Count: 2}, WithBudget(budget))
	must(t, err)
	tree := func(kib int, seed byte) *Tree {
		return FromMap(map[string]string{"a": string(random(kib<<10, seed))})
	}
	other := Key{"Bucket", "apps", "other"}
	first, err := s.Put(t.Context(), other, tree(100, 1), "v1", nil)
	must(t, err)
	_, err = s.Put(t.Context(), webapp, tree(500, 2), "v1", nil)
	if f := fault.As(err); f == nil || f.Reason != meta.StorageOperationFailedReason || f.Terminal ||
		!strings.Contains(err.Error(), "--storage-limit") || !strings.Contains(err.Error(), "0.4 MiB") {
		t.Errorf("got %v", err)
	}
	if _, err := s.PutFile(t.Context(), webapp, ".tgz", bytes.NewReader(random(500<<10, 3)), "v1", nil); err == nil {
		t.Error("a file exceeds the limit")
	}
	if left := names(t, s.dir+"/"+webapp.dir()); len(left) > 0 {
		t.Errorf("incomplete files remain: %q", left)
	}
	last := first
	for i := range byte(8) { // superseded artifacts make room
		last, err = s.Put(t.Context(), other, tree(100, 10+i), string('a'+rune(i)), last)
		must(t, err)
	}
	must(t, s.Verify(t.Context(), other, last))
	if used := sizeOf(dir); used > 400<<10 {
		t.Errorf("%d bytes are used", used)
	}
	if _, err := s.Put(t.Context(), webapp, tree(50, 30), "v1", nil); err != nil {
		t.Errorf("a small artifact of the other source: %v", err)
	}
}

// TestStorageLimitIsDerivedFromDisk has no limit of its own.
func TestStorageLimitIsDerivedFromDisk(t *testing.T) {
	dir := t.TempDir()
	_, size, ok := space(dir)
	if b := NewBudget(dir, 0); ok && b.limit != int64(size/10*9) || !ok && b.limit != 0 {
		t.Errorf("limit %d of a disk of %d bytes", b.limit, size)
	}
	var none *Budget
	if got := none.Writer(&bytes.Buffer{}); got == nil {
		t.Error("no writer")
	}
}
