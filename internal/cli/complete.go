package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// completionTimeout keeps a shell from hanging on a cluster that does not answer.
const completionTimeout = 3 * time.Second

// completeNames offers the names of a kind's objects that the command line does not hold yet.
func (a *app) completeNames(k *kind) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		c, err := a.client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		list := k.list()
		if err := c.List(ctx, list, client.InNamespace(a.namespace())); err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		objects, err := items(list)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []cobra.Completion
		for _, o := range objects {
			if strings.HasPrefix(o.GetName(), begun) && !slices.Contains(args, o.GetName()) {
				names = append(names, o.GetName())
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
