package git

import (
	"context"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/source/git/wire"
	"github.com/sluice-gitops/sluice/internal/source/ignore"
)

// View is the access of one source to a mirror. Its methods must be called by one goroutine at a time. Trees that it
// returned may be read at any time.
type View struct {
	mirrors *Mirrors
	owner   string
	remote  Remote // of the last update
	mirror  *mirror
	created map[plumbing.Hash]*repository // commits that may not be pushed yet, and the repository that contains them

	// The last tree, whose directories the next one shares.
	tree    *artifact.Tree
	last    *directory
	from    *repository
	commit  string
	options string
}

// Options select the content of a tree.
type Options struct {
	// Ignore contains rules in .gitignore syntax that replace the default exclusions; nil for the defaults.
	Ignore *string
	// Directories are the paths of the directories to include, slash-separated; the whole repository when empty.
	Directories []string
	// Submodules includes the files of submodules, which are fetched. Otherwise the directories of submodules
	// are absent.
	Submodules bool
}

// key identifies the options with which directories of the same hash have the same content.
func (o *Options) key() string {
	key := "whole"
	if o.Submodules {
		key = "with submodules"
	}
	return key + "\x00" + strings.Join(o.Directories, "\x00")
}

// Update resolves the reference, and fetches the commit into the mirror if it is missing. The revision is valid if only
// the fetch failed. See [View.Resolve].
func (v *View) Update(ctx context.Context, remote Remote, ref Reference, fresh bool) (Revision, error) {
	r, err := v.Resolve(ctx, remote, ref, fresh)
	if err != nil {
		return Revision{}, err
	}
	return r.Revision, r.Fetch()
}

// Resolve resolves the reference. It lists the references of the remote once; a pinned commit in the mirror needs no
// request. It uses a recent listing of another source of the same repository, unless fresh is set. ctx applies to the
// fetch as well; without a deadline both together take a minute at most. The caller must call Fetch or Close. The error
// is a fault.
func (v *View) Resolve(ctx context.Context, remote Remote, ref Reference, fresh bool) (*Resolved, error) {
	if _, _, err := ref.pinned(); err != nil {
		return nil, err
	}
	if _, err := wire.ParseURL(remote.URL); err != nil {
		return nil, err
	}
	if err := v.use(remote); err != nil {
		return nil, err
	}
	return v.mirror.resolve(ctx, remote, ref, v.owner, fresh)
}

// use makes the mirror of a remote that of the view.
func (v *View) use(remote Remote) error {
	m, err := v.mirrors.acquire(v.owner, remote)
	if err != nil {
		return err
	}
	v.remote, v.created = remote, nil
	if v.mirror != m {
		*v = View{mirrors: v.mirrors, owner: v.owner, remote: remote, mirror: m}
		return v.mirrors.release(v.owner, m)
	}
	return nil
}

// repository returns the current repository of the mirror, which must contain the revision.
func (v *View) repository(revision Revision) (*repository, error) {
	if v.mirror != nil && v.mirror.mayRead(v.remote, v.owner) {
		if r := v.mirror.current.Load(); r != nil && r.holds(plumbing.NewHash(revision.Commit)) {
			return r, nil
		}
	}
	return nil, gitFault("commit %s is not in the mirror", revision.Commit).
		WithHint("It is fetched at the next interval")
}

// Tree returns the tree of a revision in the mirror. It reads only directories that changed since the last tree, and
// .sourceignore files. It fetches submodules if the options include them. The error is a fault.
func (v *View) Tree(ctx context.Context, revision Revision, o Options) (*artifact.Tree, error) {
	r, err := v.repository(revision)
	if err != nil {
		return nil, err
	}
	only, err := Directories(o.Directories)
	if err != nil {
		return nil, err
	}
	rules, err := ignore.New(o.Ignore)
	if err != nil {
		return nil, explainTree(revision, err)
	}
	if o.key() != v.options || r != v.from || !v.last.isCurrent() {
		v.last = nil
	} else if v.last != nil && v.commit == revision.Commit && v.last.rules == rules.ID() {
		return v.tree, nil
	}
	lease, err := guard.BudgetOf(ctx).Acquire(ctx, "reading a git tree", entryBytes)
	if err != nil {
		return nil, err
	}
	b := &builder{ctx: ctx, view: v, submodules: o.Submodules, entries: v.mirror.limits.entries, lease: lease}
	last, err := b.top(r, plumbing.NewHash(revision.Commit), rules, only, v.last)
	if err != nil {
		lease.Release()
		v.last = nil
		return nil, explainTree(revision, err)
	}
	guard.HoldWhile(lease, last)
	if err := v.mirrors.release(v.owner, append(last.mirrors(), v.mirror)...); err != nil {
		return nil, err
	}
	v.last, v.from, v.commit, v.options = last, r, revision.Commit, o.key()
	v.tree = artifact.NewTree(last.dir, &content{from: append([]origin{{mirror: v.mirror, from: r}}, last.origins...)})
	return v.tree, nil
}

// Directories normalizes and checks the paths of spec.sparseCheckout. None means the whole repository.
func Directories(names []string) ([]string, error) {
	var only []string
	for _, name := range names {
		clean := strings.Trim(strings.TrimPrefix(name, "./"), "/")
		if clean == "" || clean == "." {
			return nil, nil // the whole repository
		}
		if slices.ContainsFunc(strings.Split(clean, "/"),
			func(part string) bool { return part == "" || part == "." || part == ".." }) {
			return nil, gitFault("'%s' is not the path of a directory in the repository", wire.Printable(name)).
				WithHint("Correct spec.sparseCheckout: use paths such as deploy/prod").Final()
		}
		only = append(only, clean)
	}
	return only, nil
}
