package change

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/image/edit"
	"github.com/sluice-gitops/sluice/internal/image/message"
	"github.com/sluice-gitops/sluice/internal/image/record"
	"github.com/sluice-gitops/sluice/internal/image/scan"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Attribution names who and what a commit is made for.
type Attribution struct {
	By     string // the object that commits, see [record.By]
	Author string // who asked for the commit, as "Name <email>", or a name; may be empty. It is a claim
	Reason string // added to the commit message and the note; may be empty
	// ExplicitImages means that the images were given by the author and not chosen by a policy.
	ExplicitImages bool
}

// Commit is a commit to make and to push.
type Commit struct {
	Checkout    *Checkout
	Branch      Branch
	Set         Set
	Result      scan.Result // of a scan of the checkout
	Attribution Attribution
	// BeforePush is called with the commit right before it is pushed; may be nil. Its error ends the push.
	BeforePush func(ctx context.Context, commit plumbing.Hash) error
}

// Pushed is a commit that was pushed.
type Pushed struct {
	Hash     plumbing.Hash
	Revision string // branch@sha1:hash
	Message  string // for an event
	Warning  string // empty: none
}

// Push makes a commit with its note and pushes both. The error is [git.ErrUnchanged] if the files are as they were,
// [git.ErrRaced] if another push came first, else a fault or the error of BeforePush.
func (w *Writer) Push(ctx context.Context, c Commit) (Pushed, error) {
	text, err := w.commitMessage(c.Result.Changes, c.Attribution)
	if err != nil {
		return Pushed{}, err
	}
	committer := w.committer()
	hash, err := w.view.Commit(ctx, git.NewCommit{Parent: c.Checkout.commit, Edits: c.Result.Edits,
		Author: committer, Committer: committer, Message: text, Sign: w.sign})
	if err != nil {
		return Pushed{}, err
	}
	note, err := w.view.AddNote(ctx, hash, c.note().String(), committer)
	if err != nil {
		return Pushed{}, err
	}
	if c.BeforePush != nil {
		if err := c.BeforePush(ctx, hash); err != nil {
			return Pushed{}, err
		}
	}
	warning, err := w.pushWithNote(ctx, c.Branch, hash, note)
	if err != nil {
		return Pushed{}, err
	}
	if err := w.opener.Fetch(ctx, SourceOf(w.automation)); err != nil {
		log.FromContext(ctx).Error(err,
			"cannot request a fetch of the pushed commit; the source fetches it at its interval")
	}
	branch := c.Branch.Name()
	return Pushed{
		Hash: hash, Revision: git.Revision{Ref: branch, Commit: hash.String()}.String(), Warning: warning,
		Message: pushedMessage(hash, branch) + "\n" + text + listed(c.Result.Changes),
	}, nil
}

// After returns checkout and branch as they are once the commit is pushed.
func (w *Writer) After(c Commit, pushed plumbing.Hash) (*Checkout, Branch, error) {
	next, branch := *c.Checkout, c.Branch
	next.commit, branch.Tip = pushed, pushed
	if !branch.separate {
		next.Revision.Commit = pushed.String()
	}
	var err error
	next.files, err = w.view.Files(pushed)
	return &next, branch, err
}

// NoteBy returns the object that made a commit according to the commit's note, empty if there is no such note.
func (w *Writer) NoteBy(ctx context.Context, commit plumbing.Hash) (string, error) {
	text, err := w.view.Note(ctx, commit)
	if err != nil {
		return "", err
	}
	note, err := record.Parse(text)
	if err != nil {
		return "", nil //nolint:nilerr // a note that others wrote
	}
	return note.By, nil
}

func (w *Writer) committer() git.Signature {
	author := w.automation.Spec.GitSpec.Commit.Author
	return git.Signature{Name: cmp.Or(author.Name, author.Email), Email: author.Email, When: w.opener.Clock.Now()}
}

func (c Commit) note() record.Record {
	r := record.Of(c.Attribution.By, c.Result.Changes, c.Set.Images(), c.Set.Reasons)
	r.Author, r.Reason = c.Attribution.Author, c.Attribution.Reason
	if c.Attribution.ExplicitImages {
		for i := range r.Updated {
			r.Updated[i].Policy = ""
		}
	}
	return r
}

// requestedBy is the trailer of the message that names who asked for a commit. They are not the author of the commit:
// gates and reviewers read the author, and whoever may create the object could name another person.
const requestedBy = "Requested-by: "

// maxAuthor is the most of a name that is written, in bytes.
const maxAuthor = 256

func (w *Writer) commitMessage(changes []edit.Change, by Attribution) (string, error) {
	text, err := w.message.Execute(templateData(w.automation, changes))
	if err == nil && text == "" {
		err = errors.New("the message is empty")
	}
	if err == nil && by.Reason != "" {
		text += "\n\n" + by.Reason
	}
	if err == nil && by.Author != "" {
		text = strings.TrimRight(text, "\n") + "\n\n" + requestedBy + excerpt.Line(by.Author, maxAuthor)
	}
	return text, templateFault("spec.git.commit.messageTemplate", err)
}

// pushWithNote moves the branch, and the destination of the refspec, to a commit and pushes its note. If the server
// rejects that, the commit is pushed without the note, as not everybody may write notes.
func (w *Writer) pushWithNote(ctx context.Context, b Branch, commit plumbing.Hash, note git.RefUpdate) (warning string,
	err error) {
	// Forced: the branch is reset, or moves to what was checked out, of which the mirror may lack the history. Either
	// was decided about this tip only.
	updates := []git.RefUpdate{{Name: b.ref, Old: b.Tip, New: commit, Force: b.separate && !b.Tip.IsZero() &&
		!w.descends(commit, b.Tip)}}
	if w.target.alsoPush != "" {
		tip, err := w.view.Lookup(ctx, w.target.alsoPush)
		if err != nil {
			return "", err
		}
		updates = append(updates, git.RefUpdate{Name: w.target.alsoPush, Old: tip, New: commit})
	}
	var options map[string]string
	if p := w.automation.Spec.GitSpec.Push; p != nil {
		options = p.Options
	}
	err = w.view.Push(ctx, append(updates, note), options)
	if f := fault.As(err); f == nil || !f.Terminal {
		return "", err
	}
	if err := w.view.Push(ctx, updates, options); err != nil {
		return "", err
	}
	if err := w.view.Push(ctx, []git.RefUpdate{note}, nil); err != nil {
		return "the server rejects notes in " + git.NotesRef, nil
	}
	return "", nil
}

func templateData(obj *imagev1.ImageUpdateAutomation, changes []edit.Change) message.Data {
	return message.DataOf(client.ObjectKeyFromObject(obj), updatePath(obj), changes,
		obj.Spec.GitSpec.Commit.MessageTemplateValues)
}

func pushedMessage(commit plumbing.Hash, branch string) string {
	return fmt.Sprintf("pushed commit '%.7s' to branch '%s'", commit, branch)
}
