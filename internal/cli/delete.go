package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/model/lineage"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// deletionInterval is how often objects that an object made are looked up until they are gone.
const deletionInterval = time.Second

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
	uid, made := obj.GetUID(), lineage.Made(obj)
	if err := c.Delete(bounded, obj, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return cluster.Explain("cannot delete "+what, err)
	}
	if err := d.awaitDeleted(bounded, c, obj, what); errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s still exists after %s: its finalizers (%s) were not removed. Check that the controllers "+
			"are running: sluice check", what, d.Timeout, strings.Join(obj.GetFinalizers(), ", "))
	} else if err != nil {
		return cluster.Explain("cannot check the deletion of "+what, err)
	}
	return d.awaitMade(bounded, c, made, what)
}

// awaitMade waits until the objects that a deleted object made are gone, except those that were kept. It names what
// holds those that are left.
func (d deleter) awaitMade(ctx context.Context, c client.Client, made []apply.Ref, what string) error {
	left := map[apply.Ref][]string{} // with their finalizers, as of the last time that all were read
	err := wait.PollUntilContextCancel(ctx, deletionInterval, true, func(ctx context.Context) (bool, error) {
		now := map[apply.Ref][]string{}
		for _, ref := range made {
			o := &metav1.PartialObjectMetadata{}
			o.SetGroupVersionKind(schema.GroupVersionKind{Group: ref.Group, Version: ref.Version, Kind: ref.Kind})
			err := c.Get(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, o)
			switch {
			case err == nil && o.DeletionTimestamp != nil:
				now[ref] = o.Finalizers
			case err == nil, apierrors.IsNotFound(err), apierrors.IsForbidden(err), apimeta.IsNoMatchError(err):
			default:
				return false, nil // the API server did not answer: the wait goes on
			}
		}
		left = now
		return len(left) == 0, nil
	})
	if err == nil {
		return nil
	}
	if len(left) == 0 {
		return cluster.Explain("cannot check the deletion of what "+what+" made", err)
	}
	var names []string
	for ref, finalizers := range left {
		names = append(names, fmt.Sprintf("%s (finalizers: %s)", ref, cmp.Or(strings.Join(finalizers, ", "), "none")))
	}
	slices.Sort(names)
	const most = 5
	return fmt.Errorf("%s is deleted, but %s that it made is not gone after %s: %s", what,
		excerpt.Count(len(names), "object"), d.Timeout, strings.Join(names[:min(len(names), most)], "; "))
}
