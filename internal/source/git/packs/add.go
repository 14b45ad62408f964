package packs

import (
	"bufio"
	"compress/zlib"
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

// Add stores a pack. A thin one, whose deltas build on objects of the store, is completed with these, so that every pack
// can be read by itself. Whatever happens, the store holds all of the pack or nothing of it.
// ErrMalformed and ErrTooLarge say what is wrong with the pack.
func (s *Store) Add(ctx context.Context, r io.Reader) error {
	f, err := os.CreateTemp(s.dir, temporary+"*"+packSuffix)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // is in place under another name, or of no use
	defer f.Close()           //nolint:errcheck // nothing is written after the checks below
	size, err := io.Copy(f, r)
	if err != nil {
		return err
	}
	b := &builder{ctx: ctx, file: f, end: size - hashSize}
	for _, step := range []func() error{b.scan, func() error { return b.complete(s) }, b.resolve, b.seal} {
		if err := step(); err != nil {
			return err
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
	file    *os.File
	end     int64 // where the objects end, in bytes
	entries []located
	found   map[plumbing.Hash]int64 // offsets of the objects whose hash is known
	wanted  map[plumbing.Hash]bool  // what deltas name as their base by hash
	sum     []byte                  // of the whole pack
	buf     [32 << 10]byte
}

// located is an object or a delta of the file.
type located struct {
	hash   plumbing.Hash // zero until it is known
	offset int64
	crc    uint32 // of its bytes as they lie in the file
}

// smallestEntry is how many bytes an object takes in a pack at the least: a head and an empty zlib stream.
const smallestEntry = 9

// scan reads the whole pack once, checks it, and learns what stands where.
func (b *builder) scan() error {
	r := &tape{Reader: bufio.NewReaderSize(io.NewSectionReader(b.file, 0, b.end), 64<<10)}
	start := make([]byte, packHeader)
	if _, err := io.ReadFull(r, start); err != nil || string(start[:8]) != "PACK\x00\x00\x00\x02" {
		return fmt.Errorf("%w: it has no header", ErrMalformed)
	}
	count := int64(binary.BigEndian.Uint32(start[8:]))
	if count > b.end/smallestEntry {
		return fmt.Errorf("%w: %d objects in %d bytes", ErrMalformed, count, b.end)
	}
	b.entries = make([]located, 0, count)
	b.found, b.wanted = make(map[plumbing.Hash]int64, count), map[plumbing.Hash]bool{}
	for range count {
		if err := b.ctx.Err(); err != nil {
			return err
		}
		if err := b.scanEntry(r); err != nil {
			return fmt.Errorf("%w: object %d of %d: %w", ErrMalformed, len(b.entries)+1, count, err)
		}
	}
	if r.n != b.end {
		return fmt.Errorf("%w: something follows the objects", ErrMalformed)
	}
	sum, err := b.checksum()
	if err != nil {
		return err
	}
	was := make([]byte, hashSize)
	if _, err := b.file.ReadAt(was, b.end); err != nil || string(was) != string(sum) {
		return fmt.Errorf("%w: its checksum is wrong", ErrMalformed)
	}
	return nil
}

func (b *builder) scanEntry(r *tape) error {
	offset := r.n
	h, err := readHead(r, offset)
	if err != nil {
		return err
	}
	l := located{offset: offset}
	if h.isDelta() {
		if !h.ref.IsZero() {
			b.wanted[h.ref] = true
		}
		err = inflateTo(io.Discard, r, h.size, b.buf[:])
	} else {
		hasher := plumbing.NewHasher(h.kind, h.size) // one that knows of made collisions
		err = inflateTo(hasher, r, h.size, b.buf[:])
		l.hash = hasher.Sum()
		b.found[l.hash] = offset
	}
	if err != nil {
		return err
	}
	if l.crc, err = b.crc(offset, r.n); err != nil {
		return err
	}
	b.entries = append(b.entries, l)
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
		if err := writeObject(c, kind, data); err != nil {
			return err
		}
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
	count := binary.BigEndian.AppendUint32(nil, uint32(len(b.entries))) //nolint:gosec // bounded by the size of the pack
	if _, err := b.file.WriteAt(count, packHeader-4); err != nil {
		return err
	}
	var err error
	if b.sum, err = b.checksum(); err != nil {
		return err
	}
	_, err = b.file.WriteAt(b.sum, b.end)
	return err
}

// crc sums up the bytes from an offset of the file to another, as the index wants it.
func (b *builder) crc(from, to int64) (sum uint32, err error) {
	for from < to {
		n, err := b.file.ReadAt(b.buf[:min(to-from, int64(len(b.buf)))], from)
		if err != nil {
			return 0, err
		}
		sum = crc32.Update(sum, crc32.IEEETable, b.buf[:n])
		from += int64(n)
	}
	return sum, nil
}

func (b *builder) checksum() ([]byte, error) {
	h := sha1.New()
	_, err := io.Copy(h, io.NewSectionReader(b.file, 0, b.end))
	return h.Sum(nil), err
}

// writeObject writes an object as it stands in a pack.
func writeObject(w io.Writer, kind plumbing.ObjectType, data []byte) error {
	size := len(data)
	head := []byte{byte(kind)<<4 | byte(size&15)}
	for size >>= 4; size > 0; size >>= 7 {
		head[len(head)-1] |= 0x80
		head = append(head, byte(size&0x7f))
	}
	if _, err := w.Write(head); err != nil {
		return err
	}
	z := zlib.NewWriter(w)
	_, err := z.Write(data)
	return errors.Join(err, z.Close())
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

// tape counts what is read.
type tape struct {
	*bufio.Reader
	n int64
}

func (t *tape) Read(p []byte) (int, error) {
	n, err := t.Reader.Read(p)
	t.n += int64(n)
	return n, err
}

func (t *tape) ReadByte() (byte, error) {
	c, err := t.Reader.ReadByte()
	if err == nil {
		t.n++
	}
	return c, err
}
