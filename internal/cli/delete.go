package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func (a *app) delete() *cobra.Command {
	c := group("delete", "Delete an object with what it made, and wait until it has gone",
		`  sluice delete source git app
  sluice delete kustomization app --silent`)
	var silent bool
	c.PersistentFlags().BoolVarP(&silent, "silent", "s", false, "do not ask")
	a.perKind(c, func(k *kind) *cobra.Command {
		if k.passive {
			return nil
		}
		return a.deleteOf(k, &silent)
	})
	return c
}

func (a *app) deleteOf(k *kind, silent *bool) *cobra.Command {
	return &cobra.Command{
		Use:     k.words[0] + " NAME",
		Aliases: k.words[1:],
		Short:   "Delete " + k.one() + " and " + k.losses,
		Example: fmt.Sprintf("  sluice delete %s NAME", k.path()),
		Args:    exactlyOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.deleteOne(cmd.Context(), k, types.NamespacedName{Namespace: a.namespace(), Name: args[0]}, *silent)
		},
	}
}

// deleteOne asks, deletes, and waits.
func (a *app) deleteOne(ctx context.Context, k *kind, key types.NamespacedName, silent bool) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, a.timeout)
	obj, err := fetch(bounded, c, k, key)
	cancel()
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%s '%s'", k.title(), key)
	if !silent && !a.confirm(fmt.Sprintf("This deletes %s and %s. Go on?", what, k.losses)) {
		return errors.New("nothing was deleted: say y, or --silent to not be asked")
	}
	bounded, cancel = context.WithTimeout(ctx, a.timeout) // a person may have thought for long
	defer cancel()
	uid := obj.GetUID()
	if err := c.Delete(bounded, obj, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return explain("cannot delete "+what, err)
	}
	if err := a.gone(bounded, c, obj, what); errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s is not gone after %s: its controller has yet to let go of it. Are the "+
			"controllers running?", what, a.timeout)
	} else if err != nil {
		return explain(what+" is not gone", err)
	}
	return nil
}
