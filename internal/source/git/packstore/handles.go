package packstore

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
)

// maxHandles bounds how many files of packs the process holds open, however many stores there are.
const maxHandles = 512

// handle is a file that opens when it is read. It may be closed at any time in between, in favour of another.
type handle struct {
	path string
	file atomic.Pointer[os.File] // nil while it is closed
	read atomic.Bool             // since the pool last looked
}

// ReadAt implements io.ReaderAt.
func (h *handle) ReadAt(p []byte, off int64) (int, error) {
	for {
		f := h.file.Load()
		if f == nil {
			var err error
			if f, err = handles.open(h); err != nil {
				return 0, err
			}
		}
		h.read.Store(true)
		n, err := f.ReadAt(p, off)
		if !errors.Is(err, os.ErrClosed) { // else it had to make room just now
			return n, err
		}
	}
}

// pool closes files that were not read for long when others are opened.
type pool struct {
	mu   sync.Mutex
	held []*handle
	next int // of held, to look at when room is needed
}

var handles pool

func (p *pool) open(h *handle) (*os.File, error) {
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
	if len(p.held) < maxHandles {
		p.held = append(p.held, h)
		return f, nil
	}
	for p.held[p.next].read.Swap(false) { // a second chance for those that were read
		p.next = (p.next + 1) % len(p.held)
	}
	_ = p.held[p.next].file.Swap(nil).Close() // only read
	p.held[p.next] = h
	p.next = (p.next + 1) % len(p.held)
	return f, nil
}

// detach opens the file, and takes it out of the pool: it stays readable after it was removed. The collector closes it.
func (p *pool) detach(h *handle) error {
	if _, err := p.open(h); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, held := range p.held {
		if held == h {
			last := len(p.held) - 1
			p.held[i] = p.held[last]
			p.held, p.next = p.held[:last], 0
			return nil
		}
	}
	return nil
}
