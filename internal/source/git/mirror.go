// Package git keeps bare mirrors of repositories. It resolves references, fetches new objects only, returns trees of
// commits without a checkout, and creates and pushes commits. It is independent of controllers. The files of a mirror
// are described in docs/design/mirrors.md.
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
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/source/git/packstore"
	"github.com/sluice-gitops/sluice/internal/source/git/wire"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Credentials are the credentials for a git server.
type Credentials = auth.GitCredentials

// Remote is a repository and the access to it. Credentials are sent only to the host of the URL, over plain HTTP too if
// the URL has this scheme.
type Remote = wire.Remote

// SSHAlgorithms are the algorithms that SSH may use.
type SSHAlgorithms = wire.SSHAlgorithms

// Stats are counts of requests and bytes.
type Stats = wire.Stats

const (
	// maxPacks is the number of packs at which the mirror is fetched again into a new repository.
	maxPacks = 64
	// maxPack is the maximum size, in bytes, of a fetched pack.
	maxPack = 2 << 30
	// maxTips is the maximum number of commits that are sent to the remote as present.
	maxTips = 8
	// defaultTimeout bounds an update whose context has no deadline.
	defaultTimeout = time.Minute
	// listingTTL is how long a listing of references is used for other sources.
	listingTTL = 5 * time.Second
	generation = "gen-"
	userPrefix = "user-" // of the empty files for the owners of a mirror
)

// mirror is a bare repository on disk. The holder of lock may update it. Its trees may be read at any time, even while
// it is updated and after it was removed.
type mirror struct {
	dir        string
	key        string                     // identifies its remote and credentials
	lock       chan struct{}              // held during an update
	number     int                        // generation of the current repository
	current    atomic.Pointer[repository] // replaced as a whole
	listing    listing                    // the last one of the remote's references
	notes      plumbing.Hash              // target of NotesRef in the last listing; zero if it does not exist
	counts     struct{ requests, bytes atomic.Int64 }
	limits     limits
	budget     *artifact.Budget
	packs      *packstore.Shared
	users      map[string]bool // owners of views; guarded by Mirrors
	proofs     proofs
	ancestries ancestries
	compared   map[comparison][]plumbing.Hash // see View.Ahead; guarded by lock
}

type limits struct {
	packs, entries int
	history        int // first depth of a search in the history of a branch
	pack           int64
	listingTTL     time.Duration
}

var defaultLimits = limits{packs: maxPacks, entries: maxEntries, history: firstDepth, pack: maxPack,
	listingTTL: listingTTL}

// currentLimits returns the default limits, with fewer entries if the process has little memory.
func currentLimits() limits {
	l := defaultLimits
	l.entries = MaxEntries()
	return l
}

// MaxEntries returns how many files and directories a tree may have: 2 million, or fewer if the process has little
// memory.
func MaxEntries() int { return min(maxEntries, int(guard.Memory().Total()/entryShare)) }

// openMirror opens the mirror in dir, or creates an empty one. It removes incomplete and damaged repositories, so that
// they are fetched again.
func openMirror(dir string, packs *packstore.Shared) (*mirror, error) {
	m := &mirror{dir: dir, packs: packs, lock: make(chan struct{}, 1), limits: currentLimits(),
		users: map[string]bool{}, proofs: proofs{dir: dir, owners: map[string]bool{}}, ancestries: newAncestries(dir)}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, storageFault("cannot create the directory of the mirror", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, storageFault("cannot read the directory of the mirror", err)
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return cmp.Compare(numberOf(b.Name()), numberOf(a.Name())) })
	for _, e := range entries {
		if owner, ok := strings.CutPrefix(e.Name(), userPrefix); ok {
			m.users[owner] = true
			m.proofs.load(owner)
			continue
		}
		if known, ok := strings.CutPrefix(e.Name(), ancestorFile); ok && len(m.ancestries.found) < maxAncestries {
			m.ancestries.found[known] = true
			continue
		}
		if artifact.IsOwnerFile(e.Name()) {
			continue
		}
		n := numberOf(e.Name())
		m.number = max(m.number, n)
		if n > 0 && m.current.Load() == nil {
			// one without a commit is incomplete: the previous one is used
			if r, err := loadRepository(m.path(n), packs); err == nil && len(r.tips) > 0 {
				m.number = n
				m.current.Store(r)
				continue
			}
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return nil, storageFault("cannot clean the directory of the mirror", err)
		}
	}
	return m, nil
}

// numberOf returns the number of a generation from the name of its directory, 0 for other directories.
func numberOf(name string) int {
	digits, ok := strings.CutPrefix(name, generation)
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 0 {
		return 0
	}
	return n
}

func (m *mirror) path(n int) string { return filepath.Join(m.dir, generation+strconv.Itoa(n)) }

// remove removes the mirror from the disk. Its trees stay readable.
func (m *mirror) remove() error {
	if r := m.current.Swap(nil); r != nil {
		_ = r.objects.Detach() // fails only if it is damaged
	}
	return os.RemoveAll(m.dir)
}

// holds reports whether the mirror contains the commit with its whole tree.
func (m *mirror) holds(commit plumbing.Hash) bool {
	r := m.current.Load()
	return r != nil && r.holds(commit)
}

// holdsTarget reports whether the mirror contains the target, including its annotated tag.
func (m *mirror) holdsTarget(t target) bool {
	return m.holds(plumbing.NewHash(t.Commit)) && (t.Tag == "" || m.current.Load().objects.Has(t.want))
}

// replace makes r the current repository. Trees of the previous one are read from its open files.
func (m *mirror) replace(r *repository, number int) error {
	previous := m.current.Swap(r)
	m.number = number
	if previous == nil {
		return nil
	}
	_ = previous.objects.Detach() // fails only if it is damaged
	if err := os.RemoveAll(previous.dir); err != nil {
		return storageFault("cannot remove the previous mirror", err)
	}
	return nil
}

func gitFault(format string, args ...any) *fault.Fault {
	return fault.New(meta.GitOperationFailedReason, format, args...)
}

func storageFault(what string, err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		err = fmt.Errorf("%s: %w", path.Op, path.Err) // omit the path, which is internal and changes
	}
	return fault.New(meta.StorageOperationFailedReason, "%s", what).Because(err).
		WithHint("Check that --storage-path is writable and has free space")
}
