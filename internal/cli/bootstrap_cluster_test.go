package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/sshkeys"
)

// appears waits until the cluster has a ConfigMap that a commit added.
func appears(t *testing.T, c client.Client, name string) {
	t.Helper()
	testenv.Eventually(t, "the ConfigMap '"+name+"' of the commit exists", func() error {
		err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, &corev1.ConfigMap{})
		if err == nil {
			return nil
		}
		var sync kustomizev1.Kustomization
		key := client.ObjectKey{Namespace: "flux-system", Name: "flux-system"}
		if err := c.Get(t.Context(), key, &sync); err != nil {
			return err
		}
		return fmt.Errorf("%w; revision %s of the sync, its conditions: %v", err, sync.Status.LastAttemptedRevision,
			sync.Status.Conditions)
	})
}

// sshGit starts a git server that accepts a key over SSH, and returns the file of the private key.
func sshGit(t *testing.T) (*testenv.Git, string) {
	t.Helper()
	dir := t.TempDir()
	private, public := sshkeys.New(t)
	key, authorized := filepath.Join(dir, "id"), filepath.Join(dir, "authorized")
	for file, content := range map[string][]byte{key: private, authorized: public} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return testenv.NewGit(t, "--ssh-addr", "127.0.0.1:0", "--ssh-host-key", filepath.Join(dir, "host"),
		"--ssh-authorized-keys", authorized), key
}

func app(name string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\n  namespace: default\n", name)
}

// checkNoDrift fails if an event says that drift was corrected: what a command installs is what git declares.
func checkNoDrift(t *testing.T, c client.Client) {
	t.Helper()
	var events corev1.EventList
	if err := c.List(t.Context(), &events, client.InNamespace(cluster.DefaultNamespace)); err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if e.Reason == meta.DriftCorrectedReason {
			t.Errorf("%s %s: %s", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Message)
		}
	}
}

// TestBootstrap bootstraps a cluster over HTTP and over SSH until it manages itself: then a commit adds an app, and
// a second run makes no commit.
func TestBootstrap(t *testing.T) {
	t.Parallel()
	overSSH, key := sshGit(t)
	overHTTP := testenv.NewGit(t, "--username", "me", "--password", "s3cret-password")
	for name, c := range map[string]struct {
		git           *testenv.Git
		url, password string
		args          []string
	}{
		"http": {git: overHTTP, url: overHTTP.URL, password: "s3cret-password",
			args: []string{"--username", "me", "--allow-insecure-http"}},
		"ssh": {git: overSSH, url: overSSH.SSHURL, args: []string{"--private-key-file", key}},
	} {
		t.Run(name, func(t *testing.T) {
			variables := environment{"GIT_PASSWORD": c.password}
			cl := withOwnControllers(t)
			c.git.Init("fleet")
			args := append([]string{"bootstrap", "git", "--url", c.url + "/fleet.git", "--path", "clusters/one",
				"--author-email", "me@example.com"}, c.args...)
			first := variables.at(t, args...).wants(t, exitOK, "committed the manifests to 'clusters/one/flux-system'",
				"the cluster manages itself")
			files := c.git.Run("fleet", "ls-tree", "-r", "--name-only", "main")
			if want := "clusters/one/flux-system/gotk-components.yaml\nclusters/one/flux-system/gotk-sync.yaml\n" +
				"clusters/one/flux-system/kustomization.yaml"; files != want {
				t.Errorf("files are\n%s\nwant\n%s", files, want)
			}
			head := c.git.Run("fleet", "rev-parse", "main")
			second := variables.at(t, args...).wants(t, exitOK, "are up to date")
			if after := c.git.Run("fleet", "rev-parse", "main"); after != head {
				t.Errorf("a second run made a commit:\n%s", second.err)
			}
			added := "app-" + name
			c.git.Commit("fleet", map[string]string{"clusters/one/app.yaml": app(added)})
			at(t, "reconcile", "kustomization", cluster.DefaultNamespace, "--with-source").wants(t, exitOK)
			appears(t, cl, added)
			checkNoDrift(t, cl)
			for _, text := range []string{first.out + first.err + second.out + second.err,
				c.git.Run("fleet", "log", "-p", "main")} {
				if strings.Contains(text, "s3cret") || strings.Contains(text, "PRIVATE KEY") {
					t.Errorf("a secret is in\n%s", text)
				}
			}
		})
	}
}
