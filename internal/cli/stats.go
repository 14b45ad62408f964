package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
)

func (a *app) stats() *cobra.Command {
	var everywhere bool
	c := &cobra.Command{
		Use:   "stats",
		Short: "Count objects by kind: how many there are, fail and are suspended, and what their artifacts take",
		Example: `  sluice stats -A
  sluice stats -n apps`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
			defer cancel()
			namespace := a.namespace()
			if everywhere {
				namespace = ""
			}
			return a.count(ctx, namespace)
		},
	}
	c.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "in all namespaces")
	return c
}

func (a *app) count(ctx context.Context, namespace string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	var missing error
	rows := [][]cell{{{text: "KIND"}, {text: "RUNNING"}, {text: "FAILING"}, {text: "SUSPENDED"}, {text: "STORAGE"}}}
	for _, k := range kinds {
		list := k.list()
		if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
			if missing = explain("cannot list "+k.title()+" objects", err); apimeta.IsNoMatchError(err) {
				continue
			}
			return missing
		}
		objects, err := items(list)
		if err != nil {
			return err
		}
		var running, failing, suspended int
		var bytes int64
		for _, o := range objects {
			switch c := readyCondition(o); {
			case o.Schedule().Suspended:
				suspended++
			case c != nil && c.Status == metav1.ConditionFalse:
				failing++
			default:
				running++
			}
			if s, ok := o.(sourcev1.Source); ok && s.GetArtifact() != nil && s.GetArtifact().Size != nil {
				bytes += *s.GetArtifact().Size
			}
		}
		colour := ""
		if failing > 0 {
			colour = red
		}
		rows = append(rows, []cell{{text: k.title()}, {text: fmt.Sprint(running)}, {fmt.Sprint(failing), colour},
			{text: fmt.Sprint(suspended)}, {text: size(bytes)}})
	}
	if len(rows) == 1 {
		return missing
	}
	return (&table{out: a.out}).print(rows...)
}

// size gives bytes as people read them; a dash for none.
func size(bytes int64) string {
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
