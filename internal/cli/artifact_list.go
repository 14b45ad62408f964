package cli

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"github.com/spf13/cobra"

	"github.com/sluice-gitops/sluice/internal/cli/term"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/limits/version"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/source/oci"
)

// concurrentPulls is how many artifacts are read at the same time.
const concurrentPulls = 4

// listArtifacts is `sluice list artifacts`.
type listArtifacts struct {
	registryAccess
	versions, pattern string
}

func newListCommand(e *env) *cobra.Command {
	c := newGroup("list", "List artifacts in a registry",
		"  sluice list artifacts oci://registry.example.com/org/app")
	l := &listArtifacts{registryAccess: registryAccess{env: e}}
	sub := newArtifactCommand(e, &cobra.Command{
		Use:     "artifacts URL",
		Aliases: []string{"artifact"},
		Short:   "List the artifacts of a repository, with their source and revision",
		Example: `  sluice list artifacts oci://ghcr.io/org/app
  sluice list artifacts oci://ghcr.io/org/app --filter-semver '>=1.0.0 <2.0.0'
  sluice list artifacts oci://ghcr.io/org/app --filter-regex '^main-'`,
	}, l.run)
	l.bind(sub.Flags())
	sub.Flags().StringVar(&l.versions, "filter-semver", "", "only tags that are versions in this range")
	sub.Flags().StringVar(&l.pattern, "filter-regex", "", "only tags that match this regular expression")
	c.AddCommand(sub)
	return c
}

func (l *listArtifacts) run(ctx context.Context, url string) error {
	repo, ref, err := l.open(ctx, url)
	if err != nil {
		return err
	}
	if ref != (oci.Reference{}) {
		return usagef("%s must be a repository, without a tag or digest", url)
	}
	tags, err := repo.Tags(ctx)
	if err != nil {
		return err
	}
	if tags, err = selectTags(tags, l.versions, l.pattern); err != nil {
		return err
	}
	rows := make([][]term.Cell, len(tags)+1)
	rows[0] = term.Row("ARTIFACT", "DIGEST", "SOURCE", "REVISION")
	g, ctx := guard.GroupWithContext(ctx, "reading artifacts")
	g.SetLimit(concurrentPulls)
	for i, tag := range tags {
		g.Go(func() error {
			row, err := artifactRow(ctx, repo, tag)
			rows[i+1] = row
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return term.NewTable(l.Out).Print(rows...)
}

func artifactRow(ctx context.Context, repo *oci.Repository, tag string) ([]term.Cell, error) {
	revision, err := repo.Resolve(ctx, oci.Reference{Tag: tag})
	if err != nil {
		return nil, err
	}
	image, err := repo.Pull(ctx, revision.Digest)
	if err != nil {
		return nil, err
	}
	name, _, _ := strings.Cut(repo.At(revision.Digest).Name(), "@")
	return term.Row(oci.Scheme+name+":"+tag, kind.ShortRevision(revision.Digest.String()),
		image.Annotations[oci.SourceAnnotation], image.Annotations[oci.RevisionAnnotation]), nil
}

// signatureTag matches tags of signatures and other attachments of an artifact.
var signatureTag = regexp.MustCompile(`^sha256-[0-9a-f]{64}(\.[a-z]+)?$`)

// selectTags returns the tags that match, versions first (highest first), then others by name. Tags of signatures are
// left out. Empty filters match all tags.
func selectTags(tags []string, versions, pattern string) ([]string, error) {
	var constraint *semver.Constraints
	var badRange error
	if versions != "" {
		constraint, badRange = semver.NewConstraint(versions)
	}
	matches, badPattern := regexp.Compile(pattern)
	if err := errors.Join(badRange, badPattern); err != nil {
		return nil, usagef("invalid --filter-semver or --filter-regex: %w", err)
	}
	parsed := map[string]*semver.Version{}
	var selected []string
	for _, tag := range tags {
		v, err := version.Parse(tag)
		if err == nil {
			parsed[tag] = v
		}
		if !signatureTag.MatchString(tag) && matches.MatchString(tag) &&
			(constraint == nil || v != nil && constraint.Check(v)) {
			selected = append(selected, tag)
		}
	}
	slices.SortFunc(selected, func(a, b string) int {
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
	return selected, nil
}
