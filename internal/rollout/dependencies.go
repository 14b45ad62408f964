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
	"github.com/sluice-gitops/sluice/internal/build/expression"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Dependencies checks spec.dependsOn of the objects of one kind. Dependencies of the same kind are read from the cache,
// those of other kinds are watched.
type Dependencies[T reconcile.Object] struct {
	Kind   schema.GroupKind
	Reader client.Reader
	New    func() T
	// DependsOn returns spec.dependsOn of an object.
	DependsOn func(T) []meta.DependencyReference
	Policy    ReferencePolicy
	// Account returns the ServiceAccount that an object deploys with; empty for that of the controllers.
	Account func(T) string
	Watch   *DependencyWatch
	// AdditiveReadyExpr requires that a dependency with a readyExpr is also Ready.
	AdditiveReadyExpr bool
}

// Refs returns the references of an object to its dependencies, for edges.
func (d *Dependencies[T]) Refs(obj T) []reconcile.Ref {
	var refs []reconcile.Ref
	for _, on := range d.DependsOn(obj) {
		if on.Kind != "" {
			continue // has a watch of its own
		}
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
	d.register()
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

// register lets the dependents of all kinds find cycles that objects of this kind are part of.
func (d *Dependencies[T]) register() {
	d.Watch.kinds[d.Kind] = func(ctx context.Context, name types.NamespacedName) []reconcile.Ref {
		obj := d.New()
		if d.Reader.Get(ctx, name, obj) != nil {
			return nil // a missing dependency is not part of a cycle
		}
		return d.waitsFor(obj)
	}
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
	d.Watch.keep(d.refOf(obj), len(d.DependsOn(obj)))
	for n, on := range d.DependsOn(obj) {
		namespace := cmp.Or(on.Namespace, obj.GetNamespace())
		if err := d.Policy.Check("spec.dependsOn", obj.GetNamespace(), namespace); err != nil {
			return ptr.To(reconcile.Failed(err))
		}
		unmet := d.checkOwnKind
		if on.Kind != "" {
			unmet = d.checkOtherKind
		}
		if outcome := unmet(ctx, obj, n, revision, hasApplied); outcome != nil {
			return outcome
		}
	}
	return nil
}

// checkOtherKind returns the outcome of an object whose dependency n, which has a kind, is not ready; nil if it is.
func (d *Dependencies[T]) checkOtherKind(ctx context.Context, obj T, n int, _ string,
	_ func(T) bool) *reconcile.Outcome {
	dependency, err := parseDependency(n, d.DependsOn(obj)[n], obj.GetNamespace())
	if err != nil {
		return ptr.To(reconcile.Failed(err))
	}
	return d.Watch.unmet(ctx, d.refOf(obj), d.Account(obj), n, dependency)
}

// checkOwnKind returns the outcome of an object whose dependency n of the same kind is not ready; nil if it is.
func (d *Dependencies[T]) checkOwnKind(ctx context.Context, obj T, n int, revision string,
	hasApplied func(dependency T) bool) *reconcile.Outcome {
	on := d.DependsOn(obj)[n]
	key := types.NamespacedName{Namespace: cmp.Or(on.Namespace, obj.GetNamespace()), Name: on.Name}
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
	return nil
}

func (d *Dependencies[T]) refOf(obj T) reconcile.Ref {
	return reconcile.RefTo(d.Kind, obj.GetNamespace(), obj.GetName())
}

func notReady(dependency types.NamespacedName) *reconcile.Outcome {
	return ptr.To(reconcile.Waiting(meta.DependencyNotReadyReason, "dependency '%s' is not ready", dependency))
}

// CheckSpec returns an error if an entry of an object is invalid, also if the dependency does not exist.
func (d *Dependencies[T]) CheckSpec(obj T) error {
	for n, on := range d.DependsOn(obj) {
		if on.Kind != "" || on.APIVersion != "" {
			if _, err := parseDependency(n, on, obj.GetNamespace()); err != nil {
				return err
			}
			continue
		}
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

// cycle returns the names along a dependency cycle that the object is part of, or nil. They include the kinds if these
// differ.
func (d *Dependencies[T]) cycle(ctx context.Context, obj T) []string {
	self := d.refOf(obj)
	dependent := map[reconcile.Ref]reconcile.Ref{} // by dependency: the first that was found
	for next := []reconcile.Ref{self}; len(next) > 0 && len(dependent) < maxWalk; {
		at := next[len(next)-1]
		next = next[:len(next)-1]
		on := d.waitsFor(obj)
		if at != self {
			on = d.dependenciesOf(ctx, at)
		}
		for _, ref := range on {
			if ref == self {
				return namesOf(pathTo(at, self, dependent))
			}
			if _, seen := dependent[ref]; !seen {
				dependent[ref] = at
				next = append(next, ref)
			}
		}
	}
	return nil
}

// waitsFor returns the dependencies that must be ready. One that only has to exist is not part of a cycle.
func (d *Dependencies[T]) waitsFor(obj T) (refs []reconcile.Ref) {
	for n, on := range d.DependsOn(obj) {
		if on.Kind == "" {
			refs = append(refs, reconcile.RefTo(d.Kind, cmp.Or(on.Namespace, obj.GetNamespace()), on.Name))
		} else if t, err := targetOf(n, on, obj.GetNamespace()); err == nil && needsReady(on) {
			gk := schema.GroupKind{Group: t.Group, Kind: t.Kind}
			refs = append(refs, reconcile.RefTo(gk, t.Namespace, t.Name))
		}
	}
	return refs
}

// dependenciesOf returns what an object waits for; nil if it does not exist or its kind has no dependencies.
func (d *Dependencies[T]) dependenciesOf(ctx context.Context, ref reconcile.Ref) []reconcile.Ref {
	if read := d.Watch.kinds[ref.GroupKind]; read != nil {
		return read(ctx, ref.NamespacedName)
	}
	return nil
}

// pathTo returns the way from an object to the one that it depends on through others, and that depends on the object.
func pathTo(last, self reconcile.Ref, dependent map[reconcile.Ref]reconcile.Ref) []reconcile.Ref {
	path := []reconcile.Ref{self}
	for at := last; at != self; at = dependent[at] {
		path = append(path, at)
	}
	path = append(path, self)
	slices.Reverse(path)
	return path
}

func namesOf(path []reconcile.Ref) (names []string) {
	mixed := slices.ContainsFunc(path, func(r reconcile.Ref) bool { return r.GroupKind != path[0].GroupKind })
	for _, r := range path {
		name := r.NamespacedName.String()
		if mixed {
			name = r.Kind + "/" + name
		}
		names = append(names, name)
	}
	return names
}
