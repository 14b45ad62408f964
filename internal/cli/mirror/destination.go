package mirror

import (
	"cmp"
	"context"
	"fmt"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/content/oci"
	"oras.land/oras-go/v2/registry/remote"
)

// Registry is a mirror in a registry.
type Registry struct {
	Prefix     string // HOST/PATH, or only a host
	Registries *Registries
	open       map[string]*remote.Repository
}

// repository returns the repository of the mirror for a repository.
func (r *Registry) repository(repository string) (*remote.Repository, error) {
	if known := r.open[repository]; known != nil {
		return known, nil
	}
	target, err := Target(r.Prefix, repository)
	if err != nil {
		return nil, err
	}
	repo, err := r.Registries.repository(target)
	if err == nil {
		if r.open == nil {
			r.open = map[string]*remote.Repository{}
		}
		r.open[repository] = repo
	}
	return repo, err
}

func (r *Registry) storage(repository string) (content.Storage, error) {
	return r.repository(repository)
}

// name tags a manifest, and checks that the mirror returns the same digest for the tag.
func (r *Registry) name(ctx context.Context, d ocispec.Descriptor, repository, tag string) error {
	repo, err := r.repository(repository)
	if err != nil {
		return err
	}
	if tag != "" {
		if err := repo.Tag(ctx, d, tag); err != nil {
			return fmt.Errorf("cannot tag it as %s: %w", tag, err)
		}
	}
	found, err := repo.Resolve(ctx, cmp.Or(tag, d.Digest.String()))
	if err != nil {
		return fmt.Errorf("cannot verify the copy: %w", err)
	}
	if found.Digest != d.Digest {
		return fmt.Errorf("the mirror has %s, want %s: it changes what is pushed", found.Digest, d.Digest)
	}
	return nil
}

// directory is an OCI layout that becomes an archive.
type directory struct{ store *oci.Store }

func (d *directory) storage(string) (content.Storage, error) { return d.store, nil }

// name writes a name into the index of the layout: HOST/PATH:TAG or HOST/PATH@DIGEST.
func (d *directory) name(ctx context.Context, root ocispec.Descriptor, repository, tag string) error {
	name := repository + "@" + root.Digest.String()
	if tag != "" {
		name = repository + ":" + tag
	}
	return d.store.Tag(ctx, root, name)
}
