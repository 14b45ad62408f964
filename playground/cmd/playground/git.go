package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sluice-gitops/sluice/playground/git"
)

func gitCommand() *cobra.Command {
	var o git.Options
	c := &cobra.Command{
		Use:   "git --root DIR --addr HOST:PORT",
		Short: "Serve every bare repository under a directory over HTTP and SSH, fetch and push",
		Long: `Serve every bare repository under a directory over HTTP and SSH, fetch and push.

A reference refs/pull/N/head is a pull request to main until main contains it. Those are served as Gitea does
(/api/v1/repos/OWNER/NAME/pulls, comments and statuses). --webhook is called after pushes.

It prints the addresses, then "ready". GET /-/stats returns the number of advertisements, fetches, pushes and bytes.`,
		Example: `  playground git --root repos --addr 127.0.0.1:8080
  playground git --root repos --addr 127.0.0.1:8443 --tls-dir tls --username me --password secret
  playground git --root repos --ssh-addr 127.0.0.1:2222 --ssh-host-key host_key --ssh-authorized-keys keys`,
		Args: cobra.NoArgs,
		RunE: untilStopped(func(ctx context.Context) error { return serveGit(ctx, o) }),
	}
	f := c.Flags()
	f.StringVar(&o.Root, "root", "", "directory with the bare repositories")
	f.StringVar(&o.Addr, "addr", "127.0.0.1:0", "address to serve HTTP on")
	f.StringVar(&o.Username, "username", "", "require basic authentication with this user name")
	f.StringVar(&o.Password, "password", "", "require basic authentication with this password")
	f.StringVar(&o.Token, "token", "", "require this bearer token")
	f.StringVar(&o.TLSCert, "tls-cert", "", "serve HTTPS with this certificate")
	f.StringVar(&o.TLSKey, "tls-key", "", "key of the certificate")
	f.StringVar(&o.TLSDir, "tls-dir", "", "serve HTTPS with a certificate that is made, and write it and its ca.crt "+
		"to this directory")
	f.StringVar(&o.SSHAddr, "ssh-addr", "", "address to serve SSH on as well")
	f.StringVar(&o.SSHHostKey, "ssh-host-key", "", "file of the host's private key, made when missing")
	f.StringVar(&o.SSHAuthorizedKeys, "ssh-authorized-keys", "", "file of the public keys that may log in")
	f.StringVar(&o.Webhook, "webhook", "", "URL of a webhook that is called after pushes over HTTP")
	f.StringVar(&o.WebhookSecret, "webhook-secret", "", "key with which webhooks are signed")
	c.MarkFlagsRequiredTogether("tls-cert", "tls-key")
	c.MarkFlagsMutuallyExclusive("tls-cert", "tls-dir")
	c.MarkFlagsRequiredTogether("ssh-addr", "ssh-host-key", "ssh-authorized-keys")
	require(c, "root")
	return c
}

func serveGit(ctx context.Context, o git.Options) error {
	server, err := git.Start(o)
	if err != nil {
		return err
	}
	return serve(ctx, server, server.URL, server.SSHURL)
}
