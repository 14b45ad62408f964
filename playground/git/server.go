package git

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/sluice-gitops/sluice/playground/internal/web"
)

// Options of a server. Without credentials anybody may fetch and push over HTTP.
type Options struct {
	Root               string // directory with the bare repositories
	Addr               string // to serve HTTP on; port 0 picks a free one
	Username, Password string
	Token              string
	TLSCert, TLSKey    string // files: serve HTTPS
	TLSDir             string // instead of them: a directory for a certificate that is made, and its ca.crt
	SSHAddr            string // to serve SSH on as well
	SSHHostKey         string // file, made when missing
	SSHAuthorizedKeys  string // file, read at each login
	Webhook            string // URL that is called after pushes over HTTP, as Gitea does
	WebhookSecret      string
}

// Server is a running git server.
type Server struct {
	URL    string // http(s)://host:port
	SSHURL string // ssh://git@host:port, if SSH is served
	ended  chan error
	stop   []func() error
}

// Start serves until Close.
func Start(o Options) (*Server, error) {
	s := &Server{ended: make(chan error, 2)}
	err := s.start(o)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Ended yields the error of a part that ended by itself.
func (s *Server) Ended() <-chan error { return s.ended }

// Close ends the server and all of its connections.
func (s *Server) Close() error {
	var errs []error
	for _, stop := range s.stop {
		errs = append(errs, stop())
	}
	return errors.Join(errs...)
}

func (s *Server) start(o Options) error {
	root, err := resolve(o.Root)
	if err != nil {
		return err
	}
	handler := &httpServer{root: root, username: o.Username, password: o.Password, token: o.Token,
		pulls: pulls{root: root, webhook: o.Webhook, secret: o.WebhookSecret}}
	handler.api = handler.pulls.handler()
	if err := s.serveHTTP(o, handler); err != nil {
		return err
	}
	if o.SSHAddr == "" {
		return nil
	}
	return s.serveSSH(o, root, &handler.stats)
}

func (s *Server) serveHTTP(o Options, handler http.Handler) error {
	config, err := tlsConfig(o)
	if err != nil {
		return err
	}
	url, stop, err := web.Serve(o.Addr, config, handler, s.ended)
	if err != nil {
		return err
	}
	s.URL, s.stop = url, append(s.stop, stop)
	return nil
}

func (s *Server) serveSSH(o Options, root string, counts *stats) error {
	if o.SSHHostKey == "" || o.SSHAuthorizedKeys == "" {
		return errors.New("SSH needs a host key and authorized keys")
	}
	host, err := loadHostKey(o.SSHHostKey)
	if err != nil {
		return fmt.Errorf("cannot load the host key: %w", err)
	}
	if _, err := loadAuthorized(o.SSHAuthorizedKeys); err != nil {
		return fmt.Errorf("cannot load the authorized keys: %w", err)
	}
	listener, err := net.Listen("tcp", o.SSHAddr)
	if err != nil {
		return err
	}
	s.SSHURL = "ssh://git@" + listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = append(s.stop, listener.Close, func() error { cancel(); return nil })
	server := &sshServer{root: root, hostKey: host, authorizedKeys: o.SSHAuthorizedKeys, stats: counts}
	go func() { s.ended <- server.serve(ctx, listener) }()
	return nil
}

// tlsConfig is nil without TLS.
func tlsConfig(o Options) (*tls.Config, error) {
	switch {
	case o.TLSDir != "":
		config, _, err := web.Certificate(o.TLSDir, "playground-git", o.Addr)
		return config, err
	case o.TLSCert != "":
		return web.Load(o.TLSCert, o.TLSKey)
	}
	return nil, nil
}
