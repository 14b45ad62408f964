// Command image builds the container image of Sluice for linux/amd64 and linux/arm64 as an OCI layout, without a
// container engine, and pushes it if asked. The same commit, version and Go give the same digests.
package main

import (
	"context"
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
	version, output, platforms, push, source string
	insecure                                 bool
}

func run(ctx context.Context, args []string) error {
	var o options
	f := flag.NewFlagSet("image", flag.ContinueOnError)
	f.StringVar(&o.version, "version", compile.DevVersion, "version of the release, such as v1.2.3")
	f.StringVar(&o.output, "output", "bin/image", "directory of the OCI layout; it is replaced")
	f.StringVar(&o.platforms, "platforms", "linux/amd64,linux/arm64", "platforms, separated by commas")
	f.StringVar(&o.push, "push", "", "repository to push to, such as registry.example.com/sluice")
	f.BoolVar(&o.insecure, "insecure-registry", false, "push over HTTP instead of HTTPS")
	f.StringVar(&o.source, "source", ".", "checkout to build")
	if err := f.Parse(args); err != nil {
		return err
	}
	source, err := compile.Describe(ctx, o.source, o.version)
	if err != nil {
		return err
	}
	return o.build(ctx, source)
}

func (o *options) build(ctx context.Context, source compile.Source) error {
	dir, err := os.MkdirTemp("", "sluice-image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var binaries []image.Binary
	for _, platform := range strings.Split(o.platforms, ",") {
		target, err := compile.ParseTarget(platform)
		if err != nil {
			return err
		}
		b := image.Binary{Target: target, File: filepath.Join(dir, target.Arch)}
		fmt.Fprintf(os.Stderr, "building %s for %s\n", source.Version, target)
		if err := source.Binary(ctx, target, b.File); err != nil {
			return err
		}
		binaries = append(binaries, b)
	}
	built, err := image.New(ctx, source, binaries)
	if err != nil {
		return err
	}
	if err := built.Write(o.output); err != nil {
		return err
	}
	fmt.Printf("%s@%s\n", o.output, built.Digest)
	if o.push == "" {
		return nil
	}
	var naming []name.Option
	if o.insecure {
		naming = append(naming, name.Insecure)
	}
	repo, err := name.NewRepository(o.push, naming...)
	if err != nil {
		return fmt.Errorf("--push: %w", err)
	}
	if err := built.Push(ctx, repo, remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return err
	}
	fmt.Printf("%s:%s@%s\n", repo, source.Version, built.Digest)
	return nil
}
