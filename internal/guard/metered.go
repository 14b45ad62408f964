package guard

import "io"

// meterStep is the number of bytes of memory that a metered reader takes at least at a time. The first of them are
// free, so that short inputs take none.
const meterStep = 1 << 20

// Metered returns a reader for input that takes memory once it is parsed: each bytes for one that is read. It calls
// grow with more bytes as it reads, and fails with the error of grow.
func Metered(r io.Reader, each int64, grow func(bytes int64) error) io.Reader {
	return &metered{Reader: r, each: each, grow: grow, free: meterStep}
}

type metered struct {
	io.Reader
	each int64
	grow func(bytes int64) error
	free int64 // bytes that were taken and are not used yet
}

// Read implements [io.Reader].
func (m *metered) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	if m.free -= int64(n) * m.each; m.free >= 0 {
		return n, err
	}
	step := max(-m.free, meterStep)
	if err := m.grow(step); err != nil {
		return 0, err
	}
	m.free += step
	return n, err
}
