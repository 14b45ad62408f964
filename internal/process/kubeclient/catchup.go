package kubeclient

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/internal/cluster/resourceversion"
	"github.com/sluice-gitops/sluice/internal/process/options"
)

const (
	catchUpPage = 1000                  // objects in one list
	catchUpWait = 2 * time.Second       // for the events of objects that are behind
	catchUpPoll = 20 * time.Millisecond // between two looks at the caches
)

// catchUpTimeout is the time for all lists.
var catchUpTimeout = 10 * time.Second

// catchUp compares the caches of our kinds with the API server, before a process takes the lease of the leader
// election. A standby that was cut off may get the lease before its watches are connected again. It would take the
// objects of a Kustomization back to the commit of an old source.
type catchUp struct {
	caches    *informers
	live      client.Reader
	namespace string // of the caches, empty for all
}

// newCatchUp returns a comparison of caches with the API server of a configuration.
func newCatchUp(cfg *rest.Config, o options.Options, caches *informers) (*catchUp, error) {
	live, err := client.New(cfg, client.Options{Scheme: Scheme()})
	if err != nil {
		return nil, err
	}
	c := &catchUp{caches: caches, live: live}
	if !o.WatchAllNamespaces {
		c.namespace = o.RuntimeNamespace
	}
	return c, nil
}

// behind is an object that a cache has in an older version than the API server.
type behind struct {
	kind, key string
	store     cache.Store
	version   string // of the API server; that of its list if it has no such object
	gone      bool
}

// wait waits for a short time until the caches have what the API server has now. It returns an error if they do not.
func (c *catchUp) wait(ctx context.Context) error {
	listing, cancel := context.WithTimeout(ctx, catchUpTimeout)
	defer cancel()
	var old []behind
	for gvk, informer := range c.caches.own() {
		found, err := c.compare(listing, gvk, informer.GetStore())
		if err != nil {
			return fmt.Errorf("cannot compare the cache of %s with the API server: %w", gvk.Kind, err)
		}
		old = append(old, found...)
	}
	for waited := time.Duration(0); ; waited += catchUpPoll {
		if old = slices.DeleteFunc(old, behind.hasCaughtUp); len(old) == 0 {
			return nil
		}
		if waited >= catchUpWait || ctx.Err() != nil {
			return fmt.Errorf("the cache of this process is behind the API server: %s '%s' and %d other objects; "+
				"another replica may take the lease", old[0].kind, old[0].key, len(old)-1)
		}
		pause(ctx, catchUpPoll)
	}
}

// compare returns the objects of a kind for which a cache is behind.
func (c *catchUp) compare(ctx context.Context, gvk schema.GroupVersionKind, store cache.Store) ([]behind, error) {
	var old []behind
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	live, first := map[string]bool{}, ""
	for {
		if err := c.live.List(ctx, list, client.InNamespace(c.namespace), client.Limit(catchUpPage),
			client.Continue(list.Continue)); err != nil {
			return nil, err
		}
		if first == "" {
			first = list.ResourceVersion
		}
		for _, o := range list.Items {
			key := client.ObjectKeyFromObject(&o).String()
			b := behind{kind: gvk.Kind, key: key, store: store, version: o.ResourceVersion}
			if live[key] = true; !b.hasCaughtUp() {
				old = append(old, b)
			}
		}
		if list.Continue == "" {
			break
		}
	}
	for _, key := range store.ListKeys() {
		if b := (behind{kind: gvk.Kind, key: key, store: store, version: first, gone: true}); !live[key] &&
			!b.hasCaughtUp() {
			old = append(old, b)
		}
	}
	return old, nil
}

// hasCaughtUp reports whether the cache is as new as the API server was.
func (b behind) hasCaughtUp() bool {
	o, exists, err := b.store.GetByKey(b.key)
	if err != nil || !exists {
		return b.gone
	}
	cached, err := apimeta.Accessor(o)
	if err != nil {
		return false
	}
	if b.gone { // unless it was created since
		return resourceversion.Newer(cached.GetResourceVersion(), b.version)
	}
	return !resourceversion.Newer(b.version, cached.GetResourceVersion())
}

// isOwn reports whether a kind is one of ours.
func isOwn(gvk schema.GroupVersionKind) bool {
	return strings.HasSuffix(gvk.Group, ".fluxcd.io") || gvk.Group == controlplanev1.GroupVersion.Group
}
