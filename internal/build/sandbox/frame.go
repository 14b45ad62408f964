package sandbox

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// The protocol between a parent and its child is a sequence of frames on the standard input and output of the child: a
// length of four bytes, one byte for the kind, and that many bytes. The child answers one request at a time, and may
// ask its parent while it works. Each user of this package has its own kinds.

// MaxInput is the size of a frame for a child in bytes. Sources limit charts and trees to less.
const MaxInput = 256 << 20

// WriteFrame writes a frame in one piece for each part.
func WriteFrame(w io.Writer, kind byte, parts ...[]byte) error {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	head := binary.BigEndian.AppendUint32(make([]byte, 0, 5), uint32(size))
	head = append(head, kind)
	if len(parts) == 1 && size <= 64<<10 {
		head, parts = append(head, parts[0]...), nil // a single write wakes the other process once
	}
	if _, err := w.Write(head); err != nil {
		return err
	}
	for _, p := range parts {
		if _, err := w.Write(p); err != nil {
			return err
		}
	}
	return nil
}

func writeJSON(w io.Writer, kind byte, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return WriteFrame(w, kind, text)
}

// ReadFrame reads a frame of at most most bytes. Memory grows with what arrives, not with what the length claims.
func ReadFrame(r io.Reader, most int) (kind byte, content []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	size := int64(binary.BigEndian.Uint32(head[:4]))
	if size > int64(most) {
		return 0, nil, fmt.Errorf("%w: a frame of %d bytes, %d allowed", ErrTooLarge, size, most)
	}
	var b bytes.Buffer
	b.Grow(int(min(size, 64<<10)))
	if _, err := io.CopyN(&b, r, size); err != nil {
		return 0, nil, io.ErrUnexpectedEOF
	}
	return head[4], b.Bytes(), nil
}
