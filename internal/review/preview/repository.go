package preview

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	git "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/transport"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/source/git/wire"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

const (
	maxFile    = 64 << 20 // bytes of a file in a commit
	maxEntries = 2_000_000
)

// Repository is a git repository on disk.
type Repository struct {
	Cache *Cache // of what is read; may be nil

	repo *git.Repository
	dir  string // temporary; empty for a clone of the user
}

// Open opens the clone that contains a directory.
func Open(dir string) (*Repository, error) {
	repo, err := git.PlainOpenWithOptions(dir, &git.PlainOpenOptions{DetectDotGit: true, EnableDotGitCommonDir: true})
	if errors.Is(err, git.ErrRepositoryNotExists) {
		repo, err = git.PlainOpen(dir) // a bare one
	}
	if errors.Is(err, git.ErrRepositoryNotExists) {
		return nil, fmt.Errorf("%s is not in a git repository. Run the command in a clone, or set --from-dir and "+
			"--to-dir", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open the git repository of %s: %w", dir, err)
	}
	return &Repository{repo: repo}, nil
}

// Fetch returns a temporary repository with some references of a remote. Close removes it.
func Fetch(ctx context.Context, url string, login transport.AuthMethod, refs ...string) (*Repository, error) {
	dir, err := os.MkdirTemp("", "sluice-preview-")
	if err != nil {
		return nil, err
	}
	r := &Repository{dir: dir}
	if r.repo, err = git.PlainInit(dir, true); err == nil {
		_, err = r.repo.CreateRemote(&config.RemoteConfig{Name: "origin", URLs: []string{url}})
	}
	var specs []config.RefSpec
	for _, ref := range refs {
		specs = append(specs, config.RefSpec("+"+ref+":"+ref))
	}
	if err == nil {
		err = r.repo.FetchContext(ctx, &git.FetchOptions{RefSpecs: specs, Auth: login, Tags: git.NoTags})
	}
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("cannot fetch %s: %w", strings.Join(refs, " and "), err)
	}
	return r, nil
}

// Close removes a temporary repository.
func (r *Repository) Close() {
	if r.dir != "" {
		_ = os.RemoveAll(r.dir)
	}
}

// URLs returns the addresses of the remotes.
func (r *Repository) URLs() []string {
	remotes, err := r.repo.Remotes()
	if err != nil {
		return nil
	}
	var out []string
	for _, remote := range remotes {
		out = append(out, remote.Config().URLs...)
	}
	return out
}

// Snapshots returns the files before and after a change lands: those of from, and those of the merge of to into it.
func (r *Repository) Snapshots(from, to string) (before, after *Snapshot, err error) {
	f, err := r.commit(from)
	if err != nil {
		return nil, nil, err
	}
	t, err := r.commit(to)
	if err != nil {
		return nil, nil, err
	}
	if before, err = r.snapshot(from, f); err != nil {
		return nil, nil, err
	}
	if after, err = r.snapshot(to, t); err != nil {
		return nil, nil, err
	}
	bases, err := f.MergeBase(t)
	switch {
	case errors.Is(err, plumbing.ErrObjectNotFound):
		return nil, nil, fmt.Errorf("the history between '%s' and '%s' is incomplete: the clone is shallow. Fetch it "+
			"with 'git fetch --unshallow', or set fetch-depth: 0 in the checkout of a workflow", from, to)
	case err != nil:
		return nil, nil, fmt.Errorf("cannot compare '%s' and '%s': %w", from, to, err)
	case len(bases) == 0:
		return nil, nil, fmt.Errorf("'%s' and '%s' have no common ancestor", from, to)
	case bases[0].Hash == f.Hash:
		return before, after, nil
	}
	base, err := r.snapshot("", bases[0])
	if err != nil {
		return nil, nil, err
	}
	var conflicts []string
	root := merge("", base.tree.Root(), before.tree.Root(), after.tree.Root(), &conflicts)
	if len(conflicts) > 0 {
		return nil, nil, conflictError(from, to, conflicts)
	}
	after.tree = after.tree.With(root)
	return before, after, nil
}

// commit returns the commit of a branch, a tag, a remote branch or a hash.
func (r *Repository) commit(name string) (*object.Commit, error) {
	for _, candidate := range []string{name, "refs/remotes/origin/" + name} {
		hash, err := r.repo.ResolveRevision(plumbing.Revision(candidate))
		if err != nil {
			continue
		}
		c, err := r.repo.CommitObject(*hash)
		if err != nil {
			return nil, fmt.Errorf("commit %s of '%s' is not in the clone. Fetch it, and preview again", hash, name)
		}
		return c, nil
	}
	return nil, fmt.Errorf("branch, tag or commit '%s' is not in the clone. Fetch it with 'git fetch origin %s'",
		excerpt.Line(name, 100), excerpt.Line(name, 100))
}

func (r *Repository) snapshot(name string, c *object.Commit) (*Snapshot, error) {
	w := &walker{repo: r.repo, cache: r.Cache}
	root, err := w.dir(c.TreeHash, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot read commit %s: %w", c.Hash, err)
	}
	return &Snapshot{Name: name, Revision: c.Hash.String(),
		Author:  excerpt.Line(c.Author.Name+" <"+c.Author.Email+">", 200),
		Message: excerpt.Bytes(c.Message, 4096), subject: subjectOf(c.Message), submodules: root.submodules,
		tree: artifact.NewTree(root.dir, blobs{r.repo, r.Cache}), filtered: map[string]*artifact.Tree{}}, nil
}

// subjectOf returns the first paragraph of a message on one line, as sources record it.
func subjectOf(message string) string {
	subject, _, _ := strings.Cut(strings.TrimLeft(message, "\n"), "\n\n")
	return wire.Printable(subject)
}

// walker reads the directories of a commit.
type walker struct {
	repo    *git.Repository
	cache   *Cache
	entries int
}

var modes = map[filemode.FileMode]fs.FileMode{filemode.Regular: 0o644, filemode.Deprecated: 0o644,
	filemode.Executable: 0o755, filemode.Symlink: fs.ModeSymlink | 0o755, filemode.Dir: fs.ModeDir | 0o755}

func (w *walker) dir(hash plumbing.Hash, depth int) (*directory, error) {
	if d := w.cache.directory(hash); d != nil {
		w.entries += d.entries
		return d, w.check(depth + d.height)
	}
	tree, err := w.repo.TreeObject(hash)
	if err != nil {
		return nil, err
	}
	before := w.entries
	w.entries += len(tree.Entries)
	if err := w.check(depth); err != nil {
		return nil, err
	}
	d := &directory{}
	entries := make([]artifact.Entry, 0, len(tree.Entries))
	for _, e := range tree.Entries {
		mode, known := modes[e.Mode]
		entry := artifact.Entry{Name: e.Name, Mode: mode, ID: fmt.Sprintf("%s:%s", e.Mode, e.Hash)}
		switch {
		case e.Mode == filemode.Submodule:
			d.submodules = append(d.submodules, e.Name)
			continue
		case !known:
			continue
		case e.Mode == filemode.Dir:
			sub, err := w.dir(e.Hash, depth+1)
			if err != nil {
				return nil, err
			}
			entry.Dir, entry.ID, d.height = sub.dir, sub.dir.ID, max(d.height, 1+sub.height)
			for _, s := range sub.submodules {
				d.submodules = append(d.submodules, e.Name+"/"+s)
			}
		}
		entries = append(entries, entry)
	}
	d.dir, d.entries = artifact.NewDir(entries), w.entries-before
	w.cache.addDirectory(hash, d)
	return d, nil
}

func (w *walker) check(depth int) error {
	if w.entries > maxEntries || depth > maxTreeDepth {
		return fmt.Errorf("more than %d files, or %d directories in each other", maxEntries, maxTreeDepth)
	}
	return nil
}

// blobs are the contents of a repository. They implement [artifact.Content].
type blobs struct {
	repo  *git.Repository
	cache *Cache
}

func (b blobs) blob(id string) (*object.Blob, error) {
	_, hash, _ := strings.Cut(id, ":")
	return b.repo.BlobObject(plumbing.NewHash(hash))
}

// Size implements [artifact.Content].
func (b blobs) Size(id string) (int64, error) {
	if content, ok := b.cache.content(id); ok {
		return int64(len(content)), nil
	}
	blob, err := b.blob(id)
	if err != nil {
		return 0, err
	}
	return blob.Size, nil
}

// Read implements [artifact.Content].
func (b blobs) Read(id string) ([]byte, error) {
	if content, ok := b.cache.content(id); ok {
		return bytes.Clone(content), nil
	}
	blob, err := b.blob(id)
	if err != nil {
		return nil, err
	}
	if blob.Size > maxFile {
		return nil, fmt.Errorf("the file is larger than %d bytes", maxFile)
	}
	r, err := blob.Reader()
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	content, err := io.ReadAll(r)
	if err == nil {
		b.cache.addContent(id, bytes.Clone(content))
	}
	return content, err
}
