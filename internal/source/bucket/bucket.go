package bucket

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sluice-gitops/sluice/internal/source/ignore"
)

// Object is an entry of a listing.
type Object struct {
	Name string
	ETag string // changes whenever the content does
	Size int64  // in bytes
	// Version identifies this version of the object to the remote; may be empty.
	Version string
}

// Remote is a bucket at a provider. Its errors are faults. It is safe for concurrent use.
type Remote interface {
	// ID identifies the bucket.
	ID() string
	// List calls visit for every object whose name starts with prefix, in any order, until visit returns an error.
	List(ctx context.Context, prefix string, visit func(Object) error) error
	// Get opens an object. It fails if the object has changed since it was listed.
	Get(ctx context.Context, o Object) (io.ReadCloser, error)
}

// limits bounds what is read from a bucket.
type limits struct {
	listed int   // objects of a listing
	names  int   // bytes of their names, ETags and versions
	bytes  int64 // of all objects that are not ignored
	name   int   // bytes
	depth  int   // of directories
}

var defaultLimits = limits{listed: 200_000, names: 64 << 20, bytes: 1 << 30, name: 1024, depth: 256}

// Listing is the objects of a bucket at one time, without ignored ones.
type Listing struct {
	Objects []Object // sorted by name
}

// Revision returns a digest of the names and the ETags, as sha256:<hex>.
func (l *Listing) Revision() string {
	h := sha256.New()
	for _, o := range l.Objects {
		fmt.Fprintf(h, "%s\x00%s\n", o.Name, o.ETag)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// List lists the objects whose names start with prefix, without ignored ones. Spec is spec.ignore of
// the source, nil if it is not set. The only objects that it fetches are .sourceignore objects that the cache
// lacks.
func (c *Cache) List(ctx context.Context, from Remote, prefix string, spec *string) (*Listing, error) {
	all, err := c.listAll(ctx, from, prefix)
	if err != nil {
		return nil, err
	}
	rules, err := ignore.New(spec)
	if err != nil {
		return nil, rulesFailed(err)
	}
	l := &lister{cache: c, from: from, left: c.limits.bytes}
	if err := l.walk(ctx, "", all, rules); err != nil {
		return nil, err
	}
	kept := slices.DeleteFunc(l.kept, func(o Object) bool { return !strings.HasPrefix(o.Name, prefix) })
	return &Listing{kept}, checkNames(kept)
}

// listAll returns the objects, sorted by name. They include the .sourceignore object at the top, even if it does not
// match the prefix.
func (c *Cache) listAll(ctx context.Context, from Remote, prefix string) ([]Object, error) {
	var all []Object
	const tooManyHint = "Set spec.prefix, or use a separate bucket for the files to deploy"
	names := 0
	err := from.List(ctx, prefix, func(o Object) error {
		if len(all) >= c.limits.listed {
			return failed("the bucket lists more than %d objects", c.limits.listed).WithHint(tooManyHint)
		}
		if names += len(o.Name) + len(o.ETag) + len(o.Version); names > c.limits.names {
			return failed("the names and ETags of the objects in the bucket exceed %d bytes in total",
				c.limits.names).WithHint(tooManyHint)
		}
		if !isDirectory(o) {
			o.ETag = strings.Clone(o.ETag) // it may be a part of a long text
			all = append(all, o)
		}
		return nil
	})
	if err == nil && !strings.HasPrefix(ignore.File, prefix) {
		err = from.List(ctx, ignore.File, func(o Object) error {
			if o.Name == ignore.File {
				all = append(all, o)
			}
			return errStop // the shortest name comes first
		})
		if errors.Is(err, errStop) {
			err = nil
		}
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b Object) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// errStop ends a listing early.
var errStop = errors.New("stop listing")

// isDirectory reports whether the object is the placeholder that consoles create for an empty directory.
func isDirectory(o Object) bool { return strings.HasSuffix(o.Name, "/") && o.Size == 0 }

// lister applies the rules to a listing.
type lister struct {
	cache *Cache
	from  Remote
	kept  []Object
	left  int64 // bytes until the limit
}

// walk keeps the objects of a directory that the rules do not exclude. Dir is empty or ends with a slash; it
// is a prefix of the name of each object.
func (l *lister) walk(ctx context.Context, dir string, objects []Object, rules ignore.Rules) error {
	if strings.Count(dir, "/") > l.cache.limits.depth {
		return failed("the object '%s' is nested deeper than %d directories", shorten(dir), l.cache.limits.depth)
	}
	i, found := slices.BinarySearchFunc(objects, dir+ignore.File,
		func(o Object, name string) int { return strings.Compare(o.Name, name) })
	if found {
		text, err := l.cache.rules(ctx, l.from, objects[i])
		if err != nil {
			return err
		}
		if rules, err = rules.With(text); err != nil {
			return rulesFailed(err)
		}
	}
	for i := 0; i < len(objects); {
		if err := ctx.Err(); err != nil { // many rules take long
			return failed("cannot apply the ignore rules of the bucket").Because(err)
		}
		o := objects[i]
		base, below, nested := strings.Cut(o.Name[len(dir):], "/")
		if !nested {
			i++
			if !rules.Excludes(base) {
				if l.left -= o.Size; l.left < 0 || o.Size < 0 {
					return failed("the objects of the bucket exceed %d bytes in total", l.cache.limits.bytes).
						WithHint("Exclude objects with spec.prefix, spec.ignore or a .sourceignore object")
				}
				l.kept = append(l.kept, o)
			}
			continue
		}
		sub := o.Name[:len(o.Name)-len(below)]
		end := i + 1
		for end < len(objects) && strings.HasPrefix(objects[end].Name, sub) {
			end++
		}
		if !rules.Prunes(base) {
			if err := l.walk(ctx, sub, objects[i:end], rules.Enter(base)); err != nil {
				return err
			}
		}
		i = end
	}
	return nil
}

// rulesFailed is the fault of rules that exceed a limit.
func rulesFailed(err error) error {
	return failed("cannot apply the ignore rules of the bucket").Because(err).WithHint(ignore.LimitHint)
}
