package artifact

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// TestStorageLimitStopsLargeSourcesOnly has a source that exceeds the limit, and others that go on.
func TestStorageLimitStopsLargeSourcesOnly(t *testing.T) {
	dir := t.TempDir()
	budget := NewBudget(dir, 400<<10)
	budget.Unshared = webapp.Namespace
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
		!strings.Contains(err.Error(), "Remove or suspend large sources, or raise --storage-limit. Sources that "+
			"need no more space go on") || !strings.Contains(err.Error(),
		"0.4 MiB") {
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
	if got := none.Of("apps", "").Writer(&bytes.Buffer{}); got == nil {
		t.Error("no writer")
	}
}

// TestStorageIsSharedByNamespaces has a tenant that stores as much as it can, and others that store later.
func TestStorageIsSharedByNamespaces(t *testing.T) {
	dir := t.TempDir()
	const limit = 1200 << 10
	open := func() *Store {
		budget := NewBudget(dir, limit)
		budget.Unshared = "sluice-system"
		s, err := OpenStore(filepath.Join(dir, "artifacts"), "host", Retention{TTL: time.Hour, Count: 9},
			WithBudget(budget))
		must(t, err)
		return s
	}
	s := open()
	seed := byte(0)
	put := func(namespace, name string, kib int) error {
		seed++
		tree := FromMap(map[string]string{"a": string(random(kib<<10, seed))})
		_, err := s.Put(t.Context(), Key{"Bucket", namespace, name}, tree, string('a'+rune(seed)), nil)
		return err
	}
	must(t, put("other", "superseded", 50))
	must(t, put("other", "superseded", 50))
	var full error
	for i := 0; full == nil && i < 20; i++ {
		full = put("hostile", "s"+string('a'+rune(i)), 100)
	}
	if f := fault.As(full); f == nil || f.Reason != meta.StorageOperationFailedReason || f.Terminal ||
		!strings.Contains(full.Error(), "namespace 'hostile'") || !strings.Contains(full.Error(),
		"Remove or suspend large sources of the namespace, or raise --storage-limit") {
		t.Errorf("got %v", full)
	}
	_, owned := measure(dir)
	if owned["hostile"] < limit/3 || owned["hostile"] > limit/2 {
		t.Errorf("the hostile namespace uses %d bytes of %d", owned["hostile"], limit)
	}
	if got := len(s.files(Key{"Bucket", "other", "superseded"}.dir())); got != 2 {
		t.Errorf("%d artifacts of another namespace remain, want 2", got)
	}
	s = open() // a new process counts what is on the disk
	if put("hostile", "more", 100) == nil {
		t.Error("after a restart, the hostile namespace gets more")
	}
	must(t, put("other", "a", 250))
	must(t, put("sluice-system", "a", 150))
	if err := put("third", "a", 50); err != nil {
		t.Errorf("another namespace gets nothing: %v", err)
	}
}

// TestDirectoriesBelongToNamespaces writes below a directory whose path does not contain the namespace.
func TestDirectoriesBelongToNamespaces(t *testing.T) {
	dir := t.TempDir()
	mirror := filepath.Join(dir, "mirrors", "0123")
	must(t, os.MkdirAll(mirror, 0o700))
	write := func(b *Budget, namespace string, n int) error {
		f, err := os.CreateTemp(mirror, "pack")
		must(t, err)
		defer f.Close()
		_, err = b.Of(namespace, mirror).Writer(f).Write(make([]byte, n))
		return err
	}
	must(t, write(NewBudget(dir, 1000), "hostile", 400))
	again := NewBudget(dir, 1000)
	if err := write(again, "hostile", 200); !errors.Is(err, errShare) {
		t.Errorf("got %v", err)
	}
	must(t, write(again, "other", 200))
}
