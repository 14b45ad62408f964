// Package pki makes certificates for servers that live as long as a playground. It reads no files and opens
// no connections.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// validity of everything; a playground's state may be kept for long.
const validity = 10 * 365 * 24 * time.Hour

// Pair is a certificate and its key, in PEM.
type Pair struct{ Cert, Key []byte }

// Write writes name.crt and name.key into a directory, readable by the owner only.
func (p Pair) Write(dir, name string) error {
	return errors.Join(
		os.WriteFile(filepath.Join(dir, name+".crt"), p.Cert, 0o600),
		os.WriteFile(filepath.Join(dir, name+".key"), p.Key, 0o600))
}

// Authority issues certificates.
type Authority struct {
	Pair
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes a certificate authority.
func NewAuthority(name string) (*Authority, error) {
	cert, err := template(name)
	if err != nil {
		return nil, err
	}
	cert.IsCA, cert.BasicConstraintsValid = true, true
	cert.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &Authority{cert: cert, key: key}
	a.Pair, err = a.sign(cert, key)
	return a, err
}

// Server issues a certificate for a server with these IP addresses and DNS names.
func (a *Authority) Server(name string, hosts ...string) (Pair, error) {
	return a.issue(name, func(c *x509.Certificate) {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		for _, host := range hosts {
			if ip := net.ParseIP(host); ip != nil {
				c.IPAddresses = append(c.IPAddresses, ip)
			} else {
				c.DNSNames = append(c.DNSNames, host)
			}
		}
	})
}

// Files makes an authority and a certificate for the host of an address, and writes ca.crt, server.crt and server.key.
func Files(dir, name, addr string) (*Authority, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	ca, err := NewAuthority(name + "-ca")
	if err != nil {
		return nil, err
	}
	hosts := []string{"127.0.0.1", "::1", "localhost"}
	if host != "" {
		hosts = append(hosts, host)
	}
	server, err := ca.Server(name, hosts...)
	if err != nil {
		return nil, err
	}
	return ca, errors.Join(os.WriteFile(filepath.Join(dir, "ca.crt"), ca.Cert, 0o600), server.Write(dir, "server"))
}

// Client issues a certificate for a user in groups.
func (a *Authority) Client(name string, groups ...string) (Pair, error) {
	return a.issue(name, func(c *x509.Certificate) {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		c.Subject.Organization = groups
	})
}

func (a *Authority) issue(name string, set func(*x509.Certificate)) (Pair, error) {
	cert, err := template(name)
	if err != nil {
		return Pair{}, err
	}
	set(cert)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	return a.sign(cert, key)
}

func (a *Authority) sign(cert *x509.Certificate, key *ecdsa.PrivateKey) (Pair, error) {
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return Pair{}, err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
	}, err
}

func template(name string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour), // clocks differ
		NotAfter:     time.Now().Add(validity),
		KeyUsage:     x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
	}, err
}
