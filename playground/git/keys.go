package git

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/crypto/ssh"
)

// loadHostKey reads a private key, or makes one.
func loadHostKey(file string) (ssh.Signer, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		b, err = makeHostKey(file)
	}
	if err != nil {
		return nil, err
	}
	return ssh.ParsePrivateKey(b)
}

func makeHostKey(file string) ([]byte, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	block, err := ssh.MarshalPrivateKey(key, "playground")
	if err != nil {
		return nil, err
	}
	b := pem.EncodeToMemory(block)
	return b, os.WriteFile(file, b, 0o600)
}

// loadAuthorized reads an authorized_keys file: a key a line, empty lines and comments between.
func loadAuthorized(file string) ([]ssh.PublicKey, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var keys []ssh.PublicKey
	number := 0
	for line := range bytes.Lines(b) {
		number++
		if line = bytes.TrimSpace(line); len(line) == 0 || line[0] == '#' {
			continue
		}
		key, _, _, _, err := ssh.ParseAuthorizedKey(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, number, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}
