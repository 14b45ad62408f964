package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/cli/bootstrap"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// gitlabArgs are the arguments of a bootstrap from the host.
func (h *gitHost) gitlabArgs(more ...string) []string {
	owner, name, _ := strings.Cut(h.repository, "/")
	return append([]string{"--owner", owner, "--repository", name, "--hostname", h.address, "--ca-file", h.caFile,
		"--path", "clusters/one"}, more...)
}

// optionsOf returns the options of `bootstrap gitlab` with arguments.
func (h *gitHost) optionsOf(t *testing.T, args ...string) bootstrap.Options {
	t.Helper()
	e := newEnv(strings.NewReader(""), io.Discard, io.Discard)
	e.getenv = h.environment().get
	o := &bootstrapCommand{env: e}
	b := &bootstrapHost{bootstrapCommand: o, hostCommand: &hostCommands[1]}
	f := pflag.NewFlagSet("gitlab", pflag.ContinueOnError)
	o.AddFlags(f)
	o.bind(f)
	o.bindSync(f)
	b.bindHost(f)
	if err := errors.Join(f.Parse(args), o.Complete(f)); err != nil {
		t.Fatal(err)
	}
	host, login, err := b.access()
	if err != nil {
		t.Fatal(err)
	}
	all, err := o.options(bootstrap.Repository{Host: host}, login)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// loginSecret returns the Secret with the login of the cluster.
func loginSecret(t *testing.T, c client.Client) map[string][]byte {
	t.Helper()
	s := &corev1.Secret{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: cluster.DefaultNamespace},
		s); err != nil {
		t.Fatal(err)
	}
	return s.Data
}

// TestBootstrapAtAHost bootstraps from a host that creates the repository: it stops the bootstrap after each step and
// continues it, then rotates each kind of login.
func TestBootstrapAtAHost(t *testing.T) {
	testenv.Full(t)
	h := newGitHost(t, "org/fleet", "s3cret-token")
	c := withOwnControllers(t)
	gitlab := func(more ...string) result {
		t.Helper()
		return h.environment().at(t, append([]string{"bootstrap", "gitlab"}, h.gitlabArgs(more...)...)...)
	}
	h.set(func() { h.scopes = "read_user" })
	gitlab().wants(t, exitFailed, "insufficient_scope", "Give the token the scope api", "it has the scopes: read_user")
	if h.created {
		t.Error("a token with the wrong scope created the repository")
	}
	h.set(func() { h.scopes = "" })

	h.stopAfterEachStep(t)
	first := h.checkKey(t, c)
	gitlab().wants(t, exitOK, "are up to date")
	if again := h.checkKey(t, c); again != first {
		t.Error("a run without changes replaced the deploy key")
	}
	h.follows(t, c, "with-key")
	gitlab("--rotate-key").wants(t, exitOK, "deploy key added to the repository", "removed 1 earlier keys")
	if rotated := h.checkKey(t, c); rotated == first {
		t.Error("--rotate-key kept the deploy key")
	}
	h.follows(t, c, "with-rotated-key")

	for _, want := range []string{"t0ken-3", "t0ken-4"} {
		gitlab("--deploy-token-auth", "--rotate-key").wants(t, exitOK, "deploy token '")
		if got := string(loginSecret(t, c)["password"]); got != want || len(h.tokens) != 1 {
			t.Errorf("the cluster has the token %q, want %q; the host has %d tokens", got, want, len(h.tokens))
		}
	}
	h.follows(t, c, "with-deploy-token")

	expired := h.environment()
	h.set(func() { h.token = "s3cret-rotated" })
	expired.at(t, append([]string{"bootstrap", "gitlab"}, h.gitlabArgs("--token-auth")...)...).
		wants(t, exitFailed, "The token is wrong or has expired: create a new one")
	gitlab("--token-auth").wants(t, exitOK, "the cluster manages itself")
	h.follows(t, c, "with-token")
}

var errStopped = errors.New("stopped by the test")

// stopAfterEachStep runs the bootstrap once for each step, and ends it after that step. Then it runs to its end. The
// repository gets one commit and one key.
func (h *gitHost) stopAfterEachStep(t *testing.T) {
	t.Helper()
	args := h.gitlabArgs("--kubeconfig", testenv.Kubeconfig(t))
	for _, last := range bootstrap.StepNames() {
		o := h.optionsOf(t, args...)
		o.AfterStep = func(step string) error {
			if step == last {
				return errStopped
			}
			return nil
		}
		if err := bootstrap.Run(t.Context(), o); !errors.Is(err, errStopped) {
			t.Fatalf("until step %s: got %v", last, err)
		}
	}
	if err := bootstrap.Run(t.Context(), h.optionsOf(t, args...)); err != nil {
		t.Fatal(err)
	}
	if n := h.git.Run(h.repository, "rev-list", "--count", "main"); n != "1" {
		t.Errorf("%s commits were made", n)
	}
	if h.issued != 1 {
		t.Errorf("%d deploy keys were created", h.issued)
	}
}

// checkKey checks that the host has the deploy key of the cluster and no other, and returns it.
func (h *gitHost) checkKey(t *testing.T, c client.Client) string {
	t.Helper()
	key := strings.TrimSpace(string(loginSecret(t, c)["identity.pub"]))
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.keys) != 1 || h.keys[0]["key"] != key || h.keys[0]["can_push"] != false {
		t.Errorf("the host has the keys %v, want only %s", h.keys, key)
	}
	return key
}

// follows checks that the cluster applies a new commit.
func (h *gitHost) follows(t *testing.T, c client.Client, name string) {
	t.Helper()
	h.git.Commit(h.repository, map[string]string{fmt.Sprintf("clusters/one/%s.yaml", name): app(name)})
	at(t, "reconcile", "kustomization", cluster.DefaultNamespace, "--with-source").wants(t, exitOK)
	appears(t, c, name)
}
