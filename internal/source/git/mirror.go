// Package git keeps a bare mirror of a repository: it resolves references, fetches only what is new, and gives trees of
// commits without ever checking files out. It knows no controller.
package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/source/git/wire"
)

// Credentials are what a git server may ask for.
type Credentials = auth.GitCredentials

// Remote is where a repository is and how to get in. A password or token is sent over plain http, too, if the URL says so,
// but never to another host than that of the URL.
type Remote = wire.Remote

// Stats counts what went over the wire.
type Stats = wire.Stats

const (
	// maxPacks is how many fetches are kept one upon the other before the mirror is fetched anew.
	maxPacks = 64
	// maxPack bounds, in bytes, what one fetch may bring.
	maxPack = 2 << 30
	// maxTips is how many commits are told to the remote as held.
	maxTips = 8
	// defaultTimeout bounds an update whose context has no deadline.
	defaultTimeout = time.Minute
	generation     = "gen-"
)

// Mirror is a kept bare repository. Its methods may be called from one goroutine at a time; the trees it gave may be
// read at any time, also while it is updated and after it was closed.
type Mirror struct {
	dir     string
	number  int                        // of the current repository
	current atomic.Pointer[repository] // replaced as a whole when the mirror is fetched anew
	last    *directory                 // the tree given last, for the next one to share directories with
	stats   Stats
	limits  limits
}

type limits struct {
	packs, entries int
	pack           int64
}

// Open opens the mirror in dir, or starts an empty one. What a killed process left half done is removed, and what is
// damaged is dropped, so that it is fetched again.
func Open(dir string) (*Mirror, error) {
	m := &Mirror{dir: dir, limits: limits{packs: maxPacks, entries: maxEntries, pack: maxPack}}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, storageFault("cannot make the mirror's directory", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, storageFault("cannot read the mirror's directory", err)
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return cmp.Compare(numberOf(b.Name()), numberOf(a.Name())) })
	for _, e := range entries {
		n := numberOf(e.Name())
		m.number = max(m.number, n)
		if n > 0 && m.current.Load() == nil {
			// One without a commit was never finished: the one before it still counts.
			if r, err := loadRepository(m.path(n)); err == nil && len(r.tips) > 0 {
				m.number = n
				m.current.Store(r)
				continue
			}
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return nil, storageFault("cannot tidy the mirror's directory", err)
		}
	}
	return m, nil
}

// numberOf returns the number of a generation's directory, 0 for any other.
func numberOf(name string) int {
	digits, ok := strings.CutPrefix(name, generation)
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 0 {
		return 0
	}
	return n
}

func (m *Mirror) path(n int) string { return filepath.Join(m.dir, generation+strconv.Itoa(n)) }

// Close ends the use of the mirror. Trees that it gave stay readable; the files close with the last of them.
func (m *Mirror) Close() error {
	m.current.Store(nil)
	m.last = nil
	return nil
}

// Stats returns what went over the wire since the mirror was opened.
func (m *Mirror) Stats() Stats { return m.stats }

func (m *Mirror) holds(commit plumbing.Hash) bool {
	r := m.current.Load()
	return r != nil && r.holds(commit)
}

// Update resolves the reference and brings the mirror to it. It asks the remote once for its references, and fetches
// nothing when the commit is held already; a pinned commit that is held costs no request at all. The context's deadline
// is honoured; without one it takes a minute at most. The error is a fault.
func (m *Mirror) Update(ctx context.Context, remote Remote, ref Reference) (Revision, error) {
	pinned, isPinned, err := ref.pinned()
	if err != nil {
		return Revision{}, err
	}
	if isPinned && m.holds(plumbing.NewHash(pinned.Commit)) {
		return pinned, nil
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, defaultTimeout)
		defer cancel()
	}
	remote.Scratch = m.dir
	u := &update{mirror: m, ctx: ctx, remote: remote, ref: ref}
	defer u.hangUp()
	return u.run()
}

// replaceBy makes another repository the current one. Trees of the one before are read from its open files.
func (m *Mirror) replaceBy(r *repository, number int) error {
	before := m.current.Swap(r)
	m.number, m.last = number, nil
	if before == nil {
		return nil
	}
	if err := os.RemoveAll(before.dir); err != nil {
		return storageFault("cannot remove the mirror that was replaced", err)
	}
	return nil
}

func gitFault(format string, args ...any) *fault.Fault {
	return fault.New(meta.GitOperationFailedReason, format, args...)
}

func storageFault(what string, err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		err = fmt.Errorf("%s: %w", path.Op, path.Err) // where it is kept is nobody's business, and changes
	}
	return fault.New(meta.StorageOperationFailedReason, "%s", what).Because(err).
		WithHint("Check that --storage-path is writable and has room")
}
