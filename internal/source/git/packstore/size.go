package packstore

import (
	"bufio"
	"encoding/binary"
	"errors"

	"github.com/go-git/go-git/v5/plumbing/format/packfile"
)

// size returns the size of the object at an offset.
func (p *pack) size(offset int64) (int64, error) {
	e, err := p.entry(offset)
	if err != nil {
		return 0, err
	}
	defer e.close()
	n, err := e.objectSize()
	if err != nil {
		return 0, damaged(p.name, err)
	}
	return n, nil
}

// resultShare is how often the largest object of a chain of deltas is in memory at most: as a base in a buffer of up to
// twice its size, and as a result in a buffer that grows to twice its size, while the one before is copied.
const resultShare = 5

// memory returns how many bytes it takes at most to read the object at an offset, with its deltas and their bases. It
// reads the start of each only.
func (p *pack) memory(offset int64) (int64, error) {
	deltas, largest := int64(0), int64(0)
	for n := 0; ; n++ {
		e, err := p.entry(offset)
		if err != nil {
			return 0, err
		}
		size, err := e.objectSize()
		e.close()
		switch {
		case err != nil:
			return 0, damaged(p.name, err)
		case n > maxChain:
			return 0, damaged(p.name, errChain)
		case e.size > maxObject || size > maxObject:
			return 0, ErrTooLarge
		case !e.isDelta() && n == 0:
			return size, nil
		case !e.isDelta():
			return deltas + resultShare*max(largest, size), nil
		}
		if deltas += e.size; deltas > maxObject {
			return 0, ErrTooLarge
		}
		largest, offset = max(largest, size), e.base
	}
}

// objectSize returns the size of the object that results from an entry. A delta contains it at its start.
func (e *entry) objectSize() (int64, error) {
	if !e.isDelta() {
		return e.size, nil
	}
	z, err := inflater(e.body)
	if err != nil {
		return 0, err
	}
	defer inflaters.Put(z)
	start := bufio.NewReaderSize(z, 32)
	if _, err := binary.ReadUvarint(start); err != nil {
		return 0, err
	}
	n, err := binary.ReadUvarint(start)
	if err != nil || n > 1<<50 {
		return 0, errors.Join(err, packfile.ErrInvalidDelta)
	}
	return int64(n), nil
}
