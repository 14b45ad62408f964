package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-gitops/sluice/playground/git"
)

// gitOptions of the git server.
type gitOptions struct {
	root, addr                      string
	username, password, token       string
	tlsCert, tlsKey                 string
	sshAddr, sshHostKey, authorized string
}

func gitCommand() *cobra.Command {
	var o gitOptions
	c := &cobra.Command{
		Use:   "git --root DIR --addr HOST:PORT",
		Short: "Serve every bare repository under a directory over HTTP and SSH, fetch and push",
		Example: `  playground git --root repos --addr 127.0.0.1:8080
  playground git --root repos --addr 127.0.0.1:8443 --tls-cert tls.crt --tls-key tls.key --username me --password secret
  playground git --root repos --addr 127.0.0.1:0 --ssh-addr 127.0.0.1:2222 --ssh-host-key host_key --ssh-authorized-keys keys`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := withParent(cmd.Context())
			defer cancel()
			return serveGit(ctx, o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.root, "root", "", "directory with the bare repositories")
	f.StringVar(&o.addr, "addr", "127.0.0.1:0", "address to serve HTTP on")
	f.StringVar(&o.username, "username", "", "require basic authentication with this user name")
	f.StringVar(&o.password, "password", "", "require basic authentication with this password")
	f.StringVar(&o.token, "token", "", "require this bearer token")
	f.StringVar(&o.tlsCert, "tls-cert", "", "serve HTTPS with this certificate")
	f.StringVar(&o.tlsKey, "tls-key", "", "key of the certificate")
	f.StringVar(&o.sshAddr, "ssh-addr", "", "address to serve SSH on as well")
	f.StringVar(&o.sshHostKey, "ssh-host-key", "", "file of the host's private key, made when missing")
	f.StringVar(&o.authorized, "ssh-authorized-keys", "", "file of the public keys that may log in")
	if err := c.MarkFlagRequired("root"); err != nil {
		panic(err) // the flag was made above
	}
	return c
}

func serveGit(ctx context.Context, o gitOptions) error {
	root, err := git.Root(o.root)
	if err != nil {
		return err
	}
	ended := make(chan error, 2)
	listener, err := net.Listen("tcp", o.addr)
	if err != nil {
		return err
	}
	scheme := "http"
	if o.tlsCert != "" {
		cert, err := tls.LoadX509KeyPair(o.tlsCert, o.tlsKey)
		if err != nil {
			return err
		}
		scheme, listener = "https", tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12})
	}
	server := &http.Server{
		Handler:           &git.HTTP{Root: root, Username: o.username, Password: o.password, Token: o.token},
		ReadHeaderTimeout: 10 * time.Second,
	}
	go func() { ended <- server.Serve(listener) }()
	defer server.Close() // the process ends
	fmt.Printf("%s://%s\n", scheme, listener.Addr())
	if o.sshAddr != "" {
		l, err := serveSSH(root, o, ended)
		if err != nil {
			return err
		}
		defer l.Close() // the process ends
		fmt.Printf("ssh://git@%s\n", l.Addr())
	}
	fmt.Println("ready")
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return err
	}
}

func serveSSH(root string, o gitOptions, ended chan<- error) (net.Listener, error) {
	if o.sshHostKey == "" || o.authorized == "" {
		return nil, errors.New("--ssh-addr needs --ssh-host-key and --ssh-authorized-keys")
	}
	host, err := git.LoadHostKey(o.sshHostKey)
	if err != nil {
		return nil, fmt.Errorf("cannot load the host key: %w", err)
	}
	keys, err := git.LoadAuthorized(o.authorized)
	if err != nil {
		return nil, fmt.Errorf("cannot load the authorized keys: %w", err)
	}
	l, err := net.Listen("tcp", o.sshAddr)
	if err != nil {
		return nil, err
	}
	go func() { ended <- (&git.SSH{Root: root, HostKey: host, Authorized: keys}).Serve(l) }()
	return l, nil
}
