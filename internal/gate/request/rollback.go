package request

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
)

// Gated is an object that may be behind gates.
type Gated interface {
	client.Object
	Held() *meta.Held
}

// Rollback returns the gate that can make an object go back to what it was healthy with before, or why the object
// cannot. The status of the object is only what to offer: the controllers go back by what they have sealed and stored.
func Rollback(ctx context.Context, c client.Reader, o Gated) (*gatingv1.Gate, error) {
	h := o.Held()
	if h.Reverted != nil {
		return nil, fmt.Errorf("it went back to %s already, and goes back once. Commit a fix, or let a revision "+
			"through at Gate '%s' by its name", h.Reverted.To, h.Reverted.Gate)
	}
	gate, err := reverting(ctx, c, h.Gates)
	if err != nil {
		return nil, err
	}
	_, isKustomization := o.(*kustomizev1.Kustomization)
	switch previous := h.Previous; {
	case h.Admitted == nil:
		return nil, fmt.Errorf("Gate '%s/%s' has let nothing through yet", gate.Namespace, gate.Name)
	case previous == nil:
		return nil, errors.New("no earlier revision was healthy behind the gate, or what it was made of is no longer " +
			"stored")
	case isKustomization && previous.Generation != o.GetGeneration():
		return nil, fmt.Errorf("the spec was changed after revision '%s' was applied", previous.Revision)
	}
	return gate, nil
}

// reverting returns the first gate with spec.onFailure Revert that may be read.
func reverting(ctx context.Context, c client.Reader, gates []string) (*gatingv1.Gate, error) {
	var problem error
	for _, name := range gates {
		namespace, name, _ := strings.Cut(name, "/")
		g := &gatingv1.Gate{}
		err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, g)
		if err == nil && g.Spec.OnFailure == gatingv1.OnFailureRevert {
			return g, nil
		}
		problem = errors.Join(problem, err)
	}
	if problem != nil {
		return nil, fmt.Errorf("its gates cannot be read: %w", problem)
	}
	return nil, errors.New("no gate with spec.onFailure: Revert applies to it, so nothing earlier is kept. Create " +
		"one and name it in spec.gates: what is healthy from then on can be gone back to")
}

// Refuse returns the request that makes an object of a kind go back from what it has.
func Refuse(kind string, o Gated, user, reason string) Request {
	return Request{Prefix: gatingv1.RefusePrefix, User: user, Revision: o.Held().Admitted.Revision, Reason: reason,
		Object: kind + "/" + o.GetNamespace() + "/" + o.GetName()}
}
