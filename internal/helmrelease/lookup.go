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

	"github.com/sluice-gitops/sluice/internal/helm/render"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// Bounds of a list that a template looks up. A tenant may create many large objects in its namespace.
const (
	maxListed    = 32 << 20 // bytes of all objects as JSON
	firstPage    = 20       // objects that the first request asks for
	maxPage      = 500      // objects that a request asks for at most
	smallObjects = 1 << 20  // bytes of a page after which the next one may be larger
)

// lookupIn returns the function lookup of templates, which reads with the rights of the release's account.
func lookupIn(t *rollout.Target) render.Lookup {
	return func(ctx context.Context, apiVersion, kind, namespace, name string) (map[string]any, error) {
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
			list, err := listBounded(ctx, client)
			if err != nil {
				return nil, ignoreNotFound(err)
			}
			return list.UnstructuredContent(), nil
		}
		o, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return map[string]any{}, ignoreNotFound(err)
		}
		return o.Object, nil
	}
}

// listBounded lists the objects of a kind in pages. The error says that they are larger than 32 MiB.
func listBounded(ctx context.Context, client dynamic.ResourceInterface) (*unstructured.UnstructuredList, error) {
	var all *unstructured.UnstructuredList
	options, size := metav1.ListOptions{Limit: firstPage}, 0
	for {
		page, err := client.List(ctx, options)
		if err != nil {
			return nil, err
		}
		before := size
		for _, o := range page.Items {
			text, err := json.Marshal(o.Object)
			if err != nil {
				return nil, err
			}
			if size += len(text); size > maxListed {
				return nil, fmt.Errorf("a template looks up a list of more than %d MiB; look up single objects",
					maxListed>>20)
			}
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
		if size-before < smallObjects {
			options.Limit = min(2*options.Limit, maxPage)
		}
	}
}
