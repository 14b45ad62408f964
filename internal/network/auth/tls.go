package auth

import (
	"crypto/tls"
	"crypto/x509"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/limits/keysize"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// TLS holds the TLS settings of a Secret, in PEM.
type TLS struct {
	CA        []byte // authorities that are trusted in addition to the system's
	Cert, Key []byte // of the client
}

// TLSFrom reads ca.crt, tls.crt and tls.key from the data of a Secret, or their older names caFile, certFile and
// keyFile. All may be missing. The error is a fault.
func TLSFrom(data map[string][]byte) (TLS, error) {
	t := TLS{CA: first(data, "ca.crt", "caFile"), Cert: first(data, "tls.crt", "certFile"),
		Key: first(data, "tls.key", "keyFile")}
	if (len(t.Cert) == 0) != (len(t.Key) == 0) {
		return TLS{}, fault.New(meta.AuthenticationFailedReason,
			"the Secret has only one of the keys tls.crt and tls.key").
			WithHint("Set both keys")
	}
	return t, nil
}

// Config returns a new client configuration, which the caller may change. The error is a fault.
func (t TLS) Config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if err := keysize.CheckTLS(t.CA, t.Cert, t.Key); err != nil {
		return nil, fault.New(meta.AuthenticationFailedReason, "the Secret has a key that is too large").Because(err).
			WithHint("Use keys of 4096 bits or less")
	}
	if len(t.CA) > 0 {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(t.CA) {
			return nil, fault.New(meta.AuthenticationFailedReason,
				"the key 'ca.crt' of the Secret contains no certificate").
				WithHint("Set it to the certificate of the authority in PEM")
		}
		c.RootCAs = pool
	}
	if len(t.Cert) > 0 || len(t.Key) > 0 {
		pair, err := tls.X509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fault.New(meta.AuthenticationFailedReason,
				"the keys tls.crt and tls.key of the Secret do not match").Because(err).
				WithHint("Both must be in PEM, and tls.key must be the private key of the certificate")
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
