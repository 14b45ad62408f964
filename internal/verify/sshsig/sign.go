package sshsig

import (
	"crypto/rand"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"strings"

	"golang.org/x/crypto/ssh"
)

// armorWidth is how many characters a line of the armor has, as ssh-keygen writes it.
const armorWidth = 70

// Sign returns an armored signature over a message, made for a namespace. Keys that Read would not trust do not sign.
func Sign(key ssh.Signer, message []byte, namespace string) ([]byte, error) {
	if err := checkStrength(key.PublicKey()); err != nil {
		return nil, err
	}
	sum := sha512.Sum512(message)
	content := append([]byte(magic), ssh.Marshal(signed{Namespace: namespace, HashAlgorithm: "sha512",
		Hash: string(sum[:])})...)
	signature, err := signContent(key, content)
	if err != nil {
		return nil, err
	}
	raw := append([]byte(magic), ssh.Marshal(blob{
		Version: version, PublicKey: string(key.PublicKey().Marshal()), Namespace: namespace,
		HashAlgorithm: "sha512", Signature: string(ssh.Marshal(*signature)),
	})...)
	text := base64.StdEncoding.EncodeToString(raw)
	var b strings.Builder
	b.WriteString(armorStart + "\n")
	for len(text) > 0 {
		n := min(armorWidth, len(text))
		b.WriteString(text[:n] + "\n")
		text = text[n:]
	}
	b.WriteString(armorEnd + "\n")
	return []byte(b.String()), nil
}

// signContent makes RSA keys sign over SHA-512: their default is over SHA-1.
func signContent(key ssh.Signer, content []byte) (*ssh.Signature, error) {
	if key.PublicKey().Type() != ssh.KeyAlgoRSA {
		return key.Sign(rand.Reader, content)
	}
	rsa, ok := key.(ssh.AlgorithmSigner)
	if !ok {
		return nil, errors.New("the RSA key cannot sign over SHA-512")
	}
	return rsa.SignWithAlgorithm(rand.Reader, content, ssh.KeyAlgoRSASHA512)
}
