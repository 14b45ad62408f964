package change

import (
	"context"
	"errors"

	"github.com/go-git/go-git/v5/plumbing"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/image/record"
	"github.com/sluice-gitops/sluice/internal/source/git"
)

// base returns the commit to build on for an existing push branch with this tip: the tip, so that its commits stay. It
// returns the commit that is checked out if the branch does not exist or was merged into it, or if the branch may be
// reset and has no commits of others.
func (w *Writer) base(ctx context.Context, checkout, tip plumbing.Hash) (plumbing.Hash, error) {
	if tip.IsZero() || tip == checkout {
		return checkout, nil
	}
	merged, foreign, err := w.compare(ctx, tip, checkout)
	if err == nil && (merged || w.target.mayReset && !foreign) {
		return checkout, nil
	}
	return tip, err
}

// compare reports whether the checkout has all commits of a branch, and else whether one that it lacks was made by
// others. Who made a commit is said by its note; a commit without one is foreign, as notes may be lost.
func (w *Writer) compare(ctx context.Context, tip, checkout plumbing.Hash) (merged, foreign bool, err error) {
	if branchOf(w.target.checkout) == "" || w.target.checkout.Commit != "" {
		return false, true, nil // servers send the history of branches only
	}
	ahead, err := w.view.Ahead(ctx, tip, checkout)
	if errors.Is(err, git.ErrTooFarAhead) {
		return false, true, nil
	}
	if err != nil || len(ahead) == 0 {
		return err == nil, false, err
	}
	for _, commit := range ahead {
		own, err := w.isOwn(ctx, commit)
		if err != nil || !own {
			return false, true, err
		}
	}
	return false, false, nil
}

// isOwn reports whether this automation made a commit.
func (w *Writer) isOwn(ctx context.Context, commit plumbing.Hash) (bool, error) {
	if commit.String() == w.automation.Status.LastPushCommit {
		return true, nil
	}
	by, err := w.NoteBy(ctx, commit)
	return by == record.By(imagev1.ImageUpdateAutomationKind, w.automation.Namespace, w.automation.Name), err
}
