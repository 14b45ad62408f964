package packstore

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/guard"
)

const (
	// maxRounds is the maximum number of passes over the deltas. More than one is needed only if a base follows its
	// delta, which no known server sends.
	maxRounds = 16
	// resolvedAtOnce is the number of deltas that one goroutine resolves before it takes others.
	resolvedAtOnce = 512
	// smallObject is the maximum size, in bytes, of objects that are read by several goroutines without a lease of
	// memory for each.
	smallObject = 1 << 20
)

// resolve computes the hashes of the deltas. Most deltas name their base by its offset, so that they can be resolved
// in any order, on all processors. Large ones, and those that need the hashes of deltas before them, are resolved in
// order.
func (b *builder) resolve() error {
	p := &pack{name: b.file.Name(), data: b.file, end: b.end, offsets: b.offsets}
	cache := &deltaBases{}
	if err := b.resolveAtOnce(p, cache); err != nil {
		return err
	}
	missing := error(nil)
	for range maxRounds {
		missing = nil
		for i := range b.entries {
			entry := &b.entries[i]
			if !entry.hash.IsZero() {
				continue
			}
			err := b.resolveEntry(p, cache, entry, smallObject)
			if errors.Is(err, errLarger) {
				err = b.resolveLarge(p, cache, entry)
			}
			if errors.Is(err, errNoBase) {
				missing = err
				continue
			}
			if err != nil {
				return err
			}
			b.offsets[entry.hash] = entry.offset
		}
		if missing == nil {
			return nil
		}
	}
	return fmt.Errorf("%w: %w", ErrMalformed, missing)
}

// resolveAtOnce computes the hashes of the deltas that are small and whose bases are known, on all
// processors.
func (b *builder) resolveAtOnce(p *pack, cache *deltaBases) error {
	g := guard.NewGroup("indexing a git pack")
	g.SetLimit(runtime.GOMAXPROCS(0))
	for start := 0; start < len(b.entries); start += resolvedAtOnce {
		some := b.entries[start:min(start+resolvedAtOnce, len(b.entries))]
		g.Go(func() error {
			for i := range some {
				if !some[i].hash.IsZero() {
					continue
				}
				if err := b.resolveEntry(p, cache, &some[i], smallObject); isUnresolved(err) {
					continue
				} else if err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i := range b.entries {
		if e := &b.entries[i]; !e.hash.IsZero() {
			b.offsets[e.hash] = e.offset
		}
	}
	return nil
}

// isUnresolved reports whether a delta is left for later.
func isUnresolved(err error) bool { return errors.Is(err, errNoBase) || errors.Is(err, errLarger) }

// resolveEntry computes the hash of a delta of at most the size. The error is errNoBase if its base is not known yet.
func (b *builder) resolveEntry(p *pack, cache *deltaBases, entry *packEntry, most int64) error {
	if err := b.ctx.Err(); err != nil {
		return err
	}
	o, err := p.readAtMost(entry.offset, most, cache)
	if isUnresolved(err) {
		return err
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	entry.hash = plumbing.ComputeHash(o.kind, o.data)
	return nil
}

// resolveLarge is resolveEntry for a delta of any size, for which it takes memory first.
func (b *builder) resolveLarge(p *pack, cache *deltaBases, entry *packEntry) error {
	bytes, err := p.memory(entry.offset)
	if isUnresolved(err) {
		return err
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	held := b.lease.Bytes()
	if err := b.lease.Grow(b.ctx, bytes); err != nil {
		return err
	}
	defer b.lease.Shrink(held)
	return b.resolveEntry(p, cache, entry, maxObject)
}
