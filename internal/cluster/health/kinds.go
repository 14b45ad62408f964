package health

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sluice-gitops/sluice/internal/cluster/kubewatch"
)

// definitionKey is the watch of all definitions.
var definitionKey = kubewatch.Key{Resource: schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
	Resource: "customresourcedefinitions"}}

// watchDefinitions runs a watch of definitions while a target has a kind that the cluster does not serve. The caller
// holds the lock.
func (w *Watcher) watchDefinitions() {
	missing := false
	for _, targets := range w.owners {
		for _, s := range targets {
			missing = missing || s.watch == nil
		}
	}
	definitions := w.store.Get(definitionKey)
	switch {
	case missing && definitions == nil:
		w.store.Watch(definitionKey, observeWith(nil, nil))
	case !missing && definitions != nil && !definitions.HasSubscribers():
		w.store.Remove(definitions)
	}
}

// observeDefinition notifies owners whose targets have a kind that a definition has just established. The caller holds
// the lock.
func (w *Watcher) observeDefinition(_ *watch, definition *unstructured.Unstructured, deleted bool) {
	get := func(path ...string) string {
		s, _, _ := unstructured.NestedString(definition.Object, path...) // the API server requires these fields
		return s
	}
	gk := schema.GroupKind{Group: get("spec", "group"), Kind: get("spec", "names", "kind")}
	if deleted || !hasCondition(definition, "Established") {
		delete(w.established, gk)
		return
	}
	scope := meta.RESTScopeRoot
	if get("spec", "scope") == "Namespaced" {
		scope = meta.RESTScopeNamespace
	}
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	mappings := map[string]*meta.RESTMapping{}
	for _, v := range versions {
		if v, ok := v.(map[string]any); ok && v["served"] == true {
			gv := schema.GroupVersion{Group: gk.Group, Version: fmt.Sprint(v["name"])}
			mappings[gv.Version] = &meta.RESTMapping{Resource: gv.WithResource(get("spec", "names", "plural")),
				GroupVersionKind: gv.WithKind(gk.Kind), Scope: scope}
		}
	}
	for owner, targets := range w.owners {
		for _, s := range targets {
			if s.watch == nil && mappings[s.target.Version] != nil && s.target.groupKind() == gk {
				w.established[gk] = mappings // discovery may not list the kind yet
				w.changed[owner] = true
			}
		}
	}
}

// mapping returns the mapping of a target's kind, or nil if the cluster does not serve it. It resets discovery at most
// once for all targets.
func (w *Watcher) mapping(t Target, reset *bool) *meta.RESTMapping {
	m, err := w.mapper.RESTMapping(t.groupKind(), t.Version)
	if err == nil {
		return m
	}
	w.mu.Lock()
	established := w.established[t.groupKind()][t.Version]
	w.mu.Unlock()
	if established != nil || *reset {
		return established
	}
	*reset = true // the kind may be newer than the cached discovery
	w.mapper.Reset()
	if m, err = w.mapper.RESTMapping(t.groupKind(), t.Version); err != nil {
		return nil
	}
	return m
}
