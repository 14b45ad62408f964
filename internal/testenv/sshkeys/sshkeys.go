// Package sshkeys generates SSH keys for tests.
package sshkeys

import (
	"testing"

	"github.com/sluice-gitops/sluice/internal/network/sshkey"
)

// New generates a key: the private key in PEM without a passphrase, and the public key as a line of authorized_keys.
func New(tb testing.TB) (private, public []byte) {
	tb.Helper()
	private, err := sshkey.Generate(sshkey.Spec{Algorithm: "ed25519"})
	if err != nil {
		tb.Fatal(err)
	}
	if public, err = sshkey.Public(private, ""); err != nil {
		tb.Fatal(err)
	}
	return private, public
}
