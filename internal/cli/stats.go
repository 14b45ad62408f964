package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cli/term"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// counts summarizes the objects of a kind.
type counts struct {
	running, failing, suspended int
	artifactBytes               int64
}

func newStatsCommand(e *env) *cobra.Command {
	var allNamespaces bool
	c := &cobra.Command{
		Use:   "stats",
		Short: "Count running, failing and suspended objects, and the size of artifacts",
		Example: `  sluice stats -A
  sluice stats -n apps`,
		Args: noArgs,
		RunE: e.bounded(func(ctx context.Context, _ []string) error {
			return runStats(ctx, e, e.NamespaceOr(allNamespaces))
		}),
	}
	c.Flags().BoolVarP(&allNamespaces, "all-namespaces", "A", false, "objects in all namespaces")
	return c
}

func runStats(ctx context.Context, e *env, namespace string) error {
	c, err := e.Client()
	if err != nil {
		return err
	}
	var missing error
	rows := [][]term.Cell{term.Row("KIND", "RUNNING", "FAILING", "SUSPENDED", "STORAGE")}
	for _, k := range kind.All() {
		objects, err := cluster.List(ctx, c, k, client.InNamespace(namespace))
		if errors.Is(err, cluster.ErrNotInstalled) {
			missing = err
			continue
		}
		if err != nil {
			return err
		}
		n := count(objects)
		row := term.Row(k.Name(), strconv.Itoa(n.running), strconv.Itoa(n.failing), strconv.Itoa(n.suspended),
			formatBytes(n.artifactBytes))
		if n.failing > 0 {
			row[2].Colour = term.Red
		}
		rows = append(rows, row)
	}
	if len(rows) == 1 {
		return missing
	}
	return term.NewTable(e.Out).Print(rows...)
}

func count(objects []reconcile.Object) counts {
	var n counts
	for _, o := range objects {
		switch c := cluster.ReadyCondition(o); {
		case o.Schedule().Suspended:
			n.suspended++
		case c != nil && c.Status == metav1.ConditionFalse:
			n.failing++
		default:
			n.running++
		}
		if s, ok := o.(sourcev1.Source); ok && s.GetArtifact() != nil && s.GetArtifact().Size != nil {
			n.artifactBytes += *s.GetArtifact().Size
		}
	}
	return n
}

// formatBytes formats a size in bytes with a unit, or as "-" if it is 0.
func formatBytes(bytes int64) string {
	if bytes == 0 {
		return "-"
	}
	amount, units := float64(bytes), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for amount >= 1024 && len(units) > 1 {
		amount, units = amount/1024, units[1:]
	}
	if units[0] == "B" {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%.1f %s", amount, units[0])
}
