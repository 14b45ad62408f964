package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/source/ignore"
	"github.com/sluice-gitops/sluice/internal/source/oci"
)

// registryAccess is how a command logs in to a registry.
type registryAccess struct {
	*env
	creds, provider string
	insecure        bool
	ca              []byte // PEM certificates, in addition to those of the system
}

func (r *registryAccess) bind(f *pflag.FlagSet) {
	f.StringVar(&r.creds, "creds", "",
		"USER:PASSWORD or a token; - reads it from standard input (default: from docker login)")
	f.StringVar(&r.provider, "provider", sourcev1.ProviderGeneric,
		"identity to log in with: generic, aws, azure or gcp")
	f.BoolVar(&r.insecure, "insecure-registry", false, "use HTTP instead of HTTPS")
}

// open returns the repository in a URL, and the tag or digest of the URL.
func (r *registryAccess) open(ctx context.Context, raw string) (*oci.Repository, oci.Reference, error) {
	url, ref := oci.Split(raw)
	repo, err := oci.ParseURL(url, r.insecure)
	if err != nil {
		return nil, ref, usageError{err}
	}
	if !slices.Contains(registryProviders, r.provider) {
		return nil, ref, usageError{fmt.Errorf("--provider '%s' is not one of %s", r.provider,
			strings.Join(registryProviders, ", "))}
	}
	var identity authn.Authenticator
	switch {
	case r.creds != "":
		creds, err := r.readSecret("creds", r.creds)
		if err != nil {
			return nil, ref, err
		}
		identity = basicOrToken(creds)
	case r.provider == sourcev1.ProviderGeneric:
		identity, err = authn.DefaultKeychain.Resolve(repo)
	default:
		identity, err = cloudIdentity(ctx, r.provider, url)
	}
	if err != nil {
		return nil, ref, err
	}
	login, err := identity.Authorization()
	if err != nil {
		return nil, ref, fmt.Errorf("cannot log in to %s: %w", repo.RegistryStr(), err)
	}
	transport, err := (&egress.Policy{}).Transport(egress.Options{TLS: auth.TLS{CA: r.ca}})
	if err != nil {
		return nil, ref, err
	}
	opened, err := oci.Open(url, oci.Access{Transport: transport, Login: *login, Insecure: r.insecure})
	return opened, ref, err
}

// registryProviders are the values of --provider.
var registryProviders = []string{sourcev1.ProviderGeneric, sourcev1.ProviderAWS, sourcev1.ProviderAzure,
	sourcev1.ProviderGCP}

func cloudIdentity(ctx context.Context, provider, url string) (authn.Authenticator, error) {
	return (&auth.Identities{}).Registry(ctx, provider, url, nil)
}

func basicOrToken(creds string) authn.Authenticator {
	user, password, ok := strings.Cut(creds, ":")
	if !ok {
		return &authn.Bearer{Token: creds}
	}
	return &authn.Basic{Username: user, Password: password}
}

// artifactFiles are the local files of an artifact.
type artifactFiles struct {
	path                    string
	ignorePaths, addIgnores []string
	resolveSymlinks         bool
}

func (a *artifactFiles) bind(f *pflag.FlagSet, pathShorthand string) {
	f.StringVarP(&a.path, "path", pathShorthand, ".", "directory or file; - reads manifests from standard input")
	f.StringSliceVar(&a.ignorePaths, "ignore-paths", nil,
		"paths to exclude, in .gitignore syntax, instead of the default exclusions")
	f.StringSliceVar(&a.addIgnores, "add-ignore-paths", nil,
		"paths to exclude, in .gitignore syntax, in addition to other exclusions")
}

func (a *artifactFiles) bindResolveSymlinks(f *pflag.FlagSet) {
	f.BoolVar(&a.resolveSymlinks, "resolve-symlinks", false, "replace symlinks by the files that they point to")
}

// stdinFile is the name of the file in an artifact for manifests from standard input.
const stdinFile = "manifests.yaml"

// tree reads the files. stdin is read if the path is -.
func (a *artifactFiles) tree(stdin io.Reader) (*artifact.Tree, error) {
	if a.path == "-" {
		b, err := io.ReadAll(stdin)
		if err != nil {
			return nil, err
		}
		return artifact.NewMemory(map[string]artifact.File{stdinFile: {Mode: 0o644, Data: b}})
	}
	if isArchive(a.path) {
		f, err := os.Open(a.path)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		return artifact.ReadArchive(context.Background(), f)
	}
	var patterns *string
	if len(a.ignorePaths) > 0 {
		joined := strings.Join(a.ignorePaths, "\n")
		patterns = &joined
	}
	rules, err := ignore.New(patterns)
	if err == nil {
		rules, err = rules.Also(strings.Join(a.addIgnores, "\n"))
	}
	if err != nil {
		return nil, err
	}
	return oci.ReadLocal(a.path, rules, a.resolveSymlinks)
}

// archive returns the files as a .tar.gz. An existing archive is returned unchanged.
func (a *artifactFiles) archive(ctx context.Context, stdin io.Reader) ([]byte, error) {
	if isArchive(a.path) {
		return os.ReadFile(a.path)
	}
	tree, err := a.tree(stdin)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", a.path, err)
	}
	if len(tree.Root().Entries) == 0 {
		return nil, fmt.Errorf("%s contains no files, or all are excluded. See --ignore-paths", a.path)
	}
	var b bytes.Buffer
	err = artifact.WriteArchive(ctx, &b, tree)
	return b.Bytes(), err
}

// isArchive reports whether a path is an existing .tar.gz file.
func isArchive(path string) bool {
	if !strings.HasSuffix(path, ".tgz") && !strings.HasSuffix(path, ".tar.gz") {
		return false
	}
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// newArtifactCommand completes a command that takes the URL of an artifact.
func newArtifactCommand(e *env, c *cobra.Command, run func(ctx context.Context, url string) error) *cobra.Command {
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usagef("expected one artifact, such as oci://registry.example.com/org/app:v1")
		}
		return nil
	}
	c.RunE = e.bounded(func(ctx context.Context, args []string) error { return run(ctx, args[0]) })
	return c
}

// markRequired marks flags of a command as required.
func markRequired(c *cobra.Command, flags ...string) {
	for _, flag := range flags {
		if err := c.MarkFlagRequired(flag); err != nil {
			panic(err) // the flag does not exist
		}
	}
}

// buildArtifact is `sluice build artifact`.
type buildArtifact struct {
	*env
	files  artifactFiles
	output string
}

func newBuildArtifactCommand(e *env) *cobra.Command {
	b := &buildArtifact{env: e}
	c := &cobra.Command{
		Use:   "artifact",
		Short: "Pack local files into a reproducible .tar.gz",
		Example: `  sluice build artifact --path ./deploy --output app.tgz
  kustomize build . | sluice build artifact --path - --output app.tgz`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return b.run(cmd.Context()) },
	}
	b.files.bind(c.Flags(), "p")
	b.files.bindResolveSymlinks(c.Flags())
	c.Flags().StringVarP(&b.output, "output", "o", "artifact.tgz", "file to write")
	return c
}

func (b *buildArtifact) run(ctx context.Context) error {
	content, err := b.files.archive(ctx, b.In)
	if err != nil {
		return err
	}
	if err := os.WriteFile(b.output, content, 0o644); err != nil {
		return err
	}
	b.Done("wrote %s (%d bytes)", b.output, len(content))
	return nil
}
