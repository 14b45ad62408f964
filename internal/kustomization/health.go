package kustomization

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/health"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// maxNamed bounds how many objects a message names.
const maxNamed = 5

// healthProgress is how far the objects that health waits for have come.
type healthProgress struct {
	revision string    // of the source and the spec that the clock runs for
	since    time.Time // when the wait began
	healthy  bool      // whether all were healthy once since then
	waiting  string    // the source's revision whose objects are waited for; empty when nothing is
}

func healthKey(o apply.Owner) string { return o.Namespace + "/" + o.Name }

func (c *Clusters) wakeKey(key string) {
	namespace, name, _ := strings.Cut(key, "/")
	c.Edges.Enqueue(reconcile.Ref{GroupKind: KustomizationGroupKind,
		NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
}

// checkHealth returns nil when all that health waits for is healthy, a progressing outcome while it comes on,
// or the failure. It never blocks: the watches wake the Kustomization when something changes.
func (r *run) checkHealth(ctx context.Context) (*reconcile.Outcome, error) {
	targets, err := r.healthTargets()
	if err != nil {
		return nil, err
	}
	checks, err := r.memory.checks.of(r.obj)
	if err != nil {
		return nil, err
	}
	key := healthKey(r.owner())
	r.target.Health.SetTargets(key, targets, checks...)
	r.expect(key, targets)
	if len(targets) == 0 {
		reconcile.Unmark(r.obj, meta.HealthyCondition)
		return nil, nil
	}
	results, synced := r.target.Health.Results(key)
	pending, broken := split(results, r.memory.expiring)
	p := r.progress()
	p.waiting = ""
	left := p.since.Add(r.obj.Schedule().Timeout).Sub(r.Clock.Now())
	switch {
	case synced && len(pending)+len(broken) == 0:
		p.healthy, p.since = true, r.Clock.Now()
		reconcile.Mark(r.obj, meta.HealthyCondition, metav1.ConditionTrue, meta.SucceededReason, "Health check passed")
		return nil, nil
	case left <= 0, len(broken) > 0 && (p.healthy || !r.Options.PatientHealth):
		return nil, r.unhealthy(ctx, append(broken, pending...))
	case p.healthy:
		// A rollout of what was healthy: it has its time before anything is said of it.
		return nil, nil
	default:
		message := fmt.Sprintf("Running health checks for revision %s with a timeout of %s", r.source.Revision,
			r.obj.Schedule().Timeout)
		p.waiting = r.source.Revision
		reconcile.Mark(r.obj, meta.HealthyCondition, metav1.ConditionUnknown, meta.ProgressingReason, message)
		o := reconcile.Progressing(left, "%s", message)
		return &o, nil
	}
}

// cancelHealth ends the wait for the objects of another revision, before anything is done for this one.
func (r *run) cancelHealth() {
	p := &r.memory.health
	if p.waiting == "" || p.waiting == r.source.Revision {
		return
	}
	message := fmt.Sprintf("Health checks for revision %s canceled: revision %s has come", p.waiting, r.source.Revision)
	p.waiting = ""
	r.events = append(r.events, event{reason: meta.HealthCheckCanceledReason, message: message})
	reconcile.Mark(r.obj, meta.HealthyCondition, metav1.ConditionUnknown, meta.HealthCheckCanceledReason, message)
}

// expect tells the watches what was just written: what they saw before that says nothing of this revision.
func (r *run) expect(key string, targets []health.Target) {
	if len(r.written) == 0 {
		return
	}
	for _, t := range targets {
		if version := r.written[apply.Ref{Group: t.Group, Kind: t.Kind, Namespace: t.Namespace,
			Name: t.Name}]; version != "" {
			r.target.Health.ExpectVersion(key, t, version)
		}
	}
}

// expressions keeps the compiled spec.healthCheckExprs of a generation.
type expressions struct {
	generation int64
	checks     []*health.Check
}

func (e *expressions) of(obj *kustomizev1.Kustomization) ([]*health.Check, error) {
	if e.generation == obj.Generation {
		return e.checks, nil
	}
	var checks []*health.Check
	for _, x := range obj.Spec.HealthCheckExprs {
		c, err := health.NewCheck(x.APIVersion, x.Kind, x.Current, x.InProgress, x.Failed)
		if err != nil {
			return nil, fault.New(meta.InvalidCELExpressionReason, "spec.healthCheckExprs for %s of %s cannot be read",
				x.Kind, x.APIVersion).
				Because(err).WithHint("Correct the expression; it sees the object's fields, such as status, by " +
				"their names").Final()
		}
		checks = append(checks, c)
	}
	*e = expressions{obj.Generation, checks}
	return checks, nil
}

// progress returns the clock of the wait; a new revision or spec, or an apply that changed something, starts it anew.
// What was Ready when the process before this one stopped counts as healthy until its watches say otherwise.
func (r *run) progress() *healthProgress {
	p := &r.memory.health
	revision := fmt.Sprintf("%s/%d", r.memory.digest, r.obj.Generation)
	if p.revision != revision || len(r.notes) > 0 {
		carried := p.revision == "" && len(r.notes) == 0 && reconcile.IsReady(r.obj) &&
			r.obj.Status.LastAppliedRevision == r.source.Revision
		*p = healthProgress{revision: revision, since: r.Clock.Now(), healthy: carried}
	}
	return p
}

// healthTargets lists what health waits for: everything applied, or what spec.healthChecks names.
func (r *run) healthTargets() ([]health.Target, error) {
	var targets []health.Target
	if r.obj.Spec.Wait {
		for _, e := range inventoryOf(r.obj) {
			ref, err := e.Ref()
			if err != nil {
				return nil, err
			}
			targets = append(targets, health.Target{Group: ref.Group, Version: ref.Version, Kind: ref.Kind,
				Namespace: ref.Namespace, Name: ref.Name})
		}
		return targets, nil
	}
	for _, c := range r.obj.Spec.HealthChecks {
		t, err := health.Resolve(c.APIVersion, c.Kind, orOwn(r.obj, c.Namespace), c.Name)
		if err != nil {
			return nil, err
		}
		targets = append(targets, t)
	}
	return targets, nil
}

// expiring lists the objects that go by themselves once they have done their work.
func expiring(objects []*unstructured.Unstructured) map[health.Target]bool {
	found := map[health.Target]bool{}
	for _, o := range objects {
		if apply.HasTTL(o) {
			gvk := o.GroupVersionKind()
			found[health.Target{Group: gvk.Group, Kind: gvk.Kind,
				Namespace: cmp.Or(o.GetNamespace(), metav1.NamespaceDefault), Name: o.GetName()}] = true
		}
	}
	return found
}

// split parts what is not healthy into what may yet become so and what said that it won't. What has gone by
// itself is one or the other by what it came to before that.
func split(results []health.Result, expiring map[health.Target]bool) (pending, broken []health.Result) {
	for _, res := range results {
		t := res.Target
		t.Version = ""
		gone := res.Status == health.NotFound && expiring[t]
		switch {
		case res.Status == health.Current, gone && !res.HadFailed:
		case res.Status == health.Failed, gone:
			broken = append(broken, res)
		default:
			pending = append(pending, res)
		}
	}
	return pending, broken
}

// unhealthy makes the failure: each object with its own reason, not a time-out alone.
func (r *run) unhealthy(ctx context.Context, results []health.Result) error {
	var parts []string
	for i, res := range results {
		if i == maxNamed {
			parts = append(parts, fmt.Sprintf("and %d more", len(results)-maxNamed))
			break
		}
		parts = append(parts, fmt.Sprintf("%s %s: %s", res.Target, res.Status, r.target.Health.Explain(ctx, res)))
	}
	waited := min(r.Clock.Since(r.memory.health.since), r.obj.Schedule().Timeout).Round(time.Second)
	f := fault.New(meta.HealthCheckFailedReason, "health check failed after %s: %s", waited, strings.Join(parts, "; "))
	reconcile.Mark(r.obj, meta.HealthyCondition, metav1.ConditionFalse, meta.HealthCheckFailedReason, f.Error())
	return f
}
