package cluster

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// A step that failed is tried again so soon; the first time, and at the latest. Whoever waits for it waits
// for minutes, not for more.
const (
	firstRetry = 5 * time.Millisecond
	lastRetry  = time.Second
)

// loop calls step, by so many workers, for each object that an informer sees, when it changes and after the
// time that step returned; 0 is for when it changes. A step must not change the object that it is given. It
// runs until the context ends.
func loop[T runtime.Object](ctx context.Context, informer cache.SharedIndexInformer, workers int,
	step func(context.Context, T) (time.Duration, error)) error {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry,
		lastRetry))
	enqueue := func(obj any) {
		if key, err := cache.MetaNamespaceKeyFunc(obj); err == nil {
			queue.Add(key)
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) },
	})
	if err != nil {
		return err
	}
	one := func(key string) {
		defer queue.Done(key)
		obj, exists, err := informer.GetStore().GetByKey(key)
		if err != nil || !exists {
			queue.Forget(key)
			return
		}
		again, err := step(ctx, obj.(T))
		if err != nil && !apierrors.IsNotFound(err) {
			if !apierrors.IsConflict(err) && ctx.Err() == nil {
				klog.FromContext(ctx).Info("not simulated, trying again", "key", key, "err", err)
			}
			queue.AddRateLimited(key)
			return
		}
		queue.Forget(key)
		if again > 0 {
			queue.AddAfter(key, again)
		}
	}
	for range workers {
		go func() {
			for key, shutdown := queue.Get(); !shutdown; key, shutdown = queue.Get() {
				one(key)
			}
		}()
	}
	context.AfterFunc(ctx, queue.ShutDown)
	return nil
}
