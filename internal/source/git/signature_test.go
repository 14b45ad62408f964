package git

import (
	"bytes"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"golang.org/x/crypto/ssh"

	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/sshkeys"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// The files are from git 2.39 with GnuPG 2.2 and OpenSSH 9.2.
func TestVerifySignaturesOfGit(t *testing.T) {
	trusted, err := ReadTrusted(map[string][]byte{"a.asc": golden(t, "key.asc"), "b.pub": golden(t, "key.pub")})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, split := range map[string]func([]byte) signed{"commit.pgp": splitCommit, "commit.ssh": splitCommit,
		"tag.pgp": splitTag, "tag.ssh": splitTag} {
		data := golden(t, name)
		if _, err := trusted.verify(split(data), now); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := trusted.verify(split(bytes.Replace(data, []byte("golden@"), []byte("changed@"), 1)),
			now); err == nil {
			t.Errorf("%s: accepted after a change", name)
		}
	}
}

func TestVerifyCommit(t *testing.T) {
	g := testenv.NewGit(t)
	alice, mallory := newSigner(t), newSigner(t)
	trusted, err := ReadTrusted(map[string][]byte{"ssh": alice.sshPublic, "pgp": alice.pgpPublic})
	if err != nil {
		t.Fatal(err)
	}
	other := commitText(g, "other")
	for name, c := range map[string]struct{ signed, wantErr string }{
		"SSH signature": {signed: withSignature(commitText(g, "ssh"), alice.ssh(t, commitText(g, "ssh"))),
			wantErr: ""},
		"OpenPGP signature": {signed: withSignature(commitText(g, "pgp"), alice.pgp(t, commitText(g, "pgp"))),
			wantErr: ""},
		"no signature":          {signed: commitText(g, "none"), wantErr: "not signed"},
		"untrusted SSH key":     {signed: withSignature(other, mallory.ssh(t, other)), wantErr: "not trusted"},
		"untrusted OpenPGP key": {signed: withSignature(other, mallory.pgp(t, other)), wantErr: "not trusted"},
		"SSH signature of other commit": {signed: withSignature(commitText(g, "copy"), alice.ssh(t, other)),
			wantErr: "does not match the content"},
		"OpenPGP signature of other commit": {signed: withSignature(commitText(g, "copy"), alice.pgp(t, other)),
			wantErr: "does not match the content"},
		"two signatures": {signed: withSignature(withSignature(other, alice.ssh(t, other)), mallory.ssh(t, other)),
			wantErr: "2 signatures. Sign it with a key of the Secret of spec.verify.secretRef. The last artifact " +
				"stays available"},
		"X.509 signature": {signed: withSignature(other, x509Head+"\nMII\n-----END SIGNED MESSAGE-----\n"),
			wantErr: "neither"},
		"signature in message": {signed: other + "gpgsig " + alice.ssh(t, other), wantErr: "not signed"},
		"signature of SHA-256 form": {signed: strings.Replace(withSignature(other, alice.ssh(t, other)), "gpgsig ",
			"gpgsig-sha256 ", 1), wantErr: "not signed"},
	} {
		t.Run(name, func(t *testing.T) {
			commit := g.Object("app", "commit", c.signed)
			g.SetRef("app", "refs/heads/signed", commit)
			v := open(t)
			rev := updated(t, v, Remote{URL: g.URL + "/app"}, Reference{Branch: "signed"})
			signer, err := v.VerifyCommit(rev, trusted, time.Now())
			checkResult(t, signer, err, c.wantErr, "InvalidCommitSignature")
		})
	}
}

func TestVerifyTag(t *testing.T) {
	g := testenv.NewGit(t)
	alice, mallory := newSigner(t), newSigner(t)
	trusted, err := ReadTrusted(map[string][]byte{"ssh": alice.sshPublic, "pgp": alice.pgpPublic})
	if err != nil {
		t.Fatal(err)
	}
	commit := g.Commit("app", map[string]string{"a.yaml": "1"})
	text := tagText("v2.0.0", commit, "commit")
	inner := g.Object("app", "tag", text)
	nested := tagText("v2.0.0", inner, "tag")
	for name, c := range map[string]struct{ object, wantErr string }{
		"SSH signature":       {object: g.Object("app", "tag", text+alice.ssh(t, text)), wantErr: ""},
		"OpenPGP signature":   {object: g.Object("app", "tag", text+alice.pgp(t, text)), wantErr: ""},
		"signed tag of a tag": {object: g.Object("app", "tag", nested+alice.ssh(t, nested)), wantErr: ""},
		"no tag object": {object: commit, wantErr: "not an annotated tag, so it has no signature. Sign it " +
			"with git tag -s and a key of the Secret of spec.verify.secretRef. The last artifact stays available"},
		"no signature":  {object: inner, wantErr: "not signed"},
		"untrusted key": {object: g.Object("app", "tag", text+mallory.ssh(t, text)), wantErr: "not trusted"},
		"signature of other tag": {object: g.Object("app", "tag", text+alice.ssh(t, nested)),
			wantErr: "does not match the content"},
		"renamed older tag": {object: g.Object("app", "tag",
			tagText("v1", commit, "commit")+alice.ssh(t, tagText("v1", commit, "commit"))),
			wantErr: "the signature is for tag 'v1'"},
	} {
		t.Run(name, func(t *testing.T) {
			g.SetRef("app", "refs/tags/v2.0.0", c.object)
			v := open(t)
			for _, ref := range []Reference{{Tag: "v2.0.0"}, {SemVer: "2.x"}, {Name: "refs/tags/v2.0.0"}} {
				rev := updated(t, v, Remote{URL: g.URL + "/app"}, ref)
				signer, err := v.VerifyTag(rev, trusted, time.Now())
				checkResult(t, signer, err, c.wantErr, "InvalidTagSignature")
			}
		})
	}
	second := g.Commit("app", map[string]string{"a.yaml": "2"})
	g.SetRef("app", "refs/tags/v2.0.0", g.Object("app", "tag", text+alice.ssh(t, text)))
	v := open(t)
	updated(t, v, Remote{URL: g.URL + "/app"}, Reference{Branch: "main"})
	rev := updated(t, v, Remote{URL: g.URL + "/app"}, Reference{Tag: "v2.0.0"})
	rev.Commit = second // as if the remote listed it
	_, err = v.VerifyTag(rev, trusted, time.Now())
	checkResult(t, "", err, "does not lead to commit", "InvalidTagSignature")
}

func TestReadTrusted(t *testing.T) {
	alice := newSigner(t)
	for name, c := range map[string]struct {
		data    map[string][]byte
		wantErr string
	}{
		"both kinds": {data: map[string][]byte{"a.asc": alice.pgpPublic, "authorized_keys": alice.sshPublic},
			wantErr: ""},
		"no data":     {data: nil, wantErr: "is empty. Add the public keys of the trusted signers"},
		"empty value": {data: map[string][]byte{"a.asc": alice.pgpPublic, "b.pub": nil}, wantErr: "the key 'b.pub'"},
		"other text": {data: map[string][]byte{"a.asc": []byte("my key")}, wantErr: "the key 'a.asc' of the Secret " +
			"contains no valid public keys: line 1: no SSH public key. Add armored " +
			"OpenPGP public keys or SSH public keys to the Secret of spec.verify.secretRef"},
	} {
		if _, err := ReadTrusted(c.data); (err == nil) != (c.wantErr == "") ||
			err != nil && (fault.As(err) == nil || !strings.Contains(err.Error(), c.wantErr)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzSplit(f *testing.F) {
	for _, name := range []string{"commit.pgp", "commit.ssh", "tag.pgp", "tag.ssh"} {
		f.Add(golden(f, name))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, s := range []signed{splitCommit(data), splitTag(data)} {
			if s.err == nil && len(s.payload)+len(s.signature) > len(data) {
				t.Errorf("%q and %q of %q", s.payload, s.signature, data)
			}
		}
	})
}

func checkResult(t *testing.T, signer string, err error, wantErr, reason string) {
	t.Helper()
	if wantErr == "" {
		if err != nil || signer == "" {
			t.Errorf("got %q, %v", signer, err)
		}
		return
	}
	if err == nil || !strings.Contains(err.Error(), wantErr) || fault.Reason(err, "") != reason {
		t.Errorf("got %v, want %s: %q", err, reason, wantErr)
	}
}

func golden(tb testing.TB, name string) []byte {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// commitText returns a commit without a signature.
func commitText(g *testenv.Git, message string) string {
	parent := g.Commit("app", map[string]string{"a.yaml": "1"})
	tree := g.Run("app", "rev-parse", parent+"^{tree}")
	return fmt.Sprintf("tree %s\nauthor A <a@example.com> 1 +0000\ncommitter A <a@example.com> 1 +0000\n\n%s\n", tree,
		message)
}

func tagText(name, object, kind string) string {
	return fmt.Sprintf("object %s\ntype %s\ntag %s\ntagger A <a@example.com> 1 +0000\n\nrelease\n", object, kind, name)
}

// withSignature adds a signature to the headers of a commit.
func withSignature(commit, signature string) string {
	headers, message, _ := strings.Cut(commit, "\n\n")
	lines := strings.ReplaceAll(strings.TrimSuffix(signature, "\n"), "\n", "\n ")
	return headers + "\ngpgsig " + lines + "\n\n" + message
}

// signer signs with OpenPGP and SSH.
type signer struct {
	key                  *openpgp.Entity
	signer               ssh.Signer
	sshPublic, pgpPublic []byte
}

func newSigner(t *testing.T) signer {
	t.Helper()
	private, public := sshkeys.New(t)
	s := signer{sshPublic: public}
	var err error
	if s.signer, err = ssh.ParsePrivateKey(private); err != nil {
		t.Fatal(err)
	}
	if s.key, err = openpgp.NewEntity("A", "", "a@example.com", nil); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w, err := armor.Encode(&b, openpgp.PublicKeyType, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.key.Serialize(w); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	s.pgpPublic = b.Bytes()
	return s
}

func (s signer) pgp(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	if err := openpgp.ArmoredDetachSign(&b, s.key, strings.NewReader(text), nil); err != nil {
		t.Fatal(err)
	}
	return b.String() + "\n"
}

// ssh signs as ssh-keygen -Y sign -n git does.
func (s signer) ssh(t *testing.T, text string) string {
	t.Helper()
	field := func(parts ...string) (b []byte) {
		for _, p := range parts {
			b = append(b, ssh.Marshal(struct{ S string }{p})...)
		}
		return b
	}
	sum := sha512.Sum512([]byte(text))
	signature, err := s.signer.Sign(nil, append([]byte("SSHSIG"), field(sshNamespace, "", "sha512", string(sum[:]))...))
	if err != nil {
		t.Fatal(err)
	}
	raw := append([]byte("SSHSIG\x00\x00\x00\x01"),
		field(string(s.signer.PublicKey().Marshal()), sshNamespace, "", "sha512", string(ssh.Marshal(signature)))...)
	return sshHead + "\n" + base64.StdEncoding.EncodeToString(raw) + "\n-----END SSH SIGNATURE-----\n"
}
