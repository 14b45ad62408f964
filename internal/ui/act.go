package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/excerpt"
	"github.com/sluice-gitops/sluice/internal/gate/request"
	"github.com/sluice-gitops/sluice/internal/kind"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/ui/view"
)

// fieldOwner is the field manager of writes by the UI. The history of a gate shows it.
const fieldOwner = client.FieldOwner("sluice-ui")

// suspendedBy is the annotation that says who suspended an object by the UI, and why.
const suspendedBy = "ui.sluice.dev/suspended-by"

const (
	maxReason = 500               // bytes
	maxGroups = 100               // of an approval, as of the definition of GateApproval
	maxWindow = 87600 * time.Hour // as of spec.window of a Gate
)

// Actions on objects.
const (
	actReconcile = "reconcile"
	actSuspend   = "suspend"
	actResume    = "resume"
	actOpen      = "open"
	actClose     = "close"
	actOverride  = "override"
	actApprove   = "approve"
)

// order is the body of an action.
type order struct {
	Reason   string   `json:"reason"`
	For      string   `json:"for"`      // how long a gate stays open or closed
	Revision string   `json:"revision"` // the only revision to open for or to approve
	Groups   []string `json:"groups"`   // whose membership the user approves with
	// Seen lists what waited at the gate when the user decided, as ID@revision#change. A decision on what has changed
	// since is refused, also if only the change differs.
	Seen []string `json:"seen"`
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
	return []string{actReconcile, actSuspend}
}

// act does something with an object, in the name of the user.
func (s *Server) act(ctx context.Context, u *User, r *http.Request) (any, error) {
	k, o, err := get(ctx, u, r)
	if err != nil {
		return nil, err
	}
	action := r.PathValue("action")
	if !slices.Contains(actionsOf(k, o), action) {
		return nil, badRequest("a %s cannot be asked to %q now", k.Name(), excerpt.Bytes(action, 30))
	}
	var body order
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&body); err != nil {
		return nil, badRequest("the body cannot be read: %v", err)
	}
	body.Reason = strings.TrimSpace(body.Reason)
	if len(body.Reason) > maxReason {
		return nil, badRequest("the reason has more than %d bytes", maxReason)
	}
	s.Log.Info("write by the UI", "user", u.Name, "action", action, "kind", k.Name(), "namespace", o.GetNamespace(),
		"name", o.GetName(), "reason", body.Reason)
	if g, ok := o.(*gatingv1.Gate); ok {
		err = s.actOnGate(ctx, u, g, action, body)
	} else {
		err = s.actOn(ctx, u, k, o, action, body)
	}
	if err != nil {
		return nil, err
	}
	return map[string]string{"done": action}, nil
}

// actOn requests a reconcile of an object, suspends or resumes it.
func (s *Server) actOn(ctx context.Context, u *User, k *kind.Kind, o reconcile.Object, action string,
	body order) error {
	before := o.DeepCopyObject().(client.Object)
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
	case actReconcile:
		set(meta.ReconcileRequestAnnotation, s.Now().Format(time.RFC3339Nano))
	case actSuspend:
		if body.Reason == "" {
			return badRequest("say why: others will see it")
		}
		k.SetSuspended(o, true)
		set(suspendedBy, fmt.Sprintf("%s at %s: %s", u.Name, s.Now().UTC().Format(time.RFC3339), body.Reason))
	case actResume:
		k.SetSuspended(o, false)
		set(suspendedBy, "")
	}
	return u.Client.Patch(ctx, o, client.MergeFrom(before), fieldOwner)
}

// actOnGate opens, closes, overrides or approves a gate.
func (s *Server) actOnGate(ctx context.Context, u *User, g *gatingv1.Gate, action string, body order) error {
	if err := checkSeen(g, action, body.Seen); err != nil {
		return err
	}
	window := time.Duration(0)
	if body.For != "" {
		var err error
		if window, err = time.ParseDuration(body.For); err != nil || window <= 0 || window > maxWindow {
			return badRequest("%q is not a duration such as 30m or 2h, of at most %s", excerpt.Bytes(body.For, 50),
				maxWindow)
		}
	}
	if action == actApprove {
		if body.Groups == nil {
			body.Groups = approvingGroups(g, u.Groups)
		}
		approval, err := request.Approval{User: u.Name, Groups: body.Groups, Revision: body.Revision,
			Comment: body.Reason, Expires: window}.Object(g, s.Now())
		if err != nil {
			return badRequest("%s", err)
		}
		return u.Client.Create(ctx, approval, fieldOwner)
	}
	if action == actOverride && body.Reason == "" {
		return badRequest("an override needs a reason: it is recorded in the history of the gate")
	}
	prefix := map[string]string{actOpen: gatingv1.OpenPrefix, actClose: gatingv1.ClosePrefix,
		actOverride: gatingv1.OverridePrefix}[action]
	before := g.DeepCopy()
	request.Request{Prefix: prefix, User: u.Name, Window: window, Revision: body.Revision,
		Reason: body.Reason}.Annotate(g, s.Now())
	return u.Client.Patch(ctx, g, client.MergeFrom(before), fieldOwner)
}

// approvingGroups returns those of a user's groups that may approve a gate, or changes at it.
func approvingGroups(g *gatingv1.Gate, groups []string) []string {
	rules := []*gatingv1.Approvals{g.Spec.Approvals}
	for _, r := range g.Spec.Rules {
		rules = append(rules, r.Approvals)
	}
	var out []string
	for _, name := range groups {
		if slices.ContainsFunc(rules, func(a *gatingv1.Approvals) bool {
			return a != nil && slices.Contains(a.Groups, name)
		}) && len(out) < maxGroups {
			out = append(out, name)
		}
	}
	return out
}

// checkSeen refuses a decision if what waits at the gate is not what the user saw. Closing needs no check.
func checkSeen(g *gatingv1.Gate, action string, seen []string) error {
	if action == actClose {
		return nil
	}
	now := seenNow(g)
	for _, w := range now {
		if !slices.Contains(seen, w) {
			return &changedSince{failure: failure{Error: "what waits at this gate has changed since it was shown: " +
				"look at it again, then decide"}, Current: now}
		}
	}
	return nil
}

// seenNow returns what waits at a gate, in the form of order.Seen.
func seenNow(g *gatingv1.Gate) []string {
	now := []string{}
	for _, w := range g.Status.Waiting {
		now = append(now, view.WaiterOf(w).Seen())
	}
	return now
}

func fromMap(raw map[string]any, into any) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructured(raw, into)
}

func toMap(o any) (map[string]any, error) {
	return runtime.DefaultUnstructuredConverter.ToUnstructured(o)
}
