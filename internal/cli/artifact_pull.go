package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/source/oci"
)

func (a *app) pull() *cobra.Command {
	c := group("pull", "Pull an artifact", "  sluice pull artifact oci://registry.example.com/org/app:v1 "+
		"--output ./deploy")
	var login ociLogin
	var output string
	sub := a.bounded(&cobra.Command{
		Use:   "artifact URL --output DIR",
		Short: "Pull an OCI artifact and write its files into a directory",
		Example: `  sluice pull artifact oci://ghcr.io/org/app:v1 --output ./deploy
  sluice pull artifact oci://ghcr.io/org/app@sha256:DIGEST --creds me:$TOKEN -o ./deploy`,
	}, func(ctx context.Context, url string) error {
		tree, image, err := login.fetch(ctx, a, url)
		if err != nil {
			return err
		}
		if err := oci.WriteLocal(output, tree); err != nil {
			return fmt.Errorf("cannot write to %s: %w", output, err)
		}
		for _, said := range []string{oci.SourceAnnotation, oci.RevisionAnnotation} {
			if v := image.Annotations[said]; v != "" {
				a.step("%s: %s", said[strings.LastIndexByte(said, '.')+1:], v)
			}
		}
		a.done("wrote %s to %s", url, output)
		return nil
	})
	login.bind(sub.Flags())
	login.bindInsecure(sub.Flags())
	sub.Flags().StringVarP(&output, "output", "o", "", "directory to write the files to")
	if err := sub.MarkFlagRequired("output"); err != nil {
		panic(err) // the flag was made above
	}
	c.AddCommand(sub)
	return c
}

// fetch pulls the files of an artifact, all of them.
func (l *ociLogin) fetch(ctx context.Context, a *app, url string) (*artifact.Tree, *oci.Image, error) {
	repo, ref, err := l.open(ctx, a, url)
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
	everything := ""
	tree, err := layer.Tree(ctx, &everything)
	return tree, image, err
}

func (a *app) diffArtifact() *cobra.Command {
	var login ociLogin
	var with content
	c := a.bounded(&cobra.Command{
		Use:   "artifact URL",
		Short: "Compare an OCI artifact with local files",
		Example: `  sluice diff artifact oci://ghcr.io/org/app:v1 --path ./deploy
  sluice diff artifact oci://ghcr.io/org/app:v1 --path ./deploy --add-ignore-paths '*.md'`,
	}, func(ctx context.Context, url string) error {
		here, err := with.tree(a)
		if err != nil {
			return fmt.Errorf("cannot read %s: %w", with.path, err)
		}
		there, _, err := login.fetch(ctx, a, url)
		if err != nil {
			return err
		}
		differences, err := compare(there, here)
		if err != nil {
			return err
		}
		if len(differences) == 0 {
			a.done("%s holds the same as %s", url, with.path)
			return nil
		}
		for _, d := range differences {
			if _, err := fmt.Fprintln(a.out, d); err != nil {
				return err
			}
		}
		return differ("%s and %s differ in %d files", url, with.path, len(differences))
	})
	login.bind(c.Flags())
	login.bindInsecure(c.Flags())
	with.bind(c.Flags(), "p")
	return c
}

// compare lists the files in which two trees differ: + is only in the second, - only in the first, ~ another in each.
func compare(first, second *artifact.Tree) ([]string, error) {
	ids := map[string][2]string{}
	for i, tree := range []*artifact.Tree{first, second} {
		if err := tree.Walk(func(name string, e *artifact.Entry) error {
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

func (a *app) list() *cobra.Command {
	c := group("list", "List artifacts", "  sluice list artifacts oci://registry.example.com/org/app")
	var login ociLogin
	var versions, filter string
	sub := a.bounded(&cobra.Command{
		Use:     "artifacts URL",
		Aliases: []string{"artifact"},
		Short:   "List the artifacts of a repository in a registry, with what they were made of",
		Example: `  sluice list artifacts oci://ghcr.io/org/app
  sluice list artifacts oci://ghcr.io/org/app --filter-semver '>=1.0.0 <2.0.0'
  sluice list artifacts oci://ghcr.io/org/app --filter-regex '^main-'`,
	}, func(ctx context.Context, url string) error {
		repo, ref, err := login.open(ctx, a, url)
		if err != nil {
			return err
		}
		if ref != (oci.Reference{}) {
			return usagef("%s must name a repository, without a tag", url)
		}
		return a.listArtifacts(ctx, repo, versions, filter)
	})
	login.bind(sub.Flags())
	login.bindInsecure(sub.Flags())
	sub.Flags().StringVar(&versions, "filter-semver", "", "only tags that are versions in this range, highest first")
	sub.Flags().StringVar(&filter, "filter-regex", "", "only tags that this regular expression matches")
	c.AddCommand(sub)
	return c
}

// concurrentPulls is how many artifacts are asked for at a time.
const concurrentPulls = 4

func (a *app) listArtifacts(ctx context.Context, repo *oci.Repository, versions, filter string) error {
	tags, err := repo.Tags(ctx)
	if err != nil {
		return err
	}
	if tags, err = selectTags(tags, versions, filter); err != nil {
		return err
	}
	rows := make([][]cell, len(tags)+1)
	rows[0] = []cell{{text: "ARTIFACT"}, {text: "DIGEST"}, {text: "SOURCE"}, {text: "REVISION"}}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(concurrentPulls)
	for i, tag := range tags {
		g.Go(func() error {
			revision, err := repo.Resolve(ctx, oci.Reference{Tag: tag})
			if err != nil {
				return err
			}
			image, err := repo.Pull(ctx, revision.Digest)
			if err != nil {
				return err
			}
			name, _, _ := strings.Cut(repo.At(revision.Digest).Name(), "@")
			rows[i+1] = []cell{
				{text: oci.Scheme + name + ":" + tag}, {text: short(revision.Digest.String())},
				{text: image.Annotations[oci.SourceAnnotation]}, {text: image.Annotations[oci.RevisionAnnotation]},
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return (&table{out: a.out}).print(rows...)
}

// signature is how the tags of signatures and of what else refers to an artifact look.
var signature = regexp.MustCompile(`^sha256-[0-9a-f]{64}(\.[a-z]+)?$`)

// selectTags picks tags: versions highest first, then others by name. Those of signatures are left out.
func selectTags(tags []string, versions, filter string) ([]string, error) {
	var constraint *semver.Constraints
	var badRange error
	if versions != "" {
		constraint, badRange = semver.NewConstraint(versions)
	}
	matches, badFilter := regexp.Compile(filter)
	if err := errors.Join(badRange, badFilter); err != nil {
		return nil, usagef("--filter-semver or --filter-regex cannot be read: %w", err)
	}
	parsed := map[string]*semver.Version{}
	var chosen []string
	for _, tag := range tags {
		v, err := semver.NewVersion(tag)
		if err == nil {
			parsed[tag] = v
		}
		if !signature.MatchString(tag) && matches.MatchString(tag) &&
			(constraint == nil || v != nil && constraint.Check(v)) {
			chosen = append(chosen, tag)
		}
	}
	slices.SortFunc(chosen, func(a, b string) int {
		switch va, vb := parsed[a], parsed[b]; {
		case va != nil && vb != nil && !va.Equal(vb):
			return vb.Compare(va)
		case (va == nil) != (vb == nil) && va != nil:
			return -1
		case (va == nil) != (vb == nil):
			return 1
		}
		return strings.Compare(a, b)
	})
	return chosen, nil
}
