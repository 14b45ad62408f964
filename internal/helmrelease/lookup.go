package helmrelease

import (
	"context"
	"encoding/json"
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/helm/render"
	"github.com/sluice-gitops/sluice/internal/limits/yamlsize"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// Bounds of a list that a template looks up. A tenant may create many large objects in its namespace.
const (
	maxListed    = 32 << 20 // bytes of all objects as JSON
	firstPage    = 20       // objects that the first request asks for
	maxPage      = 500      // objects that a request asks for at most
	smallObjects = 1 << 20  // bytes of a page after which the next one may be larger
)

// lookupIn returns the function lookup of templates, which reads with the rights of the release's account. Keep gets
// the memory of what was read, which is needed until the chart is rendered.
func lookupIn(t *rollout.Target, keep func(*guard.Lease)) render.Lookup {
	return func(ctx context.Context, apiVersion, kind, namespace, name string) (map[string]any, error) {
		ctx = apply.BoundAnswers(ctx)
		gv, err := schema.ParseGroupVersion(apiVersion)
		if err != nil {
			return nil, err
		}
		mapping, err := t.Cluster.Mapper().RESTMapping(gv.WithKind(kind).GroupKind(), gv.Version)
		if apimeta.IsNoMatchError(err) {
			return map[string]any{}, nil
		}
		if err != nil {
			return nil, err
		}
		client := t.Cluster.Dynamic().Resource(mapping.Resource).Namespace(namespace)
		if name == "" {
			list, err := listBounded(ctx, client, keep)
			if err != nil {
				return nil, ignoreNotFound(err)
			}
			return list.UnstructuredContent(), nil
		}
		o, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return map[string]any{}, ignoreNotFound(err)
		}
		_, err = account(ctx, keep, *o)
		return o.Object, err
	}
}

// account takes the memory for objects that templates look up, and returns their size as JSON.
func account(ctx context.Context, keep func(*guard.Lease), objects ...unstructured.Unstructured) (size int, err error) {
	memory := int64(0)
	for _, o := range objects {
		text, err := json.Marshal(o.Object)
		if err != nil {
			return 0, err
		}
		size, memory = size+len(text), memory+yamlsize.Memory(text)
	}
	lease, err := guard.BudgetOf(ctx).Acquire(ctx, "objects that a template looks up", memory)
	if err == nil {
		keep(lease)
	}
	return size, err
}

// listBounded lists the objects of a kind in pages. The error says that they are larger than 32 MiB, or need more
// memory than there is.
func listBounded(ctx context.Context, client dynamic.ResourceInterface,
	keep func(*guard.Lease)) (*unstructured.UnstructuredList, error) {
	var all *unstructured.UnstructuredList
	options, size := metav1.ListOptions{Limit: firstPage}, 0
	for {
		page, err := client.List(ctx, options)
		if err != nil {
			return nil, err
		}
		more, err := account(ctx, keep, page.Items...)
		if err != nil {
			return nil, err
		}
		if size += more; size > maxListed {
			return nil, fmt.Errorf("a template looks up a list of more than %d MiB; look up single objects",
				maxListed>>20)
		}
		if all == nil {
			all = page
		} else {
			all.Items = append(all.Items, page.Items...)
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			all.SetContinue("")
			all.SetRemainingItemCount(nil)
			return all, nil
		}
		if more < smallObjects {
			options.Limit = min(2*options.Limit, maxPage)
		}
	}
}
