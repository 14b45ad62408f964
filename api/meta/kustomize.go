package meta

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Selector selects objects by kind, name, labels and annotations; every field that is set must match. Group, version,
// kind, namespace and name are anchored regular expressions, as in kustomize.
type Selector struct {
	// +optional
	Group string `json:"group,omitempty"`
	// +optional
	Version string `json:"version,omitempty"`
	// +optional
	Kind string `json:"kind,omitempty"`
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// +optional
	Name string `json:"name,omitempty"`
	// +optional
	AnnotationSelector string `json:"annotationSelector,omitempty"`
	// +optional
	LabelSelector string `json:"labelSelector,omitempty"`
}

// Image replaces the name, tag or digest of a container image.
type Image struct {
	// Name of the image in the manifests, without tag.
	// +required
	Name string `json:"name"`
	// +optional
	NewName string `json:"newName,omitempty"`
	// +optional
	NewTag string `json:"newTag,omitempty"`
	// Digest replaces the tag.
	// +optional
	Digest string `json:"digest,omitempty"`
}

// JSON6902 is one operation of a JSON patch (RFC 6902).
type JSON6902 struct {
	// +kubebuilder:validation:Enum=test;remove;add;replace;move;copy
	// +required
	Op string `json:"op"`
	// +required
	Path string `json:"path"`
	// +optional
	From string `json:"from,omitempty"`
	// +optional
	Value *apiextensionsv1.JSON `json:"value,omitempty"`
}

// JSON6902Patch is a JSON patch and the objects that it applies to.
type JSON6902Patch struct {
	// +required
	Patch []JSON6902 `json:"patch"`
	// +required
	Target Selector `json:"target"`
}

// NamespacedName references an object of a known kind, possibly in another namespace.
type NamespacedName struct {
	// Name of the referent.
	// +required
	Name string `json:"name"`
	// Namespace of the referent. Defaults to the namespace of the referencing object.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// ObjectReference references an object of any kind, possibly in another namespace.
type ObjectReference struct {
	// APIVersion of the referent. If unset, it is derived from the kind.
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
	// Kind of the referent.
	// +required
	Kind string `json:"kind"`
	// Name of the referent.
	// +required
	Name string `json:"name"`
	// Namespace of the referent. Defaults to the namespace of the referencing object.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// SubstituteReference references a ConfigMap or Secret whose data are used as variables.
type SubstituteReference struct {
	// +kubebuilder:validation:Enum=Secret;ConfigMap
	// +required
	Kind string `json:"kind"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
	// Optional ignores the reference if the object does not exist.
	// +kubebuilder:default=false
	// +optional
	Optional bool `json:"optional,omitempty"`
}

// SecretKeyReference references a key of a Secret.
type SecretKeyReference struct {
	// Name of the Secret.
	// +required
	Name string `json:"name"`
	// Key in the data of the Secret. Defaults to value or value.yaml.
	// +optional
	Key string `json:"key,omitempty"`
}

// ResourceInventory lists the applied objects.
type ResourceInventory struct {
	// +required
	Entries []ResourceRef `json:"entries"`
}

// ResourceRef identifies an applied object.
type ResourceRef struct {
	// ID is <namespace>_<name>_<group>_<kind>.
	// +required
	ID string `json:"id"`
	// Version of the API that the object was applied with.
	// +required
	Version string `json:"v"`
}
