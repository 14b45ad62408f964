// Package sshkey makes SSH keys, and finds out the keys of hosts.
package sshkey

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// Algorithms, Curves are what a key can be made by.
var (
	Algorithms = []string{"ecdsa", "ed25519", "rsa"}
	Curves     = []string{"p256", "p384", "p521"}
)

// Bounds of RSA keys in bits.
const (
	minRSABits = 2048
	maxRSABits = 16384
)

// Spec says how a key is made.
type Spec struct {
	Algorithm string // one of Algorithms
	Curve     string // one of Curves, for ecdsa
	Bits      int    // 2048 to 16384, for rsa
}

// Check returns an error when no key can be made so.
func (s Spec) Check() error {
	switch {
	case !slices.Contains(Algorithms, s.Algorithm):
		return fmt.Errorf("there is no key algorithm %q: choose from %s", s.Algorithm, strings.Join(Algorithms, ", "))
	case s.Algorithm == "ecdsa" && !slices.Contains(Curves, s.Curve):
		return fmt.Errorf("there is no curve %q: choose from %s", s.Curve, strings.Join(Curves, ", "))
	case s.Algorithm == "rsa" && (s.Bits < minRSABits || s.Bits > maxRSABits || s.Bits%8 != 0):
		return fmt.Errorf("an RSA key cannot have %d bits: choose a multiple of 8 from %d to %d", s.Bits, minRSABits,
			maxRSABits)
	}
	return nil
}

// Generate makes a private key, in PEM without a passphrase.
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

// Public returns the public half of a private key in PEM, as a line of authorized_keys. The passphrase is
// empty for a key that has none. The error holds nothing of the key.
func Public(private []byte, passphrase string) ([]byte, error) {
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
		return nil, errors.New("the private key has a passphrase, which was not given")
	case err != nil:
		return nil, fmt.Errorf("the private key cannot be read: %w", err)
	}
	return ssh.MarshalAuthorizedKey(signer.PublicKey()), nil
}

// hostKeyAlgorithms are asked for one by one, since a host shows one key a connection.
var hostKeyAlgorithms = [][]string{
	{ssh.KeyAlgoED25519},
	{ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521},
	{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256},
}

// errSeen ends a handshake once the key is known.
var errSeen = errors.New("the key was seen")

// HostKeys are the keys that a host showed.
type HostKeys struct {
	KnownHosts   []byte   // lines of known_hosts
	Fingerprints []string // such as "ssh-ed25519 SHA256:…", for a person to compare
}

// Scan asks the host at an address of host:port for its keys, and trusts what answers. It logs in nowhere.
func Scan(ctx context.Context, address string) (HostKeys, error) {
	var found HostKeys
	for _, algorithms := range hostKeyAlgorithms {
		key, err := scan(ctx, address, algorithms)
		if err != nil {
			return HostKeys{}, fmt.Errorf("cannot ask %s for its host key: %w", address, err)
		}
		if key == nil {
			continue
		}
		line := knownhosts.Line([]string{knownhosts.Normalize(address)}, key)
		found.KnownHosts = append(found.KnownHosts, line+"\n"...)
		found.Fingerprints = append(found.Fingerprints, key.Type()+" "+ssh.FingerprintSHA256(key))
	}
	if len(found.KnownHosts) == 0 {
		return HostKeys{}, fmt.Errorf("%s shows no host key: it does not speak SSH, or none of ed25519, ecdsa and rsa",
			address)
	}
	return found, nil
}

// scan returns the key that a host shows for one of the algorithms; nil when it has none for them.
func scan(ctx context.Context, address string, algorithms []string) (ssh.PublicKey, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	var seen ssh.PublicKey
	_, _, _, err = ssh.NewClientConn(conn, address, &ssh.ClientConfig{
		User:              "git",
		HostKeyAlgorithms: algorithms,
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			seen = key
			return errSeen
		},
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var negotiation *ssh.AlgorithmNegotiationError
	if seen != nil || errors.As(err, &negotiation) {
		return seen, nil
	}
	return nil, err
}
