package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"syscall"

	"github.com/sluice-gitops/sluice/internal/network/hostguard"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// IsRefused reports whether a request failed because the policy does not allow the address of its host.
func IsRefused(err error) bool {
	return errors.Is(err, errLinkLocal) || errors.Is(err, errLoopback) || errors.Is(err, errClosed)
}

// summary is an error with a short message. The message of the cause may contain ports and addresses that change with
// each request, or repeat the rest of the message.
type summary struct {
	message string
	cause   error
}

func (s summary) Error() string { return s.message }
func (s summary) Unwrap() error { return s.cause }

// explain returns a fault for a network error. It returns err itself if the caller's context ended.
func explain(ctx context.Context, err error, r hostguard.Route) error {
	if fault.As(err) != nil || ctx.Err() != nil {
		return err
	}
	host := "host '" + r.Host + "'"
	if r.Proxy != "" {
		host += " through proxy '" + r.Proxy + "'"
	}
	for _, explainKind := range []func(error, string) *fault.Fault{explainTLS, explainNetwork} {
		if f := explainKind(err, host); f != nil {
			return f
		}
	}
	return failed("the request to %s failed", host).Because(summary{withoutQuotes(err.Error()), err})
}

var quoted = regexp.MustCompile(`"(\\.|[^"\\])*"`)

// withoutQuotes returns the message of an error of net/http without what it quotes: a header, or the answer of a server
// that does not speak HTTP.
func withoutQuotes(message string) string { return quoted.ReplaceAllString(message, `"..."`) }

// clientCertificate is a hint. A host that wants a certificate may also just close the connection.
const clientCertificate = "If the host requires a client certificate, set tls.crt and tls.key in the Secret"

func explainTLS(err error, host string) *fault.Fault {
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var alert *net.OpError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &authority):
		return failed("the certificate of %s is not trusted", host).
			Because(summary{"it is signed by an unknown authority", err}).
			WithHint("Add the authority's certificate as ca.crt to the Secret")
	case errors.As(err, &name):
		return failed("the certificate of %s is for another name", host).Because(name).
			WithHint("Use a host name of the certificate in the URL")
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return failed("the certificate of %s is not valid now", host).
			Because(summary{"it has expired or is not yet valid", err}).
			WithHint("Renew the certificate, or correct the clock of the node")
	case errors.As(err, &invalid):
		return failed("the certificate of %s is not valid", host).Because(invalid)
	case errors.As(err, &alert) && alert.Op == "remote error":
		return failed("%s refused the TLS connection", host).Because(alert.Err).WithHint(clientCertificate)
	case strings.Contains(err.Error(), "client conn could not be established"):
		// HTTP/2 has no error type for it, and does not report the cause
		return failed("%s refused the TLS connection", host).
			Because(summary{"the connection was closed after the handshake", err}).WithHint(clientCertificate)
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return failed("%s does not serve TLS", host).Because(summary{"the server answered without TLS", err}).
			WithHint("Check the scheme and the port of the URL; for a server of plain HTTP use http")
	}
	return nil
}

// IsPlainHTTP reports whether a request over TLS failed because the server answered plain HTTP.
func IsPlainHTTP(err error) bool {
	var record tls.RecordHeaderError
	return errors.Is(err, http.ErrSchemeMismatch) ||
		errors.As(err, &record) && string(record.RecordHeader[:]) == "HTTP/"
}

func explainNetwork(err error, host string) *fault.Fault {
	var dns *net.DNSError
	var timeout net.Error
	var op *net.OpError
	switch {
	case errors.Is(err, errLinkLocal):
		return failed("the address of %s is not allowed", host).Because(errLinkLocal).
			WithHint("Use the name of a host outside of the node and its cloud's metadata")
	case errors.Is(err, errLoopback):
		return failed("the address of %s is not allowed", host).Because(errLoopback).
			WithHint("Use the name of a Service, such as HOST.NAMESPACE.svc")
	case errors.Is(err, errClosed):
		return failed("the address of %s is not allowed", host).Because(errClosed).
			WithHint("Use a host outside of these networks, or ask who runs the controllers")
	case errors.As(err, &dns) && dns.IsNotFound:
		return failed("cannot connect to %s", host).Because(summary{"DNS has no record of '" + dns.Name + "'", err}).
			WithHint("Check the URL and the cluster's DNS")
	case errors.As(err, &dns):
		return failed("cannot connect to %s", host).Because(summary{"DNS lookup of '" + dns.Name + "' failed", err}).
			WithHint("Check the cluster's DNS")
	case errors.Is(err, syscall.ECONNREFUSED):
		return failed("cannot connect to %s", host).Because(summary{"connection refused", err}).
			WithHint("Check that the server is running, and the port of the URL")
	case errors.As(err, &timeout) && timeout.Timeout():
		return failed("the request to %s timed out", host).Because(summary{"the host does not answer", err}).
			WithHint("Check the server, and the network path to it")
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return failed("cannot connect to %s", host).Because(summary{"no route to the host", err}).
			WithHint("Check the address of the host, network policies, and the routes of the node")
	case errors.As(err, &op):
		return failed("the connection to %s was interrupted", host).Because(summary{op.Err.Error(), err}).
			WithHint("Check the server. " + clientCertificate)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return failed("the connection to %s was interrupted", host).Because(summary{"unexpected end of data", err})
	}
	return nil
}
