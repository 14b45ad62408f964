// Package largekey makes keys that are larger than the product accepts, for tests.
package largekey

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"testing"
	"time"
)

// Bits is the size of the keys. It is above the limit by little, so that a test does not take long without the limit.
const Bits = 16640

// exponent is the usual public exponent.
const exponent = 65537

var one = big.NewInt(1)

// New returns a private RSA key that libraries accept. It does not sign, as its primes are none: to find some would
// take minutes.
func New(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	p, q := factor(t), factor(t)
	for new(big.Int).GCD(nil, nil, p, q).Cmp(one) != 0 {
		q = factor(t)
	}
	p1, q1 := new(big.Int).Sub(p, one), new(big.Int).Sub(q, one)
	d := new(big.Int).ModInverse(big.NewInt(exponent), new(big.Int).Mul(p1, q1))
	// RFC 8017, A.1.2; the library would compute the last number by a way that needs primes
	der, err := asn1.Marshal(struct {
		Version            int
		N                  *big.Int
		E                  int
		D, P, Q, DP, DQ, R *big.Int
	}{0, new(big.Int).Mul(p, q), exponent, d, p, q, new(big.Int).Mod(d, p1), new(big.Int).Mod(d, q1),
		new(big.Int).ModInverse(q, p)})
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.ParsePKCS1PrivateKey(der)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// factor returns an odd number of half the bits whose predecessor has an inverse of the exponent.
func factor(t *testing.T) *big.Int {
	t.Helper()
	const bits = Bits / 2
	for {
		p, err := rand.Int(rand.Reader, new(big.Int).Lsh(one, bits))
		if err != nil {
			t.Fatal(err)
		}
		p.SetBit(p, bits-1, 1).SetBit(p, bits-2, 1).SetBit(p, 0, 1)
		rest := new(big.Int).Sub(p, one)
		if new(big.Int).GCD(nil, nil, rest, big.NewInt(exponent)).Cmp(one) == 0 {
			return p
		}
	}
}

// File returns the key of [New] in PEM, as PKCS #1.
func File(t *testing.T) []byte {
	t.Helper()
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(New(t))})
}

// Certificate returns a certificate of a large public key, and one in PEM.
func Certificate(t *testing.T) (*x509.Certificate, []byte) {
	t.Helper()
	issuer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &New(t).PublicKey, issuer)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
