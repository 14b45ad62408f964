// Package request writes what people ask of a gate: to open, close or override it, or an approval. Commands and the web
// UI use it; the API server checks that the named user is who writes.
package request

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
)

// Request asks a gate to open or close, or to make an object go back.
type Request struct {
	Prefix   string        // gatingv1.OpenPrefix, ClosePrefix, OverridePrefix or RefusePrefix
	User     string        // name of the requester
	Window   time.Duration // how long; zero for spec.window
	Revision string        // the only revision to let through; empty for any
	Reason   string        // recorded in the history
	Object   string        // for which the revision is refused
}

// Annotate writes the request into the annotations of a gate, and replaces the last request of the same kind. It
// returns the value by which the status reports that the gate was evaluated with the request.
func (r Request) Annotate(g *gatingv1.Gate, now time.Time) string {
	if g.Annotations == nil {
		g.Annotations = map[string]string{}
	}
	maps.DeleteFunc(g.Annotations, func(key, _ string) bool { return strings.HasPrefix(key, r.Prefix) })
	at := now.UTC().Format(time.RFC3339Nano)
	g.Annotations[r.Prefix+gatingv1.RequestedAtSuffix] = at
	g.Annotations[meta.ReconcileRequestAnnotation] = at
	g.Annotations[r.Prefix+gatingv1.RequestedBySuffix] = at + " " + r.User
	if r.Window > 0 {
		g.Annotations[r.Prefix+gatingv1.WindowSuffix] = r.Window.String()
	}
	if r.Revision != "" {
		g.Annotations[r.Prefix+gatingv1.RevisionSuffix] = r.Revision
	}
	if r.Object != "" {
		g.Annotations[r.Prefix+gatingv1.ObjectSuffix] = r.Object
	}
	if r.Reason != "" {
		g.Annotations[r.Prefix+gatingv1.ReasonSuffix] = r.Reason
	}
	return at
}

// Approval is the consent of a user.
type Approval struct {
	User     string
	Groups   []string      // whose membership the user approves with
	Revision string        // empty for any
	Comment  string        // may be empty
	Expires  time.Duration // zero for the default of the gate
	Changes  []string      // digests of the changes to approve; if empty, those that the gate lists as waiting
}

// Objects returns the GateApprovals to create. If rules of the gate require approvals, they name the changes that wait
// with the revision, of those that the status lists, at most 100 each. The error says that there is none to approve.
func (a Approval) Objects(g *gatingv1.Gate, now time.Time) ([]*gatingv1.GateApproval, error) {
	o := &gatingv1.GateApproval{
		ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, GenerateName: g.Name + "-"},
		Spec: gatingv1.GateApprovalSpec{
			GateRef: meta.LocalObjectReference{Name: g.Name}, User: a.User, Groups: a.Groups, Revision: a.Revision,
			Comment: a.Comment,
		},
	}
	if a.Expires > 0 {
		o.Spec.ExpiresAt = &meta.Time{Time: now.Add(a.Expires)}
	}
	if !RequiresChanges(g) {
		return []*gatingv1.GateApproval{o}, nil
	}
	changes := slices.Clone(a.Changes)
	for _, w := range g.Status.Waiting {
		if len(a.Changes) == 0 && w.Change != "" && IsOf(w.Revision, a.Revision) {
			changes = append(changes, w.Change)
		}
	}
	if len(changes) == 0 && g.Spec.Approvals == nil {
		return nil, fmt.Errorf("no change waits at Gate '%s/%s': its rules require approvals of single changes, so "+
			"approve when a change waits", g.Namespace, g.Name)
	}
	if len(changes) == 0 {
		return []*gatingv1.GateApproval{o}, nil
	}
	var all []*gatingv1.GateApproval
	for part := range slices.Chunk(changes, maxChanges) {
		one := o.DeepCopy()
		one.Spec.Changes = part
		all = append(all, one)
	}
	return all, nil
}

// maxChanges is the maximum number of changes that an approval names.
const maxChanges = 100

// IsOf reports whether a revision is the approved one, which may leave out the name before the "@". An empty one
// approves any.
func IsOf(revision, approved string) bool {
	_, digest, _ := strings.Cut(revision, "@")
	return approved == "" || approved == revision || approved == digest
}

// RequiresChanges reports whether approvals of a gate must name changes, as a rule requires approvals.
func RequiresChanges(g *gatingv1.Gate) bool {
	return slices.ContainsFunc(g.Spec.Rules, func(r gatingv1.Rule) bool { return r.Approvals != nil })
}
