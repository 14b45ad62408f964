package queue

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"time"
)

// A record is a header and its data. The header is 4 bytes of data length, 4 bytes of checksum over all that
// follows, and 8 bytes of time in nanoseconds since 1970, each big-endian.
const (
	headerSize = 16
	MaxRecord  = 1 << 20 // bytes of data
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	errTorn    = errors.New("the record is incomplete or damaged")
)

func encode(data []byte, at time.Time) []byte {
	b := make([]byte, headerSize, headerSize+len(data))
	binary.BigEndian.PutUint32(b, uint32(len(data)))
	binary.BigEndian.PutUint64(b[8:], uint64(at.UnixNano()))
	b = append(b, data...)
	binary.BigEndian.PutUint32(b[4:], crc32.Checksum(b[8:], castagnoli))
	return b
}

// decode reads one record. It returns io.EOF at the end, and errTorn if no complete record follows.
func decode(r io.Reader) (Record, error) {
	var header [headerSize]byte
	switch _, err := io.ReadFull(r, header[:]); {
	case errors.Is(err, io.EOF):
		return Record{}, io.EOF
	case errors.Is(err, io.ErrUnexpectedEOF):
		return Record{}, errTorn
	case err != nil:
		return Record{}, err
	}
	n := binary.BigEndian.Uint32(header[:])
	if n > MaxRecord {
		return Record{}, errTorn
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(r, data); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return Record{}, errTorn
	} else if err != nil {
		return Record{}, err
	}
	if crc32.Update(crc32.Checksum(header[8:], castagnoli), castagnoli, data) != binary.BigEndian.Uint32(header[4:]) {
		return Record{}, errTorn
	}
	return Record{Data: data, Time: time.Unix(0, int64(binary.BigEndian.Uint64(header[8:])))}, nil
}
