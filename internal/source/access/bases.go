package access

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build/remotebase"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/source/git"
)

// maxBases is the number of repositories whose mirrors are kept.
const maxBases = 50

// Bases fetches repositories that kustomizations refer to by URL, without credentials. A repository is fetched again
// only if its reference resolves to another commit. It is safe for concurrent use.
type Bases struct {
	Mirrors *git.Mirrors // of bases only
	Egress  *egress.Policy

	mu     sync.Mutex
	owners []string               // the ones used last at the end
	locks  map[string]*sync.Mutex // by owner: a view serves one call at a time
}

// Fetch returns the files of a repository at a reference.
func (b *Bases) Fetch(ctx context.Context, base remotebase.Base) (*artifact.Tree, error) {
	sum := sha256.Sum256([]byte(base.Repository))
	owner := "base-" + hex.EncodeToString(sum[:16])
	lock, err := b.use(owner)
	if err != nil {
		return nil, err
	}
	lock.Lock()
	defer lock.Unlock()
	view := b.Mirrors.View(owner)
	remote := git.Remote{URL: base.Repository, Egress: b.Egress}
	var failures []error
	for _, ref := range references(base.Ref) {
		revision, err := view.Update(ctx, remote, ref, false)
		if err == nil {
			nothing := ""
			return view.Tree(ctx, revision, git.Options{Ignore: &nothing, Submodules: base.Submodules})
		}
		failures = append(failures, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, failures[len(failures)-1] // names of the others were only tried
}

// use notes that a mirror is used, and removes the one that was not used for longest if there are too many.
func (b *Bases) use(owner string) (*sync.Mutex, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.locks == nil {
		b.locks = map[string]*sync.Mutex{}
	}
	if i := slices.Index(b.owners, owner); i >= 0 {
		b.owners = slices.Delete(b.owners, i, i+1)
	}
	b.owners = append(b.owners, owner)
	if b.locks[owner] == nil {
		b.locks[owner] = &sync.Mutex{}
	}
	if len(b.owners) <= maxBases {
		return b.locks[owner], nil
	}
	oldest := b.owners[0]
	if !b.locks[oldest].TryLock() {
		return b.locks[owner], nil // it is in use; a later call removes it
	}
	defer b.locks[oldest].Unlock()
	b.owners = b.owners[1:]
	return b.locks[owner], b.Mirrors.Forget(oldest)
}

var fullCommit = regexp.MustCompile(`^[0-9a-f]{40}$`)

// references returns what a reference of a base may mean, in the order in which git looks for it.
func references(ref string) []git.Reference {
	switch {
	case ref == "" || ref == "HEAD":
		return []git.Reference{{Name: "HEAD"}, {Branch: "main"}, {Branch: "master"}}
	case fullCommit.MatchString(ref):
		return []git.Reference{{Commit: ref}}
	case strings.HasPrefix(ref, "refs/"):
		return []git.Reference{{Name: ref}}
	default:
		return []git.Reference{{Tag: ref}, {Branch: ref}}
	}
}
