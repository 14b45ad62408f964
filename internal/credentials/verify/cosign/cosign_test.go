package cosign

import (
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	layer "github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/sigstore/cosign/v3/pkg/cosign"
	"github.com/sigstore/cosign/v3/pkg/oci/static"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"

	"github.com/sluice-gitops/sluice/internal/testenv/largekey"
	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
	"github.com/sluice-gitops/sluice/internal/testenv/signing"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	who    = "release@example.com"
	issuer = "https://accounts.example.com"
)

// target pushes an artifact without signatures.
func target(t *testing.T, r *ociregistry.Server, repo string) signing.Target {
	t.Helper()
	return signing.Target{TB: t, Image: r.Push(repo, "latest", nil, layer.NewLayer([]byte(repo), "text/plain")),
		Access: r.Access()}
}

// checkVerify checks that Verify returns the signer, or an error that contains wantErr.
func checkVerify(t *testing.T, v *Verifier, to signing.Target, signer, wantErr string) {
	t.Helper()
	got, err := v.Verify(t.Context(), to.Image, to.Access...)
	if wantErr == "" {
		if err != nil || got != signer {
			t.Fatalf("got %q and %v, want %q", got, err, signer)
		}
		return
	}
	if err == nil || fault.Reason(err, "") != "VerificationError" || !strings.Contains(err.Error(), wantErr) {
		t.Fatalf("got %q and %v, want an error with %q", got, err, wantErr)
	}
}

func keys(t *testing.T, data map[string][]byte) *Verifier {
	t.Helper()
	v, err := Keys(data)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestKeys(t *testing.T) {
	t.Parallel()
	for kind, args := range map[string][]string{"with a referrers API": nil, "without one": {"--no-referrers"}} {
		t.Run(kind, func(t *testing.T) {
			r := ociregistry.New(t, args...)
			key, old, stranger := signing.NewKey(t), signing.NewKey(t), signing.NewKey(t)
			trusted := keys(t, map[string][]byte{"cosign.pub": key.Public, "old.pub": old.Public,
				"README": []byte("no key")})
			other := target(t, r, "other")
			for what, c := range map[string]struct {
				sign            func(signing.Target)
				signer, wantErr string
			}{
				"signature under a tag": {sign: key.Tagged, signer: "key 'cosign.pub'", wantErr: ""},
				"bundle":                {sign: key.Bundle, signer: "key 'cosign.pub'", wantErr: ""},
				"second key":            {sign: old.Tagged, signer: "key 'old.pub'", wantErr: ""},
				"untrusted signature as well": {
					sign:   func(to signing.Target) { stranger.Tagged(to); stranger.Bundle(to); key.Bundle(to) },
					signer: "key 'cosign.pub'", wantErr: ""},
				"no signature": {sign: func(signing.Target) {}, wantErr: "it is not signed. Sign it with cosign " +
					"sign, and store the signature in the same repository"},
				"untrusted signature": {sign: stranger.Tagged,
					wantErr: "no signature is by a trusted signer"},
				"untrusted bundle": {sign: stranger.Bundle,
					wantErr: "no signature is by a trusted signer"},
				"signature of other artifact": {
					sign:    func(to signing.Target) { key.TaggedFor(to, other.Image) },
					wantErr: "invalid or missing digest"},
				"bundle of other artifact": {
					sign: func(to signing.Target) {
						key.Statement(to, other.Image, "https://sigstore.dev/cosign/sign/v1")
					}, wantErr: "no signature is by a trusted signer"},
				"statement that is not a signature": {
					sign:    func(to signing.Target) { key.Statement(to, to.Image, "https://spdx.dev/Document") },
					wantErr: "it is not signed"},
				"statement without annotation": {sign: func(to signing.Target) { mislabelled(to, key) },
					wantErr: "a statement about the artifact"},
			} {
				t.Run(what, func(t *testing.T) {
					to := target(t, r, strings.ReplaceAll(strings.ReplaceAll(what, " ", "-"), "'", ""))
					c.sign(to)
					checkVerify(t, trusted, to, c.signer, c.wantErr)
				})
			}
		})
	}
}

// mislabelled attaches a statement without the annotation of its type.
func mislabelled(to signing.Target, key *signing.Key) {
	key.StatementAs(to, to.Image, "https://spdx.dev/Document", "")
}

func TestKeysRejects(t *testing.T) {
	der, err := x509.MarshalPKIXPublicKey(&largekey.New(t).PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	large := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	for what, data := range map[string]map[string][]byte{
		"no data":       nil,
		"no public key": {"cosign.key": []byte("private")},
		"large key":     {"cosign.pub": large},
		"invalid key":   {"cosign.pub": []byte("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n")},
	} {
		_, err := Keys(data)
		if what == "no public key" && fault.As(err).Hint != "Add the file cosign.pub that cosign generate-key-pair "+
			"creates" {
			t.Errorf("%s: got %v", what, err)
		}
		if fault.Reason(err, "") != "VerificationError" ||
			what == "large key" && !strings.Contains(err.Error(), "the maximum is") {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

func TestKeyless(t *testing.T) {
	t.Parallel()
	r := ociregistry.New(t)
	ours, theirs := signing.NewSigstore(t), signing.NewSigstore(t)
	other := target(t, r, "other")
	release := []Identity{{Issuer: "^https://accounts\\.example\\.com$", Subject: "^release@"}}
	named := "identity '^release@' of '^https://accounts\\.example\\.com$'"
	for what, c := range map[string]struct {
		sign            func(signing.Target)
		identities      []Identity
		signer, wantErr string
	}{
		"bundle": {sign: func(to signing.Target) { ours.Bundle(to, who, issuer) }, identities: release,
			signer: named, wantErr: ""},
		"signature under a tag": {sign: func(to signing.Target) { ours.Tagged(to, who, issuer) }, identities: release,
			signer: named, wantErr: ""},
		"second identity": {sign: func(to signing.Target) { ours.Bundle(to, who, issuer) },
			identities: append([]Identity{{Issuer: "^a$", Subject: "^b$"}}, release...), signer: named, wantErr: ""},
		"any identity of a private root": {sign: func(to signing.Target) { ours.Bundle(to, who, issuer) },
			signer: "identity '.*' of '.*'", wantErr: ""},
		"other subject": {sign: func(to signing.Target) { ours.Bundle(to, "dev@example.com", issuer) },
			identities: release, wantErr: "no signature is by a trusted signer"},
		"other subject under a tag": {sign: func(to signing.Target) { ours.Tagged(to, "dev@example.com", issuer) },
			identities: release, wantErr: "no signature is by a trusted signer"},
		"other issuer": {sign: func(to signing.Target) {
			ours.Bundle(to, who,
				"https://evil.example.com")
		}, identities: release, wantErr: "no signature is by a trusted signer"},
		"other authority": {sign: func(to signing.Target) { theirs.Bundle(to, who, issuer) }, identities: release,
			wantErr: "no signature is by a trusted signer"},
		"other authority under a tag": {sign: func(to signing.Target) { theirs.Tagged(to, who, issuer) },
			identities: release,
			wantErr:    "no signature is by a trusted signer"},
		"signed after expiry of certificate": {sign: func(to signing.Target) {
			ours.BundleAt(to, to.Image, who, issuer,
				time.Now().Add(20*time.Minute))
		}, identities: release, wantErr: "no signature is by a trusted signer"},
		"bundle of other artifact": {sign: func(to signing.Target) {
			ours.BundleAt(to, other.Image, who, issuer,
				time.Now())
		}, identities: release, wantErr: "no signature is by a trusted signer"},
		"bundle by a key": {sign: func(to signing.Target) { signing.NewKey(t).Bundle(to) }, identities: release,
			wantErr: "no signature is by a trusted signer"},
		"signature by a key under the tag": {sign: func(to signing.Target) { signing.NewKey(t).Tagged(to) },
			identities: release,
			wantErr:    "no signature is by a trusted signer"},
	} {
		t.Run(what, func(t *testing.T) {
			v, err := Keyless(c.identities, ours.Root, nil)
			if err != nil {
				t.Fatal(err)
			}
			to := target(t, r, strings.ReplaceAll(strings.ReplaceAll(what, " ", "-"), "'", ""))
			c.sign(to)
			checkVerify(t, v, to, c.signer, c.wantErr)
		})
	}
}

func TestKeylessRejects(t *testing.T) {
	ours := signing.NewSigstore(t)
	any := []Identity{{Issuer: "a", Subject: "b"}}
	certificate, _ := largekey.Certificate(t)
	material, err := root.NewTrustedRoot(root.TrustedRootMediaType01, []root.CertificateAuthority{
		&root.FulcioCertificateAuthority{Root: certificate}}, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	large, err := material.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		identities []Identity
		root       []byte
	}{
		"any identity of public root": {identities: nil, root: nil},
		"invalid issuer expression":   {identities: []Identity{{Issuer: "(", Subject: "b"}}, root: ours.Root},
		"empty subject":               {identities: []Identity{{Issuer: "a", Subject: ""}}, root: ours.Root},
		"malformed root":              {identities: any, root: []byte("{")},
		"empty root": {identities: any,
			root: []byte(`{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1"}`)},
		"large authority":          {identities: any, root: large},
		"root of other media type": {identities: any, root: []byte(`{"mediaType":"application/json"}`)},
	} {
		_, err := Keyless(c.identities, c.root, nil)
		if c.identities == nil && fault.As(err).Hint != "Set spec.verify.matchOIDCIdentity to the trusted identities, "+
			"or spec.verify.secretRef to a Secret with public keys" {
			t.Errorf("%s: got %v", what, err)
		}
		if fault.Reason(err, "") != "VerificationError" ||
			what == "large authority" && !strings.Contains(err.Error(), "the maximum is") {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

// withContent is a bundle of which only the certificate is read.
type withContent struct {
	verify.SignedEntity
	content verify.VerificationContent
}

func (w withContent) VerificationContent() (verify.VerificationContent, error) { return w.content, nil }

// Anyone who can push to a repository can add signatures with certificates of any key.
func TestSignaturesWithLargeKeysAreNotVerified(t *testing.T) {
	certificate, file := largekey.Certificate(t)
	inBundle := checkBundle(t.Context(), withContent{content: bundle.NewCertificate(certificate)}, v1.Hash{},
		cosign.CheckOpts{})
	var tagged []error
	for _, option := range []static.Option{static.WithCertChain(file, nil), static.WithCertChain(file, file)} {
		s, err := static.NewSignature([]byte("{}"), "AAAA", option)
		if err != nil {
			t.Fatal(err)
		}
		tagged = append(tagged, checkTagged(t.Context(), s, v1.Hash{}, cosign.CheckOpts{}))
	}
	for _, err := range append(tagged, inBundle) {
		if err == nil || !strings.Contains(err.Error(), "the RSA key has 16640 bits; the maximum is 16384") {
			t.Errorf("got %v", err)
		}
	}
}
