package keysize_test

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/limits/keysize"
	"github.com/sluice-gitops/sluice/internal/network/sshkey"
	"github.com/sluice-gitops/sluice/internal/testenv/largekey"
)

func TestLargeKeysAreRefused(t *testing.T) {
	large := largekey.New(t)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(large)
	if err != nil {
		t.Fatal(err)
	}
	pkcs1 := x509.MarshalPKCS1PrivateKey(large)
	file := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
	parameters := pem.EncodeToMemory(&pem.Block{Type: "EC PARAMETERS", Bytes: []byte("x")})
	_, certificate := largekey.Certificate(t)
	broken := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})
	for name, err := range map[string]error{
		"a public key":               keysize.Check(&large.PublicKey),
		"a private key":              keysize.Check(large),
		"PKCS #1":                    keysize.CheckPrivate(pkcs1),
		"PKCS #8":                    keysize.CheckPrivate(pkcs8),
		"PEM":                        keysize.CheckPrivate(file),
		"the second block":           keysize.CheckPrivate(append(parameters, file...)),
		"a key for TLS":              keysize.CheckTLS(nil, nil, file),
		"a certificate":              keysize.CheckTLS(nil, certificate, nil),
		"an authority":               keysize.CheckTLS(certificate, nil, nil),
		"an authority behind others": keysize.CheckTLS(append(broken, certificate...), nil, nil),
	} {
		if err == nil || !strings.Contains(err.Error(), "the RSA key has 16640 bits; the maximum is 16384") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := keysize.CheckPrivate(bytes.Repeat([]byte("x"), 32<<10+1)); err == nil {
		t.Error("a file of any size is accepted")
	}
}

func TestUsualKeysAreAccepted(t *testing.T) {
	for _, algorithm := range sshkey.Algorithms {
		key, err := sshkey.Generate(sshkey.Spec{Algorithm: algorithm, Bits: 4096, Curve: "p521"})
		if err != nil {
			t.Fatal(err)
		}
		if err := keysize.CheckPrivate(key); err != nil {
			t.Errorf("%s: %v", algorithm, err)
		}
		if _, err := sshkey.Parse(key, ""); err != nil {
			t.Errorf("%s: %v", algorithm, err)
		}
	}
	if err := keysize.CheckPrivate([]byte("no key")); err != nil {
		t.Error(err)
	}
}
