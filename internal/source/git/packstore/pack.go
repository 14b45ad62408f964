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

// The layouts are those of git's gitformat-pack(5): a pack of version 2 and an index of version 2.
const (
	hashSize   = 20
	packHeader = 12
	fanoutAt   = 8
	fanoutEnd  = fanoutAt + 256*4
	// maxChain bounds how many deltas lead to an object; git makes no more than 4095.
	maxChain = 4095
)

// errNoBase says that a delta builds on an object that is not in its pack.
var errNoBase = errors.New("delta builds on an object that is not there")

// pack is a pack file and its index.
type pack struct {
	name  string // path without suffix
	data  io.ReaderAt
	end   int64 // where the objects end, in bytes
	index io.ReaderAt
	count int
	found map[plumbing.Hash]int64 // instead of an index, while there is none yet
}

// openPack opens name.pack and name.idx, and checks that they are whole and belong together. What is inside is checked
// when it is read.
func openPack(name string) (*pack, error) {
	data, index := &handle{path: name + packSuffix}, &handle{path: name + indexSuffix}
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

// detach keeps the pack readable when its files are removed.
func (p *pack) detach() error {
	return errors.Join(handles.detach(p.data.(*handle)), handles.detach(p.index.(*handle)))
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
	if !bytes.Equal(head[:8], []byte("PACK\x00\x00\x00\x02")) ||
		!bytes.Equal(table[:8], []byte("\xfftOc\x00\x00\x00\x02")) {
		return errors.New("not a pack and its index")
	}
	if !bytes.Equal(tail, sums[:hashSize]) {
		return errors.New("the pack is not the one of its index")
	}
	last := uint32(0)
	for at := fanoutAt; at < fanoutEnd; at += 4 {
		n := binary.BigEndian.Uint32(table[at:])
		if n < last {
			return errors.New("the index is out of order")
		}
		last = n
	}
	p.count = int(last)
	if indexSize < fanoutEnd+int64(p.count)*(hashSize+4+4)+2*hashSize {
		return errors.New("the index is too short")
	}
	return nil
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
