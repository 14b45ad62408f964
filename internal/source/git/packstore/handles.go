package packstore

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
)

// maxHandles is the maximum number of open files of all stores that share a [Shared].
const maxHandles = 512

// handle is a file that is opened at its first read. The pool may close it between reads.
type handle struct {
	path string
	pool *pool
	file atomic.Pointer[os.File] // nil while it is closed
	read atomic.Bool             // since the pool last checked
}

// ReadAt implements [io.ReaderAt].
func (h *handle) ReadAt(p []byte, off int64) (int, error) {
	for {
		f := h.file.Load()
		if f == nil {
			var err error
			if f, err = h.pool.openFile(h); err != nil {
				return 0, err
			}
		}
		h.read.Store(true)
		n, err := f.ReadAt(p, off)
		if !errors.Is(err, os.ErrClosed) { // the pool may have closed it just now
			return n, err
		}
	}
}

// pool limits the open files. It closes a file that was not read recently to open another (the CLOCK
// algorithm), so that reads of open files need no lock.
type pool struct {
	mu   sync.Mutex
	open []*handle
	next int // index in open of the next candidate for closing
}

func (p *pool) openFile(h *handle) (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f := h.file.Load(); f != nil {
		return f, nil
	}
	f, err := os.Open(h.path)
	if err != nil {
		return nil, err
	}
	h.file.Store(f)
	if len(p.open) < maxHandles {
		p.open = append(p.open, h)
		return f, nil
	}
	for p.open[p.next].read.Swap(false) { // read since the last check
		p.next = (p.next + 1) % len(p.open)
	}
	_ = p.open[p.next].file.Swap(nil).Close() // read-only
	p.open[p.next] = h
	p.next = (p.next + 1) % len(p.open)
	return f, nil
}

// detach opens the file and removes it from its pool. It stays readable after it is removed from the disk,
// and is closed by garbage collection.
func (h *handle) detach() error {
	p := h.pool
	if _, err := p.openFile(h); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, other := range p.open {
		if other == h {
			last := len(p.open) - 1
			p.open[i] = p.open[last]
			p.open, p.next = p.open[:last], 0
			return nil
		}
	}
	return nil
}
