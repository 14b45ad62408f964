package delivery

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/internal/guard"
)

const (
	// totalQueues is the size of the queues of all providers together, as a multiple of the size of one. A namespace
	// has a share of it, as it may have any number of providers.
	totalQueues = 16
	usageAge    = time.Second // after which the sizes are measured again, as deliveries free them
)

// usage is the size of the queues of the providers of each namespace. The dispatcher's lock guards it.
type usage struct {
	measured time.Time
	total    int64
	owned    map[string]int64
}

// isFull reports whether the queues of the providers of a namespace use up its share of the disk.
func (u *usage) isFull(namespace string, limit int64) bool {
	used := u.owned[namespace]
	return used >= guard.ShareOf(limit, u.total-used)
}

// measure reads the sizes of all queues, if they are not known or too old.
func (u *usage) measure(now time.Time, workers map[types.NamespacedName]*worker) {
	if u.owned != nil && now.Sub(u.measured) < usageAge && !now.Before(u.measured) {
		return
	}
	*u = usage{measured: now, owned: map[string]int64{}}
	for provider, w := range workers {
		u.add(provider.Namespace, w.outbox.size())
	}
}

func (u *usage) add(namespace string, bytes int64) {
	u.total += bytes
	u.owned[namespace] += bytes
}
