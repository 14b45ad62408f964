// Package keysize refuses keys whose operations take long. The time of an operation with a private RSA key grows with
// the third power of the key's size, and cannot be ended by a context: with a key that just fits into a Secret, one
// signature takes days.
package keysize

import (
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"iter"
)

// MaxBits is the size of the largest RSA key that is accepted, as in OpenSSH. A signature with it takes less than 1 s.
const MaxBits = 16384

// maxFile is the size, in bytes, of the largest file of a private key. One of MaxBits has 13 kB, and reading a file of
// this size takes less than 0.1 s.
const maxFile = 32 << 10

// CheckFile returns an error for a file that is too large to be read as a private key, with its certificates.
func CheckFile(file []byte) error {
	if len(file) > maxFile {
		return fmt.Errorf("the file of the private key has %d bytes; the maximum is %d", len(file), maxFile)
	}
	return nil
}

// Check returns an error for an RSA key of more than [MaxBits]. key is a public or a private key of any type.
func Check(key any) error {
	if private, ok := key.(crypto.Signer); ok {
		key = private.Public()
	}
	if public, ok := key.(*rsa.PublicKey); ok && public.N.BitLen() > MaxBits {
		return fmt.Errorf("the RSA key has %d bits; the maximum is %d", public.N.BitLen(), MaxBits)
	}
	return nil
}

// CheckPrivate is [CheckFile] and [Check] for the private keys in a file, in PEM or DER. It reads no other formats than
// PKCS #1 and PKCS #8, the only ones for RSA keys, and leaves it to others to report a key that cannot be read.
func CheckPrivate(file []byte) error {
	if err := CheckFile(file); err != nil {
		return err
	}
	for der := range blocks(file) {
		if err := checkDER(der); err != nil {
			return err
		}
	}
	return checkDER(file)
}

func checkDER(der []byte) error {
	if key, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		return Check(key)
	}
	if key, err := x509.ParsePKCS8PrivateKey(der); err == nil {
		return Check(key)
	}
	return nil
}

// CheckChain is [Check] for the keys of certificates, of which those that are nil are skipped.
func CheckChain(chain ...*x509.Certificate) error {
	for _, c := range chain {
		if c == nil {
			continue
		}
		if err := Check(c.PublicKey); err != nil {
			return fmt.Errorf("certificate of '%.100s': %w", c.Subject, err)
		}
	}
	return nil
}

// CheckTLS is [Check] for the authorities, the certificate and the private key of a TLS client, in PEM. Each may be
// empty. Certificates that cannot be read are skipped, as [x509.CertPool.AppendCertsFromPEM] does.
func CheckTLS(authorities, certificate, private []byte) error {
	for _, file := range [][]byte{authorities, certificate} {
		for block := range blocks(file) {
			c, err := x509.ParseCertificate(block)
			if err != nil {
				continue
			}
			if err := CheckChain(c); err != nil {
				return err
			}
		}
	}
	return CheckPrivate(private)
}

// blocks returns the contents of the blocks of a file in PEM.
func blocks(file []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for {
			var block *pem.Block
			if block, file = pem.Decode(file); block == nil || !yield(block.Bytes) {
				return
			}
		}
	}
}
