package health

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/internal/cluster/kubewatch"
)

// targetKey is the watch of a target and the target's name in it. The key is empty if the cluster does not serve the
// kind.
type targetKey struct {
	kubewatch.Key
	name  types.NamespacedName
	check *Check // nil for kstatus
}

// keys returns the watch for each target. Several targets of one kind in a namespace share a watch of the namespace. A
// single target has a watch of its own object, which needs fewer rights.
func (w *Watcher) keys(targets []Target, checks []*Check) map[Target]targetKey {
	keys := make(map[Target]targetKey, len(targets))
	count := map[kubewatch.Key]int{}
	reset := false
	for _, t := range targets {
		if _, duplicate := keys[t]; duplicate {
			continue
		}
		mapping := w.mapping(t, &reset)
		if mapping == nil {
			keys[t] = targetKey{}
			continue
		}
		k := targetKey{Key: kubewatch.Key{Resource: mapping.Resource}, name: types.NamespacedName{Name: t.Name}}
		if i := slices.IndexFunc(checks, func(c *Check) bool { return c.covers(mapping.GroupVersionKind) }); i >= 0 {
			k.check, k.Variant = checks[i], checks[i].id
		}
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			k.Namespace, k.name.Namespace = t.Namespace, t.Namespace
		}
		keys[t] = k
		count[k.Key]++
	}
	for t, k := range keys {
		if k.Key != (kubewatch.Key{}) && count[k.Key] == 1 {
			k.Name = t.Name
			keys[t] = k
		}
	}
	return keys
}
