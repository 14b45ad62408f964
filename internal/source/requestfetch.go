package source

import (
	"context"
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
)

// RequestFetch returns a function that requests a fetch of a GitRepository from the process that reconciles it, by
// annotation. fieldManager owns the annotation.
func RequestFetch(c client.Client, clock clock.PassiveClock,
	fieldManager string) func(ctx context.Context, repository types.NamespacedName) error {
	return func(ctx context.Context, repository types.NamespacedName) error {
		g := &sourcev1.GitRepository{}
		g.Namespace, g.Name = repository.Namespace, repository.Name
		at := clock.Now().UTC().Format(time.RFC3339Nano)
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"annotations": map[string]string{meta.ReconcileRequestAnnotation: at}}})
		if err != nil {
			return err
		}
		return c.Patch(ctx, g, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldManager))
	}
}
