package kubeclient

import (
	"context"
	"reflect"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/cluster/resourceversion"
	"github.com/sluice-gitops/sluice/internal/reconcile/shard"
)

// currentClient reads from the cache, except where the cache may be older than what a pass must know of our kinds:
//   - In the first work on an object since it is this replica's. A replica that was cut off from the API server has its
//     lease before its watches are connected again. An old source would take the objects of a Kustomization back to an
//     old commit.
//   - In a pass that was requested. Who requests it may have seen a new artifact of the source that is not in the cache
//     yet, and takes the result for that of the new artifact.
//
// Such work reads all objects of our kinds from the API server. Later work does the same for those of them which the
// cache has in an older version.
type currentClient struct {
	client.Client // reads from the cache
	live          client.Reader

	mu sync.Mutex
	// ahead has the resource versions of objects that the API server had and the cache did not, until the cache agrees.
	// It is empty for objects that the API server did not have.
	ahead map[string]string
}

// newCurrentClient is [client.New] for a client that reads current objects where it has to.
func newCurrentClient(cfg *rest.Config, o client.Options) (client.Client, error) {
	cached, err := client.New(cfg, o)
	if err != nil {
		return nil, err
	}
	o.Cache = nil
	live, err := client.New(cfg, o)
	if err != nil {
		return nil, err
	}
	return &currentClient{Client: cached, live: live, ahead: map[string]string{}}, nil
}

// Get implements [client.Reader].
func (c *currentClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object,
	opts ...client.GetOption) error {
	gvk, err := c.GroupVersionKindFor(obj)
	if err != nil || !isOwn(gvk) {
		return c.Client.Get(ctx, key, obj, opts...)
	}
	err = c.Client.Get(ctx, key, obj, opts...)
	cached, ok := versionOf(obj, err)
	if !ok {
		return err
	}
	name := gvk.Kind + " " + key.String()
	if !shard.IsFirst(ctx) && !resourceversion.NeedsCurrent(ctx) && c.isCurrent(name, cached) {
		return err
	}
	reflect.ValueOf(obj).Elem().SetZero() // a decoder would keep fields that are absent
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	err = c.live.Get(ctx, key, obj, opts...)
	if live, ok := versionOf(obj, err); ok {
		c.observe(name, cached, live)
	}
	return err
}

// versionOf returns the resource version of an object that was read, empty if there is none. It is false if that is not
// known.
func versionOf(obj client.Object, err error) (string, bool) {
	switch {
	case err == nil:
		return obj.GetResourceVersion(), true
	case apierrors.IsNotFound(err):
		return "", true
	}
	return "", false
}

// isCurrent reports whether the cache is at least as new as what was read of an object last.
func (c *currentClient) isCurrent(name, cached string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	live, ok := c.ahead[name]
	if ok && isBehind(cached, live) {
		return false
	}
	delete(c.ahead, name)
	return true
}

// observe records what the cache and the API server had of an object.
func (c *currentClient) observe(name, cached, live string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if isBehind(cached, live) {
		c.ahead[name] = live
	} else {
		delete(c.ahead, name)
	}
}

// isBehind reports whether the cache does not have what the API server has.
func isBehind(cached, live string) bool {
	return (cached == "") != (live == "") || resourceversion.Newer(live, cached)
}
