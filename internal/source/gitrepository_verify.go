package source

import (
	"context"
	"fmt"
	"slices"
	"strings"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/source/access"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Modes of verification. An older version of the API writes verifyHead in lower case.
const (
	verifyHead       = "HEAD"
	verifyTag        = "Tag"
	verifyTagAndHead = "TagAndHEAD"
)

// verify verifies the signatures that the object asks for, and adds the result to f. It returns the mode of the
// verification, nil if the object asks for none.
func (g *GitRepository) verify(ctx context.Context, obj *sourcev1.GitRepository, view *git.View, revision git.Revision,
	f *Fetched[*sourcev1.GitRepository]) (mode *string, err error) {
	v := obj.Spec.Verification
	if v == nil {
		return nil, nil
	}
	m := v.Mode
	if m == "" || strings.EqualFold(m, verifyHead) {
		m = verifyHead
	}
	if f.Verification, err = g.verifySignatures(ctx, obj, m, view, revision); err != nil {
		f.Verification = unverified(err)
		return nil, err
	}
	return &m, nil
}

// verifySignatures verifies what the mode requires.
func (g *GitRepository) verifySignatures(ctx context.Context, obj *sourcev1.GitRepository, mode string, view *git.View,
	revision git.Revision) (*Verification, error) {
	if mode != verifyHead && !access.GitReference(obj.Spec.Reference).LeadsToTag() {
		return nil, fault.New(sourcev1.InvalidVerificationModeReason,
			"spec.verify.mode is '%s', but spec.ref does not select a tag", mode).
			WithHint("Set spec.ref.tag, spec.ref.semver or a name below refs/tags/, or set the mode to HEAD").Final()
	}
	data, err := g.Access.Secrets.Data(ctx, obj.Namespace, &obj.Spec.Verification.SecretRef, "spec.verify.secretRef")
	if err != nil {
		return nil, fault.New(sourcev1.VerificationErrorReason, "cannot read the trusted keys").Because(err)
	}
	trusted, err := git.ReadTrusted(data)
	if err != nil {
		return nil, err
	}
	var checked, signers []string
	if mode != verifyHead {
		key, err := view.VerifyTag(revision, trusted, g.Clock.Now())
		if err != nil {
			return nil, err
		}
		checked = append(checked, fmt.Sprintf("tag '%s' by key %s", revision, key))
		signers = append(signers, key)
	}
	if mode != verifyTag {
		key, err := view.VerifyCommit(revision, trusted, g.Clock.Now())
		if err != nil {
			return nil, err
		}
		checked = append(checked, fmt.Sprintf("commit 'sha1:%s' by key %s", revision.Commit, key))
		signers = append(signers, key)
	}
	return verified(strings.Join(slices.Compact(signers), ","),
		"verified the signature of "+strings.Join(checked, " and of ")), nil
}
