package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
)

// ReplicasAnnotation is set on a Deployment that a migration scaled down, to the number of replicas that it had.
const ReplicasAnnotation = "migrate.sluice.dev/replicas"

// stopFlux scales the Deployments of Flux down and waits until no process of theirs can write: first Flux Operator,
// which would scale the others up again. If Sluice takes over namespaces, it labels their objects instead.
func (e *Engine) stopFlux(ctx context.Context, s *State) error {
	if e.isSharded() {
		return e.label(ctx, s.Labelled, ShardKey)
	}
	isOperator := func(d SavedDeployment) bool { return d.Controller == fluxOperator }
	operator := slices.DeleteFunc(slices.Clone(s.Deployments), func(d SavedDeployment) bool { return !isOperator(d) })
	for _, group := range [][]SavedDeployment{operator, slices.DeleteFunc(slices.Clone(s.Deployments), isOperator)} {
		if err := e.stop(ctx, group); err != nil {
			return err
		}
	}
	return nil
}

// stop scales Deployments down and waits until no process of theirs can write.
func (e *Engine) stop(ctx context.Context, deployments []SavedDeployment) error {
	for _, d := range deployments {
		if err := e.scale(ctx, d.Name, 0, strconv.Itoa(int(d.Replicas))); err != nil {
			return err
		}
	}
	for _, d := range deployments {
		if err := e.waitStopped(ctx, d.Name, lease(d.Controller)); err != nil {
			return err
		}
	}
	return nil
}

// startFlux scales the Deployments of Flux up again and waits until they are available.
func (e *Engine) startFlux(ctx context.Context, s *State) error {
	if err := e.label(ctx, s.Labelled, nil); err != nil {
		return err
	}
	for _, saved := range s.Deployments {
		if err := e.scale(ctx, saved.Name, saved.Replicas, ""); err != nil {
			return err
		}
	}
	for _, saved := range s.Deployments {
		if err := e.waitAvailable(ctx, saved.Name); err != nil {
			return err
		}
	}
	return nil
}

// scale sets the replicas of a Deployment, and the annotation that remembers the former number; "" removes it.
func (e *Engine) scale(ctx context.Context, name string, replicas int32, remembered string) error {
	var annotation any
	if remembered != "" {
		annotation = remembered
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{ReplicasAnnotation: annotation}},
		"spec":     map[string]any{"replicas": replicas},
	})
	if err != nil {
		return err
	}
	d := &appsv1.Deployment{}
	d.Namespace, d.Name = e.Namespace, name
	if err := e.Client.Patch(ctx, d, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("cannot scale Deployment '%s/%s' to %d: %w", e.Namespace, name, replicas, err)
	}
	return nil
}

// installDefinitions replaces the definitions of Flux by ours. First it stores objects in a version that ours serves.
func (e *Engine) installDefinitions(ctx context.Context, _ *State) error {
	definitions, err := e.definitions(ctx)
	if err != nil {
		return err
	}
	for _, d := range definitions {
		if e.hasUnservedStored(d) {
			if _, err := storeAgain(ctx, e.Client, d); err != nil {
				return err
			}
		}
	}
	left, err := e.leftToOperator(ctx)
	if err != nil {
		return err
	}
	return e.Apply(ctx, slices.DeleteFunc(slices.Clone(e.Definitions), func(u *unstructured.Unstructured) bool {
		return slices.Contains(left, u.GetName())
	}))
}

// startOurs applies what runs our controllers and waits until they are available.
func (e *Engine) startOurs(ctx context.Context, s *State) error {
	objects, err := e.manifests(s.Settings)
	if err != nil {
		return err
	}
	if err := e.Apply(ctx, objects); err != nil {
		return err
	}
	return e.waitAvailable(ctx, OurDeployment)
}

// stopOurs scales our Deployment down and waits until no process of ours can write.
func (e *Engine) stopOurs(ctx context.Context, _ *State) error {
	live, err := e.getIfExists(ctx, e.ourDeployment())
	if err != nil || live == nil {
		return err
	}
	if err := e.scale(ctx, OurDeployment, 0, ""); err != nil {
		return err
	}
	return e.waitStopped(ctx, OurDeployment, "sluice-")
}

// restoreSaved makes the objects that ours replaced what they were.
func (e *Engine) restoreSaved(ctx context.Context, s *State) error {
	for _, saved := range s.saved {
		if saved.GetKind() == definitionGVK.Kind {
			if err := e.restoreDefinition(ctx, saved); err != nil {
				return err
			}
			continue
		}
		if err := e.restoreObject(ctx, saved); err != nil {
			return fmt.Errorf("cannot restore %s: %w", refOf(saved), err)
		}
	}
	return nil
}

// restoreObject makes an object what it was. Its uid and what the API server assigned, such as the address of a
// Service,
// stay.
func (e *Engine) restoreObject(ctx context.Context, saved *unstructured.Unstructured) error {
	live, err := e.getIfExists(ctx, refOf(saved))
	if err != nil {
		return err
	}
	want := saved.DeepCopy()
	if live == nil {
		return e.Client.Create(ctx, want)
	}
	want.SetResourceVersion(live.GetResourceVersion())
	want.SetUID(live.GetUID())
	return e.Client.Update(ctx, want)
}

// removeOurs deletes the objects that the migration created. Definitions and what was there before stay.
func (e *Engine) removeOurs(ctx context.Context, s *State) error {
	for _, ref := range slices.Backward(s.Created) {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(ref.gvk())
		u.SetNamespace(ref.Namespace)
		u.SetName(ref.Name)
		err := e.Client.Delete(ctx, u, client.PropagationPolicy("Background"))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cannot delete %s: %w", ref, err)
		}
	}
	return nil
}

// waitReady requests a reconcile of the objects that were Ready, and waits until our controllers have done it and the
// objects are Ready.
func (e *Engine) waitReady(ctx context.Context, s *State) error {
	for _, ref := range s.Ready {
		live, err := e.getIfExists(ctx, ref)
		if err != nil {
			return err
		}
		if live == nil || live.GetAnnotations()[meta.ReconcileRequestAnnotation] == s.ID {
			continue
		}
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, meta.ReconcileRequestAnnotation, s.ID)
		if err := e.patch(ctx, ref, patch); err != nil {
			return fmt.Errorf("cannot request a reconcile of %s: %w", ref, err)
		}
	}
	return e.wait(ctx, "objects that were Ready before", func(ctx context.Context) (string, error) {
		waiting, err := e.notReady(ctx, s)
		return summary(waiting), err
	})
}

// notReady returns which objects are not Ready again, and why. Objects that were deleted or suspended meanwhile
// are left
// out.
func (e *Engine) notReady(ctx context.Context, s *State) (waiting []string, err error) {
	live := map[Ref]*unstructured.Unstructured{}
	for _, gvk := range kindsOf(s.Ready) {
		if err := list(ctx, e.Client, gvk, func(u *unstructured.Unstructured) error {
			live[refOf(u)] = u
			return nil
		}); err != nil {
			return nil, err
		}
	}
	for _, ref := range s.Ready {
		u := live[ref]
		if u == nil {
			continue
		}
		if isSuspended(u) {
			continue
		}
		reason, err := readyAgain(u, s.ID)
		if err != nil {
			return nil, err
		}
		if reason != "" {
			waiting = append(waiting, fmt.Sprintf("%s: %s", ref, reason))
		}
	}
	return waiting, nil
}

func kindsOf(refs []Ref) (kinds []schema.GroupVersionKind) {
	for _, ref := range refs {
		if !slices.Contains(kinds, ref.gvk()) {
			kinds = append(kinds, ref.gvk())
		}
	}
	return kinds
}

// readyAgain returns what an object lacks to be Ready as before, or an error if it will not be Ready without a change.
func readyAgain(u *unstructured.Unstructured, id string) (string, error) {
	handled, _, _ := unstructured.NestedString(u.Object, "status", "lastHandledReconcileAt")
	if handled != id {
		return "not reconciled yet", nil
	}
	if status, message := condition(u, "Stalled"); status == "True" {
		return "", fmt.Errorf("%s was Ready with Flux and is stalled with Sluice: %s", refOf(u), message)
	}
	if status, message := condition(u, "Ready"); status != "True" {
		return message, nil
	}
	return "", nil
}
