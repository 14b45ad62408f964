package packstore

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/guard"
)

// ErrMalformed is the error for data that is not a valid pack.
var ErrMalformed = errors.New("malformed pack")

// Room bounds what a store writes besides the bytes of a pack that it reads. The zero value has no bound.
type Room struct {
	// Bases is the maximum size, in bytes, of the bases that are added to a thin pack; unlimited if 0. The last one may
	// exceed it.
	Bases int64
	// Writer wraps the writers of these bases and of the index. Its errors end Add.
	Writer func(io.Writer) io.Writer
}

// writer returns a bounded writer to w.
func (r Room) writer(w io.Writer) io.Writer {
	if r.Writer == nil {
		return w
	}
	return r.Writer(w)
}

// Add stores a pack. It adds the missing bases to a thin pack, so that each pack can be read on its own. The store
// contains either the whole pack or nothing of it. The error is ErrMalformed or ErrTooLarge if the pack is not
// acceptable.
func (s *Store) Add(ctx context.Context, r io.Reader, room Room) error {
	f, err := os.CreateTemp(s.dir, temporary+"*"+packSuffix)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it was renamed, or is not needed
	defer f.Close()           //nolint:errcheck // nothing is written after the checks below
	lease := guard.NewLease(ctx, "indexing a git pack")
	defer lease.Release()
	b := &builder{ctx: ctx, file: f, from: newRecorder(r, f), lease: lease, room: room}
	for _, step := range []func() error{b.scan, func() error { return b.addBases(s) }, b.resolve, b.finish} {
		if err := step(); err != nil {
			return cmp.Or(b.from.failed, err)
		}
	}
	return s.install(f.Name(), b)
}

// install renames the index first and then the pack, so that each pack has an index.
func (s *Store) install(file string, b *builder) error {
	f, err := os.CreateTemp(s.dir, temporary+"*"+indexSuffix)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it was renamed, or is not needed
	if err := errors.Join(b.writeIndex(b.room.writer(f)), f.Close()); err != nil {
		return err
	}
	name := filepath.Join(s.dir, fmt.Sprintf("pack-%x", b.sum))
	if err := os.Rename(f.Name(), name+indexSuffix); err != nil {
		return err
	}
	if err := os.Rename(file, name+packSuffix); err != nil {
		return err
	}
	p, err := openPack(name, &s.shared.files)
	if err != nil {
		return err
	}
	s.insert(p)
	return nil
}

// builder checks a received pack and makes it readable on its own.
type builder struct {
	ctx     context.Context
	lease   *guard.Lease
	from    *recorder
	room    Room
	file    *os.File // the pack as received, then the added bases
	end     int64    // offset of the end of the objects
	entries []packEntry
	offsets map[plumbing.Hash]int64 // of the objects whose hash is known
	bases   map[plumbing.Hash]bool  // that deltas name by hash
	sum     []byte                  // checksum of the pack
	buf     [32 << 10]byte

	hasAdded bool // bases were added
}

// packEntry is an object or a delta of the pack.
type packEntry struct {
	hash   plumbing.Hash // zero until it is known
	offset int64
	crc    uint32 // of its compressed bytes
}

// maxPreallocated is the maximum number of objects for which memory is allocated because the header of a pack names
// them.
const maxPreallocated = 1 << 16

// objectBytes is the memory of an object while its pack is indexed.
const objectBytes = 256

// scan stores the received pack, checks it, and records the position of each object.
func (b *builder) scan() error {
	start := make([]byte, packHeader)
	if _, err := io.ReadFull(b.from, start); err != nil || string(start[:8]) != "PACK\x00\x00\x00\x02" {
		return fmt.Errorf("%w: no valid header", ErrMalformed)
	}
	count := int64(binary.BigEndian.Uint32(start[8:]))
	b.entries = make([]packEntry, 0, min(count, maxPreallocated))
	b.offsets, b.bases = make(map[plumbing.Hash]int64, min(count, maxPreallocated)), map[plumbing.Hash]bool{}
	for range count {
		if err := cmp.Or(b.ctx.Err(), b.lease.Take(b.ctx, objectBytes)); err != nil {
			return err
		}
		if err := b.scanEntry(b.from); err != nil {
			return fmt.Errorf("%w: object %d of %d: %w", ErrMalformed, len(b.entries)+1, count, err)
		}
	}
	b.end = b.from.offset()
	b.sum = make([]byte, hashSize)
	if _, err := io.ReadFull(b.from, b.sum); err != nil {
		return fmt.Errorf("%w: no checksum", ErrMalformed)
	}
	if _, err := b.from.ReadByte(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: data after the checksum", ErrMalformed)
	}
	return b.computeSums()
}

func (b *builder) scanEntry(r *recorder) error {
	entry := packEntry{offset: r.offset()}
	h, err := readHeader(r, entry.offset)
	if err != nil {
		return err
	}
	if h.isDelta() {
		if !h.ref.IsZero() {
			b.bases[h.ref] = true
		}
		err = inflateTo(io.Discard, r.Reader, h.size, b.buf[:])
	} else {
		hasher := plumbing.NewHasher(h.kind, h.size) // detects collision attacks
		err = inflateTo(hasher, r.Reader, h.size, b.buf[:])
		entry.hash = hasher.Sum()
		b.offsets[entry.hash] = entry.offset
	}
	b.entries = append(b.entries, entry)
	return err
}

// computeSums verifies the checksum of the pack, and computes the CRC of each entry for the index.
func (b *builder) computeSums() error {
	h := sha1.New()
	r := bufio.NewReaderSize(io.NewSectionReader(b.file, 0, b.end), 256<<10)
	if _, err := io.CopyN(h, r, packHeader); err != nil {
		return err
	}
	for i := range b.entries {
		entry, next := &b.entries[i], b.end
		if i+1 < len(b.entries) {
			next = b.entries[i+1].offset
		}
		c := &counter{Writer: h}
		if _, err := io.CopyN(c, r, next-entry.offset); err != nil {
			return err
		}
		entry.crc = c.crc
	}
	if sum := h.Sum(nil); !bytes.Equal(sum, b.sum) {
		return fmt.Errorf("%w: wrong checksum", ErrMalformed)
	}
	return nil
}

// addBases appends the bases that are missing in a thin pack. A delta of a few bytes may name a base of the maximum
// size.
func (b *builder) addBases(s *Store) error {
	start := b.end
	w := bufio.NewWriter(b.room.writer(io.NewOffsetWriter(b.file, start)))
	for h := range b.bases {
		if _, ok := b.offsets[h]; ok {
			continue
		}
		if err := b.ctx.Err(); err != nil {
			return err
		}
		if most := b.room.Bases; most > 0 && b.end-start > most {
			return fmt.Errorf("%w: the bases of its deltas have more than %d MiB", ErrMalformed, most>>20)
		}
		held := b.lease.Bytes()
		kind, data, err := s.ReadWith(b.ctx, h, b.lease)
		if errors.Is(err, ErrNotFound) {
			continue // it is a delta of the pack, otherwise resolve fails
		}
		if err != nil {
			return err
		}
		c := &counter{Writer: w}
		if err := writeObject(c, Object{Kind: kind, Data: data}); err != nil {
			return err
		}
		b.lease.Shrink(held)
		b.hasAdded = true
		b.entries = append(b.entries, packEntry{hash: h, offset: b.end, crc: c.crc})
		b.offsets[h] = b.end
		b.end += c.n
	}
	return w.Flush()
}

// finish writes the new count and checksum if bases were added.
func (b *builder) finish() error {
	if !b.hasAdded {
		return nil
	}
	count := binary.BigEndian.AppendUint32(nil, uint32(len(b.entries))) // bounded by the size of the pack
	if _, err := b.file.WriteAt(count, packHeader-4); err != nil {
		return err
	}
	h := sha1.New()
	if _, err := io.Copy(h, io.NewSectionReader(b.file, 0, b.end)); err != nil {
		return err
	}
	b.sum = h.Sum(nil)
	_, err := b.file.WriteAt(b.sum, b.end)
	return err
}

// counter counts the bytes that are written, and computes their CRC for the index.
type counter struct {
	io.Writer
	n   int64
	crc uint32
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.n += int64(n)
	c.crc = crc32.Update(c.crc, crc32.IEEETable, p[:n])
	return n, err
}

// recorder is a buffered reader that writes all that it reads to a file.
type recorder struct {
	*bufio.Reader
	src    io.Reader
	dst    io.Writer
	n      int64
	failed error // of a write: then the pack is not to blame
}

func newRecorder(src io.Reader, dst io.Writer) *recorder {
	r := &recorder{src: src, dst: dst}
	r.Reader = bufio.NewReaderSize((*recorderSource)(r), 256<<10)
	return r
}

// offset returns the number of bytes that were taken from the buffer.
func (r *recorder) offset() int64 { return r.n - int64(r.Buffered()) }

// recorderSource fills the buffer of a recorder.
type recorderSource recorder

func (r *recorderSource) Read(p []byte) (int, error) {
	n, err := r.src.Read(p)
	r.n += int64(n)
	if _, r.failed = r.dst.Write(p[:n]); r.failed != nil {
		return 0, r.failed
	}
	return n, err
}
