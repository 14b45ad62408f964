package source

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/access"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/git"
)

// Modes of verification. An older form of verifyHead is in small letters.
const (
	verifyHead       = "HEAD"
	verifyTag        = "Tag"
	verifyTagAndHead = "TagAndHEAD"
)

// verify checks the signatures that the object asks for, on every pass: a key may have been revoked or have
// expired since the last.
func (g *GitRepository) verify(ctx context.Context, obj *sourcev1.GitRepository, view *git.View,
	revision git.Revision) error {
	if obj.Spec.Verification == nil {
		reconcile.Unmark(obj, sourcev1.SourceVerifiedCondition)
		obj.Status.SourceVerificationMode = nil
		return nil
	}
	mode, message, err := g.signatures(ctx, obj, view, revision)
	if err != nil {
		reconcile.Mark(obj, sourcev1.SourceVerifiedCondition, metav1.ConditionFalse,
			fault.Reason(err, sourcev1.VerificationErrorReason), err.Error())
		return err
	}
	reconcile.Mark(obj, sourcev1.SourceVerifiedCondition, metav1.ConditionTrue, meta.SucceededReason, message)
	obj.Status.SourceVerificationMode = &mode
	return nil
}

func (g *GitRepository) signatures(ctx context.Context, obj *sourcev1.GitRepository, view *git.View,
	revision git.Revision) (mode, message string, err error) {
	v := obj.Spec.Verification
	mode = v.Mode
	if mode == "" || strings.EqualFold(mode, verifyHead) {
		mode = verifyHead
	}
	if mode != verifyHead && !access.GitReference(obj.Spec.Reference).LeadsToTag() {
		return mode, "", fault.New(sourcev1.InvalidVerificationModeReason,
			"spec.verify.mode is %s, but spec.ref does not lead to a tag", mode).
			WithHint("Set spec.ref.tag, semver or a name below refs/tags/, or the mode HEAD").Final()
	}
	data, err := g.Access.Secrets.Data(ctx, obj.Namespace, &v.SecretRef, "spec.verify.secretRef")
	if err != nil {
		return mode, "", fault.New(sourcev1.VerificationErrorReason, "there are no keys to verify by").Because(err)
	}
	trusted, err := git.ReadTrusted(data)
	if err != nil {
		return mode, "", err
	}
	var verified []string
	if mode != verifyHead {
		key, err := view.VerifyTag(revision, trusted, g.Clock.Now())
		if err != nil {
			return mode, "", err
		}
		verified = append(verified, fmt.Sprintf("tag '%s' by key %s", revision, key))
	}
	if mode != verifyTag {
		key, err := view.VerifyCommit(revision, trusted, g.Clock.Now())
		if err != nil {
			return mode, "", err
		}
		verified = append(verified, fmt.Sprintf("commit 'sha1:%s' by key %s", revision.Commit, key))
	}
	return mode, "verified the signature of " + strings.Join(verified, " and of "), nil
}
