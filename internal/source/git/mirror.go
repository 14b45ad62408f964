// Package git keeps a bare mirror of a repository: it resolves references, fetches only what is new, and gives trees of
// commits without ever checking files out. It knows no controller.
package git

import (
	"cmp"
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

// Remote is where a repository is and how to get in. A password or token is sent over plain http, too, if the
// URL says so, but never to another host than that of the URL.
type Remote = wire.Remote

// SSHAlgorithms are those that SSH may use.
type SSHAlgorithms = wire.SSHAlgorithms

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
	// moment is how long after another source asked for the references their answer still counts.
	moment     = 5 * time.Second
	generation = "gen-"
	userPrefix = "user-" // of the empty files that name the owners of a mirror
)

// mirror is a kept bare repository. It is brought to a reference by one at a time; the trees of it may be
// read at any time, also while it is updated and after it was removed.
type mirror struct {
	dir     string
	key     string                     // of what its remote and credentials are
	turn    chan struct{}              // is taken by who updates it
	number  int                        // of the current repository
	current atomic.Pointer[repository] // replaced as a whole when the mirror is fetched anew
	listing listing                    // of the remote's references, the last
	notes   plumbing.Hash              // what NotesRef led to then; zero if to nothing
	counts  struct{ requests, bytes atomic.Int64 }
	limits  limits
	users   map[string]bool // owners of views; guarded by Mirrors
}

type limits struct {
	packs, entries int
	pack           int64
	moment         time.Duration
}

var defaultLimits = limits{packs: maxPacks, entries: maxEntries, pack: maxPack, moment: moment}

// openMirror opens the mirror in dir, or starts an empty one. What a killed process left half done is
// removed, and what is damaged is dropped, so that it is fetched again.
func openMirror(dir string) (*mirror, error) {
	m := &mirror{dir: dir, turn: make(chan struct{}, 1), limits: defaultLimits, users: map[string]bool{}}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, storageFault("cannot make the mirror's directory", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, storageFault("cannot read the mirror's directory", err)
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return cmp.Compare(numberOf(b.Name()), numberOf(a.Name())) })
	for _, e := range entries {
		if owner, ok := strings.CutPrefix(e.Name(), userPrefix); ok {
			m.users[owner] = true
			continue
		}
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

func (m *mirror) path(n int) string { return filepath.Join(m.dir, generation+strconv.Itoa(n)) }

// remove removes the mirror from the disk; who reads a tree of it goes on.
func (m *mirror) remove() error {
	if r := m.current.Swap(nil); r != nil {
		_ = r.objects.Detach() // one that cannot be read is no loss
	}
	return os.RemoveAll(m.dir)
}

// holds tells whether the commit is there with all of its tree.
func (m *mirror) holds(commit plumbing.Hash) bool {
	r := m.current.Load()
	return r != nil && r.holds(commit)
}

// arrived tells whether the target is there, with the annotated tag that leads to it.
func (m *mirror) arrived(t target) bool {
	return m.holds(plumbing.NewHash(t.Commit)) && (t.Tag == "" || m.current.Load().objects.Has(t.want))
}

// replaceBy makes another repository the current one. Trees of the one before are read from its open files.
func (m *mirror) replaceBy(r *repository, number int) error {
	before := m.current.Swap(r)
	m.number = number
	if before == nil {
		return nil
	}
	_ = before.objects.Detach() // it may be replaced because it cannot be read
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
