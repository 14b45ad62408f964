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

// TLS returns a listener for HTTPS if the options name a certificate, else the given one. The error names their flags.
func TLS(mgr manager.Manager, listener net.Listener, o options.Certificate) (net.Listener, error) {
	if o.CertFile == "" {
		return listener, nil
	}
	certificate, err := certwatcher.New(o.CertFile, o.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Flags, err)
	}
	return tls.NewListener(listener, &tls.Config{
		GetCertificate: certificate.GetCertificate, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
	}), mgr.Add(guard.Runnable("reading a certificate", certificate))
}
