package git

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/source/git/packstore"
)

// TestManyShallowCommitsAreRecordedOnce records more commits than could be compared with each other.
func TestManyShallowCommitsAreRecordedOnce(t *testing.T) {
	r, err := createRepository(t.TempDir(), &packstore.Shared{})
	if err != nil {
		t.Fatal(err)
	}
	shallow := make([]plumbing.Hash, 300_000)
	for i := range shallow {
		binary.BigEndian.PutUint32(shallow[i][:], uint32(i))
	}
	for _, more := range [][]plumbing.Hash{shallow[:10], append(slices.Clone(shallow), shallow...)} {
		if err := r.record(more); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(r.shallow, shallow) {
		t.Errorf("recorded %d commits, want %d", len(r.shallow), len(shallow))
	}
}
