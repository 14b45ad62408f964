package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/kind"
)

// deleter is `sluice delete` for one kind.
type deleter struct {
	*env
	kind   *kind.Kind
	silent *bool
}

func newDeleteCommand(e *env) *cobra.Command {
	c := newGroup("delete", "Delete an object and what it made, and wait until they are gone",
		`  sluice delete source git app
  sluice delete kustomization app --silent`)
	var silent bool
	c.PersistentFlags().BoolVarP(&silent, "silent", "s", false, "do not ask for confirmation")
	e.addPerKind(c, func(k *kind.Kind) *cobra.Command {
		if k.ReadOnly {
			return nil
		}
		return newDeleteKindCommand(e, k, &silent)
	})
	return c
}

func newDeleteKindCommand(e *env, k *kind.Kind, silent *bool) *cobra.Command {
	d := deleter{env: e, kind: k, silent: silent}
	return &cobra.Command{
		Use:     k.Words[0] + " NAME",
		Aliases: k.Words[1:],
		Short:   "Delete " + k.WithArticle() + " and " + k.AlsoDeleted,
		Example: fmt.Sprintf("  sluice delete %s NAME", k.Path()),
		Args:    exactlyOne,
		RunE:    func(cmd *cobra.Command, args []string) error { return d.run(cmd.Context(), e.key(args[0])) },
	}
}

// run asks for confirmation, deletes the object, and waits. The wait for an answer does not count for --timeout.
func (d deleter) run(ctx context.Context, key types.NamespacedName) error {
	c, err := d.Client()
	if err != nil {
		return err
	}
	bounded, cancel := d.WithTimeout(ctx)
	obj, err := cluster.Get(bounded, c, d.kind, key)
	cancel()
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%s '%s'", d.kind.Name(), key)
	if !*d.silent && !d.Confirm(fmt.Sprintf("This deletes %s and %s. Continue?", what, d.kind.AlsoDeleted)) {
		return errors.New("cancelled: nothing was deleted. Use --silent to skip the question")
	}
	bounded, cancel = d.WithTimeout(ctx)
	defer cancel()
	uid := obj.GetUID()
	if err := c.Delete(bounded, obj, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return cluster.Explain("cannot delete "+what, err)
	}
	if err := d.awaitDeleted(bounded, c, obj, what); errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s still exists after %s: its finalizers were not removed. Check that the controllers are "+
			"running", what, d.Timeout)
	} else if err != nil {
		return cluster.Explain("cannot check the deletion of "+what, err)
	}
	return nil
}
