package cli

import (
	"context"
	"maps"
	"time"

	"github.com/google/go-containerregistry/pkg/logs"
	"github.com/spf13/cobra"

	"github.com/sluice-gitops/sluice/internal/source/oci"
)

// pushArtifact is `sluice push artifact`.
type pushArtifact struct {
	registryAccess
	files            artifactFiles
	source, revision string
	annotations      map[string]string
	reproducible     bool
	output           string
	debug            bool
}

func newPushCommand(e *env) *cobra.Command {
	c := newGroup("push", "Push an artifact to a registry",
		`  sluice push artifact oci://registry.example.com/org/app:v1 --path ./deploy \
    --source URL --revision v1@sha1:COMMIT`)
	p := &pushArtifact{registryAccess: registryAccess{env: e}}
	sub := newArtifactCommand(e, &cobra.Command{
		Use:   "artifact URL",
		Short: "Push local files to a registry as an OCI artifact",
		Example: `  sluice push artifact oci://ghcr.io/org/app:$(git rev-parse --short HEAD) \
    --path ./deploy --source "$(git config --get remote.origin.url)" \
    --revision "$(git branch --show-current)@sha1:$(git rev-parse HEAD)"
  kustomize build . | sluice push artifact oci://ghcr.io/org/app:v1 -f - \
    --source URL --revision v1
  sluice push artifact oci://localhost:5000/app:v1 --path app.tgz \
    --insecure-registry --source local --revision v1 -o json`,
	}, p.run)
	f := sub.Flags()
	p.bind(f)
	p.files.bind(f, "f")
	p.files.bindResolveSymlinks(f)
	f.StringVar(&p.source, "source", "", "origin of the files, such as the URL of the git repository")
	f.StringVar(&p.revision, "revision", "", "revision of the files, such as main@sha1:COMMIT")
	f.StringToStringVarP(&p.annotations, "annotations", "a", nil, "additional annotations, such as key=value")
	f.BoolVar(&p.reproducible, "reproducible", false,
		"do not record the time, so that the same files have the same digest")
	addOutput(sub, f, &p.output, machineFormats...)
	f.BoolVar(&p.debug, "debug", false, "print every request to the registry")
	markRequired(sub, "source", "revision")
	c.AddCommand(sub)
	return c
}

func (p *pushArtifact) run(ctx context.Context, url string) error {
	if err := optionalOneOf("output", p.output, machineFormats...); err != nil {
		return err
	}
	if p.debug {
		logs.Debug.SetOutput(p.Err) // the library redacts credentials
	}
	repo, ref, err := p.open(ctx, url)
	if err != nil {
		return err
	}
	if ref.Tag == "" || ref.Digest != "" {
		return usagef("%s must end in :TAG", url)
	}
	layer, err := p.files.archive(ctx, p.In)
	if err != nil {
		return err
	}
	p.Step("pushing %d bytes to %s", len(layer), url)
	digest, err := repo.Push(ctx, ref.Tag, layer, p.allAnnotations())
	if err != nil {
		return err
	}
	pushed := repo.At(digest)
	p.Done("pushed %s", pushed.Name())
	if p.output == "" {
		return nil
	}
	return p.printAs(p.output, map[string]string{
		"url": oci.Scheme + pushed.Name(), "repository": pushed.Repository.Name(), "tag": ref.Tag,
		"digest": digest.String(),
	})
}

func (p *pushArtifact) allAnnotations() map[string]string {
	created := time.Now()
	if p.reproducible {
		created = time.Unix(0, 0)
	}
	annotations := map[string]string{
		oci.CreatedAnnotation: created.UTC().Format(time.RFC3339), oci.SourceAnnotation: p.source,
		oci.RevisionAnnotation: p.revision,
	}
	maps.Copy(annotations, p.annotations)
	return annotations
}

// tagArtifact is `sluice tag artifact`.
type tagArtifact struct {
	registryAccess
	tags []string
}

func newTagCommand(e *env) *cobra.Command {
	c := newGroup("tag", "Tag an artifact in a registry",
		"  sluice tag artifact oci://registry.example.com/org/app:v1.2.3 --tag stable")
	t := &tagArtifact{registryAccess: registryAccess{env: e}}
	sub := newArtifactCommand(e, &cobra.Command{
		Use:   "artifact URL --tag TAG",
		Short: "Add tags to an artifact in a registry",
		Example: `  sluice tag artifact oci://ghcr.io/org/app:v1.2.3 --tag latest --tag stable
  sluice tag artifact oci://ghcr.io/org/app@sha256:DIGEST --tag production`,
	}, t.run)
	t.bind(sub.Flags())
	sub.Flags().StringSliceVar(&t.tags, "tag", nil, "tags to add")
	markRequired(sub, "tag")
	c.AddCommand(sub)
	return c
}

func (t *tagArtifact) run(ctx context.Context, url string) error {
	repo, ref, err := t.open(ctx, url)
	if err != nil {
		return err
	}
	for _, tag := range t.tags {
		if err := repo.Tag(ctx, ref, tag); err != nil {
			return err
		}
		t.Done("tagged %s as %s", url, tag)
	}
	return nil
}
