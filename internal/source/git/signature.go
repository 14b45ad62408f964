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
	"github.com/sluice-gitops/sluice/internal/credentials/verify/openpgp"
	"github.com/sluice-gitops/sluice/internal/credentials/verify/sshsig"
	"github.com/sluice-gitops/sluice/internal/source/git/wire"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	// sshNamespace is the namespace of SSH signatures by git.
	sshNamespace = "git"
	pgpHead      = "-----BEGIN PGP SIGNATURE-----"
	sshHead      = "-----BEGIN SSH SIGNATURE-----"
	x509Head     = "-----BEGIN SIGNED MESSAGE-----"
	// maxTags is the maximum length of a chain of annotated tags.
	maxTags = 5
)

// Trusted holds trusted public keys. It is safe for concurrent use.
type Trusted struct {
	pgp *openpgp.Keyring
	ssh *sshsig.Keys
}

// ReadTrusted reads the trusted keys from the data of a Secret. Each value contains OpenPGP public keys, armored or
// binary, or SSH public keys, also in the formats authorized_keys and allowed_signers. It returns a fault for a value
// without keys, and for a Secret without values.
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
				"the key '%s' of the Secret contains no valid public keys", name).Because(err).
				WithHint("Add armored OpenPGP public keys or SSH public keys to the Secret of spec.verify.secretRef")
		}
	}
	if len(data) == 0 {
		return nil, fault.New(sourcev1.VerificationErrorReason, "the Secret of spec.verify.secretRef is empty").
			WithHint("Add the public keys of the trusted signers")
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

// VerifyCommit verifies the signature of the commit of a revision, and returns the fingerprint of the key that made it.
// The error is a fault.
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
			WithHint("Sign it with a key of the Secret of spec.verify.secretRef. The last artifact stays available")
	}
	return signer, nil
}

// VerifyTag verifies the signature of the annotated tag of a revision, the name in the tag, and that the tag
// leads to the commit. It returns the fingerprint of the key that made the signature. The error is a fault.
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
			WithHint("Sign it with git tag -s and a key of the Secret of spec.verify.secretRef. The last artifact " +
				"stays available")
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
	// The signature covers the name in the tag, but not the reference. Without this check, an old tag could be served
	// under a new name.
	if signed := header(data, "tag"); signed != name {
		return "", fmt.Errorf("the signature is for tag '%s'", wire.Printable(signed))
	}
	for range maxTags { // the peeled hash in the listing is not signed
		if target.String() == revision.Commit {
			return signer, nil
		}
		if _, target, err = r.tag(target); err != nil {
			break // it leads to another commit
		}
	}
	return "", fmt.Errorf("it does not lead to commit %s", revision.Commit)
}

// tag returns the data of an annotated tag and its target.
func (r *repository) tag(h plumbing.Hash) ([]byte, plumbing.Hash, error) {
	kind, data, err := r.objects.Read(h)
	if err != nil {
		return nil, plumbing.ZeroHash, err
	}
	target := header(data, "object")
	if kind != plumbing.TagObject || !plumbing.IsHash(target) {
		return nil, plumbing.ZeroHash, fmt.Errorf("object %s is not a tag", h)
	}
	return data, plumbing.NewHash(target), nil
}

// header returns the value of the first header with the name; empty if there is none.
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

// signed holds the signed content and the signature of an object.
type signed struct {
	payload, signature []byte
	err                error // set if there is not exactly one signature
}

// splitCommit separates the headers with signatures from a commit: gpgsig, which must occur once, and gpgsig-sha256,
// which is ignored, since it covers the SHA-256 form of the commit. Continuation lines begin with a space.
func splitCommit(data []byte) signed {
	var s signed
	var into *[]byte // destination of the current line
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

// splitTag separates the signature from the end of a tag. It begins at the last line that starts an armored signature.
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
	return "", errors.New("its signature is neither an OpenPGP nor an SSH signature")
}
