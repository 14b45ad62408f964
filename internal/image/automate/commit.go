package automate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"sigs.k8s.io/controller-runtime/pkg/log"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/image/edit"
	"github.com/sluice-gitops/sluice/internal/image/record"
	"github.com/sluice-gitops/sluice/internal/image/scan"
	"github.com/sluice-gitops/sluice/internal/source/git"
)

// maxCommits bounds the commits of one pass; the next one makes the others.
const maxCommits = 100

// commitAll commits and pushes what is to be changed: all at once, or one policy after the other.
func (a *Automation) commitAll(ctx context.Context, j *job, b *base, result scan.Result) error {
	obj := j.pass.Object
	for range maxCommits {
		part := result
		if batch := obj.Spec.Batch; batch != nil && batch.PerPolicy {
			var err error
			if part, err = result.Only(b.files, j.plan, scan.Policies(result.Changes)[0]); err != nil {
				return fault.New(imagev1.UpdateFailedReason, "cannot read what is to be changed").Because(err)
			}
		}
		commit, err := a.commit(ctx, j, b, part)
		if errors.Is(err, git.ErrUnchanged) {
			return nil
		}
		if err != nil {
			return err
		}
		b.commit, b.tip = commit, commit
		if !j.target.apart {
			b.revision.Commit = commit.String()
		}
		if b.files, err = j.view.Files(commit); err != nil {
			return err
		}
		if result, err = a.look(ctx, j, b); err != nil || len(result.Edits) == 0 {
			obj.Status.ObservedSourceRevision = b.revision.String()
			return err
		}
	}
	return fault.New(imagev1.UpdateFailedReason, "%d commits were made, and there are further changes", maxCommits).
		WithHint("They are committed next")
}

// commit makes one commit with its note, pushes both, and tells.
func (a *Automation) commit(ctx context.Context, j *job, b *base, part scan.Result) (plumbing.Hash, error) {
	obj := j.pass.Object
	text, err := j.text(obj, part.Changes)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	committer := git.Signature{Name: cmp.Or(obj.Spec.GitSpec.Commit.Author.Name, obj.Spec.GitSpec.Commit.Author.Email),
		Email: obj.Spec.GitSpec.Commit.Author.Email, When: a.Clock.Now()}
	what := record.Of(record.By(imagev1.ImageUpdateAutomationKind, obj.Namespace, obj.Name), part.Changes,
		j.images(), j.why)
	author := committer
	if j.asked != nil {
		author = j.asked.author(committer)
		j.asked.record(&what)
	}
	commit, err := j.view.Commit(ctx, git.NewCommit{Parent: b.commit, Edits: part.Edits, Author: author,
		Committer: committer, Message: text, Sign: j.sign})
	if err != nil {
		return commit, err
	}
	note, err := j.view.AddNote(ctx, commit, what.String(), committer)
	if err != nil {
		return commit, err
	}
	if j.asked != nil {
		if err := j.asked.save(ctx, commit, part.Changes); err != nil {
			return commit, err
		}
	}
	if err := j.push(ctx, b, commit, note); err != nil {
		return commit, err
	}
	j.memory.undone.remember(part.Changes)
	branch := j.target.name()
	if !maps.Equal(j.observed, obj.Status.ObservedPolicies) {
		obj.Status.PullRequest = "" // of other images: this is to be asked for
	}
	obj.Status.LastPushCommit, obj.Status.LastPushTime = commit.String(), &meta.Time{Time: a.Clock.Now()}
	j.pushed = append(j.pushed, pushed{
		revision: git.Revision{Ref: branch, Commit: commit.String()}.String(),
		message:  fmt.Sprintf("pushed commit '%.7s' to branch '%s'\n%s%s", commit, branch, text, listed(part.Changes)),
	})
	if err := a.Fetch(ctx, sourceOf(obj)); err != nil {
		log.FromContext(ctx).Error(err, "cannot ask the source to fetch what was pushed; it does at its interval")
	}
	return commit, nil
}

// text is the message of a commit, with the reason of a release.
func (j *job) text(obj *imagev1.ImageUpdateAutomation, changes []edit.Change) (string, error) {
	text, err := j.message.Execute(dataOf(obj, changes))
	if err == nil && text == "" {
		err = errors.New("the text is empty")
	}
	if err == nil && j.asked != nil && j.asked.Reason != "" {
		text += "\n\n" + j.asked.Reason
	}
	return text, templateFault("spec.git.commit.messageTemplate", err)
}

// maxListed bounds the changes that an event names.
const maxListed = 10

// listed names changes for people, a line each.
func listed(changes []edit.Change) string {
	var b strings.Builder
	for i, c := range changes {
		if i == maxListed {
			fmt.Fprintf(&b, "\nand %d more", len(changes)-maxListed)
			break
		}
		fmt.Fprintf(&b, "\n%s:%d: %s -> %s", c.File, c.Line, c.Old, c.New)
	}
	return b.String()
}

// push moves the branch, and what the refspec names, to a commit, with its note. Not everyone may write notes
// everywhere: then the commit goes alone.
func (j *job) push(ctx context.Context, b *base, commit plumbing.Hash, note git.RefUpdate) error {
	updates := []git.RefUpdate{{Name: j.target.branch, Old: b.tip, New: commit, Force: j.target.apart &&
		!j.target.keep && !b.tip.IsZero()}}
	if j.target.also != "" {
		there, err := j.view.Lookup(ctx, j.target.also)
		if err != nil {
			return err
		}
		updates = append(updates, git.RefUpdate{Name: j.target.also, Old: there, New: commit})
	}
	var options map[string]string
	if p := j.pass.Object.Spec.GitSpec.Push; p != nil {
		options = p.Options
	}
	err := j.view.Push(ctx, append(updates, note), options)
	if f := fault.As(err); f == nil || !f.Terminal {
		return err
	}
	if alone := j.view.Push(ctx, updates, options); alone != nil {
		return alone
	}
	if err := j.view.Push(ctx, []git.RefUpdate{note}, nil); err != nil {
		j.told = append(j.told, "the server takes no notes in "+git.NotesRef)
	}
	return nil
}

// images are those of the policies, bound ones included.
func (j *job) images() map[string]edit.Ref {
	all := map[string]edit.Ref{}
	for policy, image := range j.plan.Images {
		all[policy] = image
	}
	for _, b := range j.plan.Bindings {
		all[b.Policy] = b.Image
	}
	return all
}
