package kubeclient

import (
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// informers are those of the manager's cache.
type informers struct {
	mu  sync.Mutex
	all map[string]cache.SharedIndexInformer // by kind
}

// create creates an informer like [cache.NewSharedIndexInformer].
func (i *informers) create(lw cache.ListerWatcher, example runtime.Object, resync time.Duration,
	indexers cache.Indexers) cache.SharedIndexInformer {
	informer := cache.NewSharedIndexInformer(lw, example, resync, indexers)
	kind := "objects of an unknown kind"
	if gvk, err := apiutil.GVKForObject(example, Scheme()); err == nil {
		kind = gvk.Kind
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.all == nil {
		i.all = map[string]cache.SharedIndexInformer{}
	}
	i.all[kind] = informer
	return informer
}

// waiting returns the kinds whose objects were not listed yet, for people.
func (i *informers) waiting() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	var kinds []string
	for kind, informer := range i.all {
		if !informer.HasSynced() {
			kinds = append(kinds, kind)
		}
	}
	if len(kinds) == 0 {
		return ""
	}
	slices.Sort(kinds)
	return "waiting for the first list of " + strings.Join(kinds, ", ")
}
