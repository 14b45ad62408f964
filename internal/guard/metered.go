package guard

import (
	"context"
	"io"
)

// Metered returns a reader for input that takes memory once it is parsed: each bytes of the lease for one that is read.
// It fails with the error of the lease.
func Metered(ctx context.Context, r io.Reader, each int64, lease *Lease) io.Reader {
	return &metered{r, ctx, each, lease}
}

type metered struct {
	io.Reader
	ctx   context.Context //nolint:containedctx // of the work that reads
	each  int64
	lease *Lease
}

// Read implements [io.Reader].
func (m *metered) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	if refused := m.lease.Take(m.ctx, int64(n)*m.each); refused != nil {
		return 0, refused
	}
	return n, err
}
