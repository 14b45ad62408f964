package storage

import (
	"crypto/tls"
	"fmt"
	"net"

	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/options"
)

// TLS returns a listener for HTTPS if there is a certificate, else the given one.
func TLS(mgr manager.Manager, listener net.Listener, o options.ArtifactOptions) (net.Listener, error) {
	if o.TLSCertFile == "" {
		return listener, nil
	}
	certificate, err := certwatcher.New(o.TLSCertFile, o.TLSKeyFile)
	if err != nil {
		return nil, fmt.Errorf("--storage-tls-cert-file, --storage-tls-key-file: %w", err)
	}
	return tls.NewListener(listener, &tls.Config{
		GetCertificate: certificate.GetCertificate, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
	}), mgr.Add(guard.Runnable("reading a certificate", certificate))
}
