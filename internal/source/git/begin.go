package git

import (
	"context"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/source/git/wire"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Base is the commit that the next commit of a branch follows.
type Base struct {
	Commit plumbing.Hash // zero if the repository is empty
	// Tip is the hash of the branch; zero if the branch does not exist. Then Commit is that of the default branch.
	Tip plumbing.Hash
}

// Begin prepares a commit on a branch: it lists the references as for a push, which fails without the permission to
// push, and fetches the commit to follow. The error is a fault.
func (v *View) Begin(ctx context.Context, remote Remote, branch string) (Base, error) {
	name := branchPrefix + branch
	if err := CheckRef(name); err != nil {
		return Base{}, err
	}
	references, err := v.pushable(ctx, remote)
	if err != nil {
		return Base{}, err
	}
	if _, ok := references[name]; ok {
		revision, err := v.Update(ctx, remote, Reference{Branch: branch}, true)
		commit := plumbing.NewHash(revision.Commit)
		return Base{Commit: commit, Tip: commit}, err
	}
	var branches []string
	for name := range references {
		if short, ok := strings.CutPrefix(name, branchPrefix); ok {
			branches = append(branches, short)
		}
	}
	if len(branches) == 0 {
		return Base{}, v.beginEmpty(ctx, remote)
	}
	slices.Sort(branches)
	return v.beginBranch(ctx, remote, branch, branches)
}

// pushable returns the references of a remote that accepts the login for a push.
func (v *View) pushable(ctx context.Context, remote Remote) (map[string]plumbing.Hash, error) {
	conn, err := wire.DialPush(ctx, remote)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.Refs.References, nil
}

// beginBranch fetches the default branch of a remote that does not have the branch.
func (v *View) beginBranch(ctx context.Context, remote Remote, branch string, others []string) (Base, error) {
	conn, err := wire.Dial(ctx, remote)
	if err != nil {
		return Base{}, err
	}
	head := conn.Refs.Head
	conn.Close()
	if head == nil {
		return Base{}, gitFault("%s has no branch '%s' and no default branch", fault.RedactURL(remote.URL), branch).
			WithHint("%s", alternatives(branch, others, "branch")).Final()
	}
	if _, err := v.Update(ctx, remote, Reference{Commit: head.String()}, true); err != nil {
		return Base{}, err
	}
	return Base{Commit: *head}, nil
}

// beginEmpty prepares the first commit of a remote.
func (v *View) beginEmpty(ctx context.Context, remote Remote) error {
	if err := v.use(remote); err != nil {
		return err
	}
	unlock, err := v.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	m := v.mirror
	m.proofs.set(v.owner, true) // the remote accepted the login
	if m.current.Load() != nil {
		return nil
	}
	r, err := createRepository(m.path(m.number+1), m.packs)
	if err != nil {
		return storageFault("cannot create the directory of the mirror", err)
	}
	return m.replace(r, m.number+1)
}
