package bootstrap

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	// maxPushes is how often a commit is created again if others push at the same time.
	maxPushes = 5
	// maxFile is the maximum size of a file that people may have changed, in bytes.
	maxFile = 1 << 20
)

// commit pushes the manifests to the branch. Commits of others are never overwritten: if the branch moves, the commit
// is created again on top of it.
func (r *run) commit(ctx context.Context) error {
	for try := 1; ; try++ {
		err := r.tryCommit(ctx)
		if !errors.Is(err, git.ErrRaced) || try == maxPushes {
			return r.explainGit(err)
		}
		r.Output.Step("branch '%s' moved meanwhile; trying again on top of it", r.Branch)
	}
}

func (r *run) tryCommit(ctx context.Context) error {
	r.Output.Live("reading branch '%s' of %s", r.Branch, fault.RedactURL(r.push.URL))
	base, err := r.view.Begin(ctx, r.push, r.Branch)
	if err != nil {
		return err
	}
	if err := r.allowRemoteBasesOf(ctx, base.Commit); err != nil {
		return err
	}
	read, err := r.reader(base.Commit)
	if err != nil {
		return err
	}
	files, isNew, err := r.files(read)
	if err != nil {
		return err
	}
	var edits []git.Edit
	for name, content := range files {
		edits = append(edits, git.Edit{Path: name, Content: content})
	}
	hash, err := r.view.Commit(ctx, git.NewCommit{Parent: base.Commit, Edits: edits, Author: r.Commit.Author,
		Message: r.message(isNew), Sign: r.Commit.Sign})
	switch {
	case errors.Is(err, git.ErrUnchanged) && base.Tip == base.Commit:
		r.Output.Done("the manifests in '%s' of branch '%s' are up to date", r.dir(), r.Branch)
		return r.built(ctx, base.Commit)
	case errors.Is(err, git.ErrUnchanged): // the new branch has the commit of the default branch
		hash = base.Commit
	case err != nil:
		return err
	}
	r.Output.Live("pushing to branch '%s'", r.Branch)
	update := git.RefUpdate{Name: "refs/heads/" + r.Branch, Old: base.Tip, New: hash}
	if err := r.view.Push(ctx, []git.RefUpdate{update}, nil); err != nil {
		return err
	}
	r.Output.Done("committed the manifests to '%s' of branch '%s' (%.7s)", r.dir(), r.Branch, hash)
	return r.built(ctx, hash)
}

// message returns the message of the commit.
func (r *run) message(isNew bool) string {
	verb := "Update"
	if isNew {
		verb = "Add"
	}
	message := fmt.Sprintf("%s the manifests of Sluice in %s", verb, r.dir())
	if r.Commit.Appendix != "" {
		message += "\n\n" + r.Commit.Appendix
	}
	return message
}

// files returns the files to write, by path. A kustomization file of people keeps what they added.
func (r *run) files(read reader) (files map[string][]byte, isNew bool, err error) {
	sync, err := r.syncManifests()
	if err != nil {
		return nil, false, err
	}
	if err := r.checkParent(read); err != nil {
		return nil, false, err
	}
	name, existing, err := readKustomization(read, r.dir())
	if err != nil {
		return nil, false, err
	}
	name = cmp.Or(name, KustomizationFile)
	kustomization, err := withResources(existing, ComponentsFile, SyncFile)
	if err != nil {
		return nil, false, failed("file '%s' cannot be completed", path.Join(r.dir(), name)).Because(err).
			WithHint("Correct the file in %s, or remove it", r.where()).Final()
	}
	return map[string][]byte{path.Join(r.dir(), ComponentsFile): r.Components, path.Join(r.dir(), SyncFile): sync,
		path.Join(r.dir(), name): kustomization}, existing == nil, nil
}

// reader returns the content of a file, nil if it does not exist. It refuses what is not a regular file.
type reader func(name string) ([]byte, error)

var errNotRegular = errors.New("it is not a regular file")

// reader returns the reader of a commit, or of an empty repository.
func (r *run) reader(base plumbing.Hash) (reader, error) {
	if base.IsZero() {
		return func(string) ([]byte, error) { return nil, nil }, nil
	}
	files, err := r.view.Files(base)
	return func(name string) ([]byte, error) {
		file, ok, err := files.Find(name)
		if err != nil || !ok {
			return nil, err
		}
		if !file.Regular {
			return nil, errNotRegular
		}
		content, err := files.Read(file.Hash, maxFile)
		if err == nil && content == nil {
			err = fmt.Errorf("it has more than %d bytes", maxFile)
		}
		return content, err
	}, err
}

// checkParent refuses a kustomization file in the cluster's directory that leaves out the manifests.
func (r *run) checkParent(read reader) error {
	name, content, err := readKustomization(read, r.Path)
	if err != nil || name == "" {
		return err
	}
	listed, err := resourcesOf(content)
	if err == nil && slices.ContainsFunc(listed, func(l string) bool {
		return path.Clean(l) == r.Namespace || path.Dir(path.Clean(l)) == r.Namespace
	}) {
		return nil
	}
	return failed("file '%s' does not include directory '%s', so the cluster would not manage itself",
		path.Join(r.Path, name), r.Namespace).Because(err).
		WithHint("Add '%s' to its resources and push, then run the command again", r.Namespace).Final()
}

// readKustomization returns the kustomization file of a directory; no name if there is none.
func readKustomization(read reader, dir string) (name string, content []byte, err error) {
	for _, name := range kustomizationNames {
		at := path.Join(dir, name)
		content, err := read(at)
		if errors.Is(err, errNotRegular) {
			return "", nil, failed("'%s' is not a regular file", at).WithHint("Replace it by a file and push, then " +
				"run the command again").Final()
		}
		if err != nil {
			return "", nil, failed("cannot read file '%s'", at).Because(err).Final()
		}
		if content != nil {
			return name, content, nil
		}
	}
	return "", nil, nil
}

// built builds the committed directory, with the patches that people added.
func (r *run) built(ctx context.Context, commit plumbing.Hash) error {
	r.commits = commit.String()
	nothing := ""
	tree, err := r.view.Tree(ctx, git.Revision{Commit: r.commits}, git.Options{Ignore: &nothing,
		Directories: []string{r.dir()}})
	if err != nil {
		return err
	}
	return r.build(ctx, tree)
}

// build builds the directory of the manifests in a tree.
func (r *run) build(ctx context.Context, tree *artifact.Tree) error {
	result, err := build.Build(ctx, build.Request{Tree: tree, Path: r.dir()})
	if err != nil {
		return failed("directory '%s' of %s cannot be built", r.dir(), r.where()).Because(err).
			WithHint("Correct its files and push, then run the command again").Final()
	}
	r.objects = result.Objects
	return nil
}

// isSync reports whether an object is the source or the Kustomization of this bootstrap.
func (r *run) isSync(o *unstructured.Unstructured) bool {
	return o.GetName() == r.Namespace && o.GetNamespace() == r.Namespace &&
		slices.Contains([]string{r.sourceKind(), "Kustomization"}, o.GetKind())
}

// isLogin reports whether the server refused a login.
func isLogin(err error) bool { return fault.Reason(err, "") == meta.AuthenticationFailedReason }

// explainGit replaces the hints of package git, which are about fields of a GitRepository.
func (r *run) explainGit(err error) error {
	f := fault.As(err)
	if f == nil {
		return err
	}
	switch {
	case isLogin(err):
		f.Hint = "Check the username, the password or key, and that it may push to the repository"
		if r.Repository.Host != nil {
			f.Hint = "Use a token that may write to the repository"
		}
	case bytes.Contains([]byte(f.Hint), []byte("protection")):
		f.Hint = fmt.Sprintf("Allow this login to push to branch '%s', or bootstrap another branch with --branch and "+
			"merge it", r.Branch)
	case bytes.Contains([]byte(f.Hint), []byte("spec.")):
		f.Hint = "Check the URL of the repository, and the network"
	}
	return err
}
