package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sluice-gitops/sluice/playground/s3"
)

func s3Command() *cobra.Command {
	var o s3.Options
	c := &cobra.Command{
		Use:   "s3 --dir DIR --addr HOST:PORT",
		Short: "Serve S3 over a directory, with versitygw: its directories are the buckets",
		Long: `Serve S3 over a directory, with versitygw: its directories are the buckets.

It prints the address, then "ready". GET /-/stats returns the number of lists, gets, heads, puts,
deletes and other requests, and of sent bytes.`,
		Example: `  playground s3 --dir buckets --addr 127.0.0.1:9000
  playground s3 --dir buckets --addr 127.0.0.1:9443 --tls-dir tls --access-key me --secret-key my-secret`,
		Args: cobra.NoArgs,
		RunE: untilStopped(func(ctx context.Context) error { return serveS3(ctx, o) }),
	}
	f := c.Flags()
	f.StringVar(&o.Dir, "dir", "", "directory with the buckets, made when missing")
	f.StringVar(&o.Addr, "addr", "127.0.0.1:0", "address to serve on")
	f.StringVar(&o.Region, "region", "us-east-1", "region that requests must be signed for")
	f.StringVar(&o.AccessKey, "access-key", "playground", "access key of the one account")
	f.StringVar(&o.SecretKey, "secret-key", "playground-secret", "secret key of the one account")
	f.StringVar(&o.TLSDir, "tls-dir", "", "serve HTTPS with a certificate that is made, and write it and its ca.crt "+
		"to this directory")
	require(c, "dir")
	return c
}

func serveS3(ctx context.Context, o s3.Options) error {
	server, err := s3.Start(o)
	if err != nil {
		return err
	}
	return serve(ctx, server, server.URL)
}
