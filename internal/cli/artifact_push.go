package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/google/go-containerregistry/pkg/logs"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/source/oci"
)

// pushOptions say what is pushed and what is said of it.
type pushOptions struct {
	login            ociLogin
	from             content
	source, revision string
	annotations      map[string]string
	reproducible     bool
	output           string
	debug            bool
}

func (a *app) push() *cobra.Command {
	c := group("push", "Push an artifact", "  sluice push artifact oci://registry.example.com/org/app:v1 --path "+
		"./deploy --source URL --revision v1@sha1:COMMIT")
	var o pushOptions
	sub := a.bounded(&cobra.Command{
		Use:   "artifact URL",
		Short: "Push declarations to a registry as an OCI artifact",
		Example: `  sluice push artifact oci://ghcr.io/org/app:$(git rev-parse --short HEAD) --path ./deploy \
    --source "$(git config --get remote.origin.url)" --revision "$(git branch --show-current)@sha1:$(git rev-parse HEAD)"
  kustomize build . | sluice push artifact oci://ghcr.io/org/app:v1 -f - --source URL --revision v1
  sluice push artifact oci://localhost:5000/app:v1 --path app.tgz --insecure-registry --source local --revision v1 -o json`,
	}, func(ctx context.Context, url string) error { return a.pushArtifact(ctx, url, o) })
	f := sub.Flags()
	o.login.bind(f)
	o.login.bindInsecure(f)
	o.from.bind(f, "f")
	o.from.bindResolve(f)
	f.StringVar(&o.source, "source", "", "where the files come from, such as the URL of the git repository")
	f.StringVar(&o.revision, "revision", "", "which revision they are, such as main@sha1:COMMIT")
	f.StringToStringVarP(&o.annotations, "annotations", "a", nil, "further annotations, such as key=value")
	f.BoolVar(&o.reproducible, "reproducible", false, "leave the time out, so that the same files give the same digest")
	f.StringVarP(&o.output, "output", "o", "", "print what was pushed as json or yaml")
	f.BoolVar(&o.debug, "debug", false, "show every request to the registry")
	for _, required := range []string{"source", "revision"} {
		if err := sub.MarkFlagRequired(required); err != nil {
			panic(err) // the flag was made above
		}
	}
	c.AddCommand(sub)
	return c
}

func (a *app) pushArtifact(ctx context.Context, url string, o pushOptions) error {
	if o.output != "" && o.output != "json" && o.output != "yaml" {
		return usagef("unknown output %q: choose json or yaml", o.output)
	}
	if o.debug {
		logs.Debug.SetOutput(a.err) // without credentials: the library leaves them out
	}
	repo, ref, err := o.login.open(ctx, a, url)
	if err != nil {
		return err
	}
	if ref.Tag == "" || ref.Digest != "" {
		return usagef("%s must end in :TAG", url)
	}
	layer, err := o.from.archive(ctx, a)
	if err != nil {
		return err
	}
	created := time.Now()
	if o.reproducible {
		created = time.Unix(0, 0)
	}
	annotations := map[string]string{
		oci.CreatedAnnotation: created.UTC().Format(time.RFC3339), oci.SourceAnnotation: o.source,
		oci.RevisionAnnotation: o.revision,
	}
	maps.Copy(annotations, o.annotations)
	a.step("pushing %d bytes to %s", len(layer), url)
	digest, err := repo.Push(ctx, ref.Tag, layer, annotations)
	if err != nil {
		return err
	}
	pushed := repo.At(digest)
	a.done("pushed %s", pushed.Name())
	return a.printPushed(map[string]string{
		"url": oci.Scheme + pushed.Name(), "repository": pushed.Repository.Name(), "tag": ref.Tag,
		"digest": digest.String(),
	}, o.output)
}

func (a *app) printPushed(pushed map[string]string, output string) error {
	var b []byte
	var err error
	switch output {
	case "json":
		b, err = json.MarshalIndent(pushed, "", "  ")
		b = append(b, '\n')
	case "yaml":
		b, err = yaml.Marshal(pushed)
	}
	if err == nil {
		_, err = a.out.Write(b)
	}
	return err
}

func (a *app) tag() *cobra.Command {
	c := group("tag", "Tag an artifact", "  sluice tag artifact oci://registry.example.com/org/app:v1.2.3 --tag stable")
	var login ociLogin
	var tags []string
	sub := a.bounded(&cobra.Command{
		Use:   "artifact URL --tag TAG",
		Short: "Give an artifact in a registry further tags",
		Example: `  sluice tag artifact oci://ghcr.io/org/app:v1.2.3 --tag latest --tag stable
  sluice tag artifact oci://ghcr.io/org/app@sha256:DIGEST --tag production`,
	}, func(ctx context.Context, url string) error {
		repo, ref, err := login.open(ctx, a, url)
		if err != nil {
			return err
		}
		for _, tag := range tags {
			if err := repo.Tag(ctx, ref, tag); err != nil {
				return err
			}
			a.done("tagged %s as %s", url, tag)
		}
		return nil
	})
	login.bind(sub.Flags())
	login.bindInsecure(sub.Flags())
	sub.Flags().StringSliceVar(&tags, "tag", nil, "tags to give it")
	if err := sub.MarkFlagRequired("tag"); err != nil {
		panic(fmt.Errorf("the flag was made above: %w", err))
	}
	c.AddCommand(sub)
	return c
}
