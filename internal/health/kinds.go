package health

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// definitionKey is the watch that tells of new kinds.
var definitionKey = watchKey{resource: schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
	Resource: "customresourcedefinitions"}}

// seekKinds watches definitions as long as somebody asks for a kind that the cluster does not serve. The
// caller holds the lock.
func (w *Watcher) seekKinds() {
	missing := false
	for _, targets := range w.owners {
		for _, a := range targets {
			missing = missing || a.watch == nil
		}
	}
	wt := w.watches[definitionKey]
	switch {
	case missing && wt == nil:
		wt = newWatch(w, definitionKey, nil)
		w.watches[definitionKey] = wt
		wt.start()
	case !missing && wt != nil && len(wt.asked) == 0:
		wt.stop()
		delete(w.watches, definitionKey)
	}
}

// defined takes in a definition of a kind: those who wait for it are to ask anew. The caller holds the lock.
func (w *Watcher) defined(definition *unstructured.Unstructured, gone bool, changed map[string]bool) {
	get := func(path ...string) string {
		// the API server sees to it that they are there
		s, _, _ := unstructured.NestedString(definition.Object, path...)
		return s
	}
	gk := schema.GroupKind{Group: get("spec", "group"), Kind: get("spec", "names", "kind")}
	if gone || !hasCondition(definition, "Established") {
		delete(w.brought, gk)
		return
	}
	scope := meta.RESTScopeRoot
	if get("spec", "scope") == "Namespaced" {
		scope = meta.RESTScopeNamespace
	}
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	brought := map[string]*meta.RESTMapping{}
	for _, v := range versions {
		if v, ok := v.(map[string]any); ok && v["served"] == true {
			gv := schema.GroupVersion{Group: gk.Group, Version: fmt.Sprint(v["name"])}
			brought[gv.Version] = &meta.RESTMapping{Resource: gv.WithResource(get("spec", "names", "plural")),
				GroupVersionKind: gv.WithKind(gk.Kind), Scope: scope}
		}
	}
	for owner, targets := range w.owners {
		for _, a := range targets {
			if a.watch == nil && brought[a.target.Version] != nil && a.target.groupKind() == gk {
				w.brought[gk] = brought // discovery may not have it yet
				changed[owner] = true
			}
		}
	}
}

// mapping finds what serves a target's kind.
func (w *Watcher) mapping(t Target, reset *bool) *meta.RESTMapping {
	m, err := w.mapper.RESTMapping(t.groupKind(), t.Version)
	if err == nil {
		return m
	}
	w.mu.Lock()
	brought := w.brought[t.groupKind()][t.Version]
	w.mu.Unlock()
	if brought != nil || *reset {
		return brought
	}
	*reset = true // once: the kind may be newer than what was discovered
	w.mapper.Reset()
	if m, err = w.mapper.RESTMapping(t.groupKind(), t.Version); err != nil {
		return nil
	}
	return m
}
