package git

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/source/git/wire"
	"github.com/sluice-gitops/sluice/internal/verify/openpgp"
	"github.com/sluice-gitops/sluice/internal/verify/sshsig"
)

const (
	// sshNamespace is what git signs for.
	sshNamespace = "git"
	pgpHead      = "-----BEGIN PGP SIGNATURE-----"
	sshHead      = "-----BEGIN SSH SIGNATURE-----"
	x509Head     = "-----BEGIN SIGNED MESSAGE-----"
	// maxTags is how many annotated tags may lead from one to another.
	maxTags = 5
)

// Trusted are the public keys of those whose signatures count. It is safe for concurrent use.
type Trusted struct {
	pgp *openpgp.Keyring
	ssh *sshsig.Keys
}

// ReadTrusted reads all values of a Secret: OpenPGP public keys, armored or binary, and SSH public keys in
// lines, also as authorized_keys or allowed_signers have them. A value that holds no key is an error, and so
// is a Secret without any.
func ReadTrusted(data map[string][]byte) (*Trusted, error) {
	var pgp, ssh [][]byte
	for _, name := range slices.Sorted(maps.Keys(data)) {
		value := data[name]
		var err error
		if isPGP(value) {
			pgp = append(pgp, value)
			_, err = openpgp.Read(value)
		} else {
			ssh = append(ssh, value)
			_, err = sshsig.Read(value)
		}
		if err != nil {
			return nil, fault.New(sourcev1.VerificationErrorReason,
				"the key %s of the Secret cannot be read as public keys", name).Because(err).
				WithHint("Put armored OpenPGP public keys or SSH public keys into the Secret of spec.verify.secretRef")
		}
	}
	if len(data) == 0 {
		return nil, fault.New(sourcev1.VerificationErrorReason, "the Secret of spec.verify.secretRef is empty").
			WithHint("Put the public keys of those who sign into it")
	}
	keyring, err := openpgp.Read(pgp...)
	if err != nil {
		return nil, err
	}
	keys, err := sshsig.Read(ssh...)
	return &Trusted{keyring, keys}, err
}

func isPGP(value []byte) bool {
	return bytes.Contains(value, []byte("-----BEGIN PGP ")) || len(value) > 0 && value[0]&0x80 != 0
}

// VerifyCommit checks the signature of a revision's commit, and returns the fingerprint of the key that made
// it. The error is a fault.
func (v *View) VerifyCommit(revision Revision, trusted *Trusted, now time.Time) (string, error) {
	r, err := v.repository(revision)
	if err != nil {
		return "", err
	}
	_, data, err := r.objects.Read(plumbing.NewHash(revision.Commit))
	signer := ""
	if err == nil {
		signer, err = trusted.verify(splitCommit(data), now)
	}
	if err != nil {
		return "", fault.New(sourcev1.InvalidCommitSignatureReason, "cannot verify the signature of commit %s",
			revision.Commit).Because(err).
			WithHint("Sign it by a key in the Secret of spec.verify.secretRef. Nothing of it was stored, and the " +
				"last artifact keeps being served")
	}
	return signer, nil
}

// VerifyTag checks the signature of the annotated tag that led to a revision: that it is one of the tag of
// this name, and that the tag leads to the revision's commit. It returns the fingerprint of the key that made
// it. The error is a fault.
func (v *View) VerifyTag(revision Revision, trusted *Trusted, now time.Time) (string, error) {
	r, err := v.repository(revision)
	if err != nil {
		return "", err
	}
	name := strings.TrimPrefix(revision.Ref, tagPrefix)
	signer, err := r.verifyTag(revision, name, trusted, now)
	if err != nil {
		return "", fault.New(sourcev1.InvalidTagSignatureReason, "cannot verify the signature of tag '%s'",
			wire.Printable(name)).Because(err).
			WithHint("Sign it with git tag -s, by a key in the Secret of spec.verify.secretRef. Nothing of it was " +
				"stored, and the last artifact keeps being served")
	}
	return signer, nil
}

func (r *repository) verifyTag(revision Revision, name string, trusted *Trusted, now time.Time) (string, error) {
	if revision.Tag == "" {
		return "", errors.New("it is not an annotated tag, so it has no signature")
	}
	data, target, err := r.tag(plumbing.NewHash(revision.Tag))
	if err != nil {
		return "", err
	}
	signer, err := trusted.verify(splitTag(data), now)
	if err != nil {
		return "", err
	}
	// A signature says nothing of the reference that the tag stands under: else an old release could be
	// passed off as a new one.
	if signed := header(data, "tag"); signed != name {
		return "", fmt.Errorf("what is signed is the tag '%s'", wire.Printable(signed))
	}
	for range maxTags { // what the remote says of where a tag leads is not signed
		if target.String() == revision.Commit {
			return signer, nil
		}
		if _, target, err = r.tag(target); err != nil {
			break // another commit
		}
	}
	return "", fmt.Errorf("it does not lead to commit %s", revision.Commit)
}

// tag reads an annotated tag and what it points at.
func (r *repository) tag(h plumbing.Hash) ([]byte, plumbing.Hash, error) {
	kind, data, err := r.objects.Read(h)
	if err != nil {
		return nil, plumbing.ZeroHash, err
	}
	target := header(data, "object")
	if kind != plumbing.TagObject || !plumbing.IsHash(target) {
		return nil, plumbing.ZeroHash, fmt.Errorf("object %s is no tag", h)
	}
	return data, plumbing.NewHash(target), nil
}

// header returns the value of an object's header, the first of that name.
func header(data []byte, name string) string {
	for line := range bytes.Lines(data) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		if len(line) == 0 {
			return ""
		}
		if value, ok := bytes.CutPrefix(line, []byte(name+" ")); ok {
			return string(value)
		}
	}
	return ""
}

// signed is what is signed and the signature, as they lie in an object.
type signed struct {
	payload, signature []byte
	err                error // why there is not one signature
}

// splitCommit takes the headers that hold signatures out of a commit: gpgsig, of which a second one is refused, and
// gpgsig-sha256, which is over another form of the same commit. Their further lines begin with a space.
func splitCommit(data []byte) signed {
	var s signed
	var into *[]byte // where further lines of a header go; nil in the message
	signatures, ignored := 0, []byte(nil)
	into = &s.payload
	inHeaders := true
	for line := range bytes.Lines(data) {
		switch {
		case !inHeaders:
		case bytes.Equal(line, []byte("\n")):
			inHeaders, into = false, &s.payload
		case line[0] == ' ':
			if into != &s.payload {
				line = line[1:]
			}
		case bytes.HasPrefix(line, []byte("gpgsig ")):
			signatures++
			line, into = line[len("gpgsig "):], &s.signature
		case bytes.HasPrefix(line, []byte("gpgsig-sha256 ")):
			into = &ignored
		default:
			into = &s.payload
		}
		*into = append(*into, line...)
	}
	if signatures != 1 {
		s.err = unsigned(signatures)
	}
	return s
}

// splitTag cuts the signature off the end of a tag: it begins with the last line that is the head of one.
func splitTag(data []byte) signed {
	at, n := -1, 0
	for line := range bytes.Lines(data) {
		for _, head := range []string{pgpHead, sshHead, x509Head} {
			if bytes.HasPrefix(line, []byte(head)) {
				at = n
			}
		}
		n += len(line)
	}
	if at < 0 {
		return signed{err: unsigned(0)}
	}
	return signed{payload: data[:at], signature: data[at:]}
}

func unsigned(n int) error {
	if n == 0 {
		return errors.New("it is not signed")
	}
	return fmt.Errorf("it has %d signatures", n)
}

func (t *Trusted) verify(s signed, now time.Time) (string, error) {
	switch {
	case s.err != nil:
		return "", s.err
	case bytes.HasPrefix(s.signature, []byte(pgpHead)):
		return t.pgp.Verify(s.payload, s.signature, now)
	case bytes.HasPrefix(s.signature, []byte(sshHead)):
		return t.ssh.Verify(s.payload, s.signature, sshNamespace, now)
	}
	return "", errors.New("its signature is neither an OpenPGP nor an SSH one")
}
