package auth

import (
	"crypto/tls"
	"crypto/x509"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// TLS is what a Secret says of TLS, in PEM.
type TLS struct {
	CA        []byte // authorities that are trusted beside the system's
	Cert, Key []byte // of the client
}

// TLSFrom reads ca.crt, tls.crt and tls.key of a Secret, or their older names caFile, certFile and keyFile.
// All may be missing. The error is a fault.
func TLSFrom(data map[string][]byte) (TLS, error) {
	t := TLS{CA: first(data, "ca.crt", "caFile"), Cert: first(data, "tls.crt", "certFile"),
		Key: first(data, "tls.key", "keyFile")}
	if (len(t.Cert) == 0) != (len(t.Key) == 0) {
		return TLS{}, fault.New(meta.AuthenticationFailedReason,
			"the Secret has only one of the keys tls.crt and tls.key").
			WithHint("Set both")
	}
	return t, nil
}

// Config returns a configuration of a client of its own, which the caller may change. The error is a fault.
func (t TLS) Config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(t.CA) > 0 {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(t.CA) {
			return nil, fault.New(meta.AuthenticationFailedReason, "the key ca.crt of the Secret holds no certificate").
				WithHint("It must hold the authority's certificate in PEM")
		}
		c.RootCAs = pool
	}
	if len(t.Cert) > 0 || len(t.Key) > 0 {
		pair, err := tls.X509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fault.New(meta.AuthenticationFailedReason,
				"the keys tls.crt and tls.key of the Secret are no pair").Because(err).
				WithHint("Both must be in PEM, and the key must be that of the certificate")
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
