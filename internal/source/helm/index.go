// Package helm finds, fetches, verifies and builds Helm charts: from repositories over HTTP, from registries,
// and from trees. It takes and returns plain values, and trusts nothing that it reads: sizes and counts are
// bounded, digests are checked.
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
	"golang.org/x/sync/singleflight"

	"github.com/sluice-gitops/sluice/internal/lru"
)

// Entry is one version of a chart.
type Entry struct {
	Version string
	Digest  string // sha256 of the package in hex; empty when the index says none
	// of the package, absolute or relative to the repository's; the first one that the index lists, as in Helm
	URL string

	created int64 // Unix time in nanoseconds; zero when the index says none
}

// Index is what finding a chart needs of a repository's index: a small part of it.
type Index struct {
	// Skipped counts the entries that name no valid version or no URL: as in Helm, they are not there.
	Skipped int

	charts map[string][]Entry // newest first
	weight int64              // bytes in memory, about
}

// Find returns the newest version of a chart that the constraint admits. An empty constraint admits every release;
// pre-releases must be asked for, as in Helm. One that equals a version's text means that version.
func (i *Index) Find(name, constraint string) (Entry, error) {
	entries, ok := i.charts[name]
	if !ok {
		return Entry{}, fmt.Errorf("the index has no chart %q", name)
	}
	return find(entries, name, constraint)
}

func find(entries []Entry, name, constraint string) (Entry, error) {
	if constraint == "" {
		constraint = "*"
	}
	if exact := slices.IndexFunc(entries, func(e Entry) bool { return e.Version == constraint }); exact >= 0 {
		return entries[exact], nil
	}
	admits, err := semver.NewConstraint(constraint)
	if err != nil {
		return Entry{}, fmt.Errorf("%q is neither a version nor a range of versions", constraint)
	}
	for _, e := range entries {
		if v, err := semver.NewVersion(e.Version); err == nil && admits.Check(v) {
			return e, nil
		}
	}
	return Entry{}, fmt.Errorf("no version of chart %q matches %q", name, constraint)
}

// newestFirst sorts by semantic version and drops what is none. Versions that differ in their build metadata
// only are equal: of these the one that was made last comes first, or the one that stood first.
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

// maxVersions bounds the versions of all charts of an index together.
const maxVersions = 500_000

// indexBuilder makes an Index of the entries that a reader finds.
type indexBuilder struct {
	charts     map[string][]Entry
	versions   int
	hasEntries bool
	apiVersion string
}

// item is what is read of an entry; everything else in it is passed over.
type item struct {
	Version string   `json:"version" yaml:"version"`
	Digest  string   `json:"digest" yaml:"digest"`
	URLs    []string `json:"urls" yaml:"urls"`
	Created any      `json:"created" yaml:"created"` // a time, but an index is not refused for another thing
}

// created is when the package was made, as a Unix time in nanoseconds; zero when that is not said.
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

// open begins a chart.
func (b *indexBuilder) open(name string) error {
	if _, ok := b.charts[name]; ok {
		return fmt.Errorf("the chart %.100q stands there twice", name)
	}
	b.charts[name] = nil
	return nil
}

// add adds an entry to a chart.
func (b *indexBuilder) add(name string, i item) error {
	if b.versions++; b.versions > maxVersions {
		return fmt.Errorf("more than %d versions", maxVersions)
	}
	e := Entry{Version: i.Version, Digest: strings.ToLower(strings.TrimPrefix(i.Digest, "sha256:")),
		created: i.created()}
	if len(i.URLs) > 0 {
		e.URL = i.URLs[0]
	}
	b.charts[name] = append(b.charts[name], e)
	return nil
}

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

// maxIndexes bounds the bytes of the indexes that are kept. One that is larger than that is kept alone.
const maxIndexes = 128 << 20

// Indexes keeps the indexes that were asked for last, by digest: all charts of a repository share one, and it
// is read once. The zero value is ready, and safe for concurrent use.
type Indexes struct {
	reading singleflight.Group
	hits    atomic.Int64
	reads   atomic.Int64
	kept    lru.Cache[string, *Index]
}

// Get returns the index with the digest; read makes it when it is not kept.
func (c *Indexes) Get(ctx context.Context, digest string, read func() (*Index, error)) (*Index, error) {
	if index, ok := c.kept.Get(digest); ok {
		c.hits.Add(1)
		return index, nil
	}
	work := c.reading.DoChan(digest, func() (any, error) {
		c.reads.Add(1)
		index, err := read()
		if err == nil {
			c.kept.Add(digest, index, min(index.weight, maxIndexes), lru.Limits{Size: maxIndexes})
		}
		return index, err
	})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case done := <-work:
		index, _ := done.Val.(*Index)
		return index, done.Err
	}
}

// Stats counts the questions that were answered from memory and the indexes that were read, and tells how
// many are kept.
func (c *Indexes) Stats() (hits, reads int64, kept int) {
	return c.hits.Load(), c.reads.Load(), c.kept.Len()
}
