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

// selector is the parsed selector of a gate.
type selector struct {
	gate       types.NamespacedName
	uid        types.UID
	spec       *gatingv1.Selector
	names      []string        // of namespaces
	namespaces labels.Selector // nil: namespaces are not selected by labels
	objects    labels.Selector
	confined   bool // to the namespace of the gate
}

// newSelector returns nil for a gate without a selector. An invalid label selector selects everything, so that gates
// fail closed.
func newSelector(g *gatingv1.Gate) *selector {
	s := g.Spec.Selector
	if s == nil {
		return nil
	}
	parsed := &selector{
		gate: types.NamespacedName{Namespace: g.Namespace, Name: g.Name}, uid: g.UID, spec: s,
		names: []string{g.Namespace}, objects: labels.Everything(),
	}
	if s.Objects != nil {
		parsed.objects = labelSelector(s.Objects)
	}
	if n := s.Namespaces; n != nil {
		if parsed.names = n.Names; n.Labels != nil {
			parsed.namespaces = labelSelector(n.Labels)
		}
	}
	return parsed
}

func labelSelector(s *metav1.LabelSelector) labels.Selector {
	parsed, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Everything()
	}
	return parsed
}

// equal reports whether two selectors of a gate select the same objects.
func (s *selector) equal(other *selector) bool {
	return (s == nil) == (other == nil) &&
		(s == nil || s.confined == other.confined && reflect.DeepEqual(s.spec, other.spec))
}

// matches reports whether the gate selects an object.
func (s *selector) matches(x *Index, ref reconcile.Ref, obj reconcile.Gated) bool {
	if len(s.spec.Kinds) > 0 && !slices.Contains(s.spec.Kinds, gatingv1.SelectedKind(ref.Kind)) {
		return false
	}
	return s.objects.Matches(labels.Set(obj.GetLabels())) && s.matchesCluster(obj) &&
		s.matchesNamespace(x, obj.GetNamespace())
}

// matchesNamespace reports whether the gate selects objects of a namespace.
func (s *selector) matchesNamespace(x *Index, name string) bool {
	if s.confined && name != s.gate.Namespace {
		return false
	}
	if slices.Contains(s.names, name) {
		return true
	}
	if s.namespaces == nil {
		return false
	}
	set, known := x.Namespace(name)
	return !known || s.namespaces.Matches(set)
}

// matchesCluster reports whether the object deploys to one of the clusters.
func (s *selector) matchesCluster(obj reconcile.Gated) bool {
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
