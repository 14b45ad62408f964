package sign

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sigstore/cosign/v3/pkg/cosign"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
)

const content = "0123  sluice.tar.gz\n"

// verifyBlob verifies a bundle for a file with a public key, as `cosign verify-blob --key` does.
func verifyBlob(t *testing.T, public, text []byte, content string) error {
	t.Helper()
	key, err := cryptoutils.UnmarshalPEMToPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := signature.LoadVerifier(key, crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	b := &bundle.Bundle{}
	if err := b.UnmarshalJSON(text); err != nil {
		t.Fatal(err)
	}
	_, err = cosign.VerifyNewBundle(context.Background(), &cosign.CheckOpts{SigVerifier: verifier, IgnoreTlog: true,
		Offline: true, TrustedMaterial: root.TrustedMaterialCollection{}},
		verify.WithArtifact(strings.NewReader(content)), b)
	return err
}

// withoutIdentity removes tokens of the machine that runs the test.
func withoutIdentity(t *testing.T) {
	t.Helper()
	for _, name := range []string{"SIGSTORE_ID_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_URL",
		"COSIGN_PRIVATE_KEY", "COSIGN_PASSWORD"} {
		t.Setenv(name, "") // restores the variable after the test
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
}

func TestKeySigns(t *testing.T) {
	withoutIdentity(t)
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	plain := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	pair, err := cosign.GenerateKeyPair(func(bool) ([]byte, error) { return []byte("secret"), nil })
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string][]byte{"plain": plain, "cosign": pair.PrivateBytes} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("COSIGN_PASSWORD", "secret")
			file := filepath.Join(t.TempDir(), "key")
			if err := os.WriteFile(file, key, 0o600); err != nil {
				t.Fatal(err)
			}
			signer, err := New(t.Context(), Options{KeyFile: file})
			if err != nil {
				t.Fatal(err)
			}
			text, err := signer.Blob(t.Context(), []byte(content))
			if err != nil {
				t.Fatal(err)
			}
			public, err := signer.PublicKey()
			if err != nil {
				t.Fatal(err)
			}
			if err := verifyBlob(t, public, text, content); err != nil {
				t.Error(err)
			}
			if err := verifyBlob(t, public, text, content+"x"); err == nil {
				t.Error("the signature of another file was accepted")
			}
		})
	}
}

func TestWrongPasswordIsExplained(t *testing.T) {
	withoutIdentity(t)
	pair, err := cosign.GenerateKeyPair(func(bool) ([]byte, error) { return []byte("secret"), nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("COSIGN_PRIVATE_KEY", string(pair.PrivateBytes))
	t.Setenv("COSIGN_PASSWORD", "other")
	if _, err := New(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), "COSIGN_PASSWORD") ||
		strings.Contains(err.Error(), "other") {
		t.Errorf("error: %v", err)
	}
}

func TestNothingToSignWith(t *testing.T) {
	withoutIdentity(t)
	if signer, err := New(t.Context(), Options{}); err != nil || signer != nil {
		t.Errorf("%v, %v", signer, err)
	}
}

// TestIdentityAsksForCertificate checks that a token in the environment is sent to the authority, and that a refusal
// ends the release.
func TestIdentityAsksForCertificate(t *testing.T) {
	withoutIdentity(t)
	var path, header string
	authority := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, header = r.URL.Path, r.Header.Get("Authorization")
		w.WriteHeader(http.StatusForbidden)
	}))
	defer authority.Close()
	// A token without a signature: {"alg":"none"} and {"sub":"me@example.com","email":"me@example.com",
	// "email_verified":true,"iss":"https://issuer.example.com"}.
	token := "eyJhbGciOiJub25lIn0.eyJzdWIiOiJtZUBleGFtcGxlLmNvbSIsImVtYWlsIjoibWVAZXhhbXBsZS5jb20iLCJlbWFpbF92" +
		"ZXJpZmllZCI6dHJ1ZSwiaXNzIjoiaHR0cHM6Ly9pc3N1ZXIuZXhhbXBsZS5jb20ifQ.c2ln"
	t.Setenv("SIGSTORE_ID_TOKEN", token)
	signer, err := New(t.Context(), Options{FulcioURL: authority.URL, RekorURL: authority.URL})
	if err != nil {
		t.Fatal(err)
	}
	_, err = signer.Blob(t.Context(), []byte(content))
	if err == nil || !strings.Contains(err.Error(), "cannot sign with the identity") {
		t.Errorf("error: %v", err)
	}
	if path != "/api/v2/signingCert" || header != "Bearer "+token {
		t.Errorf("the authority received a request for %q with the authorization %q", path, header)
	}
}
