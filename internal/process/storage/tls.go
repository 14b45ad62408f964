package storage

import (
	"crypto/tls"
	"fmt"
	"net"

	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/process/options"
)

// TLS returns a listener for HTTPS if the options name a certificate, else the given one. Add runs what reads the
// certificate again. The error names the flags of the options.
func TLS(add func(manager.Runnable) error, listener net.Listener, o options.Certificate) (net.Listener, error) {
	if o.CertFile == "" {
		return listener, nil
	}
	certificate, err := certwatcher.New(o.CertFile, o.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Flags, err)
	}
	return tls.NewListener(listener, &tls.Config{
		GetCertificate: certificate.GetCertificate, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
	}), add(guard.Runnable("reading a certificate", certificate))
}
