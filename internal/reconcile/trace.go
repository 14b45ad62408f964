package reconcile

import (
	"context"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/tracing"
)

// Keys of the metadata of events that belong to a trace.
const (
	traceIDKey  = "traceID"
	traceURLKey = "traceURL"
)

// waits remembers since when objects wait, so that the time between two passes is part of the trace.
type waits struct {
	mu sync.Mutex
	of map[types.NamespacedName]wait
}

// wait is what an object waits for, between two passes.
type wait struct {
	name     string // of the span
	revision string
	since    time.Time
}

// next records what an object waits for after a pass, and returns what it waited for before.
func (w *waits) next(key types.NamespacedName, now wait) (before wait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before = w.of[key]
	switch {
	case now.name == "":
		delete(w.of, key)
	case now.name == before.name && now.revision == before.revision:
		return wait{} // it still waits
	default:
		if w.of == nil {
			w.of = map[types.NamespacedName]wait{}
		}
		w.of[key] = now
	}
	return before
}

// waitOf returns what an object waits for after a pass.
func waitOf(o Outcome, now time.Time) wait {
	w := wait{revision: revisionOf(o), since: now}
	switch {
	case o.pending != nil && o.pending.Revision != "":
		w.name = "at gates"
	case o.state == waiting:
		w.name = "waiting (" + o.reason + ")"
	case o.state == progressing:
		w.name = "rollout"
	}
	return w
}

// linked adds the trace of an outcome to its events.
func (l *loop[T]) linked(o Outcome) Outcome {
	id := tracing.ID(o.traceparent)
	if l.Tracer == nil || id == "" {
		return o
	}
	if url := l.Tracer.Link(id); url != "" {
		o = o.WithMetadata(traceURLKey, url)
	}
	return o.WithMetadata(traceIDKey, id)
}

// trace exports a pass as part of the trace of its change. A pass that changed nothing is not exported, nor one that
// the end of the process interrupted.
func (l *loop[T]) trace(ctx context.Context, p *tracing.Pass, obj, before T, o Outcome, isNews bool) {
	if p == nil || ctx.Err() != nil && o.state != ready {
		return
	}
	waited := l.waits.next(client.ObjectKeyFromObject(obj), waitOf(o, l.Clock.Now()))
	if was := readyOf(before); o.unchanged && was != nil && was.Status == metav1.ConditionTrue {
		isNews = false // the revision of a source with many objects that change nothing here
	}
	if !isNews && !p.Began() && waited.name == "" {
		return
	}
	s := tracing.Summary{
		Traceparent: o.traceparent,
		Name:        l.GroupKind.Kind + " " + obj.GetNamespace() + "/" + obj.GetName(),
		Waited:      tracing.Step{Name: waited.name, Start: waited.since},
		Attributes: map[string]string{
			"k8s.namespace.name": obj.GetNamespace(), "sluice.kind": l.GroupKind.Kind, "sluice.name": obj.GetName(),
			"sluice.revision": revisionOf(o), "sluice.reason": o.reason, "sluice.message": firstLine(o.message),
			"sluice.commit.author":  o.metadata[meta.EventCommitAuthorKey],
			"sluice.commit.subject": o.metadata[meta.EventCommitMessageKey],
		},
	}
	if o.state == failed || o.state == stalled {
		s.Failure = firstLine(o.message)
	}
	p.End(s)
}

// traceparentOf returns what names the trace of an artifact.
func traceparentOf(a *meta.Artifact) string { return strings.TrimSpace(a.Metadata[meta.TraceKey]) }
