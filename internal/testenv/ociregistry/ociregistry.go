// Package ociregistry provides tests with an OCI registry.
package ociregistry

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// Server is an OCI registry.
type Server struct {
	tb   testing.TB
	Host string // host:port
	URL  string // http(s)://host:port
	OCI  string // oci://host:port
	// PEM: the certificate authority with --tls-dir, the client certificate with --client-certificates.
	CA, ClientCert, ClientKey []byte
	login                     authn.AuthConfig
	stop                      func()
}

// New starts a registry. args are further flags of `playground registry`.
func New(tb testing.TB, args ...string) *Server {
	tb.Helper()
	c, err := testenv.StartPlayground(append([]string{"registry"}, args...)...)
	if err != nil {
		tb.Fatalf("cannot start the registry: %v", err)
	}
	tb.Cleanup(c.Stop)
	_, host, _ := strings.Cut(c.Printed[0], "://")
	r := &Server{tb: tb, Host: host, URL: c.Printed[0], OCI: "oci://" + host, stop: c.Stop}
	if i := slices.Index(args, "--tls-dir"); i >= 0 {
		for name, to := range map[string]*[]byte{"ca.crt": &r.CA, "client.crt": &r.ClientCert,
			"client.key": &r.ClientKey} {
			if *to, err = os.ReadFile(filepath.Join(args[i+1], name)); err != nil && !os.IsNotExist(err) {
				tb.Fatal(err)
			}
		}
	}
	for flag, to := range map[string]*string{"--username": &r.login.Username, "--password": &r.login.Password} {
		if i := slices.Index(args, flag); i >= 0 {
			*to = args[i+1]
		}
	}
	return r
}

// Access returns options for access as an administrator.
func (r *Server) Access() []remote.Option {
	r.tb.Helper()
	return []remote.Option{remote.WithTransport(r.Transport()), remote.WithAuth(authn.FromConfig(r.login))}
}

// Push pushes an artifact of layers and returns its digest.
func (r *Server) Push(repo, tag string, annotations map[string]string, layers ...v1.Layer) name.Digest {
	r.tb.Helper()
	image, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), layers...)
	if err != nil {
		r.tb.Fatal(err)
	}
	image = mutate.Annotations(image, annotations).(v1.Image)
	ref, err := name.NewTag(r.Host+"/"+repo+":"+tag, name.Insecure)
	if err != nil {
		r.tb.Fatal(err)
	}
	if err := remote.Write(ref, image, r.Access()...); err != nil {
		r.tb.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		r.tb.Fatal(err)
	}
	return ref.Digest(digest.String())
}

// Stop stops the server.
func (r *Server) Stop() { r.stop() }

// Transport returns a transport that trusts the registry's certificate and presents the client's.
func (r *Server) Transport() *http.Transport {
	r.tb.Helper()
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	config.RootCAs.AppendCertsFromPEM(r.CA)
	if r.ClientCert != nil {
		pair, err := tls.X509KeyPair(r.ClientCert, r.ClientKey)
		if err != nil {
			r.tb.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return &http.Transport{TLSClientConfig: config}
}

// Stats returns the server's counters: requests, bytesSent, and requests by method and resource, such as
// "HEAD manifests".
func (r *Server) Stats() map[string]int64 {
	r.tb.Helper()
	transport := r.Transport()
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get(r.URL + "/-/stats")
	if err != nil {
		r.tb.Fatal(err)
	}
	defer resp.Body.Close()
	stats := map[string]int64{}
	if err := json.NewDecoder(resp.Body).Decode(&stats); err != nil {
		r.tb.Fatal(err)
	}
	return stats
}
