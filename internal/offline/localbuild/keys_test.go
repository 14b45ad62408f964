package localbuild

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
)

// TestLargeKeyFileIsRefused names a file that holds no keys, such as an archive. A part of it must not be used.
func TestLargeKeyFileIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.txt")
	if err := os.WriteFile(file, bytes.Repeat([]byte("#\n"), maxKeys), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(ageKeys, "")
	t.Setenv(ageKeyFile, file)
	obj := &kustomizev1.Kustomization{}
	obj.Spec.Decryption = &kustomizev1.Decryption{Provider: "sops"}
	_, err := KeysOf(nil, t.Logf)(t.Context(), obj)
	if want := "has more than 1048576 bytes: is it a file with age keys?"; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}
