package main

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/sluice-gitops/sluice/playground/registry"
)

func registryCommand() *cobra.Command {
	var o registry.Options
	c := &cobra.Command{
		Use:   "registry --addr HOST:PORT",
		Short: "Serve an OCI registry: the CNCF Distribution's, with a referrers API",
		Long: `Serve an OCI registry: the CNCF Distribution's, with a referrers API.

It prints the address, then "ready". GET /-/stats returns the number of requests of each kind and of sent bytes.`,
		Example: `  playground registry --addr 127.0.0.1:5000
  playground registry --addr 127.0.0.1:5000 --dir content --tls-dir tls --username me --password secret`,
		Args: cobra.NoArgs,
		RunE: untilStopped(func(ctx context.Context) error { return serveRegistry(ctx, o) }),
	}
	f := c.Flags()
	f.StringVar(&o.Addr, "addr", "127.0.0.1:0", "address to serve on")
	f.StringVar(&o.Dir, "dir", "", "directory to keep the content in (default: temporary, removed at the end)")
	f.StringVar(&o.Username, "username", "", "require basic authentication with this user name")
	f.StringVar(&o.Password, "password", "", "require basic authentication with this password")
	f.StringVar(&o.TLSDir, "tls-dir", "", "serve HTTPS with a certificate that is made, and write it and its ca.crt "+
		"to this directory")
	f.BoolVar(&o.ClientCertificates, "client-certificates", false,
		"require the certificate that is written to --tls-dir as client.crt and client.key")
	f.BoolVar(&o.NoReferrers, "no-referrers", false, "serve no referrers API, as older registries")
	return c
}

func serveRegistry(ctx context.Context, o registry.Options) (err error) {
	if o.ClientCertificates && o.TLSDir == "" {
		return errors.New("--client-certificates needs --tls-dir")
	}
	if o.Dir == "" {
		if o.Dir, err = os.MkdirTemp("", "playground-registry-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(o.Dir)) }()
	}
	server, err := registry.Start(ctx, o)
	if err != nil {
		return err
	}
	return serve(ctx, server, server.URL)
}
