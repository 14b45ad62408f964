package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/spf13/cobra"

	"github.com/sluice-gitops/sluice/internal/cli/mirror"
	"github.com/sluice-gitops/sluice/internal/cli/term"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/source/ignore"
	"github.com/sluice-gitops/sluice/internal/source/oci"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// gibibyte is the unit of --max-size.
const gibibyte = 1 << 30

// mirrorCommand is `sluice mirror`.
type mirrorCommand struct {
	*env
	to, from, output string
	images           []string
	list, rewrite    bool
	plainHTTP        []string
	maxGiB           int64
}

func newMirrorCommand(e *env) *cobra.Command {
	m := &mirrorCommand{env: e}
	c := &cobra.Command{
		Use:   "mirror [DIRECTORY]",
		Short: "Copy what a repository refers to into a registry or an archive",
		Long: `Copy the container images, OCI artifacts and Helm charts that the manifests in a
directory refer to, with their signatures, into another registry or into an
archive, and from an archive into a registry. Digests stay the same.

Kustomizations whose path is in the directory are built. Other manifests are
read as they are. In the mirror, the host of a repository is the first part of
its path: ghcr.io/org/app is copied to REGISTRY/ghcr.io/org/app.

Logins are those of docker login. What is there already is not copied again, so
repeat the command if it was interrupted.`,
		Example: `  sluice mirror . --list                        # what is needed
  sluice mirror . --to mirror.tar               # where there is a network
  sluice mirror --from mirror.tar --to oci://registry.internal/mirror
  sluice mirror . --rewrite --to oci://registry.internal/mirror > mirror/kustomization.yaml
  sluice mirror --image ghcr.io/sluice-gitops/sluice:v1.2.3 --to oci://registry.internal`,
		RunE: func(cmd *cobra.Command, args []string) error { return m.run(cmd.Context(), args) },
	}
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usagef("expected one directory, got %d arguments", len(args))
		}
		return nil
	}
	f := c.Flags()
	f.StringVar(&m.to, "to", "", "mirror: oci://HOST/PATH, or the file name of an archive")
	f.StringVar(&m.from, "from", "", "archive to copy from, instead of a directory")
	f.StringSliceVar(&m.images, "image", nil, "further images to copy")
	f.BoolVar(&m.list, "list", false, "list what would be copied, and copy nothing")
	f.BoolVar(&m.rewrite, "rewrite", false,
		"print a kustomize component that makes the manifests use the mirror, and copy nothing")
	addOutput(c, f, &m.output, machineFormats...)
	f.StringSliceVar(&m.plainHTTP, "plain-http", nil,
		"registries to use HTTP for instead of HTTPS, such as localhost:5000")
	f.Int64Var(&m.maxGiB, "max-size", 200, "maximum size of all that is copied, in GiB")
	return c
}

func (m *mirrorCommand) validate(args []string) error {
	if err := optionalOneOf("output", m.output, machineFormats...); err != nil {
		return err
	}
	switch {
	case m.from != "" && (len(args) > 0 || len(m.images) > 0 || m.rewrite):
		return usagef("--from excludes a directory, --image and --rewrite")
	case m.from == "" && len(args) == 0 && len(m.images) == 0:
		return usagef("nothing to copy: name a directory, --image or --from")
	case m.list && m.rewrite:
		return usagef("--list and --rewrite exclude each other")
	case m.output != "" && !m.list:
		return usagef("--output needs --list")
	case m.to == "" && !m.list:
		return usagef("--to is missing: use oci://HOST/PATH or the file name of an archive")
	case m.rewrite && !strings.HasPrefix(m.to, oci.Scheme):
		return usagef("--rewrite needs --to oci://HOST/PATH")
	case m.from != "" && !m.list && !strings.HasPrefix(m.to, oci.Scheme):
		return usagef("--from needs --to oci://HOST/PATH")
	case strings.Contains(m.to, "://") && !strings.HasPrefix(m.to, oci.Scheme):
		return usagef("--to must begin with oci:// or be a file name")
	case m.maxGiB <= 0:
		return usagef("--max-size must be positive")
	}
	return nil
}

func (m *mirrorCommand) run(ctx context.Context, args []string) error {
	if err := m.validate(args); err != nil {
		return err
	}
	if m.from != "" {
		return m.restore(ctx)
	}
	found := &mirror.Found{}
	if len(args) > 0 {
		rules, err := ignore.New(nil)
		if err != nil {
			return err
		}
		tree, err := oci.ReadLocal(args[0], rules, false)
		if err != nil {
			return fmt.Errorf("cannot read %s: %w", args[0], err)
		}
		if found, err = mirror.Find(ctx, tree, func(message string) { m.Warn("%s", message) }); err != nil {
			return err
		}
	}
	if err := found.AddImages(m.images); err != nil {
		return usageError{err}
	}
	switch {
	case m.list && m.output != "":
		return m.printAs(m.output, found.Items)
	case m.list:
		return m.printItems(found.Items)
	case m.rewrite:
		return found.Rewrite(m.Out, strings.TrimPrefix(m.to, oci.Scheme))
	}
	return m.copy(ctx, found.Items)
}

func (m *mirrorCommand) printItems(items []mirror.Item) error {
	rows := [][]term.Cell{term.Row("KIND", "NAME", "USED BY")}
	for _, item := range items {
		users := "--image"
		if n := len(item.UsedBy); n > 0 {
			users = item.UsedBy[0]
			if n > 1 {
				users += fmt.Sprintf(" and %d more", n-1)
			}
		}
		rows = append(rows, term.Row(item.Kind, item.Name(), users))
	}
	return term.NewTable(m.Out).Print(rows...)
}

// copier returns what copies to the mirror, and a function that completes the mirror.
func (m *mirrorCommand) copier(ctx context.Context) (*mirror.Copier, func() error, error) {
	transport, err := (&egress.Policy{}).Transport(egress.Options{})
	if err != nil {
		return nil, nil, err
	}
	c := &mirror.Copier{MaxBytes: m.maxGiB * gibibyte, Sleep: sleep,
		Registries: &mirror.Registries{Transport: transport, Keychain: authn.DefaultKeychain, PlainHTTP: m.plainHTTP},
		Retrying: func(item mirror.Item, err error) {
			m.Warn("copying %s again after an error: %v", item.Name(), err)
		}}
	prefix, ok := strings.CutPrefix(m.to, oci.Scheme)
	if ok {
		c.To = &mirror.Registry{Prefix: prefix, Registries: c.Registries}
		return c, func() error { return nil }, nil
	}
	archive, err := mirror.NewArchive(ctx, m.to)
	if err != nil {
		return nil, nil, err
	}
	c.To = archive
	return c, archive.Close, nil
}

// sleep waits, or returns the error of the context if that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *mirrorCommand) copy(ctx context.Context, items []mirror.Item) error {
	c, complete, err := m.copier(ctx)
	if err != nil {
		return err
	}
	return copyEach(ctx, m, items, func(item mirror.Item) (*mirror.Copied, error) {
		if item.Kind == mirror.Tags {
			m.Step("%s is the image of an ImageRepository: its tags are not copied", item.Name())
			return nil, nil
		}
		m.Live("copying %s", item.Name())
		return c.Copy(ctx, item)
	}, complete)
}

// restore copies all names of an archive.
func (m *mirrorCommand) restore(ctx context.Context) error {
	archive, err := mirror.Open(m.from)
	if err != nil {
		return err
	}
	defer func() { _ = archive.Close() }() // it is only read
	if m.list {
		if m.output != "" {
			return m.printAs(m.output, archive.Names)
		}
		rows := [][]term.Cell{term.Row("REPOSITORY", "TAG")}
		for _, n := range archive.Names {
			rows = append(rows, term.Row(n.Repository, cmp.Or(n.Tag, "-")))
		}
		return term.NewTable(m.Out).Print(rows...)
	}
	c, complete, err := m.copier(ctx)
	if err != nil {
		return err
	}
	return copyEach(ctx, m, archive.Names, func(n mirror.Named) (*mirror.Copied, error) {
		m.Live("copying %s", n.Repository)
		return c.Restore(ctx, archive, n)
	}, complete)
}

// copyEach copies what is listed, goes on after failures, and completes the mirror if there are none. What copyOne
// leaves out has no result.
func copyEach[T any](ctx context.Context, m *mirrorCommand, all []T, copyOne func(T) (*mirror.Copied, error),
	complete func() error) error {
	var failures []error
	copied := 0
	for _, one := range all {
		result, err := copyOne(one)
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("interrupted after %s. Repeat the command to continue", excerpt.Count(copied, "item"))
		}
		switch {
		case err != nil:
			failures = append(failures, err)
		case result != nil:
			copied++
			m.reportCopied(result)
		}
	}
	if len(failures) > 0 {
		failures = append(failures, fmt.Errorf("%s copied, %d failed. Correct the cause and repeat the command",
			excerpt.Count(copied, "item"), len(failures)))
		return errors.Join(failures...)
	}
	if err := complete(); err != nil {
		return err
	}
	m.Done("%s in %s", excerpt.Count(copied, "item"), m.to)
	return nil
}

func (m *mirrorCommand) reportCopied(r *mirror.Copied) {
	if r.Blobs == 0 {
		m.Done("%s is up to date", r.Name)
		return
	}
	more := ""
	if r.Companions > 0 {
		more = ", with " + excerpt.Count(r.Companions, "manifest") + " that refer to it"
	}
	m.Done("copied %s: %d bytes%s", r.Name, r.Bytes, more)
}
