package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/model/kind"
)

// completionTimeout bounds how long shell completion waits for the cluster.
const completionTimeout = 3 * time.Second

// machineFormats are the output formats for programs.
var machineFormats = []string{"json", "yaml"}

// addOutput adds the flag --output, whose values are completed.
func addOutput(c *cobra.Command, f *pflag.FlagSet, output *string, formats ...string) {
	last := len(formats) - 1
	f.StringVarP(output, "output", "o", "", "output format: "+strings.Join(formats[:last], ", ")+" or "+formats[last])
	completeFlag(c, "output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// completeFlag sets how the value of a flag is completed.
func completeFlag(c *cobra.Command, name string, complete cobra.CompletionFunc) {
	if err := c.RegisterFlagCompletionFunc(name, complete); err != nil {
		panic(err) // the flag does not exist, or has a completion already
	}
}

// completeFlags sets how values of global flags are completed.
func (e *env) completeFlags(root *cobra.Command) {
	completeFlag(root, "namespace", func(cmd *cobra.Command, _ []string, prefix string) ([]cobra.Completion,
		cobra.ShellCompDirective) {
		ctx, c, cancel, err := e.forCompletion(cmd)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		defer cancel()
		var list corev1.NamespaceList
		if err := c.List(ctx, &list); err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []cobra.Completion
		for _, n := range list.Items {
			if strings.HasPrefix(n.Name, prefix) {
				names = append(names, n.Name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
}

// forCompletion returns a client, and a context that bounds how long it is used.
func (e *env) forCompletion(cmd *cobra.Command) (context.Context, client.Client, context.CancelFunc, error) {
	if err := e.Complete(cmd.Flags()); err != nil {
		return nil, nil, nil, err
	}
	c, err := e.Client()
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	return ctx, c, cancel, nil
}

// completeNames completes the names of objects that are not on the command line yet.
func (e *env) completeNames(k *kind.Kind) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, c, cancel, err := e.forCompletion(cmd)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		defer cancel()
		objects, err := cluster.List(ctx, c, k, client.InNamespace(e.Namespace()))
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []cobra.Completion
		for _, o := range objects {
			if strings.HasPrefix(o.GetName(), prefix) && !slices.Contains(args, o.GetName()) {
				names = append(names, o.GetName())
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeObjects completes the name in KIND/NAME, for the kinds that a verb supports.
func (e *env) completeObjects(verb *cobra.Command) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		word, name, isObject := strings.Cut(prefix, "/")
		k := kind.ByWord(word)
		if !isObject || k == nil || commandOf(verb, k) == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names, directive := e.completeNames(k)(cmd, args, name)
		for i := range names {
			names[i] = word + "/" + names[i]
		}
		return names, directive
	}
}
