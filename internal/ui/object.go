package ui

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/gate/forecast"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/ui/state"
	"github.com/sluice-gitops/sluice/internal/ui/view"
)

// Bounds of the page of an object.
const (
	maxEvents       = 100       // shown
	maxEventsRead   = 1000      // of the many that a tenant can create
	maxConditions   = 50        // controllers write fewer
	maxHistory      = 100       // versions
	maxConditionRow = 8 << 10   // bytes of a message
	maxYAML         = 512 << 10 // bytes
	maxLog          = 1 << 20   // bytes
	defaultLogLines = 500
	maxLogLines     = 5000
	calendarSpan    = 14 * 24 * time.Hour
	calendarRows    = 100
)

// detail is the page of an object.
type detail struct {
	Item       *view.Item         `json:"item"`
	Conditions []metav1.Condition `json:"conditions"`
	Events     []event            `json:"events"`
	EventError string             `json:"eventError,omitempty"` // why events cannot be shown
	History    []version          `json:"history"`
	Pending    *meta.Pending      `json:"pending,omitempty"`
	Why        string             `json:"why,omitempty"` // which gates hold the change, and why
	Admitted   *admitted          `json:"admitted,omitempty"`
	Gate       *gateEntry         `json:"gate,omitempty"`       // of a Gate: what waits
	Rollback   *rollback          `json:"rollback,omitempty"`   // what it can go back to
	Diff       string             `json:"diff,omitempty"`       // what an ImageUpdateJob changed or would change
	Suspension string             `json:"suspension,omitempty"` // who suspended it and why, if it was done here
	Actions    []string           `json:"actions"`
	Handled    string             `json:"handled,omitempty"` // the last request of a reconcile that was handled
	YAML       string             `json:"yaml"`
	Values     string             `json:"values,omitempty"` // of a HelmRelease, as its spec has them, in YAML
}

// admitted is the last revision that gates let through.
type admitted struct {
	Revision string    `json:"revision"`
	ReadyAt  time.Time `json:"readyAt,omitzero"`  // when the object was first Ready with it, if a gate watches it
	FailedAt time.Time `json:"failedAt,omitzero"` // when it became unhealthy with it
	Message  string    `json:"message,omitempty"` // why
}

// event is one line of what happened to an object.
type event struct {
	At      time.Time `json:"at"`
	Type    string    `json:"type"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Count   int32     `json:"count"`
}

// pathOf returns the kind and the name in the path of a request.
func pathOf(r *http.Request) (*kind.Kind, types.NamespacedName, error) {
	k := kind.ByName(r.PathValue("kind"))
	if k == nil {
		return nil, types.NamespacedName{}, &httpError{status: http.StatusNotFound,
			text: fmt.Sprintf("unknown kind %q", excerpt.Bytes(r.PathValue("kind"), 100))}
	}
	return k, types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}, nil
}

// get reads the object of a request with the rights of the user.
func get(ctx context.Context, u *User, r *http.Request) (*kind.Kind, reconcile.Object, error) {
	k, key, err := pathOf(r)
	if err != nil {
		return nil, nil, err
	}
	o := k.New()
	if err := u.Client.Get(ctx, key, o); err != nil {
		return nil, nil, err
	}
	return k, o, nil
}

// object returns the page of an object.
func (s *Server) object(ctx context.Context, u *User, r *http.Request) (any, error) {
	k, o, err := get(ctx, u, r)
	if err != nil {
		return nil, err
	}
	item := view.Of(k, o)
	d := detail{Item: item, Conditions: conditionsOf(o), History: historyOf(o, s.repositoryOf(ctx, u, item)),
		Actions: actionsOf(k, o), Suspension: excerpt.Bytes(o.GetAnnotations()[suspendedBy], maxConditionRow),
		Handled: o.CommonStatus().LastHandledReconcileAt, Rollback: rollbackOf(ctx, u, o)}
	d.History = d.History[:min(len(d.History), maxHistory)]
	if g, ok := o.(reconcile.Gated); ok {
		d.setHeld(o, g.Held())
	}
	if item.Gate != nil {
		may, err := s.filter(ctx, u)
		if err != nil {
			return nil, err
		}
		entry := s.newReader(u, may).entry(ctx, item)
		d.Gate = &entry
	}
	if job, ok := o.(*imagev1alpha1.ImageUpdateJob); ok {
		d.Diff = job.Status.Diff
	}
	if d.Events, err = eventsOf(ctx, u, k.Name(), client.ObjectKeyFromObject(o)); err != nil {
		d.EventError = explain(err)
	}
	if hr, ok := o.(*helmv2.HelmRelease); ok {
		if d.Values, err = valuesOf(hr); err != nil {
			return nil, err
		}
	}
	text, err := yamlOf(u, o)
	if err != nil {
		return nil, err
	}
	d.YAML = excerpt.Bytes(text, maxYAML)
	return d, nil
}

// setHeld records what waits at gates, why, and what they let through.
func (d *detail) setHeld(o reconcile.Object, h *meta.Held) {
	if d.Pending = h.Pending; d.Pending != nil {
		d.Why = view.HeldBecause(o)
	}
	if a := h.Admitted; a != nil {
		d.Admitted = &admitted{Revision: a.Revision}
		if a.ReadyAt != nil {
			d.Admitted.ReadyAt = a.ReadyAt.Time
		}
		if a.Failure != nil {
			d.Admitted.FailedAt, d.Admitted.Message = a.Failure.At.Time, a.Failure.Message
		}
	}
}

// conditionsOf returns the first conditions of an object, with shortened messages. The YAML has them as they are.
func conditionsOf(o reconcile.Object) []metav1.Condition {
	all := o.CommonStatus().Conditions
	conditions := slices.Clone(all[:min(len(all), maxConditions)])
	for i := range conditions {
		conditions[i].Message = excerpt.Bytes(conditions[i].Message, maxConditionRow)
	}
	return conditions
}

// valuesOf returns the values of a release and where others come from; empty if it has none.
func valuesOf(hr *helmv2.HelmRelease) (string, error) {
	declared := map[string]any{}
	if hr.Spec.Values != nil {
		declared["values"] = hr.Spec.Values
	}
	if len(hr.Spec.ValuesFrom) > 0 {
		declared["valuesFrom"] = hr.Spec.ValuesFrom
	}
	if len(declared) == 0 {
		return "", nil
	}
	text, err := yaml.Marshal(declared)
	return excerpt.Bytes(string(text), maxYAML), err
}

// yamlOf returns an object as YAML with its kind, which typed clients leave out, and without managed fields.
func yamlOf(u *User, o reconcile.Object) (string, error) {
	gvk, err := apiutil.GVKForObject(o, u.Client.Scheme())
	if err != nil {
		return "", err
	}
	o.GetObjectKind().SetGroupVersionKind(gvk)
	o.SetManagedFields(nil)
	text, err := yaml.Marshal(o)
	return string(text), err
}

// eventsOf returns the last events of an object, newest first.
func eventsOf(ctx context.Context, u *User, kind string, o types.NamespacedName) ([]event, error) {
	var list corev1.EventList
	err := u.Client.List(ctx, &list, client.InNamespace(o.Namespace), client.MatchingFieldsSelector{
		Selector: fields.Set{"involvedObject.kind": kind, "involvedObject.name": o.Name}.AsSelector()},
		client.Limit(maxEventsRead))
	if err != nil {
		return nil, err
	}
	events := []event{}
	for _, e := range list.Items {
		at := cmp.Or(e.LastTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time)
		events = append(events, event{At: at, Type: typeOf(e.Type, e.Reason), Reason: e.Reason, Message: e.Message,
			Count: max(e.Count, 1)})
	}
	slices.SortStableFunc(events, func(a, b event) int { return b.At.Compare(a.At) })
	return events[:min(len(events), maxEvents)], nil
}

// typeOf returns the type by which an event is shown. While an object waits for its source, its event ArtifactFailed is
// Normal, as that of Flux, so that an installation causes no alert; on the page of the object it is a warning.
func typeOf(kind, reason string) string {
	if strings.HasSuffix(reason, "Failed") {
		return corev1.EventTypeWarning
	}
	return kind
}

// transition is a future change of a gate.
type transition struct {
	At     time.Time `json:"at"`
	Entry  string    `json:"entry,omitempty"`
	Opened bool      `json:"opened"`
	Why    string    `json:"why"`
}

// calendar returns when a gate changes in the next days without any request, and how it changed before.
func (s *Server) calendar(ctx context.Context, u *User, r *http.Request) (any, error) {
	_, o, err := get(ctx, u, r)
	if err != nil {
		return nil, err
	}
	g, ok := o.(*gatingv1.Gate)
	if !ok {
		return nil, badRequest("only a Gate has a calendar")
	}
	list, more, err := forecast.Transitions(g, s.Now(), calendarSpan, calendarRows)
	if err != nil {
		return nil, badRequest("the calendar cannot be computed: %v", err)
	}
	next := []transition{}
	for _, t := range list {
		next = append(next, transition{At: t.At, Entry: t.Entry, Opened: t.Opened, Why: t.Why})
	}
	return map[string]any{"next": next, "more": more, "past": historyOf(g, "")}, nil
}

// logs returns the last lines of a container. Parameters: namespace, pod, container, lines and previous.
func (s *Server) logs(ctx context.Context, u *User, r *http.Request) (any, error) {
	q := r.URL.Query()
	lines, err := number(q.Get("lines"), defaultLogLines, maxLogLines)
	if err != nil {
		return nil, err
	}
	tail, limit := int64(lines), int64(maxLog)
	stream, err := u.Cluster.CoreV1().Pods(q.Get("namespace")).GetLogs(q.Get("pod"), &corev1.PodLogOptions{
		Container: q.Get("container"), TailLines: &tail, LimitBytes: &limit, Previous: q.Get("previous") == "true",
	}).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	text, err := io.ReadAll(io.LimitReader(bufio.NewReader(stream), maxLog))
	if err != nil {
		return nil, err
	}
	return map[string]string{"text": string(text)}, nil
}

// tree returns what an object made, with the health that it has now.
func (s *Server) tree(ctx context.Context, u *User, r *http.Request) (any, error) {
	_, o, err := get(ctx, u, r)
	if err != nil {
		return nil, err
	}
	return state.ReadTree(ctx, u.Client, o, false, false)
}
