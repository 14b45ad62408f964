package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	sigstore "github.com/sigstore/cosign/v3/pkg/cosign"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
)

// TestBootstrapOCI bootstraps a cluster from a signed artifact until it manages itself: then a push adds an app, and a
// second run pushes nothing. A revision without a signature is not applied.
func TestBootstrapOCI(t *testing.T) {
	c := withOwnControllers(t)
	registry := ociregistry.New(t, "--username", "me", "--password", "s3cret-password")
	url := registry.OCI + "/org/fleet"
	variables := environment{cosignPasswordEnv: "key-password"}
	dir := t.TempDir()
	key := cosignKeyFile(t, "key-password")
	writeFile(t, filepath.Join(dir, "clusters/one/app.yaml"), app("app-of-the-directory"))
	login := []string{"--creds", "me:s3cret-password", "--insecure-registry"}
	args := append([]string{"bootstrap", "oci", "--url", url, "--tag", "production", "--path", "clusters/one",
		"--cosign-key", key, "--dir", dir}, login...)
	first := variables.at(t, args...).wants(t, exitOK, "pushed the manifests to 'clusters/one/flux-system'", "signed ",
		"the cluster manages itself")
	appears(t, c, "app-of-the-directory")
	for _, file := range []string{"gotk-components.yaml", "gotk-sync.yaml", "kustomization.yaml"} {
		if _, err := os.Stat(filepath.Join(dir, "clusters/one/flux-system", file)); err != nil {
			t.Error(err)
		}
	}
	second := variables.at(t, args...).wants(t, exitOK, "are up to date")
	if strings.Contains(second.err, "pushed") || strings.Contains(second.err, "signed ") {
		t.Errorf("a second run changed something:\n%s", second.err)
	}
	checkNoDrift(t, c)

	writeFile(t, filepath.Join(dir, "clusters/one/more.yaml"), app("app-of-a-push"))
	push := append([]string{"push", "artifact", url + ":production", "--path", dir, "--source", "test",
		"--revision", "2"}, login...)
	at(t, push...).wants(t, exitOK)
	at(t, "reconcile", "source", "oci", cluster.DefaultNamespace).wants(t, exitFailed, "not signed")
	// The next run signs what is there, and keeps its files without --dir.
	withoutDir := append([]string{"bootstrap", "oci", "--url", url, "--tag", "production", "--path", "clusters/one",
		"--cosign-key", key}, login...)
	third := variables.at(t, withoutDir...).wants(t, exitOK, "are up to date", "signed ")
	appears(t, c, "app-of-a-push")

	for _, text := range []string{first.out + first.err, second.err, third.err} {
		if strings.Contains(text, "s3cret") || strings.Contains(text, "key-password") {
			t.Errorf("a secret is in\n%s", text)
		}
	}
	checkArtifactSource(t, c)
	variables.at(t, append(withoutDir, "--path", "clusters/two")...).wants(t, exitFailed, "manages itself from path")
	variables.at(t, append(withoutDir, "--branch", "main")...).wants(t, exitUsage, "--branch is for git")
	environment{cosignPasswordEnv: "wrong"}.at(t, withoutDir...).wants(t, exitUsage, "--cosign-key")
}

// checkArtifactSource checks what the cluster reads itself with.
func checkArtifactSource(t *testing.T, c client.Client) {
	t.Helper()
	key := client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: cluster.DefaultNamespace}
	source, login, public := &sourcev1.OCIRepository{}, &corev1.Secret{}, &corev1.Secret{}
	if err := c.Get(t.Context(), key, source); err != nil {
		t.Fatal(err)
	}
	if source.Spec.Verify == nil || source.Spec.Verify.SecretRef == nil || source.Spec.SecretRef == nil {
		t.Fatalf("spec %+v", source.Spec)
	}
	if err := c.Get(t.Context(), key, login); err != nil || login.Type != corev1.SecretTypeDockerConfigJson {
		t.Errorf("the pull secret: %s, %v", login.Type, err)
	}
	key.Name = source.Spec.Verify.SecretRef.Name
	if err := c.Get(t.Context(), key, public); err != nil || len(public.Data) != 1 {
		t.Errorf("the public key: %d keys, %v", len(public.Data), err)
	}
}

// cosignKeyFile writes a private key as cosign does, and returns its file.
func cosignKeyFile(t *testing.T, password string) string {
	t.Helper()
	pair, err := sigstore.GenerateKeyPair(func(bool) ([]byte, error) { return []byte(password), nil })
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "cosign.key")
	writeFile(t, file, string(pair.PrivateBytes))
	return file
}

// writeFile writes a file, and creates its directories.
func writeFile(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
