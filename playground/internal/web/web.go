// Package web serves HTTP and HTTPS for the servers of a playground.
package web

import (
	"crypto/tls"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/sluice-gitops/sluice/playground/internal/pki"
)

// Certificate makes a certificate for the host of an address, writes it and its ca.crt to a directory, and
// returns what serves with it.
func Certificate(dir, name, addr string) (*tls.Config, *pki.Authority, error) {
	ca, err := pki.Files(dir, name, addr)
	if err != nil {
		return nil, nil, err
	}
	config, err := Load(filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key"))
	return config, ca, err
}

// Load returns what serves with the certificate of two files.
func Load(certFile, keyFile string) (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"}}, nil
}

// Serve serves on an address, whose port 0 picks a free one, until it is stopped; over HTTPS if there is a
// configuration. It returns the URL to come in by. What the server ends with is sent to ended, which must
// have room for it.
func Serve(addr string, config *tls.Config, handler http.Handler, ended chan<- error) (url string, stop func() error,
	err error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return "", nil, err
	}
	url = "http://" + listener.Addr().String()
	if config != nil {
		url = "https://" + listener.Addr().String()
		listener = tls.NewListener(listener, config)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go func() { ended <- server.Serve(listener) }()
	return url, server.Close, nil
}
