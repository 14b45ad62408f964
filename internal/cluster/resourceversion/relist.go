package resourceversion

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
	"k8s.io/utils/clock"
)

// maxAge is the age of a list from which on the next watch begins with another one. The API server ends a watch after
// 5 to 10 minutes.
const maxAge = time.Hour

// Relisting returns a ListerWatcher whose reflector lists all objects again
//   - if the API server cannot read the resource version that a former response contained, such as one that a proxy
//     damaged. By itself, a reflector repeats a request with such a version forever, as it drops a version only if the
//     server calls it expired;
//   - an hour after the last list, as a wrong event may have left a wrong object in the cache.
func Relisting(lw cache.ListerWatcher) cache.ListerWatcher { return relistingAt(lw, clock.RealClock{}) }

func relistingAt(lw cache.ListerWatcher, c clock.PassiveClock) *relisting {
	return &relisting{lister: cache.ToListerWatcherWithContext(lw), clock: c,
		watchListUnsupported: watchlist.DoesClientNotSupportWatchListSemantics(lw)}
}

// relisting is used by one reflector, which sends one request at a time.
type relisting struct {
	lister               cache.ListerWatcherWithContext
	watchListUnsupported bool
	clock                clock.PassiveClock
	listed               time.Time // when the last list began
}

// IsWatchListSemanticsUnSupported reports whether the client behind it needs a list before each watch.
func (r *relisting) IsWatchListSemanticsUnSupported() bool { return r.watchListUnsupported }

// List is [relisting.ListWithContext] without a context, as the interface demands it.
func (r *relisting) List(o metav1.ListOptions) (runtime.Object, error) {
	return r.ListWithContext(context.Background(), o)
}

// Watch is [relisting.WatchWithContext] without a context, as the interface demands it.
func (r *relisting) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return r.WatchWithContext(context.Background(), o)
}

func (r *relisting) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	r.listed = r.clock.Now()
	list, err := r.lister.ListWithContext(ctx, o)
	return list, expired(err, o.ResourceVersion)
}

func (r *relisting) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	switch begins := o.SendInitialEvents != nil && *o.SendInitialEvents; {
	case begins:
		r.listed = r.clock.Now()
	case r.clock.Since(r.listed) >= maxAge:
		return nil, apierrors.NewResourceExpired("the last list is an hour old")
	}
	w, err := r.lister.WatchWithContext(ctx, o)
	return w, expired(err, o.ResourceVersion)
}

// expired turns the refusal of a request with a resource version into the error of an expired version. A reflector
// does not repeat such a request; if it was refused for another reason, the list without a version is refused, too.
func expired(err error, version string) error {
	if version == "" || version == "0" || !apierrors.IsBadRequest(err) && !apierrors.IsInvalid(err) {
		return err
	}
	return apierrors.NewResourceExpired(fmt.Sprintf("resource version '%.40s' was refused: %v", version, err))
}
