package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/egress"
	"github.com/sluice-gitops/sluice/internal/source/ignore"
	"github.com/sluice-gitops/sluice/internal/source/oci"
)

// ociLogin says how to get into a registry.
type ociLogin struct {
	creds, provider string
	insecure        bool
}

func (l *ociLogin) bind(f *pflag.FlagSet) {
	f.StringVar(&l.creds, "creds", "", "USER:PASSWORD, or a token alone; - reads it from standard input (default: "+
		"that of docker login)")
	f.StringVar(&l.provider, "provider", sourcev1.ProviderGeneric, "whose login is used: generic, aws, azure or gcp")
}

func (l *ociLogin) bindInsecure(f *pflag.FlagSet) {
	f.BoolVar(&l.insecure, "insecure-registry", false, "speak HTTP to a registry that has no HTTPS")
}

// open returns the repository that a URL names, and the tag or digest in it.
func (l *ociLogin) open(ctx context.Context, a *app, raw string) (*oci.Repository, oci.Reference, error) {
	url, ref := oci.Split(raw)
	repo, err := oci.ParseURL(url, l.insecure)
	if err != nil {
		return nil, ref, usageError{err}
	}
	var who authn.Authenticator
	switch {
	case l.creds != "":
		creds, err := a.private("creds", l.creds)
		if err != nil {
			return nil, ref, err
		}
		who = basicOrToken(creds)
	case l.provider == sourcev1.ProviderGeneric:
		who, err = authn.DefaultKeychain.Resolve(repo)
	default:
		who, err = (&auth.Identities{}).Registry(ctx, l.provider, url, nil)
	}
	if err != nil {
		return nil, ref, err
	}
	login, err := who.Authorization()
	if err != nil {
		return nil, ref, fmt.Errorf("cannot log in to %s: %w", repo.RegistryStr(), err)
	}
	transport, err := (&egress.Policy{}).Transport(egress.Options{})
	if err != nil {
		return nil, ref, err
	}
	opened, err := oci.Open(url, oci.Access{Transport: transport, Login: *login, Insecure: l.insecure})
	return opened, ref, err
}

func basicOrToken(creds string) authn.Authenticator {
	user, password, ok := strings.Cut(creds, ":")
	if !ok {
		return &authn.Bearer{Token: creds}
	}
	return &authn.Basic{Username: user, Password: password}
}

// content says which files make an artifact.
type content struct {
	path          string
	instead, also []string
	resolve       bool
}

func (c *content) bind(f *pflag.FlagSet, short string) {
	f.StringVarP(&c.path, "path", short, ".", "directory or file to take; - reads declarations from standard input")
	f.StringSliceVar(&c.instead, "ignore-paths", nil,
		"patterns in .gitignore syntax of what is left out, instead of the default ones")
	f.StringSliceVar(&c.also, "add-ignore-paths", nil, "patterns in .gitignore syntax of what is left out besides")
}

func (c *content) bindResolve(f *pflag.FlagSet) {
	f.BoolVar(&c.resolve, "resolve-symlinks", false, "take what symlinks lead to in their place")
}

// stdinName is how the declarations that were read from standard input are called in an artifact.
const stdinName = "manifests.yaml"

// tree reads the files.
func (c *content) tree(a *app) (*artifact.Tree, error) {
	if c.path == "-" {
		b, err := io.ReadAll(a.in)
		if err != nil {
			return nil, err
		}
		return artifact.NewMemory(map[string]artifact.File{stdinName: {Mode: 0o644, Data: b}})
	}
	if isArchive(c.path) {
		f, err := os.Open(c.path)
		if err != nil {
			return nil, err
		}
		defer f.Close() // only read
		return artifact.ReadArchive(f)
	}
	var spec *string
	if len(c.instead) > 0 {
		joined := strings.Join(c.instead, "\n")
		spec = &joined
	}
	return oci.ReadLocal(c.path, ignore.New(spec).With(strings.Join(c.also, "\n")), c.resolve)
}

// archive returns the files as a .tar.gz; one that is given is taken as it is.
func (c *content) archive(ctx context.Context, a *app) ([]byte, error) {
	if isArchive(c.path) {
		return os.ReadFile(c.path)
	}
	tree, err := c.tree(a)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", c.path, err)
	}
	if len(tree.Root().Entries) == 0 {
		return nil, fmt.Errorf("%s holds no files that are not left out. See --ignore-paths", c.path)
	}
	var b bytes.Buffer
	err = artifact.WriteArchive(ctx, &b, tree)
	return b.Bytes(), err
}

// isArchive tells that a path names an archive that was built before.
func isArchive(path string) bool {
	if !strings.HasSuffix(path, ".tgz") && !strings.HasSuffix(path, ".tar.gz") {
		return false
	}
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// bounded is a command that takes one URL of an artifact, and no longer than --timeout.
func (a *app) bounded(c *cobra.Command, run func(ctx context.Context, url string) error) *cobra.Command {
	c.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usagef("name one artifact, such as oci://registry.example.com/org/app:v1. See %s --help",
				cmd.CommandPath())
		}
		return nil
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
		defer cancel()
		return run(ctx, args[0])
	}
	return c
}

func (a *app) buildArtifact() *cobra.Command {
	var from content
	var output string
	c := &cobra.Command{
		Use:   "artifact",
		Short: "Pack declarations as a .tar.gz, the same for the same files",
		Example: `  sluice build artifact --path ./deploy --output app.tgz
  kustomize build . | sluice build artifact --path - --output app.tgz`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := from.archive(cmd.Context(), a)
			if err != nil {
				return err
			}
			if err := os.WriteFile(output, b, 0o644); err != nil {
				return err
			}
			a.done("wrote %s, %d bytes", output, len(b))
			return nil
		},
	}
	from.bind(c.Flags(), "p")
	from.bindResolve(c.Flags())
	c.Flags().StringVarP(&output, "output", "o", "artifact.tgz", "file to write")
	return c
}
