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

// origin is where a tree, or the part of it that is a submodule, was made of. Its files can be read whatever
// becomes of the mirror.
type origin struct {
	mirror *mirror
	from   *repository
}

// blame notes that the mirror is damaged, if the error says so, for the next update to fetch it anew.
func (o origin) blame(err error) bool {
	if !errors.Is(err, packstore.ErrDamaged) && !errors.Is(err, packstore.ErrNotFound) {
		return false
	}
	o.from.damaged.Store(true)
	return true
}

// content reads the files of a tree. It implements artifact.Content.
type content struct {
	from []origin // the first is that of the tree itself
}

var _ artifact.Content = (*content)(nil)

// Size implements artifact.Content.
func (c *content) Size(id string) (size int64, err error) {
	err = c.each(func(s *packstore.Store) error {
		size, err = s.Size(blobHash(id))
		return err
	})
	return size, err
}

// Read implements artifact.Content.
func (c *content) Read(id string) (data []byte, err error) {
	err = c.each(func(s *packstore.Store) error {
		_, data, err = s.Read(blobHash(id))
		return err
	})
	return data, err
}

// each reads from where the tree was made of; should that be damaged, from what was fetched in its place.
func (c *content) each(read func(*packstore.Store) error) error {
	var err error
	for _, o := range c.from {
		if err = read(o.from.objects); !errors.Is(err, packstore.ErrNotFound) {
			break // or else it is a file of a submodule
		}
	}
	if err == nil {
		return nil
	}
	for _, o := range c.from {
		if !o.blame(err) {
			return err
		}
		if now := o.mirror.current.Load(); now != nil && now != o.from && read(now.objects) == nil {
			return nil
		}
	}
	return fmt.Errorf("the kept mirror is damaged, and is fetched again at the next interval: %w", err)
}

// contentID names a file by its mode and its hash.
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
