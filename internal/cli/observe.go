package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// rewatchDelay keeps a server that ends every watch at once from being asked without pause.
const rewatchDelay = time.Second

// observe calls see for the objects of a kind as they are now and for every change of them, until see has
// seen enough or fails, or ctx ends.
func observe(ctx context.Context, c client.WithWatch, k *kind, o client.ListOptions,
	see func(watch.EventType, reconcile.Object) (bool, error)) error {
	return observeList(ctx, c, k.list, k.title()+" objects", o,
		func(event watch.EventType, obj runtime.Object) (bool, error) {
			if o, ok := obj.(reconcile.Object); ok {
				return see(event, o)
			}
			return false, nil
		})
}

// observeList does so for any list. A watch that the server ends is begun again; see may be told of the same
// state twice.
func observeList(ctx context.Context, c client.WithWatch, list func() client.ObjectList, what string,
	o client.ListOptions, see func(watch.EventType, runtime.Object) (bool, error)) error {
	for {
		w, err := c.Watch(ctx, list(), &o)
		if err != nil {
			return explain("cannot watch "+what, err)
		}
		enough, err := drain(w, see)
		w.Stop()
		if enough || err != nil {
			return err
		}
		pause := time.NewTimer(rewatchDelay)
		select {
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		case <-pause.C:
		}
	}
}

// drain passes on what a watch sees until it ends. Why it ended does not matter: what stands in the way of
// the next says so.
func drain(w watch.Interface, see func(watch.EventType, runtime.Object) (bool, error)) (bool, error) {
	for e := range w.ResultChan() {
		if e.Type == watch.Bookmark || e.Type == watch.Error {
			continue
		}
		if enough, err := see(e.Type, e.Object); enough || err != nil {
			return enough, err
		}
	}
	return false, nil
}

// await watches an object until done says so, with its state on a live line.
func (a *app) await(ctx context.Context, c client.WithWatch, k *kind, key types.NamespacedName,
	done func(reconcile.Object) bool) (reconcile.Object, error) {
	a.live("waiting for %s '%s'", k.title(), key)
	var last reconcile.Object
	one := client.ListOptions{Namespace: key.Namespace,
		FieldSelector: fields.OneTermEqualSelector("metadata.name", key.Name)}
	err := observe(ctx, c, k, one, func(event watch.EventType, o reconcile.Object) (bool, error) {
		if event == watch.Deleted {
			return false, fmt.Errorf("%s '%s' was deleted while waiting for it", k.title(), key)
		}
		last = o
		a.live("waiting for %s '%s': %s", k.title(), key, state(o))
		return done(o), nil
	})
	a.clear()
	switch {
	case err == nil:
		return last, nil
	case !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, err
	case last == nil || request(last) != last.CommonStatus().LastHandledReconcileAt || last.CommonStatus().
		ObservedGeneration != last.GetGeneration():
		return nil, fmt.Errorf("%s '%s' was not handled within %s. Are the controllers running? Raise --timeout if "+
			"they are busy", k.title(), key, a.timeout)
	default:
		return nil, fmt.Errorf("%s '%s' was not done within %s: %s. Raise --timeout if it needs longer", k.title(), key,
			a.timeout, state(last))
	}
}

// settled tells whether an object has come to an end for now: Ready, failed or held by gates, not under way.
func settled(o reconcile.Object) bool {
	if held(o) != nil && o.CommonStatus().LastHandledReconcileAt == request(o) {
		return true
	}
	c := readyCondition(o)
	return c != nil && c.Status != metav1.ConditionUnknown &&
		o.CommonStatus().ObservedGeneration == o.GetGeneration() && o.CommonStatus().
		LastHandledReconcileAt == request(o)
}

// held returns the condition of an object that waits for gates, with nothing under way; nil of any other.
func held(o reconcile.Object) *metav1.Condition {
	conditions := o.CommonStatus().Conditions
	if apimeta.IsStatusConditionTrue(conditions, reconcile.TypeReconciling) {
		return nil
	}
	for t, closed := range map[string]metav1.ConditionStatus{meta.ApprovedCondition: metav1.ConditionFalse,
		meta.BlockedCondition: metav1.ConditionTrue} {
		if apimeta.IsStatusConditionPresentAndEqual(conditions, t, closed) {
			return apimeta.FindStatusCondition(conditions, t)
		}
	}
	return nil
}

// verdict says how it ended.
func (a *app) verdict(k *kind, o reconcile.Object) error {
	if c := held(o); c != nil {
		return fmt.Errorf("%s '%s' is held: %s", k.title(), client.ObjectKeyFromObject(o), c.Message)
	}
	c := readyCondition(o)
	if c.Status != metav1.ConditionTrue {
		return fmt.Errorf("%s '%s' is not ready: %s: %s", k.title(), client.ObjectKeyFromObject(o), c.Reason, c.Message)
	}
	a.done("%s '%s' is ready: %s", k.title(), client.ObjectKeyFromObject(o), c.Message)
	return nil
}

// state is the message of Ready.
func state(o reconcile.Object) string {
	if c := readyCondition(o); c != nil {
		return c.Message
	}
	return "not reconciled yet"
}

func readyCondition(o reconcile.Object) *metav1.Condition {
	return apimeta.FindStatusCondition(o.CommonStatus().Conditions, reconcile.TypeReady)
}

func request(o client.Object) string { return o.GetAnnotations()[meta.ReconcileRequestAnnotation] }
