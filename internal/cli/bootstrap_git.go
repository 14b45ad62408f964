package cli

import (
	"context"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/sluice-gitops/sluice/internal/cli/bootstrap"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/sshkey"
)

// bootstrapGit is `sluice bootstrap git`.
type bootstrapGit struct {
	*bootstrapCommand
	url, username, password       string
	silent, insecure, bearerToken bool
}

const gitPasswordEnv = "GIT_PASSWORD"

func newBootstrapGitCommand(o *bootstrapCommand) *cobra.Command {
	g := &bootstrapGit{bootstrapCommand: o}
	c := &cobra.Command{
		Use:   "git",
		Short: "Bootstrap from a repository of any git server",
		Long: `Bootstrap from an existing repository of any git server.

Over ssh, the commits are pushed with --private-key-file, which the cluster uses
too, or with the keys of the SSH agent; then the command creates a key for the
cluster, and asks you to add it to the repository. Over https, the cluster uses
the same login as the command.`,
		Example: `  sluice bootstrap git --url=ssh://git@example.com/org/fleet \
    --private-key-file=./id_ed25519 --path=clusters/production
  export GIT_PASSWORD=<token>
  sluice bootstrap git --url=https://example.com/org/fleet.git \
    --username=me --path=clusters/production`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return g.run(cmd.Context()) },
	}
	f := c.Flags()
	f.StringVar(&g.url, "url", "", "URL of the repository: https or ssh")
	f.StringVarP(&g.username, "username", "u", "git", "username, for https")
	f.StringVarP(&g.password, "password", "p", "",
		"password, or for ssh the passphrase of the key (default: $GIT_PASSWORD); - reads it from standard input")
	f.BoolVar(&g.bearerToken, "with-bearer-token", false, "the password is a bearer token")
	f.BoolVar(&g.insecure, "allow-insecure-http", false,
		"accept a --url with http, which sends the password as plain text")
	f.BoolVarP(&g.silent, "silent", "s", false, "do not ask whether the repository has the created deploy key")
	o.bindSync(f)
	return c
}

func (g *bootstrapGit) run(ctx context.Context) error {
	if err := require("url", g.url); err != nil {
		return err
	}
	u, err := gitURL(g.url)
	switch {
	case err != nil:
		return err
	case g.sshHostname != "":
		return usagef("--ssh-hostname is for git hosts: put the host into --url")
	case u.Scheme == "http" && !g.insecure:
		return usagef("--url uses http, which sends the password as plain text: use https, or set " +
			"--allow-insecure-http")
	case u.Scheme == "ssh":
		return g.overSSH(ctx, u)
	case g.keyFile != "" || g.knownHosts != "":
		return usagef("--private-key-file and --known-hosts-file need a --url that begins with ssh://")
	}
	return g.overHTTP(ctx)
}

func (g *bootstrapGit) overHTTP(ctx context.Context) error {
	ca, err := g.ca()
	if err != nil {
		return err
	}
	password, err := g.secretValue("password", g.password, gitPasswordEnv, "Password or token of the repository")
	if err != nil {
		return err
	}
	data := map[string][]byte{"username": []byte(g.username), "password": []byte(password)}
	if g.bearerToken {
		data = map[string][]byte{"bearerToken": []byte(password)}
	}
	if len(ca) > 0 {
		data["ca.crt"] = ca
	}
	push, err := auth.Git(g.url, data)
	if err != nil {
		return err
	}
	return g.bootstrapCommand.run(ctx, bootstrap.Repository{URL: g.url, Push: []auth.GitCredentials{push}},
		bootstrap.Login{Kind: bootstrap.Password, Data: data})
}

func (g *bootstrapGit) overSSH(ctx context.Context, u *url.URL) error {
	if g.caFile != "" || g.bearerToken || g.tokenAuth {
		return usagef("ssh uses keys: remove --ca-file, --token-auth and --with-bearer-token, or use a --url with " +
			"https")
	}
	passphrase := ""
	if g.keyFile != "" && (g.password != "" || g.getenv(gitPasswordEnv) != "") {
		var err error
		if passphrase, err = g.secretValue("passphrase", g.password, gitPasswordEnv,
			"Passphrase of the key"); err != nil {
			return err
		}
	}
	login, err := g.sshLogin(passphrase)
	if err != nil {
		return err
	}
	login.Silent = g.silent
	var keys []*sshkey.Private
	if private := login.Data["identity"]; len(private) > 0 {
		key, err := sshkey.Parse(private, string(login.Data["password"]))
		if err != nil {
			return err
		}
		keys = append(keys, key)
	} else {
		socket := g.getenv("SSH_AUTH_SOCK")
		if socket == "" {
			return usagef("no SSH key to push with: set --private-key-file, or start an SSH agent")
		}
		agentKeys, closeAgent, err := sshkey.Agent(socket)
		if err != nil {
			return usagef("%w. Set --private-key-file, or add a key with ssh-add", err)
		}
		defer closeAgent() //nolint:errcheck // nothing is written
		keys = agentKeys
	}
	var push []auth.GitCredentials
	for _, key := range keys {
		push = append(push, auth.GitCredentials{Username: u.User.Username(), Identity: key})
	}
	return g.bootstrapCommand.run(ctx, bootstrap.Repository{URL: g.url, Push: push}, login)
}
