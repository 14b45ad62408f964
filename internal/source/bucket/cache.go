package bucket

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/fault"
)

const (
	indexFile  = "index.json"
	contents   = "objects" // directory of contents, a file each, by digest
	temporary  = ".tmp-"
	concurrent = 8 // objects fetched at the same time
)

// Cache keeps what was fetched of one bucket, in a directory: the contents by their digest, and an index of
// which object had which. A content is compared with its digest whenever it is read, so nothing needs to be
// synced, and a damaged one is fetched again. Whoever uses one bucket's cache takes turns; the trees that it
// gave may be read at any time.
type Cache struct {
	root   *os.Root
	limits limits

	mu       sync.Mutex
	previous map[string]bool // digests that the tree before the last one needs
}

// Open opens the cache in dir, and makes it if need be.
func Open(dir string) (*Cache, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, storageFailed("cannot make the cache of the bucket", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, storageFailed("cannot open the cache of the bucket", err)
	}
	if err := root.MkdirAll(contents, 0o700); err != nil {
		return nil, errors.Join(storageFailed("cannot make the cache of the bucket", err), root.Close())
	}
	return &Cache{root: root, limits: defaultLimits}, nil
}

// Close lets go of the directory. Trees that were given can no longer be read.
func (c *Cache) Close() error { return c.root.Close() }

// held is what the cache knows of a fetched object.
type held struct {
	ETag   string `json:"etag"`
	Digest string `json:"digest"` // SHA-256, hexadecimal
	Size   int64  `json:"size"`
}

// index says which content the objects of a bucket had.
type index struct {
	Bucket  string          `json:"bucket"` // ETags say nothing of another one
	Objects map[string]held `json:"objects"`
}

// Tree returns the tree of a listing. Objects that the cache does not hold are fetched, several at a time.
func (c *Cache) Tree(ctx context.Context, from Remote, l *Listing) (*artifact.Tree, error) {
	known := c.index(from)
	next := index{Bucket: from.ID(), Objects: make(map[string]held, len(l.Objects))}
	var mu sync.Mutex
	g, fetching := errgroup.WithContext(ctx)
	g.SetLimit(concurrent)
	for _, o := range l.Objects {
		if h, ok := c.has(known, o); ok {
			mu.Lock()
			next.Objects[o.Name] = h
			mu.Unlock()
			continue
		}
		g.Go(func() error {
			h, err := c.fetch(fetching, from, o)
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				next.Objects[o.Name] = h
			}
			return err
		})
	}
	fetchErr := g.Wait()
	if fetchErr != nil { // what was fetched is not fetched again
		for name, h := range known.Objects {
			if _, ok := next.Objects[name]; !ok {
				next.Objects[name] = h
			}
		}
	}
	if err := c.save(next); err != nil || fetchErr != nil {
		return nil, errors.Join(fetchErr, err)
	}
	c.collect(known, next)
	return artifact.NewTree(treeOf(l, next), &content{c}), nil
}

// IsComplete reports whether the cache has all contents of a listing.
func (c *Cache) IsComplete(from Remote, l *Listing) bool {
	known := c.index(from)
	for _, o := range l.Objects {
		if _, ok := c.has(known, o); !ok {
			return false
		}
	}
	return true
}

// rules returns the content of a .sourceignore object.
func (c *Cache) rules(ctx context.Context, from Remote, o Object) (string, error) {
	if o.Size > c.limits.rules {
		return "", failed("the object '%s' is larger than %d bytes", shorten(o.Name), c.limits.rules)
	}
	known := c.index(from)
	h, ok := c.has(known, o)
	if ok {
		if text, err := c.read(h.Digest); err == nil {
			return string(text), nil
		}
	}
	h, err := c.fetch(ctx, from, o)
	if err != nil {
		return "", err
	}
	known.Objects[o.Name] = h
	if err := c.save(known); err != nil {
		return "", err
	}
	text, err := c.read(h.Digest)
	if err != nil {
		return "", storageFailed("cannot read what was just fetched", err)
	}
	return string(text), nil
}

// has returns what the cache holds of exactly this object.
func (c *Cache) has(known index, o Object) (held, bool) {
	h, ok := known.Objects[o.Name]
	if !ok || h.ETag != o.ETag || h.Size != o.Size || o.ETag == "" {
		return held{}, false
	}
	info, err := c.root.Stat(path.Join(contents, h.Digest))
	return h, err == nil && info.Size() == h.Size
}

// fetch brings an object into the cache.
func (c *Cache) fetch(ctx context.Context, from Remote, o Object) (held, error) {
	body, err := from.Get(ctx, o)
	if err != nil {
		return held{}, err
	}
	defer body.Close() // read to its end, or given up
	f, err := os.CreateTemp(c.root.Name(), temporary)
	if err != nil {
		return held{}, storageFailed("cannot write to the cache of the bucket", err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // unless it was renamed
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(storing{f}, h), io.LimitReader(body, o.Size+1))
	if closed := f.Close(); err == nil && closed != nil {
		err = storageFailed("cannot write to the cache of the bucket", closed)
	}
	switch {
	case fault.As(err) != nil:
		return held{}, err
	case err != nil:
		return held{}, failed("cannot fetch the object '%s'", shorten(o.Name)).Because(redacted(err))
	case n != o.Size:
		return held{}, failed("the object '%s' has not the %d bytes that were listed", shorten(o.Name), o.Size).
			WithHint("It is tried again with a new listing")
	}
	digest := hex.EncodeToString(h.Sum(nil))
	if err := c.root.Rename(path.Base(f.Name()), path.Join(contents, digest)); err != nil {
		return held{}, storageFailed("cannot write to the cache of the bucket", err)
	}
	return held{ETag: o.ETag, Digest: digest, Size: n}, nil
}

// storing tells failures of the disk from those of the network.
type storing struct{ io.Writer }

func (s storing) Write(p []byte) (int, error) {
	n, err := s.Writer.Write(p)
	if err != nil {
		err = storageFailed("cannot write to the cache of the bucket", err)
	}
	return n, err
}

// index returns what the cache holds of this bucket: nothing if it is of another one, or damaged.
func (c *Cache) index(of Remote) index {
	none := index{Bucket: of.ID(), Objects: map[string]held{}}
	b, err := c.root.ReadFile(indexFile)
	if err != nil {
		return none
	}
	sum, text, _ := bytes.Cut(b, []byte("\n"))
	var i index
	if string(sum) != fmt.Sprintf("%x", sha256.Sum256(text)) || json.Unmarshal(text, &i) != nil ||
		i.Bucket != none.Bucket || i.Objects == nil {
		return none
	}
	return i
}

// save writes a line with the digest of the index, then the index.
func (c *Cache) save(i index) error {
	text, err := json.Marshal(i)
	if err == nil {
		err = c.root.WriteFile(temporary+indexFile, fmt.Appendf(nil, "%x\n%s", sha256.Sum256(text), text), 0o600)
	}
	if err == nil {
		err = c.root.Rename(temporary+indexFile, indexFile)
	}
	if err != nil {
		return storageFailed("cannot write the index of the bucket's cache", err)
	}
	return nil
}

// collect removes contents that neither the new tree nor the one before needs: that one may still be read.
// What cannot be removed is tried again with the next tree.
func (c *Cache) collect(before, now index) {
	needed := map[string]bool{}
	for _, h := range now.Objects {
		needed[h.Digest] = true
	}
	recent := map[string]bool{}
	for _, h := range before.Objects {
		recent[h.Digest] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	names, err := fs.ReadDir(c.root.FS(), contents)
	for _, e := range names {
		if err == nil && !needed[e.Name()] && !recent[e.Name()] && !c.previous[e.Name()] {
			_ = c.root.Remove(path.Join(contents, e.Name()))
		}
	}
	c.previous = recent
	left, _ := fs.ReadDir(c.root.FS(), ".")
	for _, e := range left { // of a process that was killed
		if strings.HasPrefix(e.Name(), temporary) {
			_ = c.root.Remove(e.Name())
		}
	}
}

// read returns a content if it is whole; a damaged one is removed, to be fetched again.
func (c *Cache) read(digest string) ([]byte, error) {
	name := path.Join(contents, digest)
	b, err := c.root.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if fmt.Sprintf("%x", sha256.Sum256(b)) != digest {
		return nil, errors.Join(fmt.Errorf("content %s is damaged on disk and is fetched again", digest),
			c.root.Remove(name))
	}
	return b, nil
}
