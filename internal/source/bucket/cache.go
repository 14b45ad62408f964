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

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/source/ignore"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	indexFile  = "index.json"
	contents   = "objects" // directory of contents, a file each, by digest
	temporary  = ".tmp-"
	concurrent = 8 // objects fetched at the same time
)

// Cache stores the fetched objects of one bucket in a directory: contents by digest, and an index from objects to
// contents. A content is verified whenever it is read, so files need not be synced, and a damaged one is fetched again.
// List and Tree must not be called concurrently; trees may be read at any time.
type Cache struct {
	Budget *artifact.Share // for fetched objects; nil does not limit them

	root   *os.Root
	limits limits

	mu       sync.Mutex
	previous map[string]bool // digests of the tree before the last one
}

// Open opens the cache in dir, which is created if it does not exist.
func Open(dir string) (*Cache, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, storageFailed("cannot create the cache of the bucket", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, storageFailed("cannot open the cache of the bucket", err)
	}
	if err := root.MkdirAll(contents, 0o700); err != nil {
		return nil, errors.Join(storageFailed("cannot create the cache of the bucket", err), root.Close())
	}
	return &Cache{root: root, limits: defaultLimits}, nil
}

// Close closes the directory. Trees of the cache can no longer be read.
func (c *Cache) Close() error { return c.root.Close() }

// cached is an object in the cache.
type cached struct {
	ETag   string `json:"etag"`
	Digest string `json:"digest"` // SHA-256, hexadecimal
	Size   int64  `json:"size"`
}

// index maps the objects of a bucket to their contents.
type index struct {
	Bucket  string            `json:"bucket"` // ID of the bucket, as ETags are valid for one bucket only
	Objects map[string]cached `json:"objects"`
}

// Tree returns the tree of a listing. Objects that the cache lacks are fetched, several at a time.
func (c *Cache) Tree(ctx context.Context, from Remote, l *Listing) (*artifact.Tree, error) {
	known := c.index(from)
	next := index{Bucket: from.ID(), Objects: make(map[string]cached, len(l.Objects))}
	var mu sync.Mutex
	g, fetching := guard.GroupWithContext(ctx, "fetching objects")
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
	if fetchErr != nil { // keep the objects that were fetched
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
	if err := ignore.CheckSize(o.Name, o.Size); err != nil {
		return "", rulesFailed(err)
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
		return "", storageFailed("cannot read a fetched object", err)
	}
	return string(text), nil
}

// has returns the cached content of this version of an object.
func (c *Cache) has(known index, o Object) (cached, bool) {
	h, ok := known.Objects[o.Name]
	if !ok || h.ETag != o.ETag || h.Size != o.Size || o.ETag == "" {
		return cached{}, false
	}
	info, err := c.root.Stat(path.Join(contents, h.Digest))
	return h, err == nil && info.Size() == h.Size
}

// fetch fetches an object into the cache.
func (c *Cache) fetch(ctx context.Context, from Remote, o Object) (cached, error) {
	body, err := from.Get(ctx, o)
	if err != nil {
		return cached{}, err
	}
	defer body.Close() // it is only read
	f, err := os.CreateTemp(c.root.Name(), temporary)
	if err != nil {
		return cached{}, storageFailed("cannot write to the cache of the bucket", err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // unless it was renamed
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(storing{c.Budget.Writer(f)}, h), io.LimitReader(body, o.Size+1))
	if closed := f.Close(); err == nil && closed != nil {
		err = storageFailed("cannot write to the cache of the bucket", closed)
	}
	switch {
	case fault.As(err) != nil:
		return cached{}, err
	case err != nil:
		return cached{}, failed("cannot fetch the object '%s'", shorten(o.Name)).Because(fault.WithoutURL(err))
	case n != o.Size:
		return cached{}, failed("the size of the object '%s' differs from the %d bytes in the listing", shorten(o.Name),
			o.Size).
			WithHint("The bucket is listed again and the fetch retried")
	}
	digest := hex.EncodeToString(h.Sum(nil))
	if err := c.root.Rename(path.Base(f.Name()), path.Join(contents, digest)); err != nil {
		return cached{}, storageFailed("cannot write to the cache of the bucket", err)
	}
	return cached{ETag: o.ETag, Digest: digest, Size: n}, nil
}

// storing marks errors of the disk, so that they are not taken for errors of the network.
type storing struct{ io.Writer }

// Write implements [io.Writer].
func (s storing) Write(p []byte) (int, error) {
	n, err := s.Writer.Write(p)
	if err != nil {
		err = storageFailed("cannot write to the cache of the bucket", err)
	}
	return n, err
}

// index returns the index for a bucket. It is empty if the stored index belongs to another bucket or is damaged.
func (c *Cache) index(of Remote) index {
	none := index{Bucket: of.ID(), Objects: map[string]cached{}}
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

// save writes the index to disk: a line with its digest, and then the index.
func (c *Cache) save(i index) error {
	text, err := json.Marshal(i)
	if err == nil {
		err = c.root.WriteFile(temporary+indexFile, fmt.Appendf(nil, "%x\n%s", sha256.Sum256(text), text), 0o600)
	}
	if err == nil {
		err = c.root.Rename(temporary+indexFile, indexFile)
	}
	if err != nil {
		return storageFailed("cannot write the index of the cache of the bucket", err)
	}
	return nil
}

// collect removes contents that are not part of the new tree or of the previous two, which may still be read.
// Files that cannot be removed are removed with the next tree.
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
	for _, e := range left { // temporary files of a process that was killed
		if strings.HasPrefix(e.Name(), temporary) {
			_ = c.root.Remove(e.Name())
		}
	}
}

// read returns a content. A damaged one is removed, so that it is fetched again.
func (c *Cache) read(digest string) ([]byte, error) {
	name := path.Join(contents, digest)
	b, err := c.root.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if fmt.Sprintf("%x", sha256.Sum256(b)) != digest {
		return nil, errors.Join(fmt.Errorf("content %s is damaged on disk; it will be fetched again", digest),
			c.root.Remove(name))
	}
	return b, nil
}
