package change

import (
	"strings"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/source/access"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const branchPrefix = "refs/heads/"

// target is the reference to check out, and where commits are pushed by default.
type target struct {
	checkout git.Reference
	branch   string // full name of the push branch
	separate bool   // the push branch is not the branch that is checked out
	alsoPush string // full name of the destination of the refspec; empty: none
	mayReset bool   // a push branch that has only commits of the automation may be reset to what is checked out
}

// notBranchHint is the hint if no branch is checked out, with the field to set.
const notBranchHint = "The checked out reference is not a branch: set %s"

// targetOf reads the target from the specs, with the documented defaults.
func targetOf(obj *imagev1.ImageUpdateAutomation, repository *sourcev1.GitRepository) (target, error) {
	spec := obj.Spec.GitSpec
	t := target{checkout: access.GitReference(repository.Spec.Reference)}
	fallback := t.checkout
	if spec.Checkout != nil {
		t.checkout = access.GitReference(&spec.Checkout.Reference)
	}
	from := branchOf(t.checkout)
	push := from
	if push == "" && spec.Checkout == nil {
		push = branchOf(fallback)
	}
	if spec.Push != nil && spec.Push.Branch != "" {
		push = spec.Push.Branch
	}
	if push == "" {
		return t, fault.New(imagev1.InvalidSourceConfigurationReason, "no branch to push to").
			WithHint(notBranchHint, "spec.git.push.branch").Final()
	}
	t.branch, t.separate = branchPrefix+push, push != from
	if err := git.CheckRef(t.branch); err != nil {
		return t, fault.New(imagev1.InvalidSourceConfigurationReason, "spec.git.push.branch is invalid").
			Because(err).Final()
	}
	if spec.Push == nil || spec.Push.Refspec == "" {
		return t, nil
	}
	dst, err := destination(spec.Push.Refspec, push)
	if err == nil && dst != t.branch {
		t.alsoPush = dst
	}
	return t, err
}

// destination returns the full name of the reference that a refspec pushes the branch to.
func destination(refspec, branch string) (string, error) {
	src, dst, found := strings.Cut(refspec, ":")
	if !found || src == "" || strings.HasPrefix(src, "+") || git.CheckRef(dst) != nil {
		return "", fault.New(imagev1.InvalidSourceConfigurationReason, "spec.git.push.refspec '%.100s' is invalid",
			refspec).
			WithHint("Write it as refs/heads/%s:refs/heads/OTHER; deletions and forced updates are not supported",
				branch).Final()
	}
	if src != "HEAD" && src != branchPrefix+branch && src != branch {
		return "", fault.New(imagev1.InvalidSourceConfigurationReason,
			"spec.git.push.refspec pushes '%.100s', but commits are made on '%s'", src, branchPrefix+branch).
			WithHint("Set its source to %s", branchPrefix+branch).Final()
	}
	return dst, nil
}

// branchOf returns the branch that a reference resolves to, empty if it is not a branch.
func branchOf(r git.Reference) string {
	switch {
	case r.Name != "":
		branch, isBranch := strings.CutPrefix(r.Name, branchPrefix)
		if !isBranch {
			return ""
		}
		return branch
	case r.Tag != "" || r.SemVer != "":
		return ""
	case r.Commit != "" || r.Branch != "":
		return r.Branch
	}
	return git.DefaultBranch
}
