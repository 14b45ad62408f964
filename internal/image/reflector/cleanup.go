package reflector

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/image/store"
)

// Cleanup removes the stored tags of deleted ImageRepositories.
type Cleanup struct {
	Store     *store.Store
	Reader    client.Reader // without a label selector: objects of other processes must be found
	Namespace string        // empty for all namespaces
}

// Run runs once, when the process starts, on every replica, as each has its own store. It only logs failures: the next
// start tries again.
func (c *Cleanup) Run(ctx context.Context) error {
	if err := c.collect(ctx); err != nil && ctx.Err() == nil {
		log.FromContext(ctx).WithName("images").Info(
			"cannot remove the tags of deleted ImageRepositories; the next start tries again", "error", err.Error())
	}
	return nil
}

func (c *Cleanup) collect(ctx context.Context) error {
	var list imagev1.ImageRepositoryList
	if err := c.Reader.List(ctx, &list, client.InNamespace(c.Namespace)); err != nil {
		return err
	}
	live := map[store.Key]bool{}
	for _, r := range list.Items {
		live[store.Key{Namespace: r.Namespace, Name: r.Name}] = true
	}
	_, err := c.Store.Collect(func(key store.Key) bool {
		return live[key] || c.Namespace != "" && key.Namespace != c.Namespace
	})
	return err
}
