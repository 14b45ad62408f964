package apply

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The admission of the API server gets so many attempts to see a namespace that was created again, with a pause before
// each.
const (
	namespaceAttempts = 50
	namespacePause    = 100 * time.Millisecond
)

// createNamespaces creates the namespaces of the set that do not exist, then checks the objects in them where they
// belong: quotas, policies and webhooks may depend on the namespace. If an object is refused, the namespaces are
// deleted again. A namespace that contains objects of others by then stays, and stays in the inventory.
func (r *run) createNamespaces(ctx context.Context) error {
	var created, inside []*step
	var names Inventory
	for _, s := range r.steps {
		if s.inNew && s.plan == nil {
			inside = append(inside, s)
		}
	}
	for _, s := range r.steps {
		isNeeded := func(o *step) bool { return o.ref.Namespace == s.ref.Name }
		if s.isNewNamespace() && slices.ContainsFunc(inside, isNeeded) {
			created, names = append(created, s), append(names, s.ref.Entry())
		}
	}
	if len(created) == 0 {
		return nil
	}
	if err := r.save(r.req.Previous.With(names)); err != nil {
		return err
	}
	if err := failed(each(ctx, r.options.Concurrency, created, r.createNamespace)); err != nil {
		return err
	}
	for _, s := range inside {
		s.inNew, s.inCreated = false, true
		r.untrack(r.req.Owner, s.ref) // what was known of an object of this name ended with the former namespace
	}
	problems := each(ctx, r.options.Concurrency, inside, r.checkInside)
	if err := refused(problems); err == nil || IsUnreachable(err) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	if left := each(ctx, r.options.Concurrency, created, r.takeBack); failed(left) != nil {
		return failed(append(problems, left...))
	}
	return refused(problems)
}

// createNamespace creates a namespace, after one of the same name is deleted. If another client has created it since
// the check, it is not ours to delete: its outcome stays nil, and its stage applies it.
func (r *run) createNamespace(ctx context.Context, s *step) error {
	if s.plan.terminating {
		if err := r.waitDeleted(ctx, s.resource, s.ref); err != nil {
			return err
		}
	}
	return r.createDirect(ctx, s)
}

// checkInside checks an object in a namespace that was just created. A Pod whose ServiceAccount does not exist yet is
// checked when it is written: Kubernetes creates the default ServiceAccount a moment after the namespace.
func (r *run) checkInside(ctx context.Context, s *step) error {
	err := r.checkStep(ctx, s)
	if err != nil && isAccountMissing(err) {
		s.deferred = true
		return nil
	}
	return err
}

// checkInCreated checks an object. In a namespace that this call created in the place of a deleted one, the API server
// may still refuse it: its admission reads namespaces from a cache.
func (r *run) checkInCreated(ctx context.Context, s *step) (*plan, error) {
	p, err := r.checkObject(ctx, s.object)
	for n := 0; s.inCreated && n < namespaceAttempts &&
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause); n++ {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(namespacePause):
		}
		p, err = r.checkObject(ctx, s.object)
	}
	return p, err
}

// takeBack deletes a namespace that was created, if it is still empty.
func (r *run) takeBack(ctx context.Context, s *step) error {
	if s.outcome == nil {
		return nil
	}
	content, err := r.contentOf(ctx, s.ref.Name)
	if err == nil && content != "" {
		return problem("%s was created, and is kept, since it contains %s", s.ref, content)
	}
	if err == nil {
		err = r.rollBack(ctx, s)
	}
	if err != nil {
		return problem("%s was created, and could not be deleted again", s.ref).
			Because(errors.New(serverMessage(s.object, err)))
	}
	return nil
}

// contentOf returns an object of a namespace that not every new namespace has; empty if there is none.
func (c *Cluster) contentOf(ctx context.Context, namespace string) (string, error) {
	lists, err := c.cached.ServerPreferredResources()
	if err != nil {
		return "", err // objects of an API that does not respond cannot be seen
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return "", err
		}
		for _, resource := range list.APIResources {
			if !resource.Namespaced || resource.Kind == "Event" || !slices.Contains(resource.Verbs, "list") {
				continue
			}
			// Three objects at most come with a namespace.
			found, err := c.metadata.Resource(gv.WithResource(resource.Name)).Namespace(namespace).
				List(ctx, metav1.ListOptions{Limit: 5})
			if apierrors.IsNotFound(err) {
				continue // its definition was deleted since the discovery, and its objects with it
			}
			if err != nil {
				return "", err
			}
			for _, o := range found.Items {
				ref := Ref{Group: gv.Group, Kind: resource.Kind, Namespace: namespace, Name: o.Name}
				if !comesWithNamespace(ref, &o) {
					return ref.String(), nil
				}
			}
		}
	}
	return "", nil
}

// comesWithNamespace reports whether Kubernetes creates an object in each namespace.
func comesWithNamespace(ref Ref, o metav1.Object) bool {
	switch ref.groupKind() {
	case schema.GroupKind{Kind: "ConfigMap"}:
		return ref.Name == "kube-root-ca.crt"
	case serviceAccountKind:
		return ref.Name == "default"
	case schema.GroupKind{Kind: "Secret"}:
		return o.GetAnnotations()["kubernetes.io/service-account.name"] == "default"
	}
	return false
}

// save saves an inventory that is not yet saved.
func (r *run) save(inventory Inventory) error {
	saved := r.saved
	if saved == nil {
		saved = r.req.Previous
	}
	if r.req.SaveInventory == nil || len(inventory.Without(saved)) == 0 && len(saved.Without(inventory)) == 0 {
		return nil
	}
	if err := r.req.SaveInventory(inventory); err != nil {
		return err
	}
	r.saved = inventory
	return nil
}

// saveExisting saves the inventory after a failure, without objects that do not exist. A failed write may have created
// its object all the same. If the API server does not respond, the inventory stays as it was saved.
func (r *run) saveExisting(ctx context.Context, failure error) error {
	if r.saved == nil || ctx.Err() != nil || IsUnreachable(failure) {
		return nil
	}
	var exist, maybe Inventory
	for _, s := range r.steps {
		switch {
		case s.outcome != nil:
			exist = append(exist, s.ref.Entry())
		case s.attempted:
			maybe = append(maybe, s.ref.Entry())
		}
	}
	owned, err := r.Owned(ctx, r.req.Owner, maybe)
	switch {
	case IsUnreachable(err):
		return nil
	case err != nil:
		owned = maybe
	}
	return r.save(r.req.Previous.With(exist).With(owned))
}
