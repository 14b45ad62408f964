package registry

import (
	"bytes"
	"context"
	"sync"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/image/store"
)

// Estimates of the memory that a response takes while it is decoded.
const (
	textCopies  = 3        // of its bytes
	valueBytes  = 320      // of each value in a manifest or a configuration
	tagBytes    = 256      // of each tag in a list
	unleased    = 1 << 20  // bytes that need no lease
	maxDecoded  = 64 << 20 // bytes for a manifest or a configuration
	maxPartials = 64 << 20 // bytes of the pages that are kept of interrupted scans
)

// partials divides the memory for pages of interrupted scans among namespaces.
var partials = sync.OnceValue(func() *guard.Shares {
	return guard.NewShares(min(maxPartials, guard.Memory().Total()/8))
})

// leaseFor takes the memory for decoding a manifest or a configuration. A small text can need much: lists of empty
// values. The error is a fault of the budget, or wraps errContent if no image needs so much. The lease may be nil.
func leaseFor(ctx context.Context, content []byte) (*guard.Lease, error) {
	need := textCopies*int64(len(content)) + valueBytes*valuesIn(content)
	if need > maxDecoded {
		return nil, errContent
	}
	return acquire(ctx, "reading an image", need)
}

// valuesIn returns an upper bound of the values in JSON. Each value but the first follows one of these characters.
func valuesIn(content []byte) int64 {
	values := 1
	for _, c := range []byte{',', '[', '{'} {
		values += bytes.Count(content, []byte{c})
	}
	return int64(values)
}

// acquire takes memory unless it is little. The lease is nil then.
func acquire(ctx context.Context, work string, need int64) (*guard.Lease, error) {
	if need <= unleased {
		return nil, nil
	}
	return guard.BudgetOf(ctx).Acquire(ctx, work, need)
}

// memoryOf estimates the memory of pages in bytes.
func memoryOf(pages []store.Page) int64 {
	return (&store.Repository{Pages: pages}).Memory()
}
