package bootstrap

import (
	"bytes"
	"context"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build"
	"github.com/sluice-gitops/sluice/internal/source/git"
)

// remoteBasesFlag is the flag of the controllers that refuses remote bases, which is the default.
const remoteBasesFlag = "--no-remote-bases"

// allowRemoteBasesOf calls allowRemoteBases for the files of a commit.
func (r *run) allowRemoteBasesOf(ctx context.Context, base plumbing.Hash) error {
	if base.IsZero() {
		return nil
	}
	nothing := ""
	tree, err := r.view.Tree(ctx, git.Revision{Commit: base.String()}, git.Options{Ignore: &nothing})
	if err != nil {
		return err
	}
	return r.allowRemoteBases(tree)
}

// allowRemoteBases lets the controllers fetch remote bases if the files have them and no option decides about it:
// their Kustomizations could not be built otherwise.
func (r *run) allowRemoteBases(tree *artifact.Tree) (err error) {
	if r.WithRemoteBases == nil || bytes.Contains(r.Components, []byte(remoteBasesFlag)) {
		return nil
	}
	found := build.RemoteBases(tree)
	if len(found) == 0 {
		return nil
	}
	more := ""
	if len(found) > 1 {
		more = " and others"
	}
	r.Output.Warn("the repository has remote bases (%s%s): the controllers get %s=false. To refuse them, use "+
		"--controller-arg=%s=true", found[0], more, remoteBasesFlag, remoteBasesFlag)
	r.Components, err = r.WithRemoteBases()
	return err
}
