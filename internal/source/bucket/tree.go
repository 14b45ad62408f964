package bucket

import (
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/sluice-gitops/sluice/internal/artifact"
)

// mode is the mode of every file, as objects have none.
const mode = fs.FileMode(0o644)

// content reads the files of trees from a cache.
type content struct{ cache *Cache }

// id returns the ID of a file. The same file has the same ID in a tree read from an archive, so that both trees have
// the same artifact.
func id(digest string) string { return fmt.Sprintf("%o:%s", uint32(mode), digest) }

// digestOf returns the digest in an ID.
func digestOf(id string) string {
	_, digest, _ := strings.Cut(id, ":")
	return digest
}

// Size implements [artifact.Content].
func (c *content) Size(id string) (int64, error) {
	info, err := c.cache.root.Stat(path.Join(contents, digestOf(id)))
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Read implements [artifact.Content].
func (c *content) Read(id string) ([]byte, error) { return c.cache.read(digestOf(id)) }

// treeOf returns the root directory of a listing whose names were checked.
func treeOf(l *Listing, i index) *artifact.Dir {
	root, _ := directory("", l.Objects, i)
	return root
}

// directory returns the directory dir, which is empty or ends with a slash, and the objects after it.
func directory(dir string, objects []Object, i index) (*artifact.Dir, []Object) {
	var entries []artifact.Entry
	for len(objects) > 0 && strings.HasPrefix(objects[0].Name, dir) {
		base, _, nested := strings.Cut(objects[0].Name[len(dir):], "/")
		if !nested {
			entries = append(entries, artifact.Entry{Name: base, Mode: mode, ID: id(i.Objects[objects[0].Name].Digest)})
			objects = objects[1:]
			continue
		}
		var sub *artifact.Dir
		sub, objects = directory(dir+base+"/", objects, i)
		entries = append(entries, artifact.Entry{Name: base, Mode: fs.ModeDir | 0o755, ID: sub.ID, Dir: sub})
	}
	return artifact.NewDir(entries), objects
}
