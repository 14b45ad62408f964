package artifact

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"path"
)

// Digester digests trees by paths, modes and contents, so that the digest is the same wherever a tree comes from: IDs of a
// git tree differ from those of the same files unpacked. It knows the directories of the last round, and reads only what
// was not in them. It is not safe for concurrent use.
type Digester struct {
	before, now map[string][sha256.Size]byte // by path and ID of a directory
}

// Next begins a round: what is not digested in it is forgotten with the next.
func (d *Digester) Next() { d.before, d.now = d.now, map[string][sha256.Size]byte{} }

// Digest returns the tree's digest, as sha256:<hex>. It covers what an archive of the tree holds.
func (d *Digester) Digest(t *Tree) (string, error) {
	if d.now == nil {
		d.Next()
	}
	sum, _, err := d.dir(t, "", t.root)
	return "sha256:" + hex.EncodeToString(sum[:]), err
}

// dir digests a directory; an empty one is none to an archive.
func (d *Digester) dir(t *Tree, prefix string, dir *Dir) (sum [sha256.Size]byte, holds bool, err error) {
	key := prefix + "\x00" + dir.ID // where a symlink leads depends on where it is
	sum, known := d.now[key]
	if !known {
		sum, known = d.before[key]
	}
	if !known {
		h := sha256.New()
		for i := range dir.Entries {
			if err := d.entry(h, t, prefix, &dir.Entries[i]); err != nil {
				return sum, false, err
			}
		}
		h.Sum(sum[:0])
	}
	d.now[key] = sum
	return sum, sum != sha256.Sum256(nil), nil
}

func (d *Digester) entry(h hash.Hash, t *Tree, prefix string, e *Entry) error {
	name := prefix + e.Name
	if e.Dir != nil {
		sum, holds, err := d.dir(t, name+"/", e.Dir)
		if holds {
			fmt.Fprintf(h, "dir %q %x\n", e.Name, sum)
		}
		return err
	}
	if e.Mode&fs.ModeSymlink != 0 {
		if _, err := t.linkTarget(path.Dir(name), e); errors.Is(err, fs.ErrInvalid) {
			return nil // an archive has no such link
		}
	}
	b, err := t.content.Read(e.ID)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	fmt.Fprintf(h, "%o %q %x\n", uint32(e.Mode), e.Name, sha256.Sum256(b))
	return nil
}
