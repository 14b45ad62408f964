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
)

// ErrMalformed says that what came is not a pack.
var ErrMalformed = errors.New("malformed pack")

// Add stores a pack. A thin one, whose deltas build on objects of the store, is completed with these, so that
// every pack can be read by itself. Whatever happens, the store holds all of the pack or nothing of it.
// ErrMalformed and ErrTooLarge say what is wrong with the pack.
func (s *Store) Add(ctx context.Context, r io.Reader) error {
	f, err := os.CreateTemp(s.dir, temporary+"*"+packSuffix)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // is in place under another name, or of no use
	defer f.Close()           //nolint:errcheck // nothing is written after the checks below
	b := &builder{ctx: ctx, file: f, from: newTape(r, f)}
	for _, step := range []func() error{b.scan, func() error { return b.complete(s) }, b.resolve, b.seal} {
		if err := step(); err != nil {
			return cmp.Or(b.from.failed, err)
		}
	}
	return s.install(f.Name(), b)
}

// install puts the index in place, then the pack: a pack that is there has its index.
func (s *Store) install(file string, b *builder) error {
	f, err := os.CreateTemp(s.dir, temporary+"*"+indexSuffix)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // is in place under another name, or of no use
	if err := errors.Join(b.writeIndex(f), f.Close()); err != nil {
		return err
	}
	name := filepath.Join(s.dir, fmt.Sprintf("pack-%x", b.sum))
	if err := os.Rename(f.Name(), name+indexSuffix); err != nil {
		return err
	}
	if err := os.Rename(file, name+packSuffix); err != nil {
		return err
	}
	p, err := openPack(name)
	if err != nil {
		return err
	}
	s.insert(p)
	return nil
}

// builder makes a pack that can be kept out of a file that came.
type builder struct {
	ctx     context.Context
	from    *tape
	file    *os.File // what came so far, and then what completes it
	end     int64    // where the objects end, in bytes
	entries []located
	found   map[plumbing.Hash]int64 // offsets of the objects whose hash is known
	wanted  map[plumbing.Hash]bool  // what deltas name as their base by hash
	sum     []byte                  // of the whole pack, as long as nothing was added
	buf     [32 << 10]byte

	completed bool // by what its deltas build on
}

// located is an object or a delta of the file.
type located struct {
	hash   plumbing.Hash // zero until it is known
	offset int64
	crc    uint32 // of its bytes as they lie in the file
}

// maxAhead is for how many objects room is made because the head of a pack claims so; more are believed when they come.
const maxAhead = 1 << 16

// scan reads the pack as it comes, keeps and checks it, and learns what stands where.
func (b *builder) scan() error {
	start := make([]byte, packHeader)
	if _, err := io.ReadFull(b.from, start); err != nil || string(start[:8]) != "PACK\x00\x00\x00\x02" {
		return fmt.Errorf("%w: it has no header", ErrMalformed)
	}
	count := int64(binary.BigEndian.Uint32(start[8:]))
	b.entries = make([]located, 0, min(count, maxAhead))
	b.found, b.wanted = make(map[plumbing.Hash]int64, min(count, maxAhead)), map[plumbing.Hash]bool{}
	for range count {
		if err := b.ctx.Err(); err != nil {
			return err
		}
		if err := b.scanEntry(b.from); err != nil {
			return fmt.Errorf("%w: object %d of %d: %w", ErrMalformed, len(b.entries)+1, count, err)
		}
	}
	b.end = b.from.at()
	b.sum = make([]byte, hashSize)
	if _, err := io.ReadFull(b.from, b.sum); err != nil {
		return fmt.Errorf("%w: it has no checksum", ErrMalformed)
	}
	if _, err := b.from.ReadByte(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: something follows the objects", ErrMalformed)
	}
	return b.sumUp()
}

func (b *builder) scanEntry(r *tape) error {
	l := located{offset: r.at()}
	h, err := readHead(r, l.offset)
	if err != nil {
		return err
	}
	if h.isDelta() {
		if !h.ref.IsZero() {
			b.wanted[h.ref] = true
		}
		err = inflateTo(io.Discard, r.Reader, h.size, b.buf[:])
	} else {
		hasher := plumbing.NewHasher(h.kind, h.size) // one that knows of made collisions
		err = inflateTo(hasher, r.Reader, h.size, b.buf[:])
		l.hash = hasher.Sum()
		b.found[l.hash] = l.offset
	}
	b.entries = append(b.entries, l)
	return err
}

// sumUp compares the pack with its checksum, and sums up each object as the index wants it.
func (b *builder) sumUp() error {
	h := sha1.New()
	r := bufio.NewReaderSize(io.NewSectionReader(b.file, 0, b.end), 256<<10)
	if _, err := io.CopyN(h, r, packHeader); err != nil {
		return err
	}
	for i := range b.entries {
		l, next := &b.entries[i], b.end
		if i+1 < len(b.entries) {
			next = b.entries[i+1].offset
		}
		c := &counter{Writer: h}
		if _, err := io.CopyN(c, r, next-l.offset); err != nil {
			return err
		}
		l.crc = c.crc
	}
	if sum := h.Sum(nil); !bytes.Equal(sum, b.sum) {
		return fmt.Errorf("%w: its checksum is wrong", ErrMalformed)
	}
	return nil
}

// complete appends the bases that the deltas of a thin pack build on.
func (b *builder) complete(s *Store) error {
	w := bufio.NewWriter(io.NewOffsetWriter(b.file, b.end))
	for h := range b.wanted {
		if _, ok := b.found[h]; ok {
			continue
		}
		kind, data, err := s.Read(h)
		if errors.Is(err, ErrNotFound) {
			continue // a delta of the pack itself, or else the pack is refused below
		}
		if err != nil {
			return err
		}
		c := &counter{Writer: w}
		if err := writeObject(c, Object{Kind: kind, Data: data}); err != nil {
			return err
		}
		b.completed = true
		b.entries = append(b.entries, located{hash: h, offset: b.end, crc: c.crc})
		b.found[h] = b.end
		b.end += c.n
	}
	return w.Flush()
}

// maxRounds bounds how often bases are looked for that stand behind their deltas, which no server is known to send.
const maxRounds = 16

// resolve learns the hashes of the deltas.
func (b *builder) resolve() error {
	p := &pack{name: b.file.Name(), data: b.file, end: b.end, found: b.found}
	known := &bases{}
	missing := error(nil)
	for range maxRounds {
		missing = nil
		for i := range b.entries {
			l := &b.entries[i]
			if !l.hash.IsZero() {
				continue
			}
			if err := b.ctx.Err(); err != nil {
				return err
			}
			o, err := p.read(l.offset, known)
			if errors.Is(err, errNoBase) {
				missing = err
				continue
			}
			if err != nil {
				return fmt.Errorf("%w: %w", ErrMalformed, err)
			}
			l.hash = plumbing.ComputeHash(o.kind, o.data)
			b.found[l.hash] = l.offset
		}
		if missing == nil {
			return nil
		}
	}
	return fmt.Errorf("%w: %w", ErrMalformed, missing)
}

// seal writes the count and the checksum of a pack that was completed.
func (b *builder) seal() error {
	if !b.completed {
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

// counter counts what is written, and sums it up as the index wants it.
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

// tape is what comes: it is kept in a file as it is read.
type tape struct {
	*bufio.Reader
	src    io.Reader
	dst    io.Writer
	n      int64
	failed error // of keeping it: then it is not the pack that is wrong
}

func newTape(src io.Reader, dst io.Writer) *tape {
	t := &tape{src: src, dst: dst}
	t.Reader = bufio.NewReaderSize((*recorder)(t), 256<<10)
	return t
}

// at returns how many bytes were taken.
func (t *tape) at() int64 { return t.n - int64(t.Buffered()) }

// recorder is the side of a tape that reads ahead.
type recorder tape

func (r *recorder) Read(p []byte) (int, error) {
	n, err := r.src.Read(p)
	r.n += int64(n)
	if _, r.failed = r.dst.Write(p[:n]); r.failed != nil {
		return 0, r.failed
	}
	return n, err
}
