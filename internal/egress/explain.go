package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/sluice-gitops/sluice/internal/fault"
)

// brief is an error in a few words: those of the cause may hold ports and addresses that change every time,
// or repeat what is said.
type brief struct {
	words string
	cause error
}

func (b brief) Error() string { return b.words }
func (b brief) Unwrap() error { return b.cause }

// explain makes a fault of an error of the network. The end of the caller's context is the caller's to tell.
func explain(ctx context.Context, err error, r route) error {
	if fault.As(err) != nil || ctx.Err() != nil {
		return err
	}
	where := r.host
	if r.proxy != "" {
		where += " by way of the proxy " + r.proxy
	}
	for _, kind := range []func(error, string) *fault.Fault{explainTLS, explainNetwork} {
		if f := kind(err, where); f != nil {
			return f
		}
	}
	return failed("the request to %s failed", where).Because(err)
}

func explainTLS(err error, where string) *fault.Fault {
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var alert *net.OpError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &authority):
		return failed("the certificate of %s is not trusted", where).
			Because(brief{"it is signed by an unknown authority", err}).
			WithHint("Add the authority's certificate as ca.crt to the Secret")
	case errors.As(err, &name):
		return failed("the certificate of %s is for another name", where).Because(name).
			WithHint("Use the host name of the certificate in the URL")
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return failed("the certificate of %s is not valid now", where).
			Because(brief{"it has expired or is not yet valid", err}).
			WithHint("Renew it, or correct the clock")
	case errors.As(err, &invalid):
		return failed("the certificate of %s is not valid", where).Because(invalid)
	case errors.As(err, &alert) && alert.Op == "remote error":
		return failed("%s refused the TLS connection", where).Because(alert.Err).
			WithHint("It may want a client certificate: tls.crt and tls.key in the Secret")
	case strings.Contains(err.Error(), "client conn could not be established"):
		// HTTP/2 has no type for it, and keeps the reason for itself
		return failed("%s refused the TLS connection", where).Because(brief{"it ended as soon as it was made", err}).
			WithHint("It may want a client certificate: tls.crt and tls.key in the Secret")
	case errors.As(err, &record):
		return failed("%s does not speak TLS", where).Because(brief{"the answer is not TLS", err}).
			WithHint("Check scheme and port of the URL")
	}
	return nil
}

func explainNetwork(err error, where string) *fault.Fault {
	var dns *net.DNSError
	var timeout net.Error
	var op *net.OpError
	switch {
	case errors.Is(err, errLinkLocal):
		return failed("the address of %s is refused", where).Because(errLinkLocal).WithHint("Use another host")
	case errors.Is(err, errLoopback):
		return failed("the address of %s is refused", where).Because(errLoopback).WithHint("Use another host")
	case errors.As(err, &dns) && dns.IsNotFound:
		return failed("cannot reach %s", where).Because(brief{"host " + dns.Name + " is unknown", err}).
			WithHint("Check the URL, and the cluster's DNS")
	case errors.As(err, &dns):
		return failed("cannot reach %s", where).Because(brief{"the name " + dns.Name + " could not be looked up", err}).
			WithHint("Check the cluster's DNS")
	case errors.Is(err, syscall.ECONNREFUSED):
		return failed("cannot reach %s", where).Because(brief{"it refuses the connection", err}).
			WithHint("Check that the server runs, and the port")
	case errors.As(err, &timeout) && timeout.Timeout():
		return failed("cannot reach %s", where).Because(brief{"it does not answer in time", err}).
			WithHint("Check the server, and the network on the way")
	case errors.As(err, &op):
		return failed("the connection to %s broke off", where).Because(brief{op.Err.Error(), err}).
			WithHint("Check the server, and whether it wants a client certificate")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return failed("the connection to %s broke off", where).Because(brief{"unexpected end", err})
	}
	return nil
}
