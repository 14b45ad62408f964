package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/gate/request"
	"github.com/sluice-gitops/sluice/internal/model/kind"
)

// rollbacker is `sluice rollback` for one kind.
type rollbacker struct {
	*env
	kind   *kind.Kind
	reason string
	wait   bool
}

func newRollbackCommand(e *env) *cobra.Command {
	c := newGroup("rollback", "Go back to what an object was healthy with before, without a commit",
		"  sluice rollback kustomization app --reason \"errors in checkout\"")
	for _, name := range []string{kustomizev1.KustomizationKind, helmv2.HelmReleaseKind} {
		c.AddCommand(newRollbackKindCommand(e, kind.ByName(name)))
	}
	return c
}

func newRollbackKindCommand(e *env, k *kind.Kind) *cobra.Command {
	r := &rollbacker{env: e, kind: k}
	c := &cobra.Command{
		Use: k.Words[0] + " NAME", Aliases: k.Words[1:], Args: exactlyOne,
		Short: "Go back to what " + k.WithArticle() + " was healthy with before",
		Long: `Go back to what the object was healthy with before, as status.previous has it.
Git is not changed: a gate with spec.onFailure: Revert refuses the revision
that the object has, for this object, until a newer one comes or until the
revision is allowed by its name (sluice gate open GATE --revision REVISION).

It needs such a gate over the object, and the right to patch it.`,
		Example:           "  sluice rollback " + k.Path() + " NAME --reason \"errors in checkout\"",
		ValidArgsFunction: e.completeNames(k),
		RunE:              e.bounded(func(ctx context.Context, args []string) error { return r.run(ctx, args[0]) }),
	}
	c.Flags().StringVar(&r.reason, "reason", "", "reason to record at the gate and in the status of the object")
	c.Flags().BoolVar(&r.wait, "wait", true, "wait until the object went back")
	return c
}

// run asks the gate of an object to refuse what the object has.
func (r *rollbacker) run(ctx context.Context, name string) error {
	c, err := r.Client()
	if err != nil {
		return err
	}
	key := r.key(name)
	obj, err := cluster.Get(ctx, c, r.kind, key)
	if err != nil {
		return err
	}
	gated := obj.(request.Gated)
	what := fmt.Sprintf("%s '%s'", r.kind.Name(), key)
	g, err := request.Rollback(ctx, c, gated)
	if err != nil {
		return fmt.Errorf("%s cannot go back: %w", what, err)
	}
	user, err := r.Username(ctx)
	if err != nil {
		return err
	}
	before, now := g.DeepCopy(), time.Now()
	request.Refuse(r.kind.Name(), gated, user, r.reason).Annotate(g, now)
	if err := c.Patch(ctx, g, client.MergeFrom(before), gateFieldOwner); err != nil {
		return cluster.Explain(fmt.Sprintf("cannot change Gate '%s'", client.ObjectKeyFromObject(g)), err)
	}
	from, to := gated.Held().Admitted.Revision, gated.Held().Previous.Revision
	if !r.wait {
		r.Done("asked Gate '%s' to refuse %s, so that %s goes back to %s", client.ObjectKeyFromObject(g), from, what,
			to)
		return nil
	}
	err = wait.PollUntilContextCancel(ctx, evaluationInterval, true, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, key, obj)
		return err == nil && gated.Held().Reverted != nil, err
	})
	if err != nil {
		return cluster.Explain(fmt.Sprintf("%s has not gone back yet: see its events", what), err)
	}
	r.Done("%s goes back to %s", what, gated.Held().Reverted.To)
	return r.awaitReady(ctx, c, r.kind, key)
}
