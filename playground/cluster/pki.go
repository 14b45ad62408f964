package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// validity of everything; a playground's state may be kept for long.
const validity = 10 * 365 * 24 * time.Hour

// pair is a certificate and its key, in PEM.
type pair struct{ cert, key []byte }

// pki is what the control plane trusts and is trusted by.
type pki struct {
	dir               string
	ca, server, admin pair
}

func (p pki) file(name string) string { return filepath.Join(p.dir, name) }

// loadPKI reads the certificates in dir, or makes them.
func loadPKI(dir string) (pki, error) {
	p := pki{dir: dir}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return p, err
	}
	if _, err := os.Stat(p.file("complete")); errors.Is(err, fs.ErrNotExist) {
		if err := makePKI(p); err != nil {
			return p, err
		}
	}
	var errs []error
	read := func(name string) []byte {
		b, err := os.ReadFile(p.file(name))
		errs = append(errs, err)
		return b
	}
	p.ca = pair{read("ca.crt"), read("ca.key")}
	p.server = pair{read("server.crt"), read("server.key")}
	p.admin = pair{read("admin.crt"), read("admin.key")}
	return p, errors.Join(errs...)
}

func makePKI(p pki) error {
	caKey, err := newKey()
	if err != nil {
		return err
	}
	ca := template("playground-ca", nil)
	ca.IsCA, ca.BasicConstraintsValid = true, true
	ca.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	issue := func(name string, t *x509.Certificate) error {
		key := caKey
		if t != ca {
			if key, err = newKey(); err != nil {
				return err
			}
		}
		der, err := x509.CreateCertificate(rand.Reader, t, ca, &key.PublicKey, caKey)
		if err != nil {
			return err
		}
		keyDER, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			return err
		}
		return errors.Join(
			os.WriteFile(p.file(name+".crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
			os.WriteFile(p.file(name+".key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), 0o600))
	}
	server := template("kube-apiserver", nil)
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	server.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, net.IPv4(10, 96, 0, 1)}
	server.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}
	admin := template("admin", []string{"system:masters"})
	admin.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return errors.Join(
		issue("ca", ca), issue("server", server), issue("admin", admin),
		issue("service-account", template("service-account", nil)),
		os.WriteFile(p.file("complete"), nil, 0o600))
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func template(name string, groups []string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // the system has no randomness
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name, Organization: groups},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(validity),
		KeyUsage:     x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
	}
}

func b64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }
