package packs

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"io"
	"slices"
)

// writeIndex writes the index of the pack, version 2.
func (b *builder) writeIndex(w io.Writer) error {
	entries := slices.Clone(b.entries)
	slices.SortFunc(entries, func(x, y located) int { return bytes.Compare(x.hash[:], y.hash[:]) })
	sum := sha1.New()
	out := bufio.NewWriter(io.MultiWriter(w, sum))
	field := make([]byte, 0, 8)
	write := func(v uint32) { out.Write(binary.BigEndian.AppendUint32(field, v)) } //nolint:errcheck // Flush tells

	out.WriteString("\xfftOc\x00\x00\x00\x02") //nolint:errcheck // Flush tells
	n := 0
	for first := range 256 {
		for n < len(entries) && int(entries[n].hash[0]) == first {
			n++
		}
		write(uint32(n)) //nolint:gosec // bounded by the size of the pack
	}
	for i := range entries {
		out.Write(entries[i].hash[:]) //nolint:errcheck // Flush tells
	}
	for i := range entries {
		write(entries[i].crc)
	}
	var large []byte
	for i := range entries {
		offset := uint64(entries[i].offset) //nolint:gosec // never negative
		if offset < 1<<31 {
			write(uint32(offset))
			continue
		}
		write(1<<31 | uint32(len(large)/8)) //nolint:gosec // bounded by the size of the pack
		large = binary.BigEndian.AppendUint64(large, offset)
	}
	out.Write(large) //nolint:errcheck // Flush tells
	out.Write(b.sum) //nolint:errcheck // Flush tells
	if err := out.Flush(); err != nil {
		return err
	}
	_, err := w.Write(sum.Sum(nil))
	return err
}
