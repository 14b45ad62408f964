package packstore

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/guard"
)

// leasedObjects are the objects whose memory is taken at a time.
const leasedObjects = 1 << 20 / objectBytes

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

// counted counts the bytes that are read.
type counted struct {
	io.ReaderAt
	n int
}

func (c *counted) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.ReaderAt.ReadAt(p, off)
	c.n += n
	return n, err
}

// TestMemoryIsTakenBeforeLargeObjectsAreRead reads an object, a delta to it, and both while packs are added.
func TestMemoryIsTakenBeforeLargeObjectsAreRead(t *testing.T) {
	const size, start = 3 << 20, 16 << 10 // start is what may be read before
	base := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(base) // never fails
	changed := append(bytes.Clone(base), 'x')
	from, to := plumbing.ComputeHash(plumbing.BlobObject, base), plumbing.ComputeHash(plumbing.BlobObject, changed)
	delta := Object{Data: Delta(base, changed), Base: from}
	whole := []Object{{Kind: plumbing.BlobObject, Data: base}, delta}
	s := openStore(t)
	if err := s.Put(t.Context(), whole); err != nil {
		t.Fatal(err)
	}
	file := &counted{ReaderAt: s.packs[0].data}
	s.packs[0].data = file
	for name, c := range map[string]struct {
		read plumbing.Hash
		need int64
	}{"object": {read: from, need: size}, "delta": {read: to, need: resultShare*(size+1) + int64(len(delta.Data))}} {
		for _, enough := range []bool{false, true} {
			total := c.need
			if !enough {
				total--
			}
			ctx := guard.WithBudget(t.Context(), guard.NewBudget(total))
			lease, err := guard.BudgetOf(ctx).Acquire(ctx, "a test", 0)
			if err != nil {
				t.Fatal(err)
			}
			file.n = 0
			_, data, err := s.ReadWith(ctx, c.read, lease)
			if enough && (err != nil || len(data) < size || lease.Bytes() != c.need) {
				t.Errorf("%s: %v, %d bytes with %d bytes of memory", name, err, len(data), lease.Bytes())
			}
			if !enough && (!guard.IsMemory(err) || file.n > start) {
				t.Errorf("%s with little memory: %v after reading %d bytes", name, err, file.n)
			}
		}
	}
	ctx := guard.WithBudget(t.Context(), guard.NewBudget(2*leasedObjects*objectBytes))
	_, offset, err := s.find(to)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := guard.BudgetOf(ctx).Acquire(ctx, "a test", 0)
	if err != nil {
		t.Fatal(err)
	}
	file.n = 0
	b := &builder{ctx: ctx, lease: lease}
	if err := b.resolveLarge(s.packs[0], &deltaBases{}, &packEntry{offset: offset}); !guard.IsMemory(err) ||
		file.n > start {
		t.Errorf("hash of the delta: %v after reading %d bytes", err, file.n)
	}
	for name, objects := range map[string][]Object{"a delta": whole, "a base": {delta}} {
		var pack bytes.Buffer
		if err := Encode(&pack, objects); err != nil {
			t.Fatal(err)
		}
		file.n = 0
		written := 0
		err := s.Add(ctx, &pack, Room{Writer: func(w io.Writer) io.Writer {
			return writerFunc{w, func(n int) error { written += n; return nil }}
		}})
		if !guard.IsMemory(err) || file.n > start || written > 0 || guard.BudgetOf(ctx).Used() != 0 {
			t.Errorf("adding %s: %v after reading %d bytes of the store and writing %d", name, err, file.n, written)
		}
	}
}

// TestSmallBasesAreCachedWithTheMemoryThatTheyTake caches more objects of one byte than there is memory for.
func TestSmallBasesAreCachedWithTheMemoryThatTheyTake(t *testing.T) {
	shared := &Shared{}
	cache, p := &shared.bases, &pack{}
	most := 0
	for i := range 300_000 {
		cache.put(location{p, int64(i)}, object{plumbing.BlobObject, make([]byte, 1, 64)})
		if _, ok := cache.get(location{p, int64(i)}); !ok || cache.size > maxBases {
			t.Fatalf("object %d is cached: %t; the cache has %d bytes", i, ok, cache.size)
		}
		most = max(most, len(cache.objects))
	}
	if limit := maxBases / (64 + baseOverhead); most > limit {
		t.Errorf("the cache had %d objects, want at most %d", most, limit)
	}
	cache.put(location{p, 0}, object{plumbing.BlobObject, make([]byte, 1, maxBases)})
	if cache.size > maxBases {
		t.Errorf("a short object in a large array is cached: %d bytes", cache.size)
	}
	shared.DropCache()
	if cache.size != 0 || len(cache.objects) != 0 {
		t.Errorf("%d objects of %d bytes are left", len(cache.objects), cache.size)
	}
}
