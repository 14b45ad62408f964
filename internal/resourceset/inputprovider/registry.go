package inputprovider

import (
	"context"
	"errors"
	"net/http"
	"regexp"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/image/registry"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/source/access"
	"github.com/sluice-gitops/sluice/internal/source/oci"
)

// maxParallelReads is how many digests of a provider are read at the same time.
const maxParallelReads = 4

var notName = regexp.MustCompile(`[^A-Za-z]`)

// clouds are the providers of logins by type.
var clouds = map[string]string{controlplanev1.InputACRArtifactTag: auth.Azure,
	controlplanev1.InputECRArtifactTag: auth.AWS, controlplanev1.InputGARArtifactTag: auth.GCP}

// images exports the tags of an image repository.
func (p *provider) images(ctx context.Context) ([]controlplanev1.InputSet, error) {
	repo, err := p.imageRepository(ctx)
	if err != nil {
		return nil, err
	}
	scan, err := repo.Scan(ctx, nil, nil)
	if err != nil {
		return nil, err
	}
	var tags []string
	for _, page := range scan.Pages {
		for _, t := range page.Tags {
			tags = append(tags, t.Name)
		}
	}
	tags = p.filter.order(tags)
	return readDigests(ctx, repo, tags[:min(len(tags), p.obj.Limit())])
}

func (p *provider) imageRepository(ctx context.Context) (*registry.Repository, error) {
	spec := p.obj.Spec
	name, err := oci.ParseURL(spec.URL, spec.Insecure)
	if err != nil {
		return nil, err
	}
	reach, _, err := p.Registries.Access(ctx, access.Registry{Namespace: p.obj.Namespace, URL: spec.URL,
		Insecure: spec.Insecure, Provider: clouds[spec.Type], Secret: spec.SecretRef, Cert: spec.CertSecretRef,
		ServiceAccount: spec.ServiceAccountName})
	if err != nil {
		return nil, err
	}
	return registry.Open(name, reach)
}

// readDigests returns the input sets of tags. Tags that were deleted since they were listed are left out.
func readDigests(ctx context.Context, repo *registry.Repository, tags []string) ([]controlplanev1.InputSet, error) {
	sets := make([]controlplanev1.InputSet, len(tags))
	group, ctx := guard.GroupWithContext(ctx, "reading the digests of tags")
	group.SetLimit(maxParallelReads)
	for i, tag := range tags {
		group.Go(func() error {
			digest, err := repo.Digest(ctx, tag)
			var response *transport.Error
			if errors.As(err, &response) && response.StatusCode == http.StatusNotFound {
				return nil
			}
			if err != nil {
				return err
			}
			sets[i] = inputs{idKey: checksum(tag), "tag": tag, "digest": digest.String()}.set()
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var found []controlplanev1.InputSet
	for _, s := range sets {
		if s != nil {
			found = append(found, s)
		}
	}
	return found, nil
}
