package packstore

import (
	"bytes"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
)

func TestPutAndAddThinPack(t *testing.T) {
	s, err := Open(t.TempDir(), &Shared{})
	if err != nil {
		t.Fatal(err)
	}
	long := bytes.Repeat([]byte("a line of many\n"), 10_000)
	changed := append(bytes.Clone(long), "and one more\n"...)
	from, to := plumbing.ComputeHash(plumbing.BlobObject, long), plumbing.ComputeHash(plumbing.BlobObject, changed)
	if err := s.Put(t.Context(), []Object{{Kind: plumbing.BlobObject, Data: long},
		{Kind: plumbing.TreeObject}}); err != nil {
		t.Fatal(err)
	}
	delta := Delta(long, changed)
	var thin bytes.Buffer
	if err := Encode(&thin, []Object{{Kind: plumbing.BlobObject, Data: delta, Base: from}}); err != nil {
		t.Fatal(err)
	}
	if thin.Len() > 200 {
		t.Errorf("one additional line takes %d bytes", thin.Len())
	}
	if err := s.Add(t.Context(), &thin, Room{}); err != nil {
		t.Fatal(err)
	}
	for h, want := range map[plumbing.Hash][]byte{from: long, to: changed,
		plumbing.ComputeHash(plumbing.TreeObject, nil): {}} {
		if _, data, err := s.Read(h); err != nil || !bytes.Equal(data, want) {
			t.Errorf("%s: %d bytes, %v; want %d", h, len(data), err, len(want))
		}
	}
	if Delta([]byte("abc"), []byte("xyz")) != nil {
		t.Error("Delta returns a delta that is not shorter")
	}
}
