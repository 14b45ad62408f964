package packstore

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/guard"
)

// TestAPackIsRefusedBeforeItTakesTheMemoryOfOthers adds a pack of many objects of a few bytes each.
func TestAPackIsRefusedBeforeItTakesTheMemoryOfOthers(t *testing.T) {
	const objects = leasedObjects + 10
	pack := binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), objects)
	for i := range objects {
		pack = append(pack, byte(plumbing.BlobObject)<<4|4)
		var compressed bytes.Buffer
		z := zlib.NewWriter(&compressed)
		if _, err := z.Write(binary.BigEndian.AppendUint32(nil, uint32(i))); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		pack = append(pack, compressed.Bytes()...)
	}
	pack = withChecksum(append(pack, make([]byte, hashSize)...))
	s, budget := openStore(t), guard.NewBudget(leasedObjects*objectBytes+1)
	err := s.Add(guard.WithBudget(t.Context(), budget), bytes.NewReader(pack), Room{})
	if !guard.IsMemory(err) || s.Len() != 0 || budget.Used() != 0 {
		t.Errorf("%v; %d packs, %d bytes used", err, s.Len(), budget.Used())
	}
	budget = guard.NewBudget(2 * leasedObjects * objectBytes)
	err = s.Add(guard.WithBudget(t.Context(), budget), bytes.NewReader(pack), Room{})
	if err != nil || budget.Used() != 0 {
		t.Errorf("with enough memory: %v, %d bytes used", err, budget.Used())
	}
}
