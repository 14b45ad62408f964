package cli

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-gitops/sluice/internal/credentials/verify/openpgp"
	"github.com/sluice-gitops/sluice/internal/credentials/verify/sshsig"
	"github.com/sluice-gitops/sluice/internal/network/sshkey"
)

// signingFlags are the flags for the key that signs commits.
type signingFlags struct {
	gpgRing, gpgID, gpgPassphrase string
	sshKey, sshPassphrase         string
}

func (s *signingFlags) bind(f *pflag.FlagSet) {
	f.StringVar(&s.gpgRing, "gpg-key-ring", "", "file with GPG private keys to sign the commits with")
	f.StringVar(&s.gpgID, "gpg-key-id", "", "ID of the GPG key, if the file has several")
	f.StringVar(&s.gpgPassphrase, "gpg-passphrase", "", "passphrase of the GPG key; - reads it from standard input")
	f.StringVar(&s.sshKey, "ssh-signing-key-file", "", "file with the SSH private key to sign the commits with")
	f.StringVar(&s.sshPassphrase, "ssh-signing-passphrase", "",
		"passphrase of the SSH signing key; - reads it from standard input")
}

// signer returns the function that signs a commit; nil without a key.
func (s *signingFlags) signer(e *env) (func([]byte) (string, error), error) {
	switch {
	case s.gpgRing != "" && s.sshKey != "":
		return nil, usagef("--gpg-key-ring and --ssh-signing-key-file exclude each other")
	case s.gpgRing == "" && (s.gpgID != "" || s.gpgPassphrase != ""):
		return nil, usagef("--gpg-key-id and --gpg-passphrase need --gpg-key-ring")
	case s.sshKey == "" && s.sshPassphrase != "":
		return nil, usagef("--ssh-signing-passphrase needs --ssh-signing-key-file")
	case s.gpgRing != "":
		return s.gpg(e)
	case s.sshKey != "":
		return s.ssh(e)
	}
	return nil, nil
}

func (s *signingFlags) gpg(e *env) (func([]byte) (string, error), error) {
	ring, err := readFile("gpg-key-ring", s.gpgRing)
	if err != nil {
		return nil, err
	}
	passphrase, err := e.readSecret("gpg-passphrase", s.gpgPassphrase)
	if err != nil {
		return nil, err
	}
	key, err := openpgp.ReadKeyRing([]byte(ring), s.gpgID, []byte(passphrase))
	if err != nil {
		return nil, usagef("--gpg-key-ring: %w", err)
	}
	return func(payload []byte) (string, error) {
		signature, err := key.Sign(payload, time.Now())
		return string(signature), err
	}, nil
}

// sshSignatures is the namespace of SSH signatures of git.
const sshSignatures = "git"

func (s *signingFlags) ssh(e *env) (func([]byte) (string, error), error) {
	private, err := readFile("ssh-signing-key-file", s.sshKey)
	if err != nil {
		return nil, err
	}
	passphrase, err := e.readSecret("ssh-signing-passphrase", s.sshPassphrase)
	if err != nil {
		return nil, err
	}
	key, err := sshkey.Parse([]byte(private), passphrase)
	if err != nil {
		return nil, usagef("--ssh-signing-key-file: %w", err)
	}
	return func(payload []byte) (string, error) {
		signature, err := sshsig.Sign(key.Signer(), payload, sshSignatures)
		return string(signature), err
	}, nil
}
