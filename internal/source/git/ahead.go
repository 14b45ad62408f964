package git

import (
	"context"
	"errors"
	"os"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"github.com/sluice-gitops/sluice/internal/source/git/packstore"
	"github.com/sluice-gitops/sluice/internal/source/git/wire"
)

const (
	// maxAhead bounds the commits by which a branch may be ahead of another.
	maxAhead = 1000
	// nearDepth is the depth to which histories are fetched first: most branches left main lately.
	nearDepth = 50
	// maxComparisons bounds the comparisons of branches that a mirror remembers.
	maxComparisons = 512
)

// ErrTooFarAhead is the error if a branch has more commits of its own than can be listed.
var ErrTooFarAhead = errors.New("the branch has more than 1000 commits of its own")

// comparison is a question about the commit graph, whose answer never changes.
type comparison struct{ tip, base plumbing.Hash }

// Ahead returns the commits that tip has and base does not: tip and its ancestors that are neither base nor one of its
// ancestors. It is empty if base contains tip. Both must be references of the remote of the last update. It fetches the
// history of both, without files, unless the mirror knows the answer. The error is a fault or ErrTooFarAhead.
func (v *View) Ahead(ctx context.Context, tip, base plumbing.Hash) ([]plumbing.Hash, error) {
	if tip == base {
		return nil, nil
	}
	unlock, err := v.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	key := comparison{tip, base}
	if commits, ok := v.mirror.compared[key]; ok {
		return commits, nil
	}
	commits, ok := v.aheadInMirror(tip, base)
	if !ok {
		if commits, err = v.fetchAhead(ctx, tip, base); err != nil {
			return nil, err
		}
	}
	if v.mirror.compared == nil || len(v.mirror.compared) >= maxComparisons {
		v.mirror.compared = map[comparison][]plumbing.Hash{}
	}
	v.mirror.compared[key] = commits
	return commits, nil
}

// aheadInMirror answers without a request if the commits of the mirror lead from tip to base one by one.
func (v *View) aheadInMirror(tip, base plumbing.Hash) (commits []plumbing.Hash, ok bool) {
	r := v.mirror.current.Load()
	for h := tip; r != nil && len(commits) < maxAhead; {
		if h == base {
			return commits, true
		}
		parents, err := r.parents(h)
		if err != nil || len(parents) != 1 {
			break
		}
		commits = append(commits, h)
		h = parents[0]
	}
	return nil, false
}

// fetchAhead fetches the histories of both commits, deeper and deeper until they meet.
func (v *View) fetchAhead(ctx context.Context, tip, base plumbing.Hash) ([]plumbing.Hash, error) {
	remote := v.remote
	remote.Scratch = v.mirror.dir
	u := &update{mirror: v.mirror, ctx: ctx, remote: remote, owner: v.owner}
	defer u.disconnect()
	for _, depth := range []int{nearDepth, v.mirror.limits.history, maxAncestors} {
		if err := u.dial(); err != nil {
			return nil, err
		}
		var commits []plumbing.Hash
		complete := false
		err := u.withHistory([]plumbing.Hash{tip, base}, depth, func(h *history) (err error) {
			commits, complete, err = h.ahead(tip, base)
			return err
		})
		if err != nil || complete {
			return commits, err
		}
	}
	return nil, ErrTooFarAhead
}

// history is the commits of some branches, to a depth.
type history struct {
	ctx     context.Context
	objects *packstore.Store
	whole   bool // it is not cut off
}

// withHistory fetches the commits of branches to a depth, and calls do with them. The connection is used up.
func (u *update) withHistory(tips []plumbing.Hash, depth int, do func(*history) error) error {
	request := wire.Request{Want: tips, WithoutTrees: true}
	if u.conn.Supports(capability.Shallow) {
		request.Depth = depth
	}
	answer, err := u.conn.Fetch(u.ctx, request, u.mirror.limits.pack)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(u.mirror.dir, historyDir)
	if err != nil {
		return storageFault("cannot create a directory for the history of a branch", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is removed when the mirror is opened again
	objects, err := packstore.Open(dir, u.mirror.packs)
	if err != nil {
		return storageFault("cannot create a directory for the history of a branch", err)
	}
	defer objects.Detach() //nolint:errcheck // it is not read any more
	if err := u.store(objects, answer); err != nil {
		return err
	}
	return do(&history{ctx: u.ctx, objects: objects, whole: len(answer.Shallow) == 0})
}

// parents returns the parents of a commit; ok is false if the history ends before it.
func (h *history) parents(commit plumbing.Hash) (parents []plumbing.Hash, ok bool, err error) {
	if err := h.ctx.Err(); err != nil {
		return nil, false, gitFault("timed out searching the history of the branch").Because(err).
			WithHint("Raise spec.timeout")
	}
	kind, data, err := h.objects.Read(commit)
	switch {
	case errors.Is(err, packstore.ErrNotFound):
		return nil, false, nil
	case err != nil:
		return nil, false, gitFault("cannot read the history of the branch").Because(err)
	case kind != plumbing.CommitObject:
		return nil, true, nil
	}
	return parentsOf(data), true, nil
}

// walk calls visit for a commit and its ancestors, each once, until visit returns false for a line of them or more than
// maxAncestors were visited. It reports whether a line led beyond the history.
func (h *history) walk(tip plumbing.Hash, visit func(commit plumbing.Hash, isRoot bool) bool) (cut bool, err error) {
	seen, next := map[plumbing.Hash]bool{tip: true}, []plumbing.Hash{tip}
	for len(next) > 0 {
		commit := next[0]
		next = next[1:]
		parents, ok, err := h.parents(commit)
		if err != nil {
			return false, err
		}
		if !ok {
			cut = true
			continue
		}
		if !visit(commit, len(parents) == 0) {
			continue
		}
		for _, parent := range parents {
			if !seen[parent] && len(seen) < maxAncestors {
				seen[parent] = true
				next = append(next, parent)
			}
		}
	}
	return cut, nil
}

// ahead returns the commits that tip has and base does not. It is complete if every line of them ends at one that base
// has, or if the history is whole.
func (h *history) ahead(tip, base plumbing.Hash) (commits []plumbing.Hash, complete bool, err error) {
	inBase := map[plumbing.Hash]bool{}
	if _, err := h.walk(base, func(c plumbing.Hash, _ bool) bool { inBase[c] = true; return true }); err != nil {
		return nil, false, err
	}
	complete = true
	cut, err := h.walk(tip, func(c plumbing.Hash, isRoot bool) bool {
		if inBase[c] || len(commits) > maxAhead {
			return false
		}
		complete = complete && !isRoot // base may have the root beyond what was fetched of it
		commits = append(commits, c)
		return true
	})
	if err == nil && h.whole && len(commits) > maxAhead {
		return nil, true, ErrTooFarAhead
	}
	return commits, (complete && !cut || h.whole) && len(commits) <= maxAhead, err
}
