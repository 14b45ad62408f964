package git

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"sync"

	"github.com/go-git/go-git/v5/plumbing"
)

const (
	// maxAncestors is the maximum number of commits of a branch that are searched for a pinned commit.
	maxAncestors = 200_000
	// maxAncestries bounds the pinned commits that a mirror remembers.
	maxAncestries = 512
	ancestorFile  = "ancestor-" // prefix of the empty files for pinned commits that are on their branch
	historyDir    = "history-"  // prefix of temporary directories
	// firstDepth is the depth to which the history of a branch is fetched first. If the pinned commit is not found, the
	// whole history is fetched, to maxAncestors.
	firstDepth = 500
)

// ancestries records which pinned commits are on their branch. Those that are keep an empty file, so that a pinned
// commit in the mirror needs no request after a restart either.
type ancestries struct {
	dir string

	mu     sync.Mutex
	found  map[string]bool          // keys of references
	absent map[string]plumbing.Hash // the tip of the branch in whose history the commit was missing
}

func newAncestries(dir string) ancestries {
	return ancestries{dir: dir, found: map[string]bool{}, absent: map[string]plumbing.Hash{}}
}

// key identifies the branch and the commit of a reference.
func (*ancestries) key(ref Reference) string {
	sum := sha256.Sum256([]byte(ref.Branch + "\x00" + ref.Commit))
	return hex.EncodeToString(sum[:16])
}

// has reports whether the commit of a reference is on its branch. A reference without one of both needs no proof.
func (a *ancestries) has(ref Reference) bool {
	if ref.Commit == "" || ref.Branch == "" {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.found[a.key(ref)]
}

// isAbsent reports whether the commit of a reference was missing in the history of this tip.
func (a *ancestries) isAbsent(ref Reference, tip plumbing.Hash) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.absent[a.key(ref)] == tip
}

// set records whether the commit of a reference is in the history of a tip. If the file cannot be written, the history
// is fetched again after a restart.
func (a *ancestries) set(ref Reference, tip plumbing.Hash, isFound bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := a.key(ref)
	if !isFound {
		if len(a.absent) >= maxAncestries {
			clear(a.absent)
		}
		a.absent[key] = tip
		return
	}
	if len(a.found) >= maxAncestries {
		for known := range a.found {
			_ = os.Remove(filepath.Join(a.dir, ancestorFile+known))
		}
		clear(a.found)
	}
	delete(a.absent, key)
	a.found[key] = true
	_ = os.WriteFile(filepath.Join(a.dir, ancestorFile+key), nil, 0o600)
}

// checkBranch returns a fault unless the pinned commit of the reference is on its branch. It fetches the commits of the
// branch if the mirror does not know; then the connection is used up, and a new one is opened.
func (u *update) checkBranch() error {
	known := &u.mirror.ancestries
	if known.has(u.ref) {
		return nil
	}
	branch, err := Reference{Branch: u.ref.Branch}.resolve(u.conn.Refs)
	if err != nil {
		return err
	}
	commit := plumbing.NewHash(u.ref.Commit)
	switch {
	case branch.Commit == u.ref.Commit:
		known.set(u.ref, branch.want, true)
		return nil
	case known.isAbsent(u.ref, branch.want):
		return u.notOnBranch(nil)
	}
	for i, depth := range []int{u.mirror.limits.history, maxAncestors} {
		if i > 0 {
			if err := u.dial(); err != nil {
				return err
			}
		}
		isFound, isWhole, err := u.searchHistory(branch.want, commit, depth)
		if err != nil {
			return err
		}
		if isFound {
			known.set(u.ref, branch.want, true)
			return u.dial()
		}
		if isWhole {
			break
		}
	}
	known.set(u.ref, branch.want, false)
	return u.notOnBranch(nil)
}

// notOnBranch returns the fault for a pinned commit that is not on the branch of the reference.
func (u *update) notOnBranch(err error) error {
	return gitFault("commit %s not found in branch '%s'", u.ref.Commit, u.ref.Branch).Because(err).
		WithHint("Correct spec.ref.commit or spec.ref.branch, or remove spec.ref.branch to use a commit of any " +
			"branch; a force push may have removed the commit")
}

// searchHistory fetches the commits of a branch to a depth, and reports whether they contain the commit, and whether
// they are the whole history.
func (u *update) searchHistory(tip, commit plumbing.Hash, depth int) (isFound, isWhole bool, err error) {
	err = u.withHistory([]plumbing.Hash{tip}, depth, func(h *history) error {
		isWhole = h.whole
		_, err := h.walk(tip, func(c plumbing.Hash, _ bool) bool {
			isFound = isFound || c == commit
			return !isFound
		})
		return err
	})
	return isFound, isWhole, err
}
