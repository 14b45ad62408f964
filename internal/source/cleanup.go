package source

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
)

// Cleanup removes the artifacts of deleted objects and damaged artifacts.
type Cleanup struct {
	Store     *artifact.Store
	Reader    client.Reader // without a label selector: objects of other processes must be found
	Namespace string        // empty for all namespaces
	Clock     clock.Clock
}

// Run removes what is on the disk. It runs once, when the process starts, on every replica, as each has its own store.
// It only logs failures: the next start tries again.
func (c *Cleanup) Run(ctx context.Context) error {
	c.removeOrphans(ctx, c.Store.CollectOrphans, "the next start tries again")
	for _, file := range c.Store.CheckAll(ctx) {
		log.FromContext(ctx).WithName("artifacts").
			Info("removed a damaged artifact; its source writes it again", "path", file)
	}
	return nil
}

// sharedRetryDelay is how long a cleanup of the storage backend waits after a failure.
const sharedRetryDelay = time.Minute

// RunShared removes what is in the storage backend. It begins when the process becomes the leader, and tries again
// until all is removed: the backend may not answer, and a replica without a lease may not write to it yet.
func (c *Cleanup) RunShared(ctx context.Context) error {
	for !c.removeOrphans(ctx, c.Store.CollectSharedOrphans, "it is tried again in "+sharedRetryDelay.String()) {
		select {
		case <-ctx.Done():
			return nil
		case <-c.Clock.After(sharedRetryDelay):
		}
	}
	return nil
}

// removeOrphans removes the artifacts of deleted objects. It reports whether that succeeded for all kinds.
func (c *Cleanup) removeOrphans(ctx context.Context, collect collector, then string) (isDone bool) {
	isDone = true
	logger := log.FromContext(ctx).WithName("artifacts")
	for _, kind := range []string{
		sourcev1.GitRepositoryKind, sourcev1.OCIRepositoryKind, sourcev1.BucketKind, sourcev1.HelmRepositoryKind,
		sourcev1.HelmChartKind, sourcev1.ExternalArtifactKind,
	} {
		removed, err := c.collect(ctx, kind, collect)
		isDone = isDone && err == nil
		if err != nil && ctx.Err() == nil {
			logger.Info("cannot remove artifacts of deleted objects; "+then, "kind", kind, "error", err.Error())
		}
		for _, dir := range removed {
			logger.Info("removed the artifacts of a deleted object", "path", dir)
		}
	}
	return isDone
}

// collector removes artifacts of a kind in a namespace whose objects are not in live, and returns their directories.
type collector func(kind, namespace string, live []artifact.Key) (removed []string, err error)

func (c *Cleanup) collect(ctx context.Context, kind string, collect collector) (removed []string, err error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(sourcev1.GroupVersion.WithKind(kind + "List"))
	if err := c.Reader.List(ctx, list, client.InNamespace(c.Namespace)); err != nil {
		return nil, err
	}
	var live []artifact.Key
	for _, o := range list.Items {
		live = append(live, artifact.Key{Kind: kind, Namespace: o.Namespace, Name: o.Name})
	}
	return collect(kind, c.Namespace, live)
}
