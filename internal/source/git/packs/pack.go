package packs

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
)

// The layouts are those of git's gitformat-pack(5): a pack of version 2 and an index of version 2.
const (
	hashSize   = 20
	packHeader = 12
	fanoutEnd  = 8 + 256*4
	// smallIndex bounds, in bytes, an index that is held in memory rather than kept open.
	smallIndex = 64 << 10
	// maxChain bounds how many deltas lead to an object; git makes no more than 4095.
	maxChain = 4095
)

// errNoBase says that a delta builds on an object that is not in its pack.
var errNoBase = errors.New("delta builds on an object that is not there")

// pack is a pack file and its index.
type pack struct {
	name   string // path without suffix
	data   io.ReaderAt
	end    int64 // where the objects end, in bytes
	index  io.ReaderAt
	count  int
	fanout [256]uint32
	found  map[plumbing.Hash]int64 // instead of an index, while there is none yet
}

// openPack opens name.pack and name.idx, and checks that they are whole and belong together. What is inside is checked
// when it is read.
func openPack(name string) (*pack, error) {
	data, size, err := open(name + packSuffix)
	if err != nil {
		return nil, err
	}
	index, indexSize, err := open(name + indexSuffix)
	if err != nil {
		return nil, errors.Join(err, data.Close())
	}
	p := &pack{name: name, data: data, end: size - hashSize, index: index}
	if indexSize <= smallIndex {
		b := make([]byte, indexSize)
		if _, err := index.ReadAt(b, 0); err != nil {
			return nil, errors.Join(damaged(name, err), data.Close(), index.Close())
		}
		p.index = bytes.NewReader(b)
		if err := index.Close(); err != nil {
			return nil, errors.Join(err, data.Close())
		}
	}
	if err := p.check(size, indexSize); err != nil {
		return nil, damaged(name, err) // the collector closes the files
	}
	return p, nil
}

func open(file string) (*os.File, int64, error) {
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, 0, damaged(file, err)
	}
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
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
	}{{p.data, head, 0}, {p.data, tail, p.end}, {p.index, table, 0}, {p.index, sums, indexSize - 2*hashSize}} {
		if _, err := part.r.ReadAt(part.b, part.off); err != nil {
			return err
		}
	}
	if !bytes.Equal(head[:8], []byte("PACK\x00\x00\x00\x02")) || !bytes.Equal(table[:8], []byte("\xfftOc\x00\x00\x00\x02")) {
		return errors.New("not a pack and its index")
	}
	if !bytes.Equal(tail, sums[:hashSize]) {
		return errors.New("the pack is not the one of its index")
	}
	last := uint32(0)
	for i := range p.fanout {
		p.fanout[i] = binary.BigEndian.Uint32(table[8+4*i:])
		if p.fanout[i] < last {
			return errors.New("the index is out of order")
		}
		last = p.fanout[i]
	}
	p.count = int(last)
	if indexSize < fanoutEnd+int64(p.count)*(hashSize+4+4)+2*hashSize {
		return errors.New("the index is too short")
	}
	return nil
}

// find looks the offset of an object up.
func (p *pack) find(h plumbing.Hash) (int64, bool, error) {
	if p.found != nil {
		offset, ok := p.found[h]
		return offset, ok, nil
	}
	low, high := 0, int(p.fanout[h[0]])
	if h[0] > 0 {
		low = int(p.fanout[h[0]-1])
	}
	var at plumbing.Hash
	for low < high {
		mid := (low + high) / 2
		if _, err := p.index.ReadAt(at[:], fanoutEnd+int64(mid)*hashSize); err != nil {
			return 0, false, damaged(p.name, err)
		}
		switch c := bytes.Compare(h[:], at[:]); {
		case c == 0:
			offset, err := p.offset(mid)
			return offset, err == nil, err
		case c < 0:
			high = mid
		default:
			low = mid + 1
		}
	}
	return 0, false, nil
}

// offset reads where the i-th object of the index is.
func (p *pack) offset(i int) (int64, error) {
	var b [8]byte
	small := fanoutEnd + int64(p.count)*(hashSize+4)
	if _, err := p.index.ReadAt(b[:4], small+int64(i)*4); err != nil {
		return 0, damaged(p.name, err)
	}
	v := binary.BigEndian.Uint32(b[:4])
	if v&(1<<31) == 0 {
		return int64(v), nil
	}
	large := small + int64(p.count)*4
	if _, err := p.index.ReadAt(b[:], large+int64(v&^(1<<31))*8); err != nil {
		return 0, damaged(p.name, err)
	}
	return int64(binary.BigEndian.Uint64(b[:])), nil //nolint:gosec // checked against the end of the pack when read
}

// head is what stands before the compressed bytes of an object or a delta.
type head struct {
	kind plumbing.ObjectType
	size int64         // inflated
	base int64         // offset of what a delta builds on, 0 if there is none or it is named by hash
	ref  plumbing.Hash // of what a delta builds on, when it is named by hash
}

func (h *head) isDelta() bool { return h.kind.IsDelta() }

// byteReader is what the inflater reads without taking more than it needs.
type byteReader interface {
	io.Reader
	io.ByteReader
}

// readHead reads the head of what stands at offset.
func readHead(r byteReader, offset int64) (head, error) {
	var h head
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
			return h, errors.New("object has no length")
		}
		h.size |= int64(b&0x7f) << shift
	}
	switch h.kind {
	case plumbing.CommitObject, plumbing.TreeObject, plumbing.BlobObject, plumbing.TagObject:
	case plumbing.OFSDeltaObject:
		h.base, err = relative(r, offset)
	case plumbing.REFDeltaObject:
		_, err = io.ReadFull(r, h.ref[:])
	default:
		err = fmt.Errorf("object of the unknown type %d", h.kind)
	}
	return h, err
}

// relative reads the offset of a base that stands before its delta.
func relative(r io.ByteReader, offset int64) (int64, error) {
	b, err := r.ReadByte()
	back := int64(b & 0x7f)
	for ; err == nil && b&0x80 != 0 && back < offset; back = (back+1)<<7 | int64(b&0x7f) {
		b, err = r.ReadByte()
	}
	if err != nil {
		return 0, err
	}
	if back <= 0 || back > offset-packHeader {
		return 0, errors.New("delta builds on nothing")
	}
	return offset - back, nil
}

// entry is an object or a delta as it lies in the pack, up to its compressed bytes.
type entry struct {
	head
	body *bufio.Reader
}

func (p *pack) entry(offset int64) (entry, error) {
	if offset < packHeader || offset >= p.end {
		return entry{}, damaged(p.name, fmt.Errorf("no object at %d", offset))
	}
	e := entry{body: readers.Get().(*bufio.Reader)}
	e.body.Reset(io.NewSectionReader(p.data, offset, p.end-offset))
	var err error
	if e.head, err = readHead(e.body, offset); err == nil && !e.ref.IsZero() {
		e.base, err = p.reference(e.ref)
	}
	if err != nil {
		e.close()
		return entry{}, damaged(p.name, err)
	}
	return e, nil
}

// reference returns the offset of a base that is named by its hash, and is in the same pack.
func (p *pack) reference(h plumbing.Hash) (int64, error) {
	offset, ok, err := p.find(h)
	if err == nil && !ok {
		err = fmt.Errorf("%w: %s", errNoBase, h)
	}
	return offset, err
}

// read returns the object at an offset.
func (p *pack) read(offset int64, known *bases) (object, error) {
	var deltas [][]byte
	var places []place // of the deltas
	var o object
	total := 0 // bytes of the deltas
	for o.kind == 0 {
		if cached, ok := known.get(place{p, offset}); ok {
			o = cached
			break
		}
		e, err := p.entry(offset)
		if err != nil {
			return o, err
		}
		data, err := e.inflate()
		e.close()
		if err != nil {
			return o, damaged(p.name, err)
		}
		if !e.isDelta() {
			o = object{e.kind, data}
			if len(deltas) > 0 {
				known.put(place{p, offset}, o)
			}
			break
		}
		if total += len(data); total > maxObject {
			return o, ErrTooLarge
		}
		if len(deltas) == maxChain {
			return o, damaged(p.name, errors.New("too many deltas lead to one object"))
		}
		deltas, places = append(deltas, data), append(places, place{p, offset})
		offset = e.base
	}
	for i := len(deltas) - 1; i >= 0; i-- {
		data, err := apply(o.data, deltas[i])
		if err != nil {
			return o, damaged(p.name, err)
		}
		o.data = data
		if i > 0 {
			known.put(places[i], o)
		}
	}
	return o, nil
}

// apply builds an object from its base and a delta.
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

// size returns how long the object at an offset is; a delta says so at its start.
func (p *pack) size(offset int64) (int64, error) {
	e, err := p.entry(offset)
	if err != nil {
		return 0, err
	}
	defer e.close()
	if !e.isDelta() {
		return e.size, nil
	}
	z, err := inflater(e.body)
	if err != nil {
		return 0, damaged(p.name, err)
	}
	defer inflaters.Put(z)
	start := bufio.NewReaderSize(z, 32)
	_, err = binary.ReadUvarint(start)
	if err != nil {
		return 0, damaged(p.name, err)
	}
	n, err := binary.ReadUvarint(start)
	if err != nil || n > 1<<50 {
		return 0, damaged(p.name, errors.Join(err, packfile.ErrInvalidDelta))
	}
	return int64(n), nil
}

// inflate returns the bytes of an entry, which must be as many as its head says.
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
	return b, ended(z)
}

func (e *entry) close() { readers.Put(e.body) }

// inflateTo writes what is compressed in r, which must be size bytes, and reads no further.
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
	return ended(z)
}

// ended reads the checksum, behind which nothing may follow.
func ended(z zreader) error {
	var more [1]byte
	if n, err := z.Read(more[:]); n != 0 || !errors.Is(err, io.EOF) {
		return errors.Join(err, errors.New("object is longer than its head says"))
	}
	return nil
}

// zreader is what zlib gives.
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
