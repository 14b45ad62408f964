// Command release builds all files of a release into a directory: archives of the binaries, the container image,
// manifests, a Homebrew formula, checksums and their signature. The same commit, version and Go give the same files,
// except for signatures.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/sluice-gitops/sluice/hack/internal/compile"
	"github.com/sluice-gitops/sluice/hack/internal/image"
	"github.com/sluice-gitops/sluice/hack/internal/sign"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

type options struct {
	version, output, source, repository, download, platforms string
	push, insecure, allowDirty                               bool
	sign                                                     sign.Options
}

func run(ctx context.Context, args []string) error {
	var o options
	f := flag.NewFlagSet("release", flag.ContinueOnError)
	f.StringVar(&o.version, "version", "", "version of the release, such as v1.2.3")
	f.StringVar(&o.output, "output", "bin/release", "directory of the release; it is replaced")
	f.StringVar(&o.source, "source", ".", "checkout to build")
	f.StringVar(&o.repository, "repository", "ghcr.io/sluice-gitops/sluice", "repository of the container image")
	f.StringVar(&o.download, "download-url", "https://github.com/sluice-gitops/sluice/releases/download",
		"URL of the directory of all releases")
	f.StringVar(&o.platforms, "platforms",
		"linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64",
		"platforms of the binaries, separated by commas")
	f.BoolVar(&o.push, "push", false, "push the container image to --repository")
	f.BoolVar(&o.insecure, "insecure-registry", false, "push over HTTP instead of HTTPS")
	f.BoolVar(&o.allowDirty, "allow-dirty", false, "build although files differ from the commit")
	f.StringVar(&o.sign.KeyFile, "key", "", "file with the private key to sign with (default: COSIGN_PRIVATE_KEY)")
	f.StringVar(&o.sign.FulcioURL, "fulcio-url", "https://fulcio.sigstore.dev", "authority for keyless signatures")
	f.StringVar(&o.sign.RekorURL, "rekor-url", "https://rekor.sigstore.dev", "log for keyless signatures")
	if err := f.Parse(args); err != nil {
		return err
	}
	r, err := o.prepare(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(r.work) }()
	return r.build(ctx)
}

// release is a release that is built.
type release struct {
	options
	checkout compile.Source
	signer   *sign.Signer // nil if nothing is signed
	work     string       // directory for binaries
	images   name.Repository
	archives map[string]string // names of archives by platform
}

// prepare checks all that can be checked before the first file is built.
func (o options) prepare(ctx context.Context) (*release, error) {
	if o.version == "" || o.version == compile.DevVersion {
		return nil, errors.New("the version is missing: use make release VERSION=v1.2.3")
	}
	r := &release{options: o, archives: map[string]string{}}
	var err error
	if r.checkout, err = compile.Describe(ctx, o.source, o.version); err != nil {
		return nil, err
	}
	if r.checkout.Dirty() && !o.allowDirty {
		return nil, errors.New("files differ from the commit. Commit or stash them, because a release must be " +
			"reproducible from its commit")
	}
	var naming []name.Option
	if o.insecure {
		naming = append(naming, name.Insecure)
	}
	if r.images, err = name.NewRepository(o.repository, naming...); err != nil {
		return nil, fmt.Errorf("--repository: %w", err)
	}
	if r.signer, err = sign.New(ctx, o.sign); err != nil {
		return nil, err
	}
	if r.signer == nil {
		fmt.Fprintln(os.Stderr, "Warning: nothing is signed. Set --key, COSIGN_PRIVATE_KEY or SIGSTORE_ID_TOKEN")
	}
	if err := errors.Join(os.RemoveAll(o.output), os.MkdirAll(o.output, 0o755)); err != nil {
		return nil, err
	}
	r.work, err = os.MkdirTemp("", "sluice-release-")
	return r, err
}

func (r *release) build(ctx context.Context) error {
	binaries, err := r.compile(ctx)
	if err != nil {
		return err
	}
	built, err := image.New(ctx, r.checkout, linux(binaries))
	if err != nil {
		return err
	}
	if r.signer != nil {
		if err := built.Sign(ctx, r.signer); err != nil {
			return err
		}
	}
	// outside of the directory of files to upload
	if err := built.Write(strings.TrimRight(r.output, "/") + "-image"); err != nil {
		return err
	}
	reference := fmt.Sprintf("%s:%s@%s", r.images, r.version, built.Digest)
	if err := r.manifests(ctx, binaries, reference); err != nil {
		return err
	}
	if err := r.checksums(ctx); err != nil {
		return err
	}
	if r.push {
		if err := built.Push(ctx, r.images, remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
			return err
		}
	}
	fmt.Println(reference)
	return nil
}

// compile builds the binaries of all platforms and their archives.
func (r *release) compile(ctx context.Context) ([]image.Binary, error) {
	license, err := os.ReadFile(filepath.Join(r.checkout.Dir, "LICENSE"))
	if err != nil {
		return nil, err
	}
	var binaries []image.Binary
	for _, platform := range strings.Split(r.platforms, ",") {
		target, err := compile.ParseTarget(platform)
		if err != nil {
			return nil, err
		}
		b := image.Binary{Target: target, File: filepath.Join(r.work, target.OS+"_"+target.Arch)}
		fmt.Fprintf(os.Stderr, "building %s for %s\n", r.version, target)
		if err := r.checkout.Binary(ctx, target, b.File); err != nil {
			return nil, err
		}
		if r.archives[platform], err = r.archive(b, license); err != nil {
			return nil, err
		}
		binaries = append(binaries, b)
	}
	return binaries, nil
}

func linux(binaries []image.Binary) []image.Binary {
	var found []image.Binary
	for _, b := range binaries {
		if b.Target.OS == "linux" {
			found = append(found, b)
		}
	}
	return found
}
