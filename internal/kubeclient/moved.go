package kubeclient

import (
	"context"
	"reflect"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/resourceversion"
	"github.com/sluice-gitops/sluice/internal/shard"
)

// movedClient reads from the cache, except where the cache may be older than what another replica has worked with: a
// replica that was cut off from the API server has its lease before its watches are connected again. An old source
// would take the objects of a Kustomization back to an old commit.
//
// The first work on an object since it is this replica's reads all objects of our kinds from the API server. Later work
// does the same for those of them which the cache has in an older version.
type movedClient struct {
	client.Client // reads from the cache
	live          client.Reader

	mu sync.Mutex
	// read has the resource versions of objects that were read from the API server, empty for those that it did not
	// have, until the cache agrees.
	read map[string]string
}

// newMovedClient is [client.New] for a replica that shares objects with others.
func newMovedClient(cfg *rest.Config, o client.Options) (client.Client, error) {
	cached, err := client.New(cfg, o)
	if err != nil {
		return nil, err
	}
	o.Cache = nil
	live, err := client.New(cfg, o)
	if err != nil {
		return nil, err
	}
	return &movedClient{Client: cached, live: live, read: map[string]string{}}, nil
}

// Get implements [client.Reader].
func (c *movedClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object,
	opts ...client.GetOption) error {
	gvk, err := c.GroupVersionKindFor(obj)
	if err != nil || !isOwn(gvk) {
		return c.Client.Get(ctx, key, obj, opts...)
	}
	name := gvk.Kind + " " + key.String()
	if shard.IsFirst(ctx) {
		return c.getLive(ctx, name, key, obj, opts...)
	}
	err = c.Client.Get(ctx, key, obj, opts...)
	if err != nil && !apierrors.IsNotFound(err) || c.isCurrent(name, obj, err == nil) {
		return err
	}
	reflect.ValueOf(obj).Elem().SetZero() // a decoder would keep fields that are absent
	return c.getLive(ctx, name, key, obj, opts...)
}

// isCurrent reports whether the cache is at least as new as what was read of an object last.
func (c *movedClient) isCurrent(name string, cached client.Object, found bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	version, ok := c.read[name]
	if !ok {
		return true
	}
	if found != (version != "") || found && resourceversion.Newer(version, cached.GetResourceVersion()) {
		return false
	}
	delete(c.read, name)
	return true
}

// getLive reads an object from the API server.
func (c *movedClient) getLive(ctx context.Context, name string, key client.ObjectKey, obj client.Object,
	opts ...client.GetOption) error {
	err := c.live.Get(ctx, key, obj, opts...)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.read[name] = obj.GetResourceVersion()
	case apierrors.IsNotFound(err):
		c.read[name] = ""
	}
	return err
}
