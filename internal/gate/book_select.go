package gate

import (
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// selection is a gate's selector, ready to be asked.
type selection struct {
	gate       types.NamespacedName
	spec       *gatingv1.Selector
	names      []string        // of namespaces
	namespaces labels.Selector // nil: not by label
	objects    labels.Selector
}

// newSelection returns nil for a gate without a selector. A selector of labels that cannot be read selects
// all: gates fail closed.
func newSelection(g *gatingv1.Gate) *selection {
	s := g.Spec.Selector
	if s == nil {
		return nil
	}
	selected := &selection{
		gate: types.NamespacedName{Namespace: g.Namespace, Name: g.Name}, spec: s,
		names: []string{g.Namespace}, objects: labels.Everything(),
	}
	if s.Objects != nil {
		selected.objects = readSelector(s.Objects)
	}
	if n := s.Namespaces; n != nil {
		if selected.names = n.Names; n.Labels != nil {
			selected.namespaces = readSelector(n.Labels)
		}
	}
	return selected
}

func readSelector(s *metav1.LabelSelector) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Everything()
	}
	return selector
}

// same tells whether two selections of a gate select the same objects.
func (s *selection) same(other *selection) bool {
	return (s == nil) == (other == nil) && (s == nil || reflect.DeepEqual(s.spec, other.spec))
}

// over tells whether the gate stands over an object.
func (s *selection) over(b *Book, ref reconcile.Ref, obj reconcile.Gated) bool {
	if len(s.spec.Kinds) > 0 && !slices.Contains(s.spec.Kinds, gatingv1.SelectedKind(ref.Kind)) {
		return false
	}
	return s.objects.Matches(labels.Set(obj.GetLabels())) && s.cluster(obj) && s.namespace(b, obj.GetNamespace())
}

func (s *selection) namespace(b *Book, name string) bool {
	if slices.Contains(s.names, name) {
		return true
	}
	if s.namespaces == nil {
		return false
	}
	set, known := b.Namespace(name)
	return !known || s.namespaces.Matches(set)
}

// cluster tells whether the object deploys to one of the clusters.
func (s *selection) cluster(obj reconcile.Gated) bool {
	if len(s.spec.Clusters) == 0 {
		return true
	}
	d, ok := obj.(interface{ DeploysTo() meta.ClusterRef })
	if !ok {
		return false
	}
	to := d.DeploysTo()
	return slices.ContainsFunc(s.spec.Clusters, func(c gatingv1.ClusterSelector) bool {
		switch {
		case c.Local:
			return to == meta.ClusterRef{}
		case c.SecretRef != nil:
			return to.Secret == c.SecretRef.Name
		default:
			return c.ConfigMapRef != nil && to.ConfigMap == c.ConfigMapRef.Name
		}
	})
}
