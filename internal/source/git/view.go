package git

import (
	"context"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/source/git/wire"
	"github.com/sluice-gitops/sluice/internal/source/ignore"
)

// View is what one source sees of a repository. Its methods may be called from one goroutine at a time; the
// trees that it gave may be read at any time.
type View struct {
	mirrors *Mirrors
	owner   string
	remote  Remote // of the last update
	mirror  *mirror
	made    map[plumbing.Hash]*repository // commits that may not be pushed yet, and where they are

	// The tree that was given last, for the next one to share directories with.
	tree    *artifact.Tree
	last    *directory
	from    *repository
	commit  string
	options string
}

// Options say what of a commit a tree is made of.
type Options struct {
	// Ignore holds rules in .gitignore syntax that take the place of the default exclusions; nil for the defaults.
	Ignore *string
	// Directories that the tree is made of, slash-separated; the whole repository when empty.
	Directories []string
	// Submodules tells to fetch submodules and to put their files where they belong; else their directories are absent.
	Submodules bool
}

// key tells apart options by which directories are not the same although git says so.
func (o *Options) key() string {
	key := "whole"
	if o.Submodules {
		key = "with submodules"
	}
	return key + "\x00" + strings.Join(o.Directories, "\x00")
}

// Update resolves the reference and brings the mirror to it. If only the fetch fails, the revision is
// returned beside the error. See [View.Resolve].
func (v *View) Update(ctx context.Context, remote Remote, ref Reference, fresh bool) (Revision, error) {
	r, err := v.Resolve(ctx, remote, ref, fresh)
	if err != nil {
		return Revision{}, err
	}
	return r.Revision, r.Fetch()
}

// Resolve finds the revision of the reference. It asks the remote once for its references; a pinned commit that the
// mirror has costs no request at all. What another source of the same repository learned a moment ago counts, unless
// fresh requires that the remote is asked. The context applies to the fetch as well; without a deadline both together
// take a minute at most. The caller must call Fetch or Close. The error is a fault.
func (v *View) Resolve(ctx context.Context, remote Remote, ref Reference, fresh bool) (*Resolved, error) {
	if _, _, err := ref.pinned(); err != nil {
		return nil, err
	}
	if _, err := wire.ParseURL(remote.URL); err != nil {
		return nil, err
	}
	m, err := v.mirrors.acquire(v.owner, remote)
	if err != nil {
		return nil, err
	}
	v.remote, v.made = remote, nil
	if v.mirror != m {
		*v = View{mirrors: v.mirrors, owner: v.owner, remote: remote, mirror: m}
		if err := v.mirrors.release(v.owner, m); err != nil {
			return nil, err
		}
	}
	return m.resolve(ctx, remote, ref, v.owner, fresh)
}

// repository returns what the mirror holds, if it holds the revision.
func (v *View) repository(revision Revision) (*repository, error) {
	if v.mirror != nil {
		if r := v.mirror.current.Load(); r != nil && r.holds(plumbing.NewHash(revision.Commit)) {
			return r, nil
		}
	}
	return nil, gitFault("commit %s is not in the mirror", revision.Commit).
		WithHint("It is fetched at the next interval")
}

// Tree returns the tree of a revision that the mirror holds. No file is read but .sourceignore ones, and no
// directory that is as it was in the tree before. Submodules are fetched as the context allows, if the
// options say so. The error is a fault.
func (v *View) Tree(ctx context.Context, revision Revision, o Options) (*artifact.Tree, error) {
	r, err := v.repository(revision)
	if err != nil {
		return nil, err
	}
	only, err := directories(o.Directories)
	if err != nil {
		return nil, err
	}
	rules := ignore.New(o.Ignore)
	if o.key() != v.options || r != v.from || !v.last.current() {
		v.last = nil
	} else if v.last != nil && v.commit == revision.Commit && v.last.rules == rules.ID() {
		return v.tree, nil
	}
	b := &builder{ctx: ctx, view: v, submodules: o.Submodules, entries: v.mirror.limits.entries}
	last, err := b.top(r, plumbing.NewHash(revision.Commit), rules, only, v.last)
	if err != nil {
		v.last = nil
		return nil, explainTree(revision, err)
	}
	if err := v.mirrors.release(v.owner, append(last.mirrors(), v.mirror)...); err != nil {
		return nil, err
	}
	v.last, v.from, v.commit, v.options = last, r, revision.Commit, o.key()
	v.tree = artifact.NewTree(last.dir, &content{from: append([]origin{{v.mirror, r}}, last.origins...)})
	return v.tree, nil
}

// directories checks the names of the directories that a tree is made of.
func directories(names []string) ([]string, error) {
	var only []string
	for _, name := range names {
		clean := strings.Trim(strings.TrimPrefix(name, "./"), "/")
		if clean == "" || clean == "." {
			return nil, nil // all of it
		}
		if slices.ContainsFunc(strings.Split(clean, "/"),
			func(part string) bool { return part == "" || part == "." || part == ".." }) {
			return nil, gitFault("'%s' is not the path of a directory in the repository", wire.Printable(name)).
				WithHint("Correct spec.sparseCheckout: write paths such as deploy/prod").Final()
		}
		only = append(only, clean)
	}
	return only, nil
}
