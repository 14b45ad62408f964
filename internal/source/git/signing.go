package git

import (
	"bytes"
	"time"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/credentials/verify/openpgp"
	"github.com/sluice-gitops/sluice/internal/credentials/verify/sshsig"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// SigningSSH is the type of SSH signing keys. All other types are OpenPGP.
const SigningSSH = "ssh"

// ReadSigningKey reads a signing key from the data of a Secret: git.asc (an armored private key) and optionally
// passphrase for OpenPGP, identity and optionally password for SSH. It returns a function for [NewCommit.Sign]. The
// error is a fault.
func ReadSigningKey(kind string, data map[string][]byte, now func() time.Time) (func(payload []byte) (string, error),
	error) {
	if kind == SigningSSH {
		key, err := auth.SSHKey(data)
		if err != nil {
			return nil, err
		}
		return signFunc(func(payload []byte) ([]byte, error) {
			return sshsig.Sign(key.Signer(), payload, sshNamespace)
		}), nil
	}
	key, err := openpgp.ReadPrivate(data["git.asc"], bytes.TrimRight(data["passphrase"], "\r\n"))
	if err != nil {
		return nil, fault.New(meta.AuthenticationFailedReason,
			"the signing key in the key 'git.asc' of the Secret cannot be used").Because(err).
			WithHint("Set git.asc to the output of gpg --export-secret-keys --armor KEY, and passphrase to its " +
				"passphrase, if it has one")
	}
	return signFunc(func(payload []byte) ([]byte, error) { return key.Sign(payload, now()) }), nil
}

// signFunc returns a function that calls sign and returns faults.
func signFunc(sign func([]byte) ([]byte, error)) func([]byte) (string, error) {
	return func(payload []byte) (string, error) {
		signature, err := sign(payload)
		if err != nil {
			return "", gitFault("cannot sign the commit").Because(err).
				WithHint("Replace the key in the Secret of spec.git.commit.signingKey")
		}
		return string(signature), nil
	}
}
