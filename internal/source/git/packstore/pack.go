package packstore

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/klauspost/compress/zlib"
)

// The formats are those of gitformat-pack(5): packs and indexes in version 2.
const (
	hashSize    = 20
	packHeader  = 12
	fanoutStart = 8
	fanoutEnd   = fanoutStart + 256*4
	// maxChain is the maximum number of deltas of an object, as in git.
	maxChain = 4095
)

// errLarger is the error for an object that has more bytes than were asked for.
var errLarger = errors.New("an object is larger than what was asked for")

// errChain is the error for an object with more than maxChain deltas.
var errChain = errors.New("an object has too many deltas")

// errNoBase is the error for a delta whose base is not in the pack.
var errNoBase = errors.New("the base of a delta is missing")

// pack is a pack file and its index.
type pack struct {
	name    string // path without suffix
	data    io.ReaderAt
	end     int64 // offset of the end of the objects
	index   io.ReaderAt
	count   int
	offsets map[plumbing.Hash]int64 // used instead of the index if not nil
}

// openPack opens name.pack and name.idx, and checks that they are complete and belong together. Objects are
// checked when they are read.
func openPack(name string, files *pool) (*pack, error) {
	data, index := &handle{path: name + packSuffix, pool: files}, &handle{path: name + indexSuffix, pool: files}
	size, err := sizeOf(data.path)
	if err != nil {
		return nil, err
	}
	indexSize, err := sizeOf(index.path)
	if err != nil {
		return nil, err
	}
	p := &pack{name: name, data: data, end: size - hashSize, index: index}
	if err := p.check(size, indexSize); err != nil {
		return nil, damaged(name, err)
	}
	return p, nil
}

func sizeOf(file string) (int64, error) {
	info, err := os.Stat(file)
	if errors.Is(err, os.ErrNotExist) {
		return 0, damaged(file, err)
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// detach keeps the pack readable after its files are removed.
func (p *pack) detach() error {
	return errors.Join(p.data.(*handle).detach(), p.index.(*handle).detach())
}

func (p *pack) check(size, indexSize int64) error {
	head, tail := make([]byte, packHeader), make([]byte, hashSize)
	table, sums := make([]byte, fanoutEnd), make([]byte, 2*hashSize)
	if size < packHeader+hashSize || indexSize < fanoutEnd+2*hashSize {
		return io.ErrUnexpectedEOF
	}
	for _, part := range []struct {
		r   io.ReaderAt
		b   []byte
		off int64
	}{{r: p.data, b: head, off: 0}, {r: p.data, b: tail, off: p.end}, {r: p.index, b: table, off: 0},
		{r: p.index, b: sums, off: indexSize - 2*hashSize}} {
		if _, err := part.r.ReadAt(part.b, part.off); err != nil {
			return err
		}
	}
	if !bytes.Equal(head[:8], []byte("PACK\x00\x00\x00\x02")) ||
		!bytes.Equal(table[:8], []byte("\xfftOc\x00\x00\x00\x02")) {
		return errors.New("not a pack and its index")
	}
	if !bytes.Equal(tail, sums[:hashSize]) {
		return errors.New("the index is of another pack")
	}
	last := uint32(0)
	for at := fanoutStart; at < fanoutEnd; at += 4 {
		n := binary.BigEndian.Uint32(table[at:])
		if n < last {
			return errors.New("the index is not sorted")
		}
		last = n
	}
	p.count = int(last)
	if indexSize < fanoutEnd+int64(p.count)*(hashSize+4+4)+2*hashSize {
		return errors.New("the index is too short")
	}
	return nil
}

// header precedes the compressed bytes of an object or a delta.
type header struct {
	kind plumbing.ObjectType
	size int64         // decompressed, in bytes
	base int64         // offset of the base of a delta, 0 if there is none or ref is set
	ref  plumbing.Hash // hash of the base of a delta, if it is named by hash
}

func (h *header) isDelta() bool { return h.kind.IsDelta() }

// byteReader is a reader from which the decompressor takes no more bytes than it needs.
type byteReader interface {
	io.Reader
	io.ByteReader
}

// readHeader reads the header at offset.
func readHeader(r byteReader, offset int64) (header, error) {
	var h header
	b, err := r.ReadByte()
	if err != nil {
		return h, err
	}
	h.kind, h.size = plumbing.ObjectType(b>>4&7), int64(b&15)
	for shift := 4; b&0x80 != 0; shift += 7 {
		if b, err = r.ReadByte(); err != nil {
			return h, err
		}
		if shift > 50 {
			return h, errors.New("the size of an object is malformed")
		}
		h.size |= int64(b&0x7f) << shift
	}
	switch h.kind {
	case plumbing.CommitObject, plumbing.TreeObject, plumbing.BlobObject, plumbing.TagObject:
	case plumbing.OFSDeltaObject:
		h.base, err = readBaseOffset(r, offset)
	case plumbing.REFDeltaObject:
		_, err = io.ReadFull(r, h.ref[:])
	default:
		err = fmt.Errorf("unknown object type %d", h.kind)
	}
	return h, err
}

// readBaseOffset reads the offset of a base, which is relative to its delta and precedes it.
func readBaseOffset(r io.ByteReader, offset int64) (int64, error) {
	b, err := r.ReadByte()
	back := int64(b & 0x7f)
	for ; err == nil && b&0x80 != 0 && back < offset; back = (back+1)<<7 | int64(b&0x7f) {
		b, err = r.ReadByte()
	}
	if err != nil {
		return 0, err
	}
	if back <= 0 || back > offset-packHeader {
		return 0, errors.New("the base of a delta is out of range")
	}
	return offset - back, nil
}

// entry is an object or a delta of the pack. body contains its compressed bytes.
type entry struct {
	header
	body *bufio.Reader
}

func (p *pack) entry(offset int64) (entry, error) {
	if offset < packHeader || offset >= p.end {
		return entry{}, damaged(p.name, fmt.Errorf("no object at offset %d", offset))
	}
	e := entry{body: readers.Get().(*bufio.Reader)}
	e.body.Reset(io.NewSectionReader(p.data, offset, p.end-offset))
	var err error
	if e.header, err = readHeader(e.body, offset); err == nil && !e.ref.IsZero() {
		e.base, err = p.baseOffset(e.ref)
	}
	if err != nil {
		e.close()
		return entry{}, damaged(p.name, err)
	}
	return e, nil
}

// baseOffset returns the offset of a base that is named by its hash.
func (p *pack) baseOffset(h plumbing.Hash) (int64, error) {
	offset, ok, err := p.find(h)
	if err == nil && !ok {
		err = fmt.Errorf("%w: %s", errNoBase, h)
	}
	return offset, err
}

// readAtMost returns the object at an offset. The error is errLarger if it, an object that it is a delta of, or all
// deltas together have more than most bytes.
func (p *pack) readAtMost(offset, most int64, cache *deltaBases) (object, error) {
	var deltas [][]byte
	var locations []location // of the deltas
	var o object
	total := 0 // bytes of the deltas
	for o.kind == 0 {
		if cached, ok := cache.get(location{p, offset}); ok {
			o = cached
			break
		}
		e, err := p.entry(offset)
		if err != nil {
			return o, err
		}
		data, err := e.inflateAtMost(most)
		e.close()
		if errors.Is(err, errLarger) {
			return o, err
		}
		if err != nil {
			return o, damaged(p.name, err)
		}
		if !e.isDelta() {
			o = object{e.kind, data}
			if len(deltas) > 0 {
				cache.put(location{p, offset}, o)
			}
			break
		}
		if total += len(data); total > maxObject {
			return o, ErrTooLarge
		}
		if int64(total) > most {
			return o, errLarger
		}
		if len(deltas) == maxChain {
			return o, damaged(p.name, errChain)
		}
		deltas, locations = append(deltas, data), append(locations, location{p, offset})
		offset = e.base
	}
	for i := len(deltas) - 1; i >= 0; i-- {
		data, err := apply(o.data, deltas[i])
		if err != nil {
			return o, damaged(p.name, err)
		}
		o.data = data
		if i > 0 {
			cache.put(locations[i], o)
		}
	}
	return o, nil
}

// apply returns the object that results from its base and a delta.
func apply(base, delta []byte) ([]byte, error) {
	from, n := binary.Uvarint(delta)
	if n <= 0 || from != uint64(len(base)) {
		return nil, packfile.ErrInvalidDelta
	}
	to, m := binary.Uvarint(delta[n:])
	if m <= 0 {
		return nil, packfile.ErrInvalidDelta
	}
	if to > maxObject {
		return nil, ErrTooLarge
	}
	return packfile.PatchDelta(base, delta)
}

// inflateAtMost returns the decompressed bytes of an entry. The error is errLarger if they, or the result of a delta,
// are more than most.
func (e *entry) inflateAtMost(most int64) ([]byte, error) {
	if e.size > most && most < maxObject {
		return nil, errLarger
	}
	data, err := e.inflate()
	if err != nil || !e.isDelta() {
		return data, err
	}
	_, n := binary.Uvarint(data)
	if n <= 0 {
		return nil, packfile.ErrInvalidDelta
	}
	if to, m := binary.Uvarint(data[n:]); m > 0 && to > uint64(most) && most < maxObject {
		return nil, errLarger
	}
	return data, nil
}

// inflate returns the decompressed bytes of an entry, whose number must match its header.
func (e *entry) inflate() ([]byte, error) {
	if e.size > maxObject {
		return nil, ErrTooLarge
	}
	z, err := inflater(e.body)
	if err != nil {
		return nil, err
	}
	defer inflaters.Put(z)
	b := make([]byte, e.size)
	if _, err := io.ReadFull(z, b); err != nil {
		return nil, err
	}
	return b, checkEnd(z)
}

func (e *entry) close() { readers.Put(e.body) }

// inflateTo decompresses r to w. The result must have size bytes. It reads no byte of r beyond the compressed data.
func inflateTo(w io.Writer, r byteReader, size int64, buf []byte) error {
	z, err := inflater(r)
	if err != nil {
		return err
	}
	defer inflaters.Put(z)
	for size > 0 {
		n, err := io.ReadFull(z, buf[:min(size, int64(len(buf)))])
		if err != nil {
			return err
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
		size -= int64(n)
	}
	return checkEnd(z)
}

// checkEnd reads the checksum, and checks that the data ends.
func checkEnd(z zreader) error {
	var more [1]byte
	if n, err := z.Read(more[:]); n != 0 || !errors.Is(err, io.EOF) {
		return errors.Join(err, errors.New("an object is longer than its header states"))
	}
	return nil
}

// zreader is a zlib reader.
type zreader interface {
	io.Reader
	zlib.Resetter
}

var (
	readers   = sync.Pool{New: func() any { return bufio.NewReader(nil) }}
	inflaters sync.Pool // of zreader
)

func inflater(r byteReader) (zreader, error) {
	if z, ok := inflaters.Get().(zreader); ok {
		return z, z.Reset(r, nil)
	}
	z, err := zlib.NewReader(r)
	if err != nil {
		return nil, err
	}
	return z.(zreader), nil
}
