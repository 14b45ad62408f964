package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// rewatchDelay is the pause before a watch that the server ended is started again.
const rewatchDelay = time.Second

// existenceDelay is when a wait reads its object once. By then its watch has begun.
const existenceDelay = 5 * time.Second

// Watch calls handle for the current objects of a kind and for each change. It returns when handle returns true or an
// error, or when ctx ends.
func Watch(ctx context.Context, c client.WithWatch, k *kind.Kind, o client.ListOptions,
	handle func(watch.EventType, reconcile.Object) (bool, error)) error {
	return WatchList(ctx, c, k.NewList, k.Name()+" objects", o,
		func(event watch.EventType, obj runtime.Object) (bool, error) {
			if o, ok := obj.(reconcile.Object); ok {
				return handle(event, o)
			}
			return false, nil
		})
}

// WatchList is Watch for any list; what names the objects in errors. It starts a watch that the server ended again, so
// handle may get the same state twice.
func WatchList(ctx context.Context, c client.WithWatch, list func() client.ObjectList, what string,
	o client.ListOptions, handle func(watch.EventType, runtime.Object) (bool, error)) error {
	for {
		w, err := c.Watch(ctx, list(), &o)
		if err != nil {
			return Explain("cannot watch "+what, err)
		}
		done, err := drain(w, handle)
		w.Stop()
		if done || err != nil {
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

// drain passes events to handle until the watch ends. Errors of the watch are ignored: if they persist, the next watch
// cannot be started.
func drain(w watch.Interface, handle func(watch.EventType, runtime.Object) (bool, error)) (bool, error) {
	for e := range w.ResultChan() {
		if e.Type == watch.Bookmark || e.Type == watch.Error {
			continue
		}
		if done, err := handle(e.Type, e.Object); done || err != nil {
			return done, err
		}
	}
	return false, nil
}

// Wait describes what to wait for.
type Wait struct {
	Kind    *kind.Kind
	Key     types.NamespacedName
	Done    func(reconcile.Object) bool
	Timeout time.Duration        // for errors; the context ends the wait
	OnState func(message string) // called with the message of the Ready condition at each change; may be nil
}

// Run watches the object until Done returns true, and returns it. It fails when the object is deleted.
func (w Wait) Run(ctx context.Context, c client.WithWatch) (reconcile.Object, error) {
	watching, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// A watch tells nothing of an object that was deleted before it began.
	check := guard.AfterFunc("check that the object exists", existenceDelay, func() {
		if apierrors.IsNotFound(c.Get(watching, w.Key, w.Kind.New())) {
			cancel(w.deleted())
		}
	})
	defer check.Stop()
	var last reconcile.Object
	one := client.ListOptions{Namespace: w.Key.Namespace,
		FieldSelector: fields.OneTermEqualSelector("metadata.name", w.Key.Name)}
	err := Watch(watching, c, w.Kind, one, func(event watch.EventType, o reconcile.Object) (bool, error) {
		if event == watch.Deleted {
			return false, w.deleted()
		}
		last = o
		if w.OnState != nil {
			w.OnState(Message(o))
		}
		return w.Done(o), nil
	})
	switch {
	case err == nil:
		return last, nil
	case ctx.Err() == nil && watching.Err() != nil:
		return nil, context.Cause(watching)
	case !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, err
	case last == nil || !isObserved(last):
		return nil, fmt.Errorf("%s '%s' was not reconciled within %s. Check that the controllers are running, "+
			"or raise --timeout", w.Kind.Name(), w.Key, w.Timeout)
	default:
		return nil, fmt.Errorf("%s '%s' is not Ready after %s: %s. Raise --timeout to wait longer", w.Kind.Name(),
			w.Key, w.Timeout, Message(last))
	}
}

func (w Wait) deleted() error {
	return fmt.Errorf("%s '%s' was deleted while waiting for it", w.Kind.Name(), w.Key)
}

// CheckReady returns an error if a settled object is held by gates or not Ready.
func CheckReady(k *kind.Kind, o reconcile.Object) error {
	key := client.ObjectKeyFromObject(o)
	if c := HeldCondition(o); c != nil {
		return fmt.Errorf("%s '%s' is held by a gate: %s", k.Name(), key, c.Message)
	}
	if c := ReadyCondition(o); c.Status != metav1.ConditionTrue {
		return fmt.Errorf("%s '%s' is not ready: %s: %s", k.Name(), key, c.Reason, c.Message)
	}
	return nil
}
