package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/source/oci"
)

// pullArtifact is `sluice pull artifact`.
type pullArtifact struct {
	registryAccess
	output string
}

func newPullCommand(e *env) *cobra.Command {
	c := newGroup("pull", "Pull an artifact from a registry",
		"  sluice pull artifact oci://registry.example.com/org/app:v1 --output ./deploy")
	p := &pullArtifact{registryAccess: registryAccess{env: e}}
	sub := newArtifactCommand(e, &cobra.Command{
		Use:   "artifact URL --output DIR",
		Short: "Pull an OCI artifact and write its files into a directory",
		Example: `  sluice pull artifact oci://ghcr.io/org/app:v1 --output ./deploy
  sluice pull artifact oci://ghcr.io/org/app@sha256:DIGEST \
    --creds me:$TOKEN -o ./deploy`,
	}, p.run)
	p.bind(sub.Flags())
	sub.Flags().StringVarP(&p.output, "output", "o", "", "directory to write the files to")
	markRequired(sub, "output")
	c.AddCommand(sub)
	return c
}

func (p *pullArtifact) run(ctx context.Context, url string) error {
	tree, image, err := p.pull(ctx, url)
	if err != nil {
		return err
	}
	if err := oci.WriteLocal(p.output, tree); err != nil {
		return fmt.Errorf("cannot write to %s: %w", p.output, err)
	}
	for _, annotation := range []string{oci.SourceAnnotation, oci.RevisionAnnotation} {
		if v := image.Annotations[annotation]; v != "" {
			p.Step("%s: %s", annotation[strings.LastIndexByte(annotation, '.')+1:], v)
		}
	}
	p.Done("wrote %s to %s", url, p.output)
	return nil
}

// pull returns all files of an artifact.
func (r *registryAccess) pull(ctx context.Context, url string) (*artifact.Tree, *oci.Image, error) {
	repo, ref, err := r.open(ctx, url)
	if err != nil {
		return nil, nil, err
	}
	revision, err := repo.Resolve(ctx, ref)
	if err != nil {
		return nil, nil, err
	}
	image, err := repo.Pull(ctx, revision.Digest)
	if err != nil {
		return nil, nil, err
	}
	layer, err := image.Layer("")
	if err != nil {
		return nil, nil, err
	}
	noExclusions := ""
	tree, err := layer.Tree(ctx, &noExclusions)
	return tree, image, err
}

// diffArtifact is `sluice diff artifact`.
type diffArtifact struct {
	registryAccess
	files artifactFiles
}

func newDiffArtifactCommand(e *env) *cobra.Command {
	d := &diffArtifact{registryAccess: registryAccess{env: e}}
	c := newArtifactCommand(e, &cobra.Command{
		Use:   "artifact URL",
		Short: "Compare an OCI artifact with local files",
		Example: `  sluice diff artifact oci://ghcr.io/org/app:v1 --path ./deploy
  sluice diff artifact oci://ghcr.io/org/app:v1 --path ./deploy \
    --add-ignore-paths '*.md'`,
	}, d.run)
	d.bind(c.Flags())
	d.files.bind(c.Flags(), "p")
	return c
}

func (d *diffArtifact) run(ctx context.Context, url string) error {
	local, err := d.files.tree(d.In)
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", d.files.path, err)
	}
	remote, _, err := d.pull(ctx, url)
	if err != nil {
		return err
	}
	differences, err := compareTrees(remote, local)
	if err != nil {
		return err
	}
	if len(differences) == 0 {
		d.Done("%s and %s have the same content", url, d.files.path)
		return nil
	}
	for _, line := range differences {
		if _, err := fmt.Fprintln(d.Out, line); err != nil {
			return err
		}
	}
	files := "1 file"
	if n := len(differences); n > 1 {
		files = fmt.Sprintf("%d files", n)
	}
	return differencef("%s and %s differ in %s", url, d.files.path, files)
}

// compareTrees returns the files and empty directories that differ, sorted by name: "+" is only in second, "-" only in
// first, "~" in both. The name of a directory ends in a slash.
func compareTrees(first, second *artifact.Tree) ([]string, error) {
	ids := map[string][2]string{}
	for i, tree := range []*artifact.Tree{first, second} {
		if err := tree.Walk(func(name string, e *artifact.Entry) error {
			if e.Mode.IsDir() {
				name += "/"
			}
			pair := ids[name]
			pair[i] = e.ID
			ids[name] = pair
			return nil
		}); err != nil {
			return nil, err
		}
	}
	var out []string
	for name, pair := range ids {
		switch {
		case pair[0] == pair[1]:
		case pair[0] == "":
			out = append(out, "+ "+name)
		case pair[1] == "":
			out = append(out, "- "+name)
		default:
			out = append(out, "~ "+name)
		}
	}
	slices.SortFunc(out, func(a, b string) int { return strings.Compare(a[2:], b[2:]) })
	return out, nil
}
