package kubewatch

import (
	"context"
	"iter"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/internal/cluster/resourceversion"
	"github.com/sluice-gitops/sluice/internal/guard"
)

// restartBackoff is the delay before a broken watch starts again. A watch that lasted restartReset resets it.
var restartBackoff = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 10,
	Cap: 30 * time.Second}

const (
	restartReset = 2 * time.Minute
	// maxRefusals is how often in a row a watch that had a list before may be refused, which takes about a minute. An
	// API server refuses everything while it starts and does not know all rights yet, and while a webhook that decides
	// about them does not answer.
	maxRefusals = 10
)

// Handler receives what the watches of a store observe. All functions are optional. The store's lock is held while they
// run, except for Unlocked.
type Handler[O metav1.Object, V any, S comparable] struct {
	// Object is called for each object that a watch lists or receives, whether or not it has subscribers.
	Object func(w *Watch[O, V, S], obj O, deleted bool)
	// Whole reports whether Object is called for the objects of a watch; nil for all watches. The objects of other
	// watches are dropped as soon as they are decoded. It is called without the lock.
	Whole func(Key) bool
	// Changed is called with the subscribers of an object after the watch received an event for it: after a
	// list for all objects with subscribers, after a bookmark for those that do not exist.
	Changed func(w *Watch[O, V, S], subscribers []S)
	// Refused is called after the cluster refused a watch, which has been stopped. [Watch.Refusal] returns the error. A
	// watch that had a list before is tried again for about a minute first.
	Refused func(w *Watch[O, V, S])
	// Unserved is called after a watch was stopped and removed because the cluster no longer serves the resource.
	Unserved func(w *Watch[O, V, S])
	// Unlocked is called after each batch of the calls above, without the lock.
	Unlocked func()
}

// Store holds the watches of one client. O is the type of the objects, V the type of the values that are stored, and S
// the type of the subscribers. The caller must hold the store's lock when it calls a method of a store or a watch.
type Store[O metav1.Object, V any, S comparable] struct {
	lock    sync.Locker
	client  Client[O]
	handler Handler[O, V, S]
	watches map[Key]*Watch[O, V, S]
}

// New returns a store without watches. The lock is the one that guards the state of the handler.
func New[O metav1.Object, V any, S comparable](lock sync.Locker, client Client[O],
	handler Handler[O, V, S]) *Store[O, V, S] {
	return &Store[O, V, S]{lock: lock, client: client, handler: handler, watches: map[Key]*Watch[O, V, S]{}}
}

// Watch returns the watch for a key. If there is none, it starts one that stores the values that project returns.
// Project is called without the lock, as soon as an object is decoded; what it returns must not refer to the object.
func (s *Store[O, V, S]) Watch(key Key, project func(O) V) *Watch[O, V, S] {
	w := s.watches[key]
	if w == nil {
		w = &Watch[O, V, S]{store: s, key: key, project: project, values: map[types.NamespacedName]V{},
			subscribers: map[types.NamespacedName][]S{}, absent: map[types.NamespacedName]bool{},
			settled: make(chan struct{})}
		s.watches[key] = w
		w.start()
	}
	return w
}

// Get returns the watch for a key, or nil if there is none.
func (s *Store[O, V, S]) Get(key Key) *Watch[O, V, S] { return s.watches[key] }

// All returns the watches of the store.
func (s *Store[O, V, S]) All() iter.Seq2[Key, *Watch[O, V, S]] { return maps.All(s.watches) }

// Remove stops a watch and removes it from the store.
func (s *Store[O, V, S]) Remove(w *Watch[O, V, S]) {
	w.stop()
	if s.watches[w.key] == w {
		delete(s.watches, w.key)
	}
}

// Close removes all watches.
func (s *Store[O, V, S]) Close() {
	for _, w := range s.watches {
		s.Remove(w)
	}
}

// start runs the watch in a goroutine that ends when the watch is stopped, refused, or no longer served.
func (w *Watch[O, V, S]) start() {
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	var answers *guard.Answers // of all pages of a list
	lister := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if o.Continue == "" {
				answers = guard.NewAnswers(guard.BudgetOf(ctx))
			}
			return w.list(guard.WithAnswers(ctx, answers), o)
		},
		WatchFuncWithContext: w.connect,
	}, w.store.client.origin)
	reflector := cache.NewReflectorWithOptions(resourceversion.Relisting(lister), &item[O, V]{}, w,
		cache.ReflectorOptions{Name: "watch of " + w.key.Resource.String(), TypeDescription: w.key.Resource.String()})
	guard.Go("watching objects", func() {
		_ = restartBackoff.DelayWithReset(clock.RealClock{}, restartReset).
			Until(ctx, true, true, func(ctx context.Context) (bool, error) {
				err := guard.Do("watching objects", func() error { return reflector.ListAndWatchWithContext(ctx) })
				return ctx.Err() != nil || w.ended(err), nil
			}) // the only error is that of the context
	})
}

func (w *Watch[O, V, S]) stop() {
	if w.cancel != nil {
		w.cancel()
		w.cancel = nil
	}
	w.synced, w.connected = false, false
	w.settle()
}

// ended handles the end of a connection. It reports whether the watch must not connect again.
func (w *Watch[O, V, S]) ended(err error) (final bool) {
	s := w.store
	defer s.unlocked()
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.watches[w.key] != w {
		return true
	}
	w.connected = false
	refused := apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
	if refused {
		w.refusals++
	}
	switch {
	case refused && w.listed && w.refusals < maxRefusals:
		return false
	case refused, apierrors.IsMethodNotSupported(err), guard.IsAnswerTooLarge(err):
		w.stop()
		w.refusal, w.refused = err, time.Now()
		if s.handler.Refused != nil {
			s.handler.Refused(w)
		}
		return true
	case apierrors.IsNotFound(err): // the objects were deleted with the kind
		s.Remove(w)
		if s.handler.Unserved != nil {
			s.handler.Unserved(w)
		}
		return true
	default:
		return false
	}
}

func (s *Store[O, V, S]) unlocked() {
	if s.handler.Unlocked != nil {
		s.handler.Unlocked()
	}
}
