package cosign

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/static"

	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/signing"
)

const (
	who    = "release@example.com"
	issuer = "https://accounts.example.com"
)

// target pushes an artifact that nobody signed yet.
func target(t *testing.T, r *testenv.Registry, repo string) signing.Target {
	t.Helper()
	return signing.Target{TB: t, Image: r.Push(repo, "latest", nil, static.NewLayer([]byte(repo), "text/plain")),
		Access: r.Access()}
}

// wants checks that a verifier names the signer, or refuses in words.
func wants(t *testing.T, v *Verifier, to signing.Target, signer, says string) {
	t.Helper()
	got, err := v.Verify(t.Context(), to.Image, to.Access...)
	if says == "" {
		if err != nil || got != signer {
			t.Fatalf("got %q and %v, want %q", got, err, signer)
		}
		return
	}
	if err == nil || fault.Reason(err, "") != "VerificationError" || !strings.Contains(err.Error(), says) {
		t.Fatalf("got %q and %v, want an error that says %q", got, err, says)
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
			r := testenv.NewRegistry(t, args...)
			key, old, stranger := signing.NewKey(t), signing.NewKey(t), signing.NewKey(t)
			trusted := keys(t, map[string][]byte{"cosign.pub": key.Public, "old.pub": old.Public,
				"README": []byte("no key")})
			other := target(t, r, "other")
			for what, c := range map[string]struct {
				sign         func(signing.Target)
				signer, says string
			}{
				"a signature under a tag": {key.Tagged, "key 'cosign.pub'", ""},
				"a bundle":                {key.Bundle, "key 'cosign.pub'", ""},
				"another of the keys":     {old.Tagged, "key 'old.pub'", ""},
				"a stranger's signature beside it": {
					func(to signing.Target) { stranger.Tagged(to); stranger.Bundle(to); key.Bundle(to) },
					"key 'cosign.pub'", ""},
				"no signature": {func(signing.Target) {}, "", "it is not signed"},
				"a stranger's signature": {stranger.Tagged, "",
					"no signature is of someone trusted"},
				"a stranger's bundle": {stranger.Bundle, "",
					"no signature is of someone trusted"},
				"another artifact's signature": {
					func(to signing.Target) { key.TaggedFor(to, other.Image) }, "", "invalid or missing digest"},
				"another artifact's bundle": {
					func(to signing.Target) { key.Statement(to, other.Image, "https://sigstore.dev/cosign/sign/v1") },
					"", "no signature is of someone trusted"},
				"a statement that is no signature": {
					func(to signing.Target) { key.Statement(to, to.Image, "https://spdx.dev/Document") }, "",
					"it is not signed"},
				"a statement that claims to be a signature once": {func(to signing.Target) { mislabelled(to, key) }, "",
					"a statement about the artifact"},
			} {
				t.Run(what, func(t *testing.T) {
					to := target(t, r, strings.ReplaceAll(strings.ReplaceAll(what, " ", "-"), "'", ""))
					c.sign(to)
					wants(t, trusted, to, c.signer, c.says)
				})
			}
		})
	}
}

// mislabelled attaches a statement whose annotation does not say what it is.
func mislabelled(to signing.Target, key *signing.Key) {
	key.StatementAs(to, to.Image, "https://spdx.dev/Document", "")
}

func TestKeysRefuses(t *testing.T) {
	for what, data := range map[string]map[string][]byte{
		"nothing":            nil,
		"no key":             {"cosign.key": []byte("private")},
		"a key that is none": {"cosign.pub": []byte("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n")},
	} {
		if _, err := Keys(data); fault.Reason(err, "") != "VerificationError" {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

func TestKeyless(t *testing.T) {
	t.Parallel()
	r := testenv.NewRegistry(t)
	ours, theirs := signing.NewSigstore(t), signing.NewSigstore(t)
	other := target(t, r, "other")
	release := []Identity{{Issuer: "^https://accounts\\.example\\.com$", Subject: "^release@"}}
	named := "identity '^release@' of '^https://accounts\\.example\\.com$'"
	for what, c := range map[string]struct {
		sign         func(signing.Target)
		identities   []Identity
		signer, says string
	}{
		"a bundle": {func(to signing.Target) { ours.Bundle(to, who, issuer) }, release,
			named, ""},
		"a signature under a tag": {func(to signing.Target) { ours.Tagged(to, who, issuer) }, release,
			named, ""},
		"the second identity": {func(to signing.Target) { ours.Bundle(to, who, issuer) },
			append([]Identity{{"^a$", "^b$"}}, release...), named, ""},
		"anybody of an own root": {func(to signing.Target) { ours.Bundle(to, who, issuer) }, nil,
			"identity '.*' of '.*'", ""},
		"another subject": {func(to signing.Target) { ours.Bundle(to, "dev@example.com", issuer) },
			release, "", "no signature is of someone trusted"},
		"another subject under a tag": {func(to signing.Target) { ours.Tagged(to, "dev@example.com", issuer) },
			release, "", "no signature is of someone trusted"},
		"another issuer": {func(to signing.Target) {
			ours.Bundle(to, who,
				"https://evil.example.com")
		}, release, "", "no signature is of someone trusted"},
		"another authority": {func(to signing.Target) { theirs.Bundle(to, who, issuer) }, release, "",
			"no signature is of someone trusted"},
		"another authority under a tag": {func(to signing.Target) { theirs.Tagged(to, who, issuer) }, release, "",
			"no signature is of someone trusted"},
		"after the certificate's end": {func(to signing.Target) {
			ours.BundleAt(to, to.Image, who, issuer,
				time.Now().Add(20*time.Minute))
		}, release, "", "no signature is of someone trusted"},
		"another artifact's bundle": {func(to signing.Target) {
			ours.BundleAt(to, other.Image, who, issuer,
				time.Now())
		}, release, "", "no signature is of someone trusted"},
		"a key instead of an identity": {func(to signing.Target) { signing.NewKey(t).Bundle(to) }, release, "",
			"no signature is of someone trusted"},
		"a key's signature under the tag": {func(to signing.Target) { signing.NewKey(t).Tagged(to) }, release, "",
			"no signature is of someone trusted"},
	} {
		t.Run(what, func(t *testing.T) {
			v, err := Keyless(c.identities, ours.Root, nil)
			if err != nil {
				t.Fatal(err)
			}
			to := target(t, r, strings.ReplaceAll(strings.ReplaceAll(what, " ", "-"), "'", ""))
			c.sign(to)
			wants(t, v, to, c.signer, c.says)
		})
	}
}

func TestKeylessRefuses(t *testing.T) {
	ours := signing.NewSigstore(t)
	any := []Identity{{"a", "b"}}
	for what, c := range map[string]struct {
		identities []Identity
		root       []byte
	}{
		"anybody of the public instance":  {nil, nil},
		"an issuer that is no expression": {[]Identity{{"(", "b"}}, ours.Root},
		"a subject that is empty":         {[]Identity{{"a", ""}}, ours.Root},
		"a root that cannot be read":      {any, []byte("{")},
		"a root that trusts nobody": {any,
			[]byte(`{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1"}`)},
		"a root that is the text of another": {any, []byte(`{"mediaType":"application/json"}`)},
	} {
		if _, err := Keyless(c.identities, c.root, nil); fault.Reason(err, "") != "VerificationError" {
			t.Errorf("%s: got %v", what, err)
		}
	}
}
