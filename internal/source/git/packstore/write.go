package packstore

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"io"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/klauspost/compress/zlib"
)

// Object is an object to write. Data is a delta to the object Base, unless Base is zero.
type Object struct {
	Kind plumbing.ObjectType
	Data []byte
	Base plumbing.Hash
}

// Delta returns a delta from base to data, or nil if it is not shorter than data.
func Delta(base, data []byte) []byte {
	delta := packfile.DiffDelta(base, data)
	if len(delta) >= len(data) {
		return nil
	}
	return delta
}

// Encode writes a pack. The pack is thin if it does not contain all bases.
func Encode(w io.Writer, objects []Object) error {
	sum := sha1.New()
	out := io.MultiWriter(w, sum)
	count := binary.BigEndian.AppendUint32(nil, uint32(len(objects))) // limited by memory
	if _, err := out.Write(append([]byte("PACK\x00\x00\x00\x02"), count...)); err != nil {
		return err
	}
	for _, o := range objects {
		if err := writeObject(out, o); err != nil {
			return err
		}
	}
	_, err := w.Write(sum.Sum(nil))
	return err
}

// Put stores all objects, or none if it returns an error.
func (s *Store) Put(ctx context.Context, objects []Object) error {
	var b bytes.Buffer
	if err := Encode(&b, objects); err != nil {
		return err
	}
	return s.Add(ctx, &b, Room{})
}

// writeObject writes an object in the format of a pack.
func writeObject(w io.Writer, o Object) error {
	kind := o.Kind
	if !o.Base.IsZero() {
		kind = plumbing.REFDeltaObject
	}
	size := len(o.Data)
	head := []byte{byte(kind)<<4 | byte(size&15)}
	for size >>= 4; size > 0; size >>= 7 {
		head[len(head)-1] |= 0x80
		head = append(head, byte(size&0x7f))
	}
	if !o.Base.IsZero() {
		head = append(head, o.Base[:]...)
	}
	if _, err := w.Write(head); err != nil {
		return err
	}
	z := zlib.NewWriter(w)
	if _, err := z.Write(o.Data); err != nil {
		return err
	}
	return z.Close()
}
