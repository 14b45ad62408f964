// Package s3 serves S3 over a directory: versitygw behind a listener that counts what is asked of it.
package s3

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"

	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
	"github.com/versity/versitygw/s3api"

	"github.com/sluice-gitops/sluice/playground/internal/web"
)

// connections bounds what the server does at the same time.
const connections = 256

// Options of a server.
type Options struct {
	Dir                  string // a directory in it is a bucket, a file in that an object
	Addr                 string // port 0 picks a free one
	Region               string
	AccessKey, SecretKey string // of the one account
	TLSDir               string // serve HTTPS: a directory for a certificate that is made, and its ca.crt
}

// Server is a running S3 server. There can be one a process: versitygw has settings that are global.
type Server struct {
	URL   string // http(s)://host:port
	ended chan error
	stop  []func() error
}

// Start serves until Close.
func Start(o Options) (*Server, error) {
	s := &Server{ended: make(chan error, 2)}
	if err := s.start(o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Ended yields the error of a part that ended by itself.
func (s *Server) Ended() <-chan error { return s.ended }

// Close ends the server and all of its connections.
func (s *Server) Close() error {
	var errs []error
	for i := len(s.stop) - 1; i >= 0; i-- {
		errs = append(errs, s.stop[i]())
	}
	return errors.Join(errs...)
}

func (s *Server) start(o Options) error {
	config, err := tlsConfig(o)
	if err != nil {
		return err
	}
	socket, err := s.startGateway(o)
	if err != nil {
		return err
	}
	url, stop, err := web.Serve(o.Addr, config, front(socket), s.ended)
	if err != nil {
		return err
	}
	s.URL, s.stop = url, append(s.stop, stop)
	return nil
}

// startGateway runs versitygw on a Unix socket and returns its path.
func (s *Server) startGateway(o Options) (string, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	if err := (meta.XattrMeta{}).Test(dir); err != nil {
		return "", fmt.Errorf("%s is on a file system without extended attributes: %w", dir, err)
	}
	home, err := os.MkdirTemp("", "playground-s3-")
	if err != nil {
		return "", err
	}
	s.stop = append(s.stop, func() error { return os.RemoveAll(home) })
	backend, err := posix.New(dir, meta.XattrMeta{}, posix.PosixOpts{Concurrency: connections})
	if err != nil {
		return "", err
	}
	socket, ready, done := filepath.Join(home, "s3.sock"), make(chan struct{}), make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		err := embedgw.RunVersityGW(ctx, backend, &embedgw.Config{
			RootUserAccess: o.AccessKey, RootUserSecret: o.SecretKey, Region: o.Region, Ports: []string{socket},
			IAMService: auth.NewIAMServiceSingle(auth.Account{Access: o.AccessKey, Secret: o.SecretKey,
				Role: auth.RoleAdmin}),
			MaxConnections: connections, MaxRequests: connections, MultipartMaxParts: 10_000, Quiet: true,
			KeepAlive: true,
			S3Options: []s3api.Option{s3api.WithOnListen(func() { close(ready) })},
		})
		done <- err
	}()
	select {
	case <-ready:
	case err := <-done:
		cancel()
		return "", errors.Join(errors.New("versitygw ended"), err)
	}
	stopped := make(chan struct{})
	go func() {
		s.ended <- <-done
		close(stopped)
	}()
	s.stop = append(s.stop, func() error { cancel(); <-stopped; return nil })
	return socket, nil
}

// front hands every request to the gateway as it is, and counts it.
func front(socket string) http.Handler {
	counts := &stats{}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: "gateway"})
			r.Out.Host = r.In.Host // it is part of what is signed
			r.Out.Header["X-Forwarded-For"] = nil
		},
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", socket)
			},
			MaxIdleConnsPerHost: connections,
			DisableCompression:  true,
		},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /-/stats", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(counts.all()) // who asked is gone
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { proxy.ServeHTTP(counts.count(w, r), r) })
	return mux
}

// tlsConfig is nil without TLS.
func tlsConfig(o Options) (*tls.Config, error) {
	if o.TLSDir == "" {
		return nil, nil
	}
	config, _, err := web.Certificate(o.TLSDir, "playground-s3", o.Addr)
	if err != nil {
		return nil, fmt.Errorf("cannot make a certificate in %s: %w", o.TLSDir, err)
	}
	return config, nil
}
