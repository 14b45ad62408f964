package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/expression"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// Dependencies checks spec.dependsOn of the objects of one kind.
type Dependencies[T reconcile.Object] struct {
	Kind   schema.GroupKind
	Reader client.Reader
	New    func() T
	// DependsOn returns spec.dependsOn of an object.
	DependsOn func(T) []meta.DependencyReference
	Policy    ReferencePolicy
	// AdditiveReadyExpr requires that a dependency with a readyExpr is also Ready.
	AdditiveReadyExpr bool
}

// Refs returns the references of an object to its dependencies, for edges.
func (d *Dependencies[T]) Refs(obj T) []reconcile.Ref {
	var refs []reconcile.Ref
	for _, on := range d.DependsOn(obj) {
		kind := d.Kind
		if on.ReadyExpr != "" {
			kind = anyChangeOf(kind)
		}
		refs = append(refs, reconcile.RefTo(kind, cmp.Or(on.Namespace, obj.GetNamespace()), on.Name))
	}
	return refs
}

// anyChangeOf returns a pseudo kind for the edges of dependents with a readyExpr, which may read any field.
func anyChangeOf(kind schema.GroupKind) schema.GroupKind {
	return schema.GroupKind{Group: kind.Group, Kind: kind.Kind + "*"}
}

// Observe notifies dependents when a dependency changes such that changed reports true, or when its readiness or
// generation changes. Dependents with a readyExpr are notified of every change.
func (d *Dependencies[T]) Observe(ctx context.Context, e *reconcile.Edges, c cache.Cache,
	changed func(before, after T) bool) error {
	return errors.Join(
		reconcile.Observe(ctx, e, c, d.Kind, d.New(), func(before, after T) bool {
			// A dependency that stalls may be part of a dependency cycle that its dependents are part of, too.
			return reconcile.IsReady(before) != reconcile.IsReady(after) ||
				reconcile.IsStalled(before) != reconcile.IsStalled(after) ||
				before.GetGeneration() != after.GetGeneration() || changed(before, after)
		}),
		reconcile.Observe(ctx, e, c, anyChangeOf(d.Kind), d.New(), func(before, after T) bool {
			return before.GetResourceVersion() != after.GetResourceVersion()
		}),
	)
}

// Check returns the outcome of an object with a dependency that is not ready, or nil if all dependencies are ready.
// hasApplied reports whether a Ready dependency without a readyExpr has applied what the object is about to apply;
// revision names that in messages.
func (d *Dependencies[T]) Check(ctx context.Context, obj T, revision string,
	hasApplied func(dependency T) bool) *reconcile.Outcome {
	if cycle := d.cycle(ctx, obj); cycle != nil {
		return ptr.To(reconcile.Failed(fault.New(meta.DependencyNotReadyReason, "dependency cycle: %s",
			strings.Join(cycle, " → ")).WithHint("Remove one of these dependsOn entries").Final()))
	}
	for _, on := range d.DependsOn(obj) {
		key := types.NamespacedName{Namespace: cmp.Or(on.Namespace, obj.GetNamespace()), Name: on.Name}
		if err := d.Policy.Check("spec.dependsOn", obj.GetNamespace(), key.Namespace); err != nil {
			return ptr.To(reconcile.Failed(err))
		}
		dependency := d.New()
		err := d.Reader.Get(ctx, key, dependency)
		switch {
		case apierrors.IsNotFound(err):
			return ptr.To(reconcile.Waiting(meta.DependencyNotReadyReason,
				"dependency '%s' not found. Create it, or remove it from spec.dependsOn", key))
		case err != nil:
			return ptr.To(reconcile.Failed(fault.New(meta.DependencyNotReadyReason, "cannot read dependency '%s'", key).
				Because(err)))
		case on.ReadyExpr != "":
			if waiting := checkReadyExpr(ctx, obj, dependency, on.ReadyExpr); waiting != nil {
				return waiting
			}
			if d.AdditiveReadyExpr && !reconcile.IsReady(dependency) {
				return notReady(key)
			}
		case !reconcile.IsReady(dependency):
			return notReady(key)
		case !hasApplied(dependency):
			return ptr.To(reconcile.Waiting(meta.DependencyNotReadyReason,
				"dependency '%s' has not applied revision %s yet", key, revision))
		}
	}
	return nil
}

func notReady(dependency types.NamespacedName) *reconcile.Outcome {
	return ptr.To(reconcile.Waiting(meta.DependencyNotReadyReason, "dependency '%s' is not ready", dependency))
}

// CheckExpressions returns an error if a readyExpr of an object is invalid, also of a dependency that does not exist.
func (d *Dependencies[T]) CheckExpressions(obj T) error {
	for _, on := range d.DependsOn(obj) {
		if on.ReadyExpr == "" {
			continue
		}
		key := types.NamespacedName{Namespace: cmp.Or(on.Namespace, obj.GetNamespace()), Name: on.Name}
		if _, err := compileReadyExpr(key, on.ReadyExpr); err != nil {
			return err
		}
	}
	return nil
}

func compileReadyExpr(dependency types.NamespacedName, source string) (*expression.Expression, error) {
	e, err := expression.Compile(source, "self", "dep")
	if err != nil {
		return nil, fault.New(meta.InvalidCELExpressionReason, "the readyExpr of dependency '%s' is invalid",
			dependency).Because(err).WithHint("Correct spec.dependsOn[].readyExpr. It can use self, the dependent " +
			"object, and dep, the dependency").Final()
	}
	return e, nil
}

// checkReadyExpr returns the outcome if a readyExpr, which replaces the check of Ready, is not true.
func checkReadyExpr(ctx context.Context, obj, dependency reconcile.Object, source string) *reconcile.Outcome {
	key := client.ObjectKeyFromObject(dependency)
	name := fmt.Sprintf("dependency '%s'", key)
	e, err := compileReadyExpr(key, source)
	if err != nil {
		return ptr.To(reconcile.Failed(err))
	}
	self, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return ptr.To(reconcile.Failed(err))
	}
	dep, err := runtime.DefaultUnstructuredConverter.ToUnstructured(dependency)
	if err != nil {
		return ptr.To(reconcile.Failed(err))
	}
	ready, err := e.Holds(ctx, expression.Map{"self": self, "dep": dep})
	switch {
	case err != nil:
		return ptr.To(reconcile.Waiting(meta.DependencyNotReadyReason,
			"%s is not ready: cannot evaluate '%s' yet: %v", name, source, err))
	case !ready:
		return ptr.To(reconcile.Waiting(meta.DependencyNotReadyReason, "%s is not ready: '%s' is false", name, source))
	}
	return nil
}

// maxWalk bounds the objects that are read to find a cycle. The objects of a longer cycle wait without saying why.
const maxWalk = 1000

// cycle returns the names along a dependency cycle that the object is part of, or nil.
func (d *Dependencies[T]) cycle(ctx context.Context, obj T) []string {
	self := client.ObjectKeyFromObject(obj)
	dependent := map[types.NamespacedName]types.NamespacedName{} // by dependency: the first that was found
	for next := []types.NamespacedName{self}; len(next) > 0 && len(dependent) < maxWalk; {
		at := next[len(next)-1]
		next = next[:len(next)-1]
		object := obj
		if at != self {
			object = d.New()
			if d.Reader.Get(ctx, at, object) != nil {
				continue // a missing dependency is not part of a cycle
			}
		}
		for _, on := range d.DependsOn(object) {
			key := types.NamespacedName{Namespace: cmp.Or(on.Namespace, at.Namespace), Name: on.Name}
			if key == self {
				return pathTo(at, self, dependent)
			}
			if _, seen := dependent[key]; !seen {
				dependent[key] = at
				next = append(next, key)
			}
		}
	}
	return nil
}

// pathTo returns the names from an object to the one that it depends on through others, and that depends on the object.
func pathTo(last, self types.NamespacedName, dependent map[types.NamespacedName]types.NamespacedName) []string {
	path := []string{self.String()}
	for at := last; at != self; at = dependent[at] {
		path = append(path, at.String())
	}
	path = append(path, self.String())
	slices.Reverse(path)
	return path
}
