package ui

import (
	"context"
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/gate/request"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/ui/view"
)

// rollback is what an object can go back to.
type rollback struct {
	*meta.Previous
	From string `json:"from,omitempty"` // what it has
	Gate string `json:"gate,omitempty"` // ID of the gate that is asked
	Why  string `json:"why,omitempty"`  // why it cannot; empty if it can
}

// goesBack reports whether objects of a kind can go back.
func goesBack(o reconcile.Object) bool {
	switch o.(type) {
	case *kustomizev1.Kustomization, *helmv2.HelmRelease:
		return true
	}
	return false
}

// rollbackOf returns what an object can go back to, or why it cannot.
func rollbackOf(ctx context.Context, u *User, o reconcile.Object) *rollback {
	gated, ok := o.(request.Gated)
	if !ok || !goesBack(o) {
		return nil
	}
	r := &rollback{Previous: gated.Held().Previous}
	if a := gated.Held().Admitted; a != nil {
		r.From = excerpt.Bytes(a.Revision, maxConditionRow)
	}
	gate, err := request.Rollback(ctx, u.Client, gated)
	switch {
	case o.Schedule().Suspended:
		r.Why = "it is suspended: resume it first"
	case err != nil:
		r.Why = excerpt.Bytes(err.Error(), maxConditionRow)
	default:
		r.Gate = view.ID(gatingv1.GateKind, gate.Namespace, gate.Name)
	}
	return r
}

// rollBack asks the gate of an object to refuse what the object has, in the name of the user.
func (s *Server) rollBack(ctx context.Context, u *User, k *kind.Kind, o reconcile.Object, body order) error {
	gated := o.(request.Gated)
	gate, err := request.Rollback(ctx, u.Client, gated)
	switch {
	case err != nil:
		return badRequest("%s", err)
	case body.Reason == "":
		return badRequest("say why: others will see it")
	case body.Revision != gated.Held().Admitted.Revision:
		return NewError(http.StatusConflict, "what the object has is not what was shown: look at it again, then decide")
	}
	before := gate.DeepCopy()
	request.Refuse(k.Name(), gated, u.Name, body.Reason).Annotate(gate, s.Now())
	return u.Client.Patch(ctx, gate, client.MergeFrom(before), fieldOwner)
}
