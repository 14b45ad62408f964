package apply

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	definitionKind = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
	namespaceKind  = schema.GroupKind{Kind: "Namespace"}
)

// order of kinds: what others need comes first. Kinds of a line are applied together, a line once the one
// above is done. What is not named stands in the middle.
var order = [][]string{
	{"CustomResourceDefinition", "Namespace", "StorageClass", "PriorityClass", "IngressClass", "RuntimeClass",
		"GatewayClass", "ClusterClass", "VolumeSnapshotClass", "DeviceClass"},
	{"ResourceQuota", "LimitRange"},
	{"ServiceAccount", "Role", "ClusterRole", "ConfigMap", "Secret", "PersistentVolume", "PersistentVolumeClaim"},
	{"RoleBinding", "ClusterRoleBinding"},
	{"Service", "Endpoints", "EndpointSlice", "NetworkPolicy", "PodDisruptionBudget"},
}

const (
	between = 10           // ranks from a line of order to the next
	custom  = between / 2  // between the first line and the second
	middle  = 10 * between // what order does not name: workloads, and whatever builds on definitions
)

// rank is when objects of a kind are applied: a stage for all of a rank. Kinds of CustomStage come right
// after the first.
func (o ClusterOptions) rank(gk schema.GroupKind) int {
	for n, kinds := range order {
		if n == 1 && slices.Contains(o.CustomStage, gk) {
			return custom
		}
		// Only groups of Kubernetes itself, and of its projects, mean by these names what is meant here.
		if slices.Contains(kinds, gk.Kind) &&
			(!strings.Contains(gk.Group, ".") || strings.HasSuffix(gk.Group, ".k8s.io") ||
				gk.Group == "cluster.x-k8s.io") {
			return n * between
		}
	}
	switch {
	// They stand between us and the API: they come when what answers for them is on its way.
	case gk.Group == "admissionregistration.k8s.io", gk.Group == "apiregistration.k8s.io":
		return middle + 1
	default:
		return middle
	}
}

// stages parts the items by rank. They are sorted already.
func (o ClusterOptions) stages(items []*item) [][]*item {
	var out [][]*item
	for n, i := range items {
		if n == 0 || o.rank(items[n-1].ref.groupKind()) != o.rank(i.ref.groupKind()) {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], i)
	}
	return out
}

func (o ClusterOptions) byRank(a, b *item) int {
	return cmp.Or(cmp.Compare(o.rank(a.ref.groupKind()), o.rank(b.ref.groupKind())), a.ref.compare(b.ref))
}

// ParseKinds reads kinds written as <group>/<Kind>, or <Kind> of the core group.
func ParseKinds(texts []string) ([]schema.GroupKind, error) {
	var kinds []schema.GroupKind
	for _, text := range texts {
		group, kind, found := strings.Cut(text, "/")
		if !found {
			group, kind = "", text
		}
		if kind == "" || strings.Contains(kind, "/") || strings.ToUpper(kind[:1]) != kind[:1] {
			return nil, fmt.Errorf("%q is not a kind: write <group>/<Kind>, such as rbac.authorization.k8s.io/Role, "+
				"or Secret", text)
		}
		kinds = append(kinds, schema.GroupKind{Group: group, Kind: kind})
	}
	return kinds, nil
}

// plan finds out what each object is to the cluster, in the order of applying. Kinds that a definition among
// the objects brings are known from it.
func (c *Cluster) plan(req Request) ([]*item, error) {
	objects, problems := flatten(req.Objects, 0)
	brought := definitions(objects)
	var items []*item
	seen := map[Ref]bool{}
	reset := false
	for _, o := range objects {
		gvk := o.GroupVersionKind()
		mapping, err := c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if newer := upgrade(o); meta.IsNoMatchError(err) && newer != nil {
			o, gvk = newer, newer.GroupVersionKind()
			mapping, err = c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		}
		if meta.IsNoMatchError(err) && brought[gvk] == nil && !reset {
			reset = true // once: the kind may be newer than what was discovered
			c.mapper.Reset()
			mapping, err = c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		}
		undefined := meta.IsNoMatchError(err)
		if undefined && brought[gvk] != nil {
			mapping, err = brought[gvk], nil
		}
		if undefined && err != nil {
			problems = append(problems, c.notServed(req, o))
			continue
		}
		if err != nil {
			return nil, unreachable(err)
		}
		i, err := newItem(o, req.Owner, mapping)
		if err != nil {
			problems = append(problems, problem("%s cannot be applied", req.show(o)).Because(err).
				WithHint("Give it a metadata.name"))
			continue
		}
		if seen[i.ref.key()] {
			problems = append(problems, problem("%s is declared twice", i.ref).WithHint("Remove one of the two"))
			continue
		}
		seen[i.ref.key()] = true
		i.deferred, i.declared = undefined, o
		items = append(items, i)
	}
	slices.SortFunc(items, c.options.byRank)
	return items, refused(problems)
}

// notServed says that the cluster does not serve the kind of an object, or not in its version.
func (c *Cluster) notServed(req Request, o *unstructured.Unstructured) error {
	gvk := o.GroupVersionKind()
	p := problem("%s: the cluster does not serve kind %s of %s", req.show(o), gvk.Kind, gvk.GroupVersion())
	if other, err := c.mapper.RESTMapping(gvk.GroupKind()); err == nil {
		return p.WithHint("It serves %s: write it in that version", other.GroupVersionKind.GroupVersion())
	}
	return p.WithHint("Install its CustomResourceDefinition first: declare it here, or add a dependsOn to what " +
		"brings it")
}

// maxNesting is how deep lists may stand in lists.
const maxNesting = 10

// flatten returns the objects with lists taken apart. Items of a list of one kind need not name it.
func flatten(objects []*unstructured.Unstructured, depth int) (flat []*unstructured.Unstructured, problems []error) {
	for _, o := range objects {
		kind, isList := strings.CutSuffix(o.GetKind(), "List")
		if !isList || !o.IsList() || o.GetName() != "" {
			flat = append(flat, o)
			continue
		}
		if depth == maxNesting {
			return nil, append(problems, problem("a %s stands in %d others", o.GetKind(), depth).
				WithHint("Declare its items one by one"))
		}
		var items []*unstructured.Unstructured
		for n, v := range o.Object["items"].([]any) { // as IsList tells
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
				return "" // the API server says what is wrong with it
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

// defines tells whether the item is the definition of a kind.
func (i *item) defines(gk schema.GroupKind) bool {
	if i.ref.groupKind() != definitionKind {
		return false
	}
	group, _, _ := unstructured.NestedString(i.desired.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(i.desired.Object, "spec", "names", "kind")
	return gk == schema.GroupKind{Group: group, Kind: kind}
}
