package cli

import (
	"fmt"
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// kind is what the commands know of a kind; all else follows. A new kind is one more entry in kinds.
type kind struct {
	words    []string // how people name it, the first for messages
	parent   string   // the word that stands before it: "source" for sources
	new      func() reconcile.Object
	list     func() client.ObjectList
	revision func(reconcile.Object) string
	suspend  func(reconcile.Object, bool)
	source   func(reconcile.Object) (sourceRef, bool)
}

// sourceRef names what an object is built from.
type sourceRef struct{ kind, namespace, name string }

var kinds = []*kind{
	{
		words:  []string{"git", "gitrepository", "gitrepositories", "gitrepo"},
		parent: "source",
		new:    func() reconcile.Object { return &sourcev1.GitRepository{} },
		list:   func() client.ObjectList { return &sourcev1.GitRepositoryList{} },
		revision: func(o reconcile.Object) string {
			if a := o.(*sourcev1.GitRepository).Status.Artifact; a != nil {
				return a.Revision
			}
			return ""
		},
		suspend: func(o reconcile.Object, s bool) { o.(*sourcev1.GitRepository).Spec.Suspend = s },
	},
	{
		words:    []string{"kustomization", "kustomizations", "ks"},
		new:      func() reconcile.Object { return &kustomizev1.Kustomization{} },
		list:     func() client.ObjectList { return &kustomizev1.KustomizationList{} },
		revision: func(o reconcile.Object) string { return o.(*kustomizev1.Kustomization).Status.LastAppliedRevision },
		suspend:  func(o reconcile.Object, s bool) { o.(*kustomizev1.Kustomization).Spec.Suspend = s },
		source: func(o reconcile.Object) (sourceRef, bool) {
			r := o.(*kustomizev1.Kustomization).Spec.SourceRef
			if r.Namespace == "" {
				r.Namespace = o.GetNamespace()
			}
			return sourceRef{r.Kind, r.Namespace, r.Name}, true
		},
	},
}

// parents are the words that stand before a kind's.
var parents = map[string][]string{"source": {"source", "sources", "src"}}

// title is the kind as the API names it.
func (k *kind) title() string {
	name := fmt.Sprintf("%T", k.new())
	return name[strings.LastIndex(name, ".")+1:]
}

// byTitle finds a kind by its name in the API.
func byTitle(title string) *kind {
	i := slices.IndexFunc(kinds, func(k *kind) bool { return k.title() == title })
	if i < 0 {
		return nil
	}
	return kinds[i]
}

// items returns the objects of a list.
func items(list client.ObjectList) ([]reconcile.Object, error) {
	raw, err := apimeta.ExtractList(list)
	if err != nil {
		return nil, err
	}
	var out []reconcile.Object
	for _, r := range raw {
		o, ok := r.(reconcile.Object)
		if !ok {
			return nil, fmt.Errorf("%T is none of our kinds", r)
		}
		out = append(out, o)
	}
	return out, nil
}
