package packstore

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"sort"
	"sync"

	"github.com/go-git/go-git/v5/plumbing"
)

// writeIndex writes the index of the pack in version 2.
func (b *builder) writeIndex(w io.Writer) error {
	entries := slices.Clone(b.entries)
	slices.SortFunc(entries, func(x, y packEntry) int { return bytes.Compare(x.hash[:], y.hash[:]) })
	sum := sha1.New()
	out := bufio.NewWriter(io.MultiWriter(w, sum))
	field := make([]byte, 0, 8)
	write := func(v uint32) {
		out.Write(binary.BigEndian.AppendUint32(field, v)) //nolint:errcheck // Flush returns the error
	}

	out.WriteString("\xfftOc\x00\x00\x00\x02") //nolint:errcheck // Flush returns the error
	n := 0
	for first := range 256 {
		for n < len(entries) && int(entries[n].hash[0]) == first {
			n++
		}
		write(uint32(n)) // limited by the size of the pack
	}
	for i := range entries {
		out.Write(entries[i].hash[:]) //nolint:errcheck // Flush returns the error
	}
	for i := range entries {
		write(entries[i].crc)
	}
	var large []byte
	for i := range entries {
		offset := uint64(entries[i].offset) // never negative
		if offset < 1<<31 {
			write(uint32(offset))
			continue
		}
		write(1<<31 | uint32(len(large)/8)) // limited by the size of the pack
		large = binary.BigEndian.AppendUint64(large, offset)
	}
	out.Write(large) //nolint:errcheck // Flush returns the error
	out.Write(b.sum) //nolint:errcheck // Flush returns the error
	if err := out.Flush(); err != nil {
		return err
	}
	_, err := w.Write(sum.Sum(nil))
	return err
}

// find returns the offset of an object.
func (p *pack) find(h plumbing.Hash) (int64, bool, error) {
	if p.offsets != nil {
		offset, ok := p.offsets[h]
		return offset, ok, nil
	}
	low, high, err := p.bucket(h[0])
	if err != nil {
		return 0, false, damaged(p.name, err)
	}
	pooled := buffers.Get().(*[]byte)
	defer buffers.Put(pooled)
	names := slices.Grow((*pooled)[:0], (high-low)*hashSize)[:(high-low)*hashSize]
	*pooled = names
	if _, err := p.index.ReadAt(names, fanoutEnd+int64(low)*hashSize); err != nil {
		return 0, false, damaged(p.name, err)
	}
	i, ok := sort.Find(high-low, func(i int) int { return bytes.Compare(h[:], names[i*hashSize:(i+1)*hashSize]) })
	if !ok {
		return 0, false, nil
	}
	offset, err := p.offset(low + i)
	return offset, err == nil, err
}

// bucket returns the range in the index of the objects whose hash begins with first.
func (p *pack) bucket(first byte) (low, high int, err error) {
	var b [8]byte
	switch first {
	case 0:
		_, err = p.index.ReadAt(b[4:], fanoutStart)
	default:
		_, err = p.index.ReadAt(b[:], fanoutStart+4*(int64(first)-1))
	}
	low, high = int(binary.BigEndian.Uint32(b[:4])), int(binary.BigEndian.Uint32(b[4:]))
	if err == nil && (low > high || high > p.count) {
		err = errors.New("the index is not sorted")
	}
	return low, high, err
}

// offset returns the offset of the i-th object of the index.
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
	return int64(binary.BigEndian.Uint64(b[:])), nil // checked when the object is read
}

// buffers holds buffers for the hashes of a bucket.
var buffers = sync.Pool{New: func() any { return new([]byte) }}
