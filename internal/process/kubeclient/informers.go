package kubeclient

import (
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/sluice-gitops/sluice/internal/cluster/resourceversion"
)

// informers are those of the manager's cache.
type informers struct {
	mu  sync.Mutex
	all map[schema.GroupVersionKind]cache.SharedIndexInformer
}

// create creates an informer like [cache.NewSharedIndexInformer].
func (i *informers) create(lw cache.ListerWatcher, example runtime.Object, resync time.Duration,
	indexers cache.Indexers) cache.SharedIndexInformer {
	informer := cache.NewSharedIndexInformer(resourceversion.Relisting(lw), example, resync, indexers)
	gvk, err := apiutil.GVKForObject(example, Scheme())
	if err != nil {
		gvk = schema.GroupVersionKind{Kind: "objects of an unknown kind"}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.all == nil {
		i.all = map[schema.GroupVersionKind]cache.SharedIndexInformer{}
	}
	i.all[gvk] = informer
	return informer
}

// waiting returns the kinds whose objects were not listed yet, for people.
func (i *informers) waiting() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	var kinds []string
	for gvk, informer := range i.all {
		if !informer.HasSynced() {
			kinds = append(kinds, gvk.Kind)
		}
	}
	if len(kinds) == 0 {
		return ""
	}
	slices.Sort(kinds)
	return "waiting for the first list of " + strings.Join(kinds, ", ")
}

// own returns the informers of our kinds that have listed their objects.
func (i *informers) own() map[schema.GroupVersionKind]cache.SharedIndexInformer {
	i.mu.Lock()
	defer i.mu.Unlock()
	own := map[schema.GroupVersionKind]cache.SharedIndexInformer{}
	for gvk, informer := range i.all {
		if isOwn(gvk) && informer.HasSynced() {
			own[gvk] = informer
		}
	}
	return own
}
