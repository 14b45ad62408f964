package provider

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// TestNATSWithTLS checks the CA and the client certificate, and that plaintext servers are rejected with TLS options.
func TestNATSWithTLS(t *testing.T) {
	ca, certificate, key := newCA(t)
	served, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	trusted, err := auth.TLS{CA: ca}.Config()
	if err != nil {
		t.Fatal(err)
	}
	address := serveNATS(t, &server.Options{TLS: true, TLSTimeout: 60, TLSConfig: &tls.Config{
		Certificates: []tls.Certificate{served}, MinVersion: tls.VersionTLS12,
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: trusted.RootCAs,
	}})
	mutual := auth.TLS{CA: ca, Cert: certificate, Key: key}
	for _, scheme := range []string{"nats://", "tls://"} {
		if err := newProvider(t, natsOptions(address,
			func(o *Options) { o.Address = scheme + address; o.TLS = mutual })).
			Send(testContext(t), success()); err != nil {
			t.Errorf("%s: %v", scheme, err)
		}
	}
	for name, settings := range map[string]auth.TLS{"no CA": {}, "no client certificate": {CA: ca}} {
		f := fault.As(newProvider(t, natsOptions(address, func(o *Options) { o.TLS = settings })).
			Send(testContext(t), success()))
		if f == nil || f.Terminal {
			t.Errorf("%s: %v", name, f)
		}
	}
	plain := serveNATS(t, &server.Options{})
	f := fault.As(newProvider(t, natsOptions(plain, func(o *Options) { o.TLS = mutual })).
		Send(testContext(t), success()))
	if f == nil || !f.Terminal || !strings.Contains(f.Error(), "does not support TLS. Check the address or "+
		"remove spec.certSecretRef") {
		t.Errorf("server without TLS: got %v, want a terminal fault", f)
	}
}

// newCA returns a CA, and a certificate of it for servers and clients on this machine, in PEM.
func newCA(t *testing.T) (ca, certificate, key []byte) {
	t.Helper()
	issue := func(template, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(1), time.Now().Add(-time.Hour),
			time.Now().Add(time.Hour)
		if signer == nil {
			parent, signer = template, own
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &own.PublicKey, signer)
		if err != nil {
			t.Fatal(err)
		}
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return c, own
	}
	root, signer := issue(&x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil, nil)
	leaf, own := issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "nats"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, root, signer)
	der, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		t.Fatal(err)
	}
	text := func(kind string, b []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}) }
	return text("CERTIFICATE", root.Raw), text("CERTIFICATE", leaf.Raw), text("PRIVATE KEY", der)
}
