package preview

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/offline/lookup"
)

const maxNamespaces = 1000 // that are tried one by one

// list lists the objects of a kind in all namespaces or, if the account may not, in those that it may read. The result
// says then which these are: what is in others is hidden, not absent.
func (r *run) list(ctx context.Context, what string, list client.ObjectList) error {
	err := r.Cluster.Client.List(ctx, list)
	if !apierrors.IsForbidden(err) {
		return lookup.Explain("cannot list "+what, err)
	}
	var all []runtime.Object
	var readable []string
	for _, namespace := range r.namespaces(ctx) {
		one := list.DeepCopyObject().(client.ObjectList)
		if e := r.Cluster.Client.List(ctx, one, client.InNamespace(namespace)); apierrors.IsForbidden(e) {
			continue
		} else if e != nil {
			return lookup.Explain(fmt.Sprintf("cannot list %s in namespace '%s'", what, namespace), e)
		}
		items, e := apimeta.ExtractList(one)
		if e != nil {
			return e
		}
		all, readable = append(all, items...), append(readable, namespace)
	}
	if len(readable) == 0 {
		return lookup.Explain("cannot list "+what+". Name a namespace that you may read with --namespace", err)
	}
	r.note("you may list %s in %s only: those of other namespaces are hidden, and so is what the change does to them",
		what, inWords(readable))
	return apimeta.SetList(list, all)
}

// namespaces returns the namespaces that the account may be able to read: all, if it may list them, or else those of
// the options.
func (r *run) namespaces(ctx context.Context) []string {
	names := slices.Clone(r.Namespaces)
	for _, key := range r.Sources {
		if parts := strings.Split(key, "/"); len(parts) == 3 {
			names = append(names, parts[1])
		}
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if r.Cluster.Client.List(ctx, list) == nil {
		for n := range list.Items[:min(len(list.Items), maxNamespaces)] {
			names = append(names, list.Items[n].Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// inWords names the first namespaces.
func inWords(names []string) string {
	const most = 5
	text := "namespace"
	if len(names) > 1 {
		text += "s"
	}
	text += " '" + strings.Join(names[:min(len(names), most)], "', '") + "'"
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
