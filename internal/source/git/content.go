package git

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/source/git/packstore"
)

// origin is the repository of a tree or of a submodule in it. Its objects stay readable when the mirror is replaced or
// removed.
type origin struct {
	mirror *mirror
	from   *repository
}

// markDamaged marks the repository as damaged if err indicates it, so that the next update replaces it. It reports
// whether err does.
func (o origin) markDamaged(err error) bool {
	if !errors.Is(err, packstore.ErrDamaged) && !errors.Is(err, packstore.ErrNotFound) {
		return false
	}
	o.from.damaged.Store(true)
	return true
}

// content reads the files of a tree. It implements [artifact.Content].
type content struct {
	from []origin // the first is that of the tree, the others are those of submodules
}

var _ artifact.BoundedContent = (*content)(nil)

// Size implements [artifact.Content].
func (c *content) Size(id string) (size int64, err error) {
	err = c.each(func(s *packstore.Store) error {
		size, err = s.Size(blobHash(id))
		return err
	})
	return size, err
}

// Read implements [artifact.Content].
func (c *content) Read(id string) (data []byte, err error) {
	err = c.each(func(s *packstore.Store) error {
		_, data, err = s.Read(blobHash(id))
		return err
	})
	return data, err
}

// ReadAtMost implements [artifact.BoundedContent].
func (c *content) ReadAtMost(id string, most int64) (data []byte, ok bool, err error) {
	err = c.each(func(s *packstore.Store) error {
		data, ok, err = s.ReadAtMost(blobHash(id), most)
		return err
	})
	return data, ok, err
}

// each calls read with the stores of the tree until one has the object. It uses the current repository of the mirror
// instead of a damaged one.
func (c *content) each(read func(*packstore.Store) error) error {
	var err error
	for _, o := range c.from {
		if err = read(o.from.objects); !errors.Is(err, packstore.ErrNotFound) {
			break // otherwise it may be a file of a submodule
		}
	}
	if err == nil {
		return nil
	}
	for _, o := range c.from {
		if !o.markDamaged(err) {
			return err
		}
		if now := o.mirror.current.Load(); now != nil && now != o.from && read(now.objects) == nil {
			return nil
		}
	}
	return fmt.Errorf("the mirror is damaged; it is fetched again at the next interval: %w", err)
}

// contentID returns an ID of a file's mode and hash.
func contentID(e listed) string {
	id := make([]byte, 0, len("link:")+2*len(e.hash))
	switch e.mode {
	case 0o644:
		id = append(id, "file:"...)
	case 0o755:
		id = append(id, "exec:"...)
	default:
		id = append(id, "link:"...)
	}
	return string(hex.AppendEncode(id, e.hash[:]))
}

func blobHash(id string) plumbing.Hash { return plumbing.NewHash(id[strings.IndexByte(id, ':')+1:]) }
