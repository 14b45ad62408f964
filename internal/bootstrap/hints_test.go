package bootstrap

import (
	"context"
	"errors"
	"net"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/fault"
)

func wantHint(t *testing.T, err error, want string) {
	t.Helper()
	if f := fault.As(err); f == nil || f.Hint != want {
		t.Errorf("got %v, want the hint %q", err, want)
	}
}

func TestHintFitsTheErrorOfTheCluster(t *testing.T) {
	secrets := schema.GroupResource{Resource: "secrets"}
	for want, err := range map[string]error{
		"Use an account that may administer the cluster, with --context or --as": apierrors.NewForbidden(secrets, "s",
			errors.New(`User "u" cannot create resource "secrets" in API group ""`)),
		"": apierrors.NewForbidden(secrets, "s", errors.New("exceeded quota: small")),
		"The cluster rejected the credentials: log in again, or choose another " +
			"--context": apierrors.NewUnauthorized("x"),
		"The definitions are not installed: run the command again": &apimeta.NoKindMatchError{
			GroupKind: schema.GroupKind{Kind: "GitRepository"}},
		"Check that the cluster is running, and that --context is correct": &net.OpError{Op: "dial",
			Err: errors.New("refused")},
	} {
		wantHint(t, clusterFault("cannot apply", err), want)
	}
}

func TestHintOfAWaitSaysThatTheCommandContinues(t *testing.T) {
	r, key := &run{}, types.NamespacedName{Namespace: "sluice-system", Name: "sluice-system"}
	for _, c := range []struct {
		last string
		err  error
		want string
	}{
		{last: "no such branch", err: errStalled, want: "Correct this, and run the command again: it continues here"},
		{last: "not ready", err: context.DeadlineExceeded, want: "Correct this and run the command again: it " +
			"continues here. Raise --timeout if it only needs time"},
		{err: context.DeadlineExceeded,
			want: "Look for the cause with kubectl -n sluice-system get pods, and run the " +
			"command again: it continues here"},
	} {
		wantHint(t, r.explainWait("GitRepository", key, c.last, c.err), c.want)
	}
}

func TestHintsOfGitNameFlagsInsteadOfFields(t *testing.T) {
	r := &run{}
	r.Branch = "main"
	login := func() error {
		return fault.New(meta.AuthenticationFailedReason, "refused").WithHint("Set spec.secretRef")
	}
	wantHint(t, r.explainGit(login()), "Check the username, the password or key, and that it may push to the " +
		"repository")
	wantHint(t, r.explainGit(fault.New("Failed", "declined").WithHint("Check the branch's protection")),
		"Allow this login to push to branch 'main', or bootstrap another branch with --branch and merge it")
	wantHint(t, r.explainGit(fault.New("Failed", "not found").WithHint("Check spec.url")),
		"Check the URL of the repository, and the network")
}
