// Package sshkey generates and reads SSH keys, and reads the public keys of hosts.
package sshkey

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/limits/keysize"
)

// Algorithms and Curves are the supported values of [Spec].
var (
	Algorithms = []string{"ecdsa", "ed25519", "rsa"}
	Curves     = []string{"p256", "p384", "p521"}
)

// Limits for RSA keys, in bits.
const (
	minRSABits = 2048
	maxRSABits = keysize.MaxBits
)

// Spec describes a key to generate.
type Spec struct {
	Algorithm string // one of Algorithms
	Curve     string // one of Curves, for ecdsa
	Bits      int    // 2048 to 16384, for rsa
}

// Check returns an error if the spec is not valid.
func (s Spec) Check() error {
	switch {
	case !slices.Contains(Algorithms, s.Algorithm):
		return fmt.Errorf("unknown key algorithm %q: choose from %s", s.Algorithm, strings.Join(Algorithms, ", "))
	case s.Algorithm == "ecdsa" && !slices.Contains(Curves, s.Curve):
		return fmt.Errorf("unknown curve %q: choose from %s", s.Curve, strings.Join(Curves, ", "))
	case s.Algorithm == "rsa" && (s.Bits < minRSABits || s.Bits > maxRSABits || s.Bits%8 != 0):
		return fmt.Errorf("invalid RSA key size of %d bits: choose a multiple of 8 from %d to %d", s.Bits, minRSABits,
			maxRSABits)
	}
	return nil
}

// Generate returns a new private key in PEM, without a passphrase.
func Generate(s Spec) ([]byte, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	var key crypto.PrivateKey
	var err error
	switch s.Algorithm {
	case "ed25519":
		_, key, err = ed25519.GenerateKey(rand.Reader)
	case "rsa":
		key, err = rsa.GenerateKey(rand.Reader, s.Bits)
	default:
		curve := map[string]elliptic.Curve{"p256": elliptic.P256(), "p384": elliptic.P384(),
			"p521": elliptic.P521()}[s.Curve]
		key, err = ecdsa.GenerateKey(curve, rand.Reader)
	}
	if err != nil {
		return nil, err
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(block), nil
}

// Private is a private key whose public key belongs to it.
type Private struct {
	signer ssh.Signer
	digest [sha256.Size]byte
}

// Signer returns the signer of the key. It may implement more interfaces than [ssh.Signer].
func (p *Private) Signer() ssh.Signer { return p.signer }

// Digest returns a digest of the private key: of its file and passphrase. Only who has both has the same digest, which
// is not true of the public key.
func (p *Private) Digest() [sha256.Size]byte { return p.digest }

// Parse reads a private key in PEM. passphrase is empty for a key without a passphrase. It rejects a key whose file
// names the public key of another one. The error contains no part of the key.
func Parse(private []byte, passphrase string) (*Private, error) {
	if err := keysize.CheckFile(private); err != nil {
		return nil, err
	}
	var signer ssh.Signer
	var err error
	if passphrase == "" {
		signer, err = ssh.ParsePrivateKey(private)
	} else {
		signer, err = ssh.ParsePrivateKeyWithPassphrase(private, []byte(passphrase))
	}
	var missing *ssh.PassphraseMissingError
	switch {
	case errors.As(err, &missing):
		return nil, errors.New("it needs a passphrase")
	case err != nil:
		return nil, fmt.Errorf("not a private key: %w", err)
	}
	if public, ok := signer.PublicKey().(ssh.CryptoPublicKey); ok {
		if err := keysize.Check(public.CryptoPublicKey()); err != nil {
			return nil, err
		}
	}
	if err := checkPair(signer); err != nil {
		return nil, err
	}
	file := binary.BigEndian.AppendUint64(nil, uint64(len(private)))
	return &Private{signer, sha256.Sum256(append(append(file, private...), passphrase...))}, nil
}

// checkPair returns an error if the public key does not verify a signature of the private key. The file of an Ed25519
// key holds both, and the library does not compare them.
func checkPair(signer ssh.Signer) error {
	message := []byte("the public key belongs to the private key")
	signature, err := signer.Sign(rand.Reader, message)
	if err == nil {
		err = signer.PublicKey().Verify(message, signature)
	}
	if err != nil {
		return errors.New("the public key in the file does not belong to the private key")
	}
	return nil
}

// Public returns the public key of a private key in PEM, as a line of authorized_keys. See [Parse].
func Public(private []byte, passphrase string) ([]byte, error) {
	key, err := Parse(private, passphrase)
	if err != nil {
		return nil, fmt.Errorf("cannot parse the private key: %w", err)
	}
	return ssh.MarshalAuthorizedKey(key.signer.PublicKey()), nil
}

// hostKeyAlgorithms are requested in separate connections, since a host shows one key for each connection.
var hostKeyAlgorithms = [][]string{
	{ssh.KeyAlgoED25519},
	{ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521},
	{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256},
}

// errReceived ends a handshake once the host key was received.
var errReceived = errors.New("host key received")

// HostKeys are the public keys of a host.
type HostKeys struct {
	KnownHosts   []byte   // lines of known_hosts
	Fingerprints []string // such as "ssh-ed25519 SHA256:…", for a person to compare
}

// Scan reads the keys of the host at an address (host:port), without verification and without a login.
func Scan(ctx context.Context, address string) (HostKeys, error) {
	var found HostKeys
	for _, algorithms := range hostKeyAlgorithms {
		key, err := scan(ctx, address, algorithms)
		if err != nil {
			return HostKeys{}, fmt.Errorf("cannot read the host keys of %s: %w", address, err)
		}
		if key == nil {
			continue
		}
		line := knownhosts.Line([]string{knownhosts.Normalize(address)}, key)
		found.KnownHosts = append(found.KnownHosts, line+"\n"...)
		found.Fingerprints = append(found.Fingerprints, key.Type()+" "+ssh.FingerprintSHA256(key))
	}
	if len(found.KnownHosts) == 0 {
		return HostKeys{}, fmt.Errorf("%s has no host key of type ed25519, ecdsa or rsa",
			address)
	}
	return found, nil
}

// scan returns the key of a host for one of the algorithms; nil if it has none.
func scan(ctx context.Context, address string, algorithms []string) (ssh.PublicKey, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer guard.AfterDone(ctx, "ending a connection", func() { conn.Close() })()
	var hostKey ssh.PublicKey
	_, _, _, err = ssh.NewClientConn(conn, address, &ssh.ClientConfig{
		User:              "git",
		HostKeyAlgorithms: algorithms,
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			hostKey = key
			return errReceived
		},
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var negotiation *ssh.AlgorithmNegotiationError
	if hostKey != nil || errors.As(err, &negotiation) {
		return hostKey, nil
	}
	return nil, err
}
