package manager

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"

	"github.com/sluice-gitops/sluice/internal/fleet/hub"
	"github.com/sluice-gitops/sluice/internal/fleet/stream"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/process/options"
)

// addStreams lets clusters open streams to a hub, until ctx ends.
func addStreams(ctx context.Context, h *hub.Hub, o options.HubOptions) error {
	streams := &stream.Hub{IsKnown: h.Registry.Has, OnChange: h.Linked, LoginHosts: o.LoginHosts,
		Log: h.Log.WithName("streams")}
	if o.Peers != "" {
		peers, err := newPeers(o)
		if err != nil {
			return err
		}
		streams.Peers, h.HasPeers = peers, true
	}
	h.Streams = streams
	guard.AfterDone(ctx, "closing streams", streams.Close)
	return nil
}

// peers are the other replicas of a hub: the addresses of a headless Service. It implements [stream.Peers].
type peers struct {
	*http.Transport
	name, port, scheme string
}

func newPeers(o options.HubOptions) (*peers, error) {
	_, port, err := net.SplitHostPort(o.Addr)
	if err != nil {
		return nil, fmt.Errorf("--addr: %w", err)
	}
	p := &peers{Transport: &http.Transport{}, name: o.Peers, port: port, scheme: "http"}
	if o.TLSCertFile == "" {
		return p, nil
	}
	external, err := url.Parse(o.ExternalURL)
	if err != nil {
		return nil, fmt.Errorf("--external-url: %w", err)
	}
	p.scheme = "https"
	p.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, // VerifyConnection does
		VerifyConnection: func(s tls.ConnectionState) error {
			return verifyPeer(s, o.TLSCertFile, external.Hostname())
		}}
	return p, nil
}

// verifyPeer returns an error unless another replica has a certificate for the hub of an authority of the system or of
// this replica's own certificate, or the same certificate.
func verifyPeer(s tls.ConnectionState, certFile, host string) error {
	own, err := os.ReadFile(certFile) // each time: it may have been renewed
	if err != nil {
		return err
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(own) {
		return errors.New("the own certificate of the hub cannot be read")
	}
	others := x509.NewCertPool()
	for _, c := range s.PeerCertificates[1:] {
		others.AddCert(c)
	}
	_, err = s.PeerCertificates[0].Verify(x509.VerifyOptions{DNSName: host, Roots: roots, Intermediates: others})
	return err
}

// Addresses implements [stream.Peers].
func (p *peers) Addresses(ctx context.Context) ([]*url.URL, error) {
	found, err := net.DefaultResolver.LookupHost(ctx, p.name)
	if err != nil {
		return nil, fmt.Errorf("--peers: %w", err)
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	isOwn := map[string]bool{}
	for _, a := range own {
		if n, ok := a.(*net.IPNet); ok {
			isOwn[n.IP.String()] = true
		}
	}
	var all []*url.URL
	for _, address := range found {
		if !isOwn[address] {
			all = append(all, &url.URL{Scheme: p.scheme, Host: net.JoinHostPort(address, p.port)})
		}
	}
	return all, nil
}
