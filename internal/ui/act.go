package ui

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// fieldOwner is the field manager of writes by the UI. The history of a gate shows it.
const fieldOwner = client.FieldOwner("sluice-ui")

// suspendedBy is the annotation that says who suspended an object by the UI, and why.
const suspendedBy = "ui.sluice.dev/suspended-by"

const (
	maxReason = 500               // bytes
	maxWindow = 87600 * time.Hour // as of spec.window of a Gate
)

// Actions on objects.
const (
	actReconcile = "reconcile"
	actRetry     = "retry" // a reconcile that also forgets the failures that were counted
	actSuspend   = "suspend"
	actResume    = "resume"
	actOpen      = "open"
	actClose     = "close"
	actOverride  = "override"
	actApprove   = "approve"
	actRollback  = "rollback"
)

// order is the body of an action.
type order struct {
	Reason   string   `json:"reason"`
	For      string   `json:"for"`      // how long a gate stays open or closed
	Revision string   `json:"revision"` // the only revision to open for or to approve, or the one to go back from
	Groups   []string `json:"groups"`   // whose membership the user approves with
	// Seen lists what waited at the gate when the user decided, as ID@revision#change. A decision on what has changed
	// since is refused, also if only the change differs.
	Seen []string `json:"seen"`
}

// done is the answer to an action.
type done struct {
	Done      string `json:"done"`
	Approvals int    `json:"approvals,omitempty"` // GateApprovals that were created
	Changes   int    `json:"changes,omitempty"`   // that they name
	Left      int64  `json:"left,omitempty"`      // changes that wait and that they do not name
	Made      string `json:"made,omitempty"`      // ID of an object that was created
	Request   string `json:"request,omitempty"`   // of a reconcile; `handled` of the object is it once it is done
}

// actionsOf returns what can be done with an object. Whether the user may do it, the API server decides.
func actionsOf(k *kind.Kind, o reconcile.Object) []string {
	switch {
	case k.Name() == gatingv1.GateKind:
		return []string{actApprove, actOpen, actClose, actOverride}
	case k.ReadOnly, k.RunsOnce:
		return []string{}
	case o.Schedule().Suspended:
		return []string{actResume}
	case k.SetSuspended == nil:
		return []string{actReconcile}
	}
	if goesBack(o) {
		return []string{actReconcile, actSuspend, actRollback}
	}
	return []string{actReconcile, actSuspend}
}

// act does something with an object, in the name of the user.
func (s *Server) act(ctx context.Context, u *User, r *http.Request) (any, error) {
	k, o, err := get(ctx, u, r)
	if err != nil {
		return nil, err
	}
	action := r.PathValue("action")
	var body order
	if err := readBody(r, &body); err != nil {
		return nil, err
	}
	body.Reason = strings.TrimSpace(body.Reason)
	if err := s.allowAction(u, k, o, action, body); err != nil {
		return nil, err
	}
	answer := &done{Done: action}
	switch g, isGate := o.(*gatingv1.Gate); {
	case isGate:
		err = s.actOnGate(ctx, u, g, body, answer)
	case action == actRollback:
		err = s.rollBack(ctx, u, k, o, body)
	default:
		err = s.actOn(ctx, u, k, o, action, body)
	}
	if action == actReconcile || action == actRetry {
		answer.Request = o.GetAnnotations()[meta.ReconcileRequestAnnotation]
	}
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// allowAction returns an error for an action that is not possible now, and else writes its audit line.
func (s *Server) allowAction(u *User, k *kind.Kind, o reconcile.Object, action string, body order) error {
	needed := action
	if action == actRetry {
		needed = actReconcile
	}
	if !slices.Contains(actionsOf(k, o), needed) {
		return badRequest("a %s cannot be asked to %q now", k.Name(), excerpt.Bytes(action, 30))
	}
	if len(body.Reason) > maxReason {
		return badRequest("the reason has more than %d bytes", maxReason)
	}
	by := "write by the UI"
	if s.IsMCP {
		by = "write by the MCP server"
	}
	s.Log.Info(by, "user", u.Name, "action", action, "kind", k.Name(), "namespace", o.GetNamespace(),
		"name", o.GetName(), "reason", body.Reason)
	return nil
}

// actOn requests a reconcile of an object, suspends or resumes it.
func (s *Server) actOn(ctx context.Context, u *User, k *kind.Kind, o reconcile.Object, action string,
	body order) error {
	before, owner, who := o.DeepCopyObject().(client.Object), fieldOwner, u.Name
	if s.IsMCP {
		owner, who = client.FieldOwner(MCPAgent), who+" by the MCP server"
	}
	set := func(key, value string) {
		annotations := o.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[key] = value
		if value == "" {
			delete(annotations, key)
		}
		o.SetAnnotations(annotations)
	}
	switch action {
	case actReconcile, actRetry:
		at := s.Now().Format(time.RFC3339Nano)
		set(meta.ReconcileRequestAnnotation, at)
		if _, isRelease := o.(*helmv2.HelmRelease); isRelease && action == actRetry {
			set(helmv2.ResetRequestAnnotation, at)
		}
	case actSuspend:
		if body.Reason == "" {
			return badRequest("say why: others will see it")
		}
		k.SetSuspended(o, true)
		set(suspendedBy, fmt.Sprintf("%s at %s: %s", who, s.Now().UTC().Format(time.RFC3339), body.Reason))
	case actResume:
		k.SetSuspended(o, false)
		set(suspendedBy, "")
	}
	return u.Client.Patch(ctx, o, client.MergeFrom(before), owner)
}
