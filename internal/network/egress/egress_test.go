package egress

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// maxTestWait bounds every wait of these tests.
const maxTestWait = 3 * time.Minute

// longTimeouts are for hosts that answer, on a test machine that may be slow.
var longTimeouts = Timeouts{Connect: maxTestWait, Answer: maxTestWait, Idle: maxTestWait, Drip: maxTestWait,
	Stall: maxTestWait}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), maxTestWait)
	t.Cleanup(cancel)
	return ctx
}

// client returns a client with the policy's transport. A policy without timeouts gets long ones.
func client(t *testing.T, p *Policy, o Options) *http.Client {
	t.Helper()
	if p.Timeouts == (Timeouts{}) {
		p.Timeouts = longTimeouts
	}
	rt, err := p.Transport(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.CloseIdleConnections)
	return &http.Client{Transport: rt}
}

// get returns the status and the content of an answer.
func get(t *testing.T, c *http.Client, url string, header ...string) (int, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(within(t), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(content), err
}

// mustFail checks that err is a fault whose message contains the words.
func mustFail(t *testing.T, err error, words ...string) {
	t.Helper()
	_ = faultOf(t, err, words...)
}

// faultOf returns err as a fault. Its message must contain the words.
func faultOf(t *testing.T, err error, words ...string) *fault.Fault {
	t.Helper()
	f := fault.As(err)
	if f == nil {
		t.Fatalf("want a fault, got %v", err)
	}
	for _, w := range words {
		if !strings.Contains(f.Error(), w) {
			t.Errorf("the fault %q does not contain %q", f.Error(), w)
		}
	}
	return f
}

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// authority is a certificate authority.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.cert, a.key, a.pem = makeCertificate(t, nil,
		&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// issue returns a certificate for the name, valid until end.
func (a *authority) issue(t *testing.T, name string, end time.Time) (tls.Certificate, auth.TLS) {
	t.Helper()
	template := &x509.Certificate{NotAfter: end,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	_, key, certPEM := makeCertificate(t, a, template)
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw})
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	return pair, auth.TLS{CA: a.pem, Cert: certPEM, Key: keyPEM}
}

func makeCertificate(t *testing.T, by *authority, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey,
	[]byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.Subject = pkix.Name{CommonName: "test"}
	template.NotBefore = time.Now().Add(-48 * time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// serveTLS serves with a certificate for 127.0.0.1 from the authority.
func serveTLS(t *testing.T, a *authority, end time.Time, config *tls.Config, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	pair, _ := a.issue(t, "127.0.0.1", end)
	config.Certificates = []tls.Certificate{pair}
	s := httptest.NewUnstartedServer(h)
	s.TLS = config
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // omit failed handshakes
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}
