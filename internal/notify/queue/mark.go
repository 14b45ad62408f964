package queue

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
)

// The acknowledgement mark is 8 bytes of stream offset and 4 bytes of checksum, big-endian, written in one
// call. A mark with a wrong checksum or length counts as offset 0: everything still on disk is delivered again.
const (
	markName = "acknowledged"
	markSize = 12
)

// readMark returns the offset in the mark file; 0 without a valid mark.
func readMark(dir string) int64 {
	b, err := os.ReadFile(filepath.Join(dir, markName))
	if err != nil || len(b) != markSize || crc32.Checksum(b[:8], castagnoli) != binary.BigEndian.Uint32(b[8:]) {
		return 0
	}
	return max(0, int64(binary.BigEndian.Uint64(b)))
}

// writeMark stores readOffset.
func (q *Queue) writeMark() error {
	if q.mark == nil {
		f, err := os.OpenFile(filepath.Join(q.dir, markName), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return fmt.Errorf("cannot open the acknowledgement mark of the queue: %w", err)
		}
		q.mark, q.dirDirty = f, true
	}
	b := binary.BigEndian.AppendUint64(make([]byte, 0, markSize), uint64(q.readOffset))
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	if _, err := q.mark.WriteAt(b, 0); err != nil {
		return fmt.Errorf("cannot write the acknowledgement mark of the queue: %w", err)
	}
	q.markDirty = true
	return nil
}

func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
