// Package registry runs a real OCI registry, that of the CNCF Distribution project, with its content in a directory.
// What that one lacks is added: the API that lists what refers to an artifact, which signatures are found by.
package registry

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem" // the store in a directory
	"github.com/sirupsen/logrus"

	"github.com/sluice-gitops/sluice/playground/internal/web"
)

// Options of a registry. Without credentials anybody may pull and push.
type Options struct {
	Dir                string // for the content
	Addr               string // to serve on; port 0 picks a free one
	Username, Password string
	// serve HTTPS with a certificate that is made, and write it, its ca.crt and a client's to this directory
	TLSDir             string
	ClientCertificates bool // let in only those who show the client's certificate
	NoReferrers        bool // be a registry that has no referrers API, as many still are
}

// Server is a running registry.
type Server struct {
	URL   string // http(s)://host:port
	app   *handlers.App
	ended chan error
	stop  func() error
}

// Start serves until Close.
func Start(ctx context.Context, o Options) (*Server, error) {
	dir, err := filepath.Abs(o.Dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700) // the registry panics without
	}
	if err != nil {
		return nil, err
	}
	config, err := tlsConfig(o)
	if err != nil {
		return nil, err
	}
	s := &Server{ended: make(chan error, 1)}
	logrus.SetOutput(io.Discard) // what went wrong is in the answers
	s.app = handlers.NewApp(ctx, &configuration.Configuration{
		Storage: configuration.Storage{
			"filesystem": {"rootdirectory": dir}, "delete": {"enabled": true},
			"maintenance": {"uploadpurging": map[any]any{"enabled": false}},
		},
		HTTP: configuration.HTTP{Secret: rand.Text()},
	})
	var handler http.Handler = s.app
	if !o.NoReferrers {
		handler = &referrers{next: handler}
	}
	if s.URL, s.stop, err = web.Serve(o.Addr, config, count(login(o, handler)), s.ended); err != nil {
		return nil, errors.Join(err, s.app.Shutdown())
	}
	return s, nil
}

// Ended yields the error of a server that ended by itself.
func (s *Server) Ended() <-chan error { return s.ended }

// Close ends the server and all of its connections.
func (s *Server) Close() error { return errors.Join(s.stop(), s.app.Shutdown()) }

// login asks for the credentials, if there are any.
func login(o Options, next http.Handler) http.Handler {
	if o.Username == "" && o.Password == "" {
		return next
	}
	equal := func(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, ok := r.BasicAuth(); !ok || !equal(user, o.Username) || !equal(password, o.Password) {
			w.Header().Set("WWW-Authenticate", `Basic realm="playground"`)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			// the reader may be gone
			_, _ = io.WriteString(w, `{"errors":[{"code":"UNAUTHORIZED","message":"wrong credentials"}]}`)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// tlsConfig is nil without TLS.
func tlsConfig(o Options) (*tls.Config, error) {
	if o.TLSDir == "" {
		return nil, nil
	}
	config, ca, err := web.Certificate(o.TLSDir, "playground-registry", o.Addr)
	if err != nil {
		return nil, err
	}
	if o.ClientCertificates {
		client, err := ca.Client("playground-registry-client")
		if err != nil {
			return nil, err
		}
		if err := client.Write(o.TLSDir, "client"); err != nil {
			return nil, err
		}
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		config.ClientCAs.AppendCertsFromPEM(ca.Cert)
	}
	return config, nil
}
