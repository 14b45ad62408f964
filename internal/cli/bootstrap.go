package cli

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/internal/cli/bootstrap"
	"github.com/sluice-gitops/sluice/internal/cli/install"
	"github.com/sluice-gitops/sluice/internal/network/sshkey"
	"github.com/sluice-gitops/sluice/internal/offline/manifest"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/source/git"
)

// bootstrapCommand holds the flags of all bootstrap commands.
type bootstrapCommand struct {
	*env
	install               installFlags
	branch, path          string
	interval              time.Duration
	author                git.Signature
	appendix              string
	signing               signingFlags
	caFile, secretName    string
	keyFile, knownHosts   string
	key                   sshkey.Spec
	sshHostname           string
	tokenAuth, submodules bool
	rotateKey, force      bool
}

func newBootstrapCommand(e *env) *cobra.Command {
	o := &bootstrapCommand{env: e}
	c := newGroup("bootstrap", "Make a cluster manage itself from a git repository or OCI artifact",
		`  export GITHUB_TOKEN=<token>
  sluice bootstrap github --owner=my-org --repository=fleet \
    --path=clusters/production
  sluice bootstrap git --url=ssh://git@example.com/fleet \
    --private-key-file=./id_ed25519 --path=clusters/production`)
	c.Long = `Commit the manifests of Sluice to a git repository, install them, and make the
cluster apply the repository to itself. From then on, a commit changes the
cluster, and Sluice as well.

A run continues after a failure, and changes only what differs: run the same
command again at any time.`
	o.bind(c.PersistentFlags())
	c.AddCommand(newBootstrapGitCommand(o), newBootstrapOCICommand(o))
	for i := range hostCommands {
		c.AddCommand(newBootstrapHostCommand(o, &hostCommands[i]))
	}
	return c
}

func (o *bootstrapCommand) bind(f *pflag.FlagSet) {
	f.StringVar(&o.branch, "branch", "main", "branch to commit to; created if it does not exist")
	f.StringVar(&o.author.Name, "author-name", "Sluice", "name of the author of the commits")
	f.StringVar(&o.author.Email, "author-email", "", "e-mail address of the author of the commits")
	f.StringVar(&o.appendix, "commit-message-appendix", "", "text at the end of commit messages, such as [ci skip]")
	o.signing.bind(f)
	f.StringVar(&o.caFile, "ca-file", "", "PEM file with the CA certificate of the git host or registry")
	f.StringVar(&o.secretName, "secret-name", "", "Secret for the cluster's login (default: the namespace)")
	f.StringVar(&o.keyFile, "private-key-file", "", "file with the private key for ssh (default: create a key)")
	f.StringVar(&o.knownHosts, "known-hosts-file", "", "known_hosts file for ssh (default: ask the host for its keys)")
	f.StringVar(&o.key.Algorithm, "ssh-key-algorithm", "ecdsa", "algorithm of the created key: "+
		strings.Join(sshkey.Algorithms, ", "))
	f.StringVar(&o.key.Curve, "ssh-ecdsa-curve", "p384", "curve of the created ecdsa key: "+
		strings.Join(sshkey.Curves, ", "))
	f.IntVar(&o.key.Bits, "ssh-rsa-bits", 3072, "size of the created rsa key in bits")
	f.StringVar(&o.sshHostname, "ssh-hostname", "",
		"host of the SSH server, with an optional port, if it is another one")
	f.BoolVar(&o.tokenAuth, "token-auth", false, "the cluster uses the token over https instead of a deploy key")
	f.BoolVar(&o.rotateKey, "rotate-key", false, "replace the deploy key or deploy token that was created")
	f.BoolVar(&o.submodules, "recurse-submodules", false, "include submodules of the repository")
	f.BoolVar(&o.force, "force", false,
		"replace Flux, and continue if the cluster manages itself from another path")
	o.install.bind(f)
}

// bindSync adds the flags that each subcommand has.
func (o *bootstrapCommand) bindSync(f *pflag.FlagSet) {
	f.StringVar(&o.path, "path", "", "directory of the cluster in the repository (default: the root)")
	f.DurationVar(&o.interval, "interval", time.Minute, "interval between fetches of the repository")
}

// run bootstraps the cluster with the repository and the login of a subcommand.
func (o *bootstrapCommand) run(ctx context.Context, repository bootstrap.Repository, login bootstrap.Login) error {
	all, err := o.options(repository, login)
	if err != nil {
		return err
	}
	return bootstrap.Run(ctx, all)
}

// options returns what to bootstrap with the repository and the login of a subcommand.
func (o *bootstrapCommand) options(repository bootstrap.Repository, login bootstrap.Login) (bootstrap.Options, error) {
	components, err := o.manifests()
	if err != nil {
		return bootstrap.Options{}, err
	}
	withRemoteBases := func() ([]byte, error) {
		o.install.Args = append(slices.Clone(o.install.Args), "--no-remote-bases=false")
		return o.manifests()
	}
	sign, err := o.signing.signer(o.env)
	if err != nil {
		return bootstrap.Options{}, err
	}
	cl, err := o.Client()
	if err != nil {
		return bootstrap.Options{}, err
	}
	login.Key = o.key
	return bootstrap.Options{
		Namespace: o.Namespace(), Path: o.path, Branch: o.branch, Interval: o.interval,
		RecurseSubmodules: o.submodules, SecretName: cmp.Or(o.secretName, o.Namespace()), RotateKey: o.rotateKey,
		Force: o.force, Components: components, WithRemoteBases: withRemoteBases,
		Commit:     bootstrap.CommitOptions{Author: o.author, Appendix: o.appendix, Sign: sign},
		Repository: repository, Login: login, Client: cl, Timeout: o.Timeout, Output: o.UI,
		Install: o.installObjects, AlwaysInstall: o.install.RegistryLogin != "",
	}, nil
}

// manifests returns the manifests of the controllers, without the login of the registry.
func (o *bootstrapCommand) manifests() ([]byte, error) {
	if err := o.install.complete(o.env); err != nil {
		return nil, err
	}
	for _, required := range []string{options.SourceController, options.KustomizeController} {
		if !o.install.Runs(required) {
			return nil, usagef("--components lacks %s, without which the cluster cannot manage itself", required)
		}
	}
	public := o.install.Options
	public.RegistryLogin = ""
	objects, err := install.Manifests(public)
	if err != nil {
		return nil, err
	}
	b := bytes.NewBufferString("# This manifest was generated by sluice bootstrap. Do not edit: the next run " +
		"overwrites it.\n# Version: " + Version + "\n# Components: " + strings.Join(public.Components, ",") + "\n")
	err = manifest.Encode(b, objects...)
	return b.Bytes(), err
}

// installObjects installs the controllers and waits until they run.
func (o *bootstrapCommand) installObjects(ctx context.Context, objects []*unstructured.Unstructured) error {
	cfg, err := o.Config()
	if err != nil {
		return err
	}
	return install.Run(ctx, cfg, o.install.Options, install.Request{Progress: o.UI, Wait: true, Force: o.force,
		Timeout: o.Timeout, Objects: objects})
}

// ca returns the content of --ca-file.
func (o *bootstrapCommand) ca() ([]byte, error) {
	if o.caFile == "" {
		return nil, nil
	}
	content, err := readFile("ca-file", o.caFile)
	return []byte(content), err
}

// sshLogin returns the login of a cluster over SSH. passphrase is that of --private-key-file. A key that is not
// encrypted ignores it, since $GIT_PASSWORD may be that of another repository.
func (o *bootstrapCommand) sshLogin(passphrase string) (bootstrap.Login, error) {
	login := bootstrap.Login{Kind: bootstrap.DeployKey, Data: map[string][]byte{}}
	if err := o.key.Check(); err != nil {
		return login, usagef("invalid --ssh-key-algorithm: %w", err)
	}
	if o.knownHosts != "" {
		content, err := readFile("known-hosts-file", o.knownHosts)
		if err != nil {
			return login, err
		}
		login.KnownHosts = []byte(content)
	}
	if o.keyFile == "" {
		return login, nil
	}
	private, err := readFile("private-key-file", o.keyFile)
	if err != nil {
		return login, err
	}
	if _, err := sshkey.Parse([]byte(private), ""); err == nil {
		passphrase = ""
	} else if _, err := sshkey.Parse([]byte(private), passphrase); err != nil {
		return login, usagef("--private-key-file: %w", err)
	}
	login.Data["identity"] = []byte(private)
	if passphrase != "" {
		login.Data["password"] = []byte(passphrase)
	}
	return login, nil
}

// secretValue returns the value of a flag, or else of an environment variable, or else the answer of a person. The
// value "-" asks a person too.
func (o *bootstrapCommand) secretValue(flag, value, variable, prompt string) (string, error) {
	if value != "" && value != "-" {
		return value, nil
	}
	if fromEnv := strings.TrimSpace(o.getenv(variable)); value == "" && fromEnv != "" {
		return fromEnv, nil
	}
	line, err := o.ReadSecret(prompt)
	if err != nil {
		return "", usagef("no %s: set $%s, or write it to standard input (%w)", flag, variable, err)
	}
	return line, nil
}
