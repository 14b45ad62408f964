package main

import (
	"archive/zip"
	"context"
	"crypto"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/sigstore/cosign/v3/pkg/cosign"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/sluice-gitops/sluice/hack/internal/compile/compiletest"
	verifycosign "github.com/sluice-gitops/sluice/internal/credentials/verify/cosign"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
)

// platforms are those of the test: an archive of each kind, and what the machine that runs the test can start.
const platforms = "linux/amd64,linux/arm64,windows/amd64"

// signed builds the release of a new checkout, signed with a new key, and returns its directory.
func signed(t *testing.T, args ...string) string {
	t.Helper()
	pair, err := cosign.GenerateKeyPair(func(bool) ([]byte, error) { return []byte("secret"), nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("COSIGN_PASSWORD", "secret")
	key := filepath.Join(t.TempDir(), "cosign.key")
	if err := os.WriteFile(key, pair.PrivateBytes, 0o600); err != nil {
		t.Fatal(err)
	}
	output := filepath.Join(t.TempDir(), "release")
	err = run(t.Context(), append([]string{"--version", "v1.2.3", "--source", compiletest.Checkout(t).Dir,
		"--output", output, "--platforms", platforms, "--key", key}, args...))
	if err != nil {
		t.Fatal(err)
	}
	return output
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestReleaseIsCompleteAndReproducible(t *testing.T) {
	testenv.Full(t)
	first, second := signed(t), signed(t)
	list := read(t, first, checksumsFile)
	if other := read(t, second, checksumsFile); list != other {
		t.Errorf("two builds differ:\n%s\n%s", list, other)
	}
	var names []string
	for line := range strings.Lines(list) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if got, err := digest(filepath.Join(first, name)); err != nil || got != sum {
			t.Errorf("%s has the digest %s, listed is %s: %v", name, got, sum, err)
		}
		names = append(names, name)
	}
	want := "crds.yaml install.yaml sluice-1.2.3.tgz sluice.rb sluice_1.2.3_linux_amd64.tar.gz " +
		"sluice_1.2.3_linux_arm64.tar.gz sluice_1.2.3_windows_amd64.zip"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("the release has %s, want %s", got, want)
	}
	// the program of the test prints its version and its arguments
	if got := read(t, first, "install.yaml"); !strings.HasPrefix(got, "v1.2.3 ") ||
		!strings.Contains(got, "--image ghcr.io/sluice-gitops/sluice:v1.2.3@sha256:") {
		t.Errorf("the manifests were printed by %s", got)
	}
	formula := read(t, first, "sluice.rb")
	for _, want := range []string{`version "1.2.3"`, "on_linux do", "/v1.2.3/sluice_1.2.3_linux_arm64.tar.gz"} {
		if !strings.Contains(formula, want) {
			t.Errorf("the formula lacks %q:\n%s", want, formula)
		}
	}
	archive, err := zip.OpenReader(filepath.Join(first, "sluice_1.2.3_windows_amd64.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	if n := archive.File[len(archive.File)-1].Name; n != "sluice.exe" {
		t.Errorf("the archive for Windows contains %s", n)
	}
}

// TestPushedImageIsSigned verifies the image of a release with the verifier of OCIRepository.
func TestPushedImageIsSigned(t *testing.T) {
	testenv.Full(t)
	registry := ociregistry.New(t)
	dir := signed(t, "--repository", registry.Host+"/sluice", "--push", "--insecure-registry")
	tag, err := name.NewTag(registry.Host+"/sluice:v1.2.3", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	found, err := remote.Head(tag, registry.Access()...)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(read(t, dir, "install.yaml"), "/sluice:v1.2.3@"+found.Digest.String()) {
		t.Errorf("the manifests do not name the pushed image %s", found.Digest)
	}
	verifier, err := verifycosign.Keys(map[string][]byte{"cosign.pub": []byte(read(t, dir, "cosign.pub"))})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := verifier.Verify(t.Context(), tag.Digest(found.Digest.String()), registry.Access()...); err != nil {
		t.Error(err)
	}
	checkChecksums(t, dir)
}

// checkChecksums verifies the signature of the checksums, as `cosign verify-blob` does.
func checkChecksums(t *testing.T, dir string) {
	t.Helper()
	public, err := cryptoutils.UnmarshalPEMToPublicKey([]byte(read(t, dir, "cosign.pub")))
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := signature.LoadVerifier(public, crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	b := &bundle.Bundle{}
	if err := b.UnmarshalJSON([]byte(read(t, dir, checksumsFile+".sigstore.json"))); err != nil {
		t.Fatal(err)
	}
	check := func(content string) error {
		options := &cosign.CheckOpts{SigVerifier: verifier, IgnoreTlog: true, Offline: true,
			TrustedMaterial: root.TrustedMaterialCollection{}}
		_, err := cosign.VerifyNewBundle(context.Background(), options,
			verify.WithArtifact(strings.NewReader(content)), b)
		return err
	}
	if err := check(read(t, dir, checksumsFile)); err != nil {
		t.Error(err)
	}
	if check("0123  sluice.rb\n") == nil {
		t.Error("the signature of other checksums was accepted")
	}
}

func TestReleaseRefusesWrongInput(t *testing.T) {
	source := compiletest.Checkout(t).Dir
	if err := os.WriteFile(filepath.Join(source, "new.go"), []byte("package new\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	output := filepath.Join(t.TempDir(), "release")
	absent := filepath.Join(source, "absent")
	for want, args := range map[string][]string{
		"VERSION=v1.2.3":              {},
		"not the version":             {"--version", "1.2"},
		"differ from the commit":      {"--version", "v1.2.3"},
		"cannot read the private":     {"--version", "v1.2.3", "--allow-dirty", "--key", absent},
		"repository can only contain": {"--version", "v1.2.3", "--allow-dirty", "--repository", "A B"},
	} {
		err := run(t.Context(), append(args, "--source", source, "--output", output))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: the error is %v, want %q", args, err, want)
		}
	}
	if _, err := os.Stat(output); !os.IsNotExist(err) {
		t.Errorf("a refused release left files: %v", err)
	}
}
