package gate

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/cluster/kubewatch"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch

var definitionResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
	Resource: "customresourcedefinitions"}

// definitionTimeout bounds the read of a definition.
const definitionTimeout = 10 * time.Second

// Definitions observes whether the definitions of gated kinds store the gates of objects. Another tool may replace them
// by definitions without spec.gates, such as those of Flux. The API server then hides the gates of all objects, and
// removes them with the next write. It implements [reconcile.GateDefinitions].
type Definitions struct {
	Live client.Reader // without a cache
	Log  logr.Logger
	// HasGates reports whether the cluster has any gate. Without one, definitions that lack the field hold no object.
	HasGates func() bool
	// Enqueue enqueues all objects of a kind.
	Enqueue func(schema.GroupKind)

	dynamic dynamic.Interface
	names   map[schema.GroupKind]string // of the definitions
	kinds   map[string]schema.GroupKind

	mu      sync.Mutex
	lacks   map[schema.GroupKind]bool // as observed last
	changed []schema.GroupKind        // kinds to enqueue after the lock is released
	watches *kubewatch.Store[*unstructured.Unstructured, bool, struct{}]
}

// Observe starts to watch the definitions of kinds, one watch for each.
func (d *Definitions) Observe(c dynamic.Interface, mapper meta.RESTMapper, kinds []GatedKind) error {
	d.dynamic, d.names, d.kinds = c, map[schema.GroupKind]string{}, map[string]schema.GroupKind{}
	d.lacks = map[schema.GroupKind]bool{}
	for _, k := range kinds {
		mapping, err := mapper.RESTMapping(k.GroupKind)
		if err != nil {
			return err
		}
		name := mapping.Resource.GroupResource().String()
		d.names[k.GroupKind], d.kinds[name] = name, k.GroupKind
	}
	d.watches = kubewatch.New(&d.mu, kubewatch.Dynamic(c),
		kubewatch.Handler[*unstructured.Unstructured, bool, struct{}]{
			Object:   d.observe,
			Refused:  d.refused,
			Unlocked: d.unlocked,
		})
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range d.names {
		d.watches.Watch(keyOfDefinition(name), lacksGates)
	}
	return nil
}

// Close ends the watches.
func (d *Definitions) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watches.Close()
}

func keyOfDefinition(name string) kubewatch.Key {
	return kubewatch.Key{Resource: definitionResource, Name: name}
}

// observe records a definition, and says so when it starts or ceases to lack the field. The caller holds the lock.
func (d *Definitions) observe(_ *kubewatch.Watch[*unstructured.Unstructured, bool, struct{}],
	o *unstructured.Unstructured, deleted bool) {
	gk, ok := d.kinds[o.GetName()]
	lacks := lacksGates(o)
	if !ok || deleted || d.lacks[gk] == lacks {
		return
	}
	d.lacks[gk] = lacks
	d.changed = append(d.changed, gk)
	if lacks {
		d.Log.Error(nil, missingGates(o.GetName()))
	} else {
		d.Log.Info(fmt.Sprintf("CustomResourceDefinition '%s' has the field spec.gates again", o.GetName()))
	}
}

// refused logs that a definition may not be watched. The caller holds the lock.
func (d *Definitions) refused(w *kubewatch.Watch[*unstructured.Unstructured, bool, struct{}]) {
	d.Log.Error(w.Refusal(), "cannot watch a CustomResourceDefinition: a definition without spec.gates is found late. "+
		"Grant get, list and watch of customresourcedefinitions", "definition", w.Key().Name)
}

// unlocked enqueues the objects of definitions that changed.
func (d *Definitions) unlocked() {
	d.mu.Lock()
	changed := d.changed
	d.changed = nil
	d.mu.Unlock()
	for _, gk := range changed {
		d.Enqueue(gk)
	}
}

// missingGates says that a definition lacks the field, and what to do.
func missingGates(name string) string {
	return fmt.Sprintf("CustomResourceDefinition '%s' lacks the field spec.gates: another tool replaced it, so gates "+
		"are unknown. Run sluice install --force to restore it, and remove it from the repository that replaces it",
		name)
}

// LacksGates implements [reconcile.GateDefinitions].
func (d *Definitions) LacksGates(ctx context.Context, gk schema.GroupKind, namesGates,
	fresh bool) (string, error) {
	name, ok := d.names[gk]
	if !ok {
		return "", nil
	}
	d.mu.Lock()
	w := d.watches.Get(keyOfDefinition(name))
	known, lacks := w == nil || w.Synced() || w.Refusal() != nil, d.lacks[gk]
	d.mu.Unlock()
	if fresh || !known {
		ctx, cancel := context.WithTimeout(ctx, definitionTimeout)
		defer cancel()
		o, err := d.dynamic.Resource(definitionResource).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsForbidden(err) && !fresh {
			return "", nil // older installations do not grant it, and the log says so
		}
		if err != nil {
			return "", fmt.Errorf("cannot read CustomResourceDefinition '%s': %w", name, err)
		}
		lacks = lacksGates(o)
	}
	if !lacks || !namesGates && !d.HasGates() {
		return "", nil
	}
	return missingGates(name), nil
}

// Read implements [reconcile.GateDefinitions].
func (d *Definitions) Read(ctx context.Context, obj client.Object) error {
	return d.Live.Get(ctx, types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}, obj)
}

// lacksGates reports whether the stored version of a definition has no field spec.gates.
func lacksGates(o *unstructured.Unstructured) bool {
	versions, _, err := unstructured.NestedSlice(o.Object, "spec", "versions")
	if err != nil {
		return true
	}
	for _, v := range versions {
		version, ok := v.(map[string]any)
		if !ok || version["storage"] != true {
			continue
		}
		_, found, err := unstructured.NestedMap(version, "schema", "openAPIV3Schema", "properties", "spec",
			"properties", "gates")
		return err != nil || !found
	}
	return true
}

var _ reconcile.GateDefinitions = &Definitions{}
