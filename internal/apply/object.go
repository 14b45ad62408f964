package apply

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// Annotations of objects by which a person steers how they are applied, after the group of the owner.
const (
	ssaAnnotation       = "/ssa"       // Override, Merge, IfNotPresent, Ignore
	forceAnnotation     = "/force"     // enabled: re-created when an immutable field changes
	pruneAnnotation     = "/prune"     // disabled: never pruned
	reconcileAnnotation = "/reconcile" // disabled: left alone
)

const crdKind = "CustomResourceDefinition"

// item is an object on its way into the cluster.
type item struct {
	desired  *unstructured.Unstructured
	ref      Ref
	resource schema.GroupVersionResource
	scoped   bool // namespaced
	defined  bool // its kind is served; if not, a definition of the same set brings it
	hash     string
	action   Action
	recreate bool // an immutable field changed, and force is set
	checked  bool // the server has seen it in a dry-run
}

// newItem normalizes an object for its owner.
func newItem(o *unstructured.Unstructured, owner Owner, mapping *meta.RESTMapping) (*item, error) {
	o = o.DeepCopy()
	namespaced := mapping.Scope.Name() == meta.RESTScopeNameNamespace
	switch {
	case !namespaced:
		o.SetNamespace("")
	case o.GetNamespace() == "":
		o.SetNamespace(metav1.NamespaceDefault)
	}
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[owner.nameLabel()], labels[owner.namespaceLabel()] = owner.Name, owner.Namespace
	o.SetLabels(labels)
	unstructured.RemoveNestedField(o.Object, "status")
	unstructured.RemoveNestedField(o.Object, "metadata", "creationTimestamp")
	b, err := o.MarshalJSON()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b)
	gvk := o.GroupVersionKind()
	return &item{
		desired: o, resource: mapping.Resource, scoped: namespaced, hash: hex.EncodeToString(sum[:]),
		ref: Ref{gvk.Group, gvk.Version, gvk.Kind, o.GetNamespace(), o.GetName()},
	}, nil
}

func (c *Cluster) client(resource schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return c.dynamic.Resource(resource)
	}
	return c.dynamic.Resource(resource).Namespace(namespace)
}

// annotated tells whether an annotation of the owner's group has a value, in any case.
func annotated(o *unstructured.Unstructured, owner Owner, suffix, value string) bool {
	return strings.EqualFold(o.GetAnnotations()[owner.Group+suffix], value)
}

// same tells whether applying would change nothing: neither what the object holds, nor which fields are ours.
func same(live, wouldBe *unstructured.Unstructured, manager string) bool {
	return fingerprint(live.GetManagedFields(), manager) == fingerprint(wouldBe.GetManagedFields(), manager) &&
		equality.Semantic.DeepEqual(bare(live), bare(wouldBe))
}

// bare is what of an object is declared, not observed.
func bare(o *unstructured.Unstructured) map[string]any {
	o = o.DeepCopy()
	unstructured.RemoveNestedField(o.Object, "status")
	for _, f := range []string{"managedFields", "resourceVersion", "generation", "creationTimestamp", "uid", "selfLink"} {
		unstructured.RemoveNestedField(o.Object, "metadata", f)
	}
	return o.Object
}

// fingerprint is the set of fields that our manager applied. The API server takes a field out of it as soon as anybody
// else changes its value, so that it stays as it is exactly as long as everything that we applied does.
func fingerprint(fields []metav1.ManagedFieldsEntry, manager string) string {
	h := sha256.New()
	for _, e := range fields {
		if e.Manager != manager || e.Operation != metav1.ManagedFieldsOperationApply || e.Subresource != "" || e.FieldsV1 == nil {
			continue
		}
		// Clients differ in the order of keys: decoding and encoding sorts them.
		var set any
		if json.Unmarshal(e.FieldsV1.GetRawBytes(), &set) != nil {
			continue
		}
		b, err := json.Marshal(set)
		if err != nil {
			continue // what was just decoded can be encoded
		}
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
