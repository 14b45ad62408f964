package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/cli/bootstrap"
	"github.com/sluice-gitops/sluice/internal/credentials/verify/cosign"
	"github.com/sluice-gitops/sluice/internal/source/oci"
)

// cosignPasswordEnv is the variable with the password of a key, as cosign reads it.
const cosignPasswordEnv = "COSIGN_PASSWORD"

// bootstrapOCI is `sluice bootstrap oci`.
type bootstrapOCI struct {
	*bootstrapCommand
	registry              registryAccess
	url, tag, dir, keyPEM string
}

func newBootstrapOCICommand(o *bootstrapCommand) *cobra.Command {
	b := &bootstrapOCI{bootstrapCommand: o, registry: registryAccess{env: o.env}}
	c := &cobra.Command{
		Use:   "oci",
		Short: "Bootstrap from an OCI artifact in a registry",
		Long: `Bootstrap from an OCI artifact: push the manifests of Sluice as a part of it,
and make the cluster apply it to itself.

The other files of the artifact are kept. With --dir, the files of a directory
are pushed, and the manifests are written to it too: commit them, as each later
push must have them.

The cluster uses --creds, or the identity of its nodes with --provider. With
--cosign-key, the artifact is signed, and the cluster applies no revision
without a signature of this key.`,
		Example: `  sluice bootstrap oci --url=oci://registry.example.com/org/fleet \
    --tag=production --creds=me:$TOKEN --path=clusters/production
  export COSIGN_PASSWORD=<password>
  sluice bootstrap oci --url=oci://registry.example.com/org/fleet \
    --dir=. --path=clusters/production --cosign-key=cosign.key`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return b.run(cmd.Context(), cmd.Flags()) },
	}
	f := c.Flags()
	f.StringVar(&b.url, "url", "", "URL of the artifact, as oci://HOST/PATH")
	f.StringVar(&b.tag, "tag", "latest", "tag of the artifact")
	f.StringVar(&b.dir, "dir", "", "directory whose files are pushed (default: keep the files of the artifact)")
	f.StringVar(&b.keyPEM, "cosign-key", "", "file with the private key of cosign to sign with; its password is "+
		"$"+cosignPasswordEnv)
	b.registry.bind(f)
	o.bindSync(f)
	return c
}

// gitFlags are the prefixes of flags of `sluice bootstrap` that are about git.
var gitFlags = []string{"branch", "author-", "commit-", "gpg-", "ssh-", "private-key-file", "known-hosts-file",
	"token-auth", "rotate-key", "recurse-submodules"}

func (b *bootstrapOCI) run(ctx context.Context, flags *pflag.FlagSet) error {
	var wrong error
	flags.Visit(func(f *pflag.Flag) {
		if slices.ContainsFunc(gitFlags, func(prefix string) bool { return strings.HasPrefix(f.Name, prefix) }) {
			wrong = usagef("--%s is for git: remove it", f.Name)
		}
	})
	if wrong != nil {
		return wrong
	}
	artifact, err := b.artifact(ctx)
	if err != nil {
		return err
	}
	all, err := b.options(bootstrap.Repository{}, bootstrap.Login{})
	if err != nil {
		return err
	}
	all.Artifact = artifact
	return bootstrap.Run(ctx, all)
}

// artifact returns the artifact to push to, with the logins of the command and of the cluster.
func (b *bootstrapOCI) artifact(ctx context.Context) (*bootstrap.Artifact, error) {
	if err := require("url", b.url); err != nil {
		return nil, err
	}
	if url, ref := oci.Split(b.url); url != b.url || ref != (oci.Reference{}) || !strings.HasPrefix(url, oci.Scheme) {
		return nil, usagef("invalid --url %q: use oci://HOST/PATH, and --tag", b.url)
	}
	ca, err := b.ca()
	if err != nil {
		return nil, err
	}
	a := &bootstrap.Artifact{URL: b.url, Tag: b.tag, Dir: b.dir, Insecure: b.registry.insecure,
		Provider: b.registry.provider, CA: ca}
	b.registry.ca = ca
	if err := b.addLogin(a); err != nil {
		return nil, err
	}
	if a.Repository, _, err = b.registry.open(ctx, b.url); err != nil {
		return nil, err
	}
	if b.keyPEM == "" {
		return a, nil
	}
	key, err := readFile("cosign-key", b.keyPEM)
	if err != nil {
		return nil, err
	}
	if a.Signer, err = cosign.NewSigner([]byte(key), []byte(b.getenv(cosignPasswordEnv))); err != nil {
		return nil, usagef("--cosign-key: %w. Set $%s to its password", err, cosignPasswordEnv)
	}
	return a, nil
}

// addLogin makes the pull secret of the cluster of --creds.
func (b *bootstrapOCI) addLogin(a *bootstrap.Artifact) error {
	if b.registry.creds == "" {
		return nil
	}
	if b.registry.provider != sourcev1.ProviderGeneric {
		return usagef("--creds and --provider exclude each other")
	}
	creds, err := b.readSecret("creds", b.registry.creds)
	if err != nil {
		return err
	}
	b.registry.creds = creds // standard input is read once
	username, password, ok := strings.Cut(creds, ":")
	if !ok {
		return usagef("--creds must be USER:PASSWORD, as the cluster logs in with it too")
	}
	data, err := (&basicLogin{username: username, password: password}).registry(b.env, b.url)
	if err != nil {
		return err
	}
	a.Login = map[string][]byte{}
	for name, value := range data {
		a.Login[name] = []byte(value)
	}
	return nil
}
