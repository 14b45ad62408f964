package apply

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// Annotations, or labels, of objects by which a person steers how they are applied, after the group of the owner.
const (
	ssaKey       = "/ssa"       // Override, Merge, IfNotPresent, Ignore
	forceKey     = "/force"     // enabled: re-created when an immutable field changes
	pruneKey     = "/prune"     // disabled: never pruned
	reconcileKey = "/reconcile" // disabled: left alone
)

// item is an object on its way into the cluster.
type item struct {
	whole    *unstructured.Unstructured // all that is wanted
	desired  *unstructured.Unstructured // the same, less what is left to others
	ref      Ref
	declared *unstructured.Unstructured // as it was given
	resource schema.GroupVersionResource
	hash     [sha256.Size]byte // of whole

	deferred    bool   // cannot be dry-run before others of the set are there
	checked     bool   // the server has seen it in a dry-run
	trusted     bool   // it needs none: it is created first of all, and taken back if need be
	refused     bool   // the server would not have it when it was to be created
	action      Action // what is to be done, as far as is known; once done, what was done
	done        bool
	version     string    // the live resource version that the dry-run met; empty if there is no such object
	written     string    // the resource version of what was written
	uid         types.UID // of what was created on trust
	terminating bool      // the live object is on its way out
	recreate    bool      // an immutable field changed, and force is set
	takeOver    bool      // fields of other managers become ours before it is applied

	live *unstructured.Unstructured // as it stood before, if its diff is to be told
	diff string                     // what changes, or changed
	from Owner                      // the other owner that it belongs to, or belonged to
}

// newItem normalizes an object for its owner.
func newItem(o *unstructured.Unstructured, owner Owner, mapping *meta.RESTMapping) (*item, error) {
	o = o.DeepCopy()
	switch {
	case o.GetName() == "" && o.GetGenerateName() != "":
		return nil, fmt.Errorf("it has metadata.generateName %q, which would make another object each time",
			o.GetGenerateName())
	case o.GetName() == "":
		return nil, fmt.Errorf("it has no metadata.name")
	}
	switch {
	case mapping.Scope.Name() != meta.RESTScopeNameNamespace:
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
	// What an export from a cluster leaves behind says nothing of what is wanted.
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
		return nil, err
	}
	gvk := o.GroupVersionKind()
	return &item{
		whole: o, desired: o, resource: mapping.Resource, hash: sha256.Sum256(b),
		ref: Ref{gvk.Group, gvk.Version, gvk.Kind, o.GetNamespace(), o.GetName()},
	}, nil
}

// Expires tells whether an object goes by itself once it has done its work: a Job with a time to live. Its
// end is no drift, as it would run again and again.
func HasTTL(o *unstructured.Unstructured) bool {
	if o.GroupVersionKind().GroupKind() != (schema.GroupKind{Group: "batch", Kind: "Job"}) {
		return false
	}
	ttl, _, err := unstructured.NestedFieldNoCopy(o.Object, "spec", "ttlSecondsAfterFinished")
	return err == nil && ttl != nil
}

func isSecret(gk schema.GroupKind) bool { return gk == schema.GroupKind{Kind: "Secret"} }

// encodeStringData moves stringData to data: it is written, never stored, so nobody could tell whether it moved.
func encodeStringData(o *unstructured.Unstructured) {
	plain, found, err := unstructured.NestedStringMap(o.Object, "stringData")
	if err != nil || !found {
		return // the API server says what is wrong with it
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

func (c *Cluster) client(resource schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return c.dynamic.Resource(resource)
	}
	return c.dynamic.Resource(resource).Namespace(namespace)
}

// steered tells whether an annotation or a label of the owner's group has a value, in any case.
func steered(o metav1.Object, owner Owner, suffix, value string) bool {
	key := owner.Group + suffix
	return strings.EqualFold(o.GetAnnotations()[key], value) || strings.EqualFold(o.GetLabels()[key], value)
}

// leftAlone tells whether an object says that it is not to be touched.
func leftAlone(o metav1.Object, owner Owner) bool {
	return steered(o, owner, reconcileKey, "disabled") || steered(o, owner, ssaKey, "Ignore")
}
