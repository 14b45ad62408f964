package helm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Masterminds/semver/v3"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/limits/lru"
	"github.com/sluice-gitops/sluice/internal/limits/version"
)

// Entry is one version of a chart.
type Entry struct {
	Version string
	Digest  string // SHA-256 of the package in hexadecimal; empty if the index has none
	URL     string // of the package, absolute or relative to the repository: the first that the index lists, as in Helm

	created int64 // Unix time in nanoseconds; zero if the index has none
}

// Index is the part of a repository's index that is needed to find charts.
type Index struct {
	// Skipped is the number of entries without a valid version or without a URL, which are ignored, as in Helm.
	Skipped int

	charts map[string][]Entry // newest first
	weight int64              // approximate size in memory, in bytes
}

// Find returns the newest version of a chart that matches the constraint. An empty constraint matches every release.
// Prereleases match only if the constraint contains one, as in Helm. A constraint that is equal to the text
// of a version matches that version only. Versions such as 1.2 match by their text only, as in Flux.
func (i *Index) Find(name, constraint string) (Entry, error) {
	entries, ok := i.charts[name]
	if !ok {
		return Entry{}, fmt.Errorf("chart %q not found in the index", name)
	}
	return find(entries, name, constraint)
}

// find returns the first entry that matches the constraint.
func find(entries []Entry, name, constraint string) (Entry, error) {
	if constraint == "" {
		constraint = "*"
	}
	if exact := slices.IndexFunc(entries, func(e Entry) bool { return e.Version == constraint }); exact >= 0 {
		return entries[exact], nil
	}
	versions, err := semver.NewConstraint(constraint)
	if err != nil {
		return Entry{}, fmt.Errorf("%q is neither a version nor a range of versions", constraint)
	}
	for _, e := range entries {
		if v, err := version.Parse(e.Version); err == nil && versions.Check(v) {
			return e, nil
		}
	}
	return Entry{}, fmt.Errorf("no version of chart %q matches %q", name, constraint)
}

// newestFirst sorts entries by semantic version, newest first, and drops those without a valid version. Versions that
// differ in their build metadata only are sorted by time of creation, and then by their order in the index.
func newestFirst(entries []Entry) []Entry {
	type parsed struct {
		entry   Entry
		version *semver.Version
	}
	valid := make([]parsed, 0, len(entries))
	for _, e := range entries {
		if v, err := semver.NewVersion(e.Version); err == nil {
			valid = append(valid, parsed{e, v})
		}
	}
	slices.SortStableFunc(valid, func(a, b parsed) int {
		return cmp.Or(b.version.Compare(a.version), cmp.Compare(b.entry.created, a.entry.created))
	})
	out := make([]Entry, len(valid))
	for i, p := range valid {
		out[i] = p.entry
	}
	return out
}

// maxVersions bounds the entries of all charts in an index together.
const maxVersions = 500_000

// indexBuilder collects the entries of an index.
type indexBuilder struct {
	ctx        context.Context //nolint:containedctx // of the one call that parses the index
	charts     map[string][]Entry
	versions   int
	hasEntries bool
	apiVersion string
	lease      *guard.Lease
}

// versionBytes is the memory of an entry besides its texts, while the index is parsed.
const versionBytes = 250

// item is the part of an entry that is parsed.
type item struct {
	Version string   `json:"version" yaml:"version"`
	Digest  string   `json:"digest" yaml:"digest"`
	URLs    []string `json:"urls" yaml:"urls"`
	Created any      `json:"created" yaml:"created"` // a time; other values are ignored
}

// created returns when the package was created, as Unix time in nanoseconds; zero if it is unknown.
func (i item) created() int64 {
	at, ok := i.Created.(time.Time)
	if text, isText := i.Created.(string); isText {
		var err error
		at, err = time.Parse(time.RFC3339, text)
		ok = err == nil
	}
	if !ok {
		return 0
	}
	return at.UnixNano()
}

// open starts a chart.
func (b *indexBuilder) open(name string) error {
	if _, ok := b.charts[name]; ok {
		return fmt.Errorf("duplicate chart %.100q", name)
	}
	b.charts[name] = nil
	return b.lease.Take(b.ctx, int64(versionBytes+len(name)))
}

// add adds an entry to a chart.
func (b *indexBuilder) add(name string, i item) error {
	if b.versions++; b.versions > maxVersions {
		return fmt.Errorf("the index has more than %d versions", maxVersions)
	}
	e := Entry{Version: i.Version, Digest: strings.ToLower(strings.TrimPrefix(i.Digest, "sha256:")),
		created: i.created()}
	if len(i.URLs) > 0 {
		e.URL = i.URLs[0]
	}
	b.charts[name] = append(b.charts[name], e)
	return b.lease.Take(b.ctx, int64(versionBytes+len(e.Version)+len(e.Digest)+len(e.URL)))
}

// index returns the index, with the entries of each chart sorted.
func (b *indexBuilder) index() (*Index, error) {
	if b.apiVersion == "" {
		return nil, errors.New("it has no apiVersion")
	}
	if !b.hasEntries {
		return nil, errors.New("it has no entries")
	}
	index := &Index{charts: b.charts}
	kept := 0
	for name, entries := range b.charts {
		sorted := newestFirst(slices.DeleteFunc(entries, func(e Entry) bool { return e.URL == "" }))
		b.charts[name] = sorted
		kept += len(sorted)
		for _, e := range sorted {
			index.weight += 56 + int64(len(e.Version)+len(e.Digest)+len(e.URL))
		}
	}
	index.Skipped = b.versions - kept
	return index, nil
}

// maxIndexes bounds the indexes in the cache, in bytes. A larger index is cached alone.
const maxIndexes = 128 << 20

// Indexes is a cache of parsed indexes by digest, which all charts of a repository share. The zero value is an empty
// cache. It is safe for concurrent use.
type Indexes struct {
	reading guard.Flight[*Index]
	hits    atomic.Int64
	reads   atomic.Int64
	kept    lru.Cache[string, *Index]
}

// Get returns the index with a digest. It calls read if the cache does not have it.
func (c *Indexes) Get(ctx context.Context, digest string, read func() (*Index, error)) (*Index, error) {
	if index, ok := c.kept.Get(digest); ok {
		c.hits.Add(1)
		return index, nil
	}
	return c.reading.DoContext(ctx, "reading an index", digest, func() (*Index, error) {
		c.reads.Add(1)
		index, err := read()
		if err == nil {
			most := min(maxIndexes, guard.Memory().Total()/4)
			c.kept.Add(digest, index, min(index.weight, most), lru.Limits{Size: most})
		}
		return index, err
	})
}

// Stats returns the number of cache hits, of indexes that were read, and of indexes in the cache.
func (c *Indexes) Stats() (hits, reads int64, kept int) {
	return c.hits.Load(), c.reads.Load(), c.kept.Len()
}
