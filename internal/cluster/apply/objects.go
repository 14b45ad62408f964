package apply

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// object is a declared object, normalized for its owner and mapped to a resource of the cluster. Only makeNative
// modifies it.
type object struct {
	ref       Ref
	resource  schema.GroupVersionResource
	manifest  *unstructured.Unstructured
	source    *unstructured.Unstructured // before normalization; identifies the file for error messages
	hash      [sha256.Size]byte          // of the manifest as it is declared
	undefined bool                       // not served yet; a definition in the same set defines the kind
	isNative  bool                       // the manifest is in its native form, if it has one
	unknown   []string                   // paths of fields that the native form does not have
}

func (o *object) reference() Ref { return o.ref }

// newObject normalizes an object for its owner. The namespace is that of objects which declare none; may be empty. The
// problem does not name the object.
func newObject(source *unstructured.Unstructured, owner Owner, namespace string,
	mapping *meta.RESTMapping) (*object, *fault.Fault) {
	o := source.DeepCopy()
	switch {
	case o.GetName() == "" && o.GetGenerateName() != "":
		return nil, problem("metadata.generateName %q would create another object on each apply",
			o.GetGenerateName()).WithHint("Give it a metadata.name")
	case o.GetName() == "":
		return nil, problem("metadata.name not specified").WithHint("Give it a metadata.name")
	}
	switch {
	case mapping.Scope.Name() != meta.RESTScopeNameNamespace:
		o.SetNamespace("")
	case o.GetNamespace() == "" && namespace == "":
		return nil, problem("namespace not specified").WithHint("%s", adviceFor(owner).unspecified)
	case o.GetNamespace() == "":
		o.SetNamespace(namespace)
	}
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[owner.nameLabel()], labels[owner.namespaceLabel()] = owner.Name, owner.Namespace
	o.SetLabels(labels)
	// Manifests that were exported from a cluster have fields that the server sets.
	unstructured.RemoveNestedField(o.Object, "status")
	for _, f := range []string{"managedFields", "resourceVersion", "generation", "creationTimestamp", "uid",
		"selfLink"} {
		unstructured.RemoveNestedField(o.Object, "metadata", f)
	}
	if isSecret(o.GroupVersionKind().GroupKind()) {
		encodeStringData(o)
	}
	b, err := o.MarshalJSON()
	if err != nil {
		return nil, problem("cannot be encoded as JSON").Because(err)
	}
	return &object{
		manifest: o, source: source, resource: mapping.Resource, hash: sha256.Sum256(b), ref: RefOf(o).interned(),
	}, nil
}

// resolve normalizes the declared objects and finds their resources. It returns them in the order of applying. Kinds
// that a definition among the objects defines do not have to be served yet.
func (c *Cluster) resolve(req Request) ([]*object, error) {
	declared, problems := flatten(req.Objects, 0)
	mappings := mapper{Cluster: c, defined: definitions(declared)}
	var objects []*object
	seen := map[Ref]bool{}
	for _, d := range declared {
		served, mapping, undefined, err := mappings.find(d)
		switch {
		case meta.IsNoMatchError(err):
			problems = append(problems, c.notServed(req, d))
			continue
		case err != nil:
			return nil, discoveryFailed(err)
		}
		o, refusal := newObject(served, req.Owner, c.options.Namespace, mapping)
		if refusal != nil {
			refusal.What = req.show(d) + ": " + refusal.What
			problems = append(problems, refusal)
			continue
		}
		if seen[o.ref.key()] {
			problems = append(problems, problem("%s is declared twice", o.ref).WithHint("Remove one of the two"))
			continue
		}
		seen[o.ref.key()] = true
		o.undefined = undefined
		objects = append(objects, o)
	}
	slices.SortFunc(objects, byRank[*object](c.options))
	return objects, refused(problems)
}

// mapper finds the resources of declared objects. It resets the cached discovery at most once.
type mapper struct {
	*Cluster
	defined map[schema.GroupVersionKind]*meta.RESTMapping // by definitions of the same set
	reset   bool
}

// find returns the object in a version that the cluster serves, and its mapping. Undefined is true if only a definition
// of the same set provides the mapping.
func (m *mapper) find(o *unstructured.Unstructured) (*unstructured.Unstructured, *meta.RESTMapping, bool, error) {
	gvk := o.GroupVersionKind()
	mapping, err := m.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if newer := upgrade(o); meta.IsNoMatchError(err) && newer != nil {
		o, gvk = newer, newer.GroupVersionKind()
		mapping, err = m.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	}
	if meta.IsNoMatchError(err) && m.defined[gvk] == nil && !m.reset {
		m.reset = true // the kind may be newer than the cached discovery
		m.mapper.Reset()
		mapping, err = m.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	}
	if meta.IsNoMatchError(err) && m.defined[gvk] != nil {
		return o, m.defined[gvk], true, nil
	}
	return o, mapping, false, err
}

// notServed returns the error for an object whose kind or version the cluster does not serve.
func (c *Cluster) notServed(req Request, o *unstructured.Unstructured) error {
	gvk := o.GroupVersionKind()
	p := problem("%s: the cluster does not serve kind %s of %s", req.show(o), gvk.Kind, gvk.GroupVersion())
	if other, err := c.mapper.RESTMapping(gvk.GroupKind()); err == nil {
		return p.WithHint("It serves %s: use that version", other.GroupVersionKind.GroupVersion())
	}
	return p.WithHint("%s", adviceFor(req.Owner).definition)
}

// maxNesting is the maximum depth of lists in lists.
const maxNesting = 10

// flatten replaces lists by their items. Items of a typed list, such as a ConfigMapList, need no kind.
func flatten(objects []*unstructured.Unstructured, depth int) (flat []*unstructured.Unstructured, problems []error) {
	for _, o := range objects {
		kind, isList := strings.CutSuffix(o.GetKind(), "List")
		if !isList || !o.IsList() || o.GetName() != "" {
			flat = append(flat, o)
			continue
		}
		if depth == maxNesting {
			return nil, append(problems, problem("a %s is nested in %d other lists", o.GetKind(), depth).
				WithHint("Declare its items one by one"))
		}
		var items []*unstructured.Unstructured
		for n, v := range o.Object["items"].([]any) { // IsList has checked the type
			m, ok := v.(map[string]any)
			if !ok {
				problems = append(problems, problem("item %d of a %s is not an object", n, o.GetKind()).
					WithHint("Remove it from the list"))
				continue
			}
			item := &unstructured.Unstructured{Object: m}
			if kind != "" && item.GetKind() == "" {
				item = item.DeepCopy()
				item.SetAPIVersion(o.GetAPIVersion())
				item.SetKind(kind)
			}
			items = append(items, item)
		}
		inner, wrong := flatten(items, depth+1)
		flat, problems = append(flat, inner...), append(problems, wrong...)
	}
	return flat, problems
}

// definitions returns the kinds that CustomResourceDefinitions among the objects define.
func definitions(objects []*unstructured.Unstructured) map[schema.GroupVersionKind]*meta.RESTMapping {
	found := map[schema.GroupVersionKind]*meta.RESTMapping{}
	for _, o := range objects {
		if o.GroupVersionKind().GroupKind() != definitionKind {
			continue
		}
		get := func(path ...string) string {
			s, _, err := unstructured.NestedString(o.Object, path...)
			if err != nil {
				return "" // the API server reports invalid fields
			}
			return s
		}
		scope := meta.RESTScopeRoot
		if get("spec", "scope") == "Namespaced" {
			scope = meta.RESTScopeNamespace
		}
		versions, _, err := unstructured.NestedSlice(o.Object, "spec", "versions")
		if err != nil {
			continue
		}
		for _, v := range versions {
			version, ok := v.(map[string]any)
			if !ok {
				continue
			}
			gvk := schema.GroupVersionKind{Group: get("spec", "group"), Version: fmt.Sprint(version["name"]),
				Kind: get("spec", "names", "kind")}
			found[gvk] = &meta.RESTMapping{
				Resource: gvk.GroupVersion().WithResource(get("spec", "names", "plural")), GroupVersionKind: gvk,
				Scope: scope,
			}
		}
	}
	return found
}

// defines reports whether the object is the definition of a kind.
func (o *object) defines(gk schema.GroupKind) bool {
	if o.ref.groupKind() != definitionKind {
		return false
	}
	group, _, _ := unstructured.NestedString(o.manifest.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(o.manifest.Object, "spec", "names", "kind")
	return gk == schema.GroupKind{Group: group, Kind: kind}
}

// HasTTL reports whether an object is a Job with a time to live. Its deletion is not drift: if it were
// created again, it would run again and again.
func HasTTL(o *unstructured.Unstructured) bool {
	if o.GroupVersionKind().GroupKind() != (schema.GroupKind{Group: "batch", Kind: "Job"}) {
		return false
	}
	ttl, _, err := unstructured.NestedFieldNoCopy(o.Object, "spec", "ttlSecondsAfterFinished")
	return err == nil && ttl != nil
}

func isSecret(gk schema.GroupKind) bool { return gk == schema.GroupKind{Kind: "Secret"} }

// encodeStringData moves stringData to data. The server does not store stringData, so drift of it could not
// be detected.
func encodeStringData(o *unstructured.Unstructured) {
	plain, found, err := unstructured.NestedStringMap(o.Object, "stringData")
	if err != nil || !found {
		return // the API server reports invalid fields
	}
	data, _, err := unstructured.NestedMap(o.Object, "data")
	if err != nil {
		return
	}
	if data == nil {
		data = map[string]any{}
	}
	for k, v := range plain {
		data[k] = base64.StdEncoding.EncodeToString([]byte(v))
	}
	o.Object["data"] = data
	delete(o.Object, "stringData")
}
