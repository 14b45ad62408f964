package reconcile

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrl "sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// ReasonGatesUnknown is the reason of the event of an object whose gates cannot be read.
const ReasonGatesUnknown = "GatesUnknown"

// unknownGatesRetry is how long an object waits whose gates cannot be read, unless it is enqueued before.
const unknownGatesRetry = time.Minute

// lostGates is the message about an object that named gates and has none now, although its spec did not change.
const lostGates = "the object named gates, and has none now. An API server that does not yet use the new " +
	"CustomResourceDefinition hides them for a moment. If this remains, they were removed while the definition " +
	"lacked the field spec.gates: apply the object again, with its gates or another change of its spec"

// GateDefinitions answers whether the cluster stores the gates that objects name.
type GateDefinitions interface {
	// LacksGates returns what is wrong with the definition of a kind that does not store gates; empty if it stores
	// them. For an object that is not known to name gates, it is also empty if no gate exists. If fresh is set, the
	// definition is read from the cluster.
	LacksGates(ctx context.Context, gk schema.GroupKind, namesGates, fresh bool) (string, error)
	// Read reads an object from the cluster, without a cache.
	Read(ctx context.Context, obj client.Object) error
}

// gateFields remembers which objects of a kind named gates, and which may have lost them.
type gateFields struct {
	mu    sync.Mutex
	known map[types.NamespacedName]gatedGeneration
	// doubtful are objects that were read while the definition lacked the field. The cache may still hold them so.
	doubtful map[types.NamespacedName]string // the message that was reported last
}

// gatedGeneration is the last generation of an object that named gates.
type gatedGeneration struct {
	uid        types.UID
	generation int64
}

// update records whether an object names gates. It reports whether the gates vanished without a change of the spec,
// whether they were there before, and whether the object is doubtful.
func (g *gateFields) update(key types.NamespacedName, obj Gated) (vanished, before, doubtful bool) {
	if len(obj.GateRefs()) > 0 {
		g.remember(key, obj)
		return false, true, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	last, before := g.known[key]
	before = before && last.uid == obj.GetUID()
	_, doubtful = g.doubtful[key]
	return before && last.generation == obj.GetGeneration(), before, doubtful
}

// remember records that an object names gates at its generation.
func (g *gateFields) remember(key types.NamespacedName, obj Gated) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.known == nil {
		g.known = map[types.NamespacedName]gatedGeneration{}
	}
	g.known[key] = gatedGeneration{obj.GetUID(), obj.GetGeneration()}
}

// doubt records a message about a doubtful object, and reports whether it is new.
func (g *gateFields) doubt(key types.NamespacedName, message string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.doubtful == nil {
		g.doubtful = map[types.NamespacedName]string{}
	}
	isNew := g.doubtful[key] != message
	g.doubtful[key] = message
	return isNew
}

// trust records that the gates of an object are known.
func (g *gateFields) trust(key types.NamespacedName) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.doubtful, key)
}

func (g *gateFields) forget(key types.NamespacedName) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.known, key)
	delete(g.doubtful, key)
}

// withGates returns the object with its gates. If they cannot be known, it reports so and returns false: the object is
// left as it is, since each write would remove its gates for good.
func (l *loop[T]) withGates(ctx context.Context, obj T) (T, ctrl.Result, bool) {
	gated, ok := Object(obj).(Gated)
	if !ok || l.Definitions == nil || l.GateBehavior == Ungated {
		return obj, ctrl.Result{}, true
	}
	key := client.ObjectKeyFromObject(obj)
	vanished, before, doubtful := l.gateFields.update(key, gated)
	names := len(gated.GateRefs()) > 0
	message, err := l.Definitions.LacksGates(ctx, l.GroupKind, names || before, !names && (before || doubtful))
	if err != nil {
		message = err.Error()
	}
	if message == "" && names {
		l.gateFields.trust(key)
		return obj, ctrl.Result{}, true
	}
	retry := unknownGatesRetry
	if message == "" && (before || doubtful) {
		live := l.New()
		live.SetNamespace(obj.GetNamespace())
		live.SetName(obj.GetName())
		err := l.Definitions.Read(ctx, live)
		liveGated := Object(live).(Gated)
		switch {
		case client.IgnoreNotFound(err) != nil:
			message = "cannot read the gates of the object: " + err.Error()
		case err != nil:
			return obj, ctrl.Result{}, false // deleted
		case len(liveGated.GateRefs()) > 0:
			l.gateFields.remember(key, liveGated)
			l.gateFields.trust(key)
			return live, ctrl.Result{}, true
		case vanished && live.GetGeneration() == obj.GetGeneration() || !before && hidesGates(liveGated):
			l.gateFields.remember(key, liveGated)
			message = lostGates
			retry = l.failures.backoff(key, l.Retry, unknownGatesRetry)
		}
	}
	if message == "" {
		l.gateFields.forget(key)
		return obj, ctrl.Result{}, true
	}
	if l.gateFields.doubt(key, message) {
		log.FromContext(ctx).Info("not reconciled: the gates of the object are unknown", "reason", message)
		l.Events.Emit(l.GroupKind.Group, obj, Event{Type: warning, Reason: ReasonGatesUnknown,
			Message: "Not reconciled, since the gates of the object are unknown: " + message})
	}
	return obj, ctrl.Result{RequeueAfter: retry}, false
}

// hidesGates reports whether an object as the API server returned it has no gates, although a manager owns that field.
// The API server returns the managers of fields also while the definition lacks the field.
func hidesGates(obj Gated) bool {
	_, owned := ManagerOf(obj, "spec", "gates")
	return owned && obj.GateRefs() == nil
}

// ManagerOf returns the first manager of a field (metadata.managedFields), and reports whether there is one. The path
// has the names of the fields, such as "spec" and "gates". The cache of the process keeps the managers of Gates only.
func ManagerOf(obj client.Object, path ...string) (string, bool) {
	for _, entry := range obj.GetManagedFields() {
		if entry.FieldsV1 != nil && hasField(entry.FieldsV1.GetRawBytes(), path) {
			return entry.Manager, true
		}
	}
	return "", false
}

// hasField reports whether a set of managed fields has a field, or fields below it.
func hasField(set json.RawMessage, path []string) bool {
	for _, name := range path {
		var fields map[string]json.RawMessage
		if json.Unmarshal(set, &fields) != nil {
			return false
		}
		below, ok := fields["f:"+name]
		if !ok {
			return false
		}
		set = below
	}
	return true
}
