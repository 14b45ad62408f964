package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cli/term"
	"github.com/sluice-gitops/sluice/internal/image/history"
	"github.com/sluice-gitops/sluice/internal/image/workload"
	"github.com/sluice-gitops/sluice/internal/model/kind"
)

func newImageCommand(e *env) *cobra.Command {
	c := newGroup("image", "List images of workloads, release newer ones, and show past releases",
		`  sluice image list -A
  sluice image release Deployment/web -n apps --latest --dry-run
  sluice image history`)
	c.Aliases = []string{"images"}
	c.AddCommand(newImageListCommand(e), newImageReleaseCommand(e), newImageHistoryCommand(e))
	return c
}

// workloadArgs checks that all arguments name workloads.
func workloadArgs(_ *cobra.Command, args []string) error {
	for _, arg := range args {
		if _, err := workload.ParseRef(arg); err != nil {
			return usageError{err}
		}
	}
	return nil
}

// optionalWorkload returns the workload that the first argument names, or the zero Ref without an argument.
func optionalWorkload(args []string) (workload.Ref, error) {
	if len(args) == 0 {
		return workload.Ref{}, nil
	}
	ref, err := workload.ParseRef(args[0])
	if err != nil {
		return ref, usageError{err}
	}
	return ref, nil
}

// imageList is `sluice image list`.
type imageList struct {
	*env
	allNamespaces bool
}

func newImageListCommand(e *env) *cobra.Command {
	l := &imageList{env: e}
	c := &cobra.Command{
		Use: "list [KIND/NAME]", Short: "List the images of workloads, and newer ones that policies select",
		Args: atMostOne,
		Long: `List the images of Deployments, StatefulSets, DaemonSets and CronJobs, and the
policies that select an image of the same name, in all namespaces that you may
read.`,
		Example: "  sluice image list -n apps\n  sluice image list StatefulSet/db -n apps\n  sluice image list -A",
		RunE:    e.bounded(l.run),
	}
	c.Flags().BoolVarP(&l.allNamespaces, "all-namespaces", "A", false, "workloads in all namespaces")
	return c
}

func (l *imageList) run(ctx context.Context, args []string) error {
	only, err := optionalWorkload(args)
	if err != nil {
		return err
	}
	c, err := l.Client()
	if err != nil {
		return err
	}
	namespace := l.NamespaceOr(l.allNamespaces)
	images, err := workload.Images(ctx, c, namespace, only)
	if err != nil {
		return cluster.WithHint(err)
	}
	if len(images) == 0 {
		return fmt.Errorf("no workloads found in %s. Choose another with -n, or use -A for all", scope(namespace))
	}
	rows := [][]term.Cell{term.Row("NAMESPACE", "WORKLOAD", "CONTAINER", "IMAGE", "RUNS", "NEWER", "POLICY")}
	for _, image := range images {
		rows = append(rows, imageRow(image))
	}
	return term.NewTable(l.Out).Print(rows...)
}

func imageRow(i workload.Image) []term.Cell {
	running := kind.ShortRevision(strings.TrimPrefix(strings.TrimPrefix(i.Ref.String(), i.Ref.Name), ":"))
	policy, newer := "", term.Cell{Colour: term.Yellow}
	switch {
	case i.Policy == nil:
	case i.IsCurrent():
		newer = term.Cell{Text: "up to date"}
	default:
		newer.Text = i.Policy.Status.LatestRef.Tag
	}
	if i.Policy != nil {
		policy = i.Policy.Namespace + "/" + i.Policy.Name
	}
	return append(term.Row(i.Namespace, i.Kind+"/"+i.Name, i.Container, i.Ref.Name, running), newer,
		term.Cell{Text: policy})
}

// imageHistory is `sluice image history`.
type imageHistory struct {
	*env
	allNamespaces bool
}

func newImageHistoryCommand(e *env) *cobra.Command {
	h := &imageHistory{env: e}
	c := &cobra.Command{
		Use: "history [KIND/NAME]", Short: "Show which images were released, by whom and why", Args: atMostOne,
		Long: `Show ImageUpdateJobs and commits of ImageUpdateAutomations, or only those that
changed a workload. The cluster knows the last commit of each automation, the
current commits of GitRepositories, and commits of about the last hour. For the
complete history run in the repository:

  git fetch origin refs/notes/sluice:refs/notes/sluice
  git log --notes=sluice`,
		Example: "  sluice image history\n  sluice image history Deployment/web\n  sluice image history -A",
		RunE:    e.bounded(h.run),
	}
	c.Flags().BoolVarP(&h.allNamespaces, "all-namespaces", "A", false, "releases in all namespaces")
	return c
}

func (h *imageHistory) run(ctx context.Context, args []string) error {
	only, err := optionalWorkload(args)
	if err != nil {
		return err
	}
	c, err := h.Client()
	if err != nil {
		return err
	}
	namespace := h.NamespaceOr(h.allNamespaces)
	entries, err := history.List(ctx, c, namespace, only)
	if err != nil {
		return cluster.WithHint(err)
	}
	if len(entries) == 0 {
		return fmt.Errorf("no releases found in %s", scope(namespace))
	}
	printable := func(s string) string { return term.Printable(term.OneLine(s)) }
	rows := [][]term.Cell{term.Row("TIME", "BY", "AUTHOR", "COMMIT", "WHAT")}
	for _, entry := range entries {
		rows = append(rows, term.Row(kind.Time(meta.Time{Time: entry.At}), printable(entry.By),
			printable(entry.Author), kind.ShortCommit(entry.Commit), printable(entry.Description)))
	}
	return term.NewTable(h.Out).Print(rows...)
}
