package meta

// DependencyReference references an object that must exist or be ready first. Without a kind it is an object of the
// kind of the dependent, which must be ready.
type DependencyReference struct {
	// APIVersion of the object, such as apps/v1. It can be omitted for well-known kinds.
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`

	// Kind of the object. Defaults to the kind of the dependent.
	// +optional
	Kind string `json:"kind,omitempty"`

	NamespacedName `json:",inline"`

	// Ready makes an object with a kind count only when it is ready. Otherwise, it has to exist. Objects without a kind
	// always have to be ready.
	// +optional
	Ready bool `json:"ready,omitempty"`

	// ReadyExpr is a CEL expression that is true when the dependency is ready, instead of what ready checks. If the
	// dependency has a kind, its variables are the fields of the dependency, such as status; otherwise they are self
	// (the dependent object) and dep (the dependency).
	// +optional
	ReadyExpr string `json:"readyExpr,omitempty"`
}

// Decryption defines how files of a source that are encrypted with SOPS are decrypted.
type Decryption struct {
	// +kubebuilder:validation:Enum=sops
	// +required
	Provider string `json:"provider"`
	// SecretRef references the Secret with the keys.
	// +optional
	SecretRef *LocalObjectReference `json:"secretRef,omitempty"`
	// ServiceAccountName is the identity used with key management services.
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
}

// KubeConfigReference references the credentials of a remote cluster.
// +kubebuilder:validation:XValidation:rule="has(self.configMapRef) != has(self.secretRef)",message="exactly one of
// +>  spec.kubeConfig.secretRef or spec.kubeConfig.configMapRef must be specified"
type KubeConfigReference struct {
	// ConfigMapRef references the ConfigMap that configures access by workload identity.
	// +optional
	ConfigMapRef *LocalObjectReference `json:"configMapRef,omitempty"`
	// SecretRef references the Secret with the kubeconfig.
	// +optional
	SecretRef *SecretKeyReference `json:"secretRef,omitempty"`
}

// HealthCheckExpr defines the health of the objects of a kind, by CEL expressions.
type HealthCheckExpr struct {
	// +required
	APIVersion string `json:"apiVersion"`
	// +optional
	Kind string `json:"kind,omitempty"`
	// Current is true when the object is healthy.
	// +required
	Current string `json:"current"`
	// InProgress is true while the object is not healthy yet.
	// +optional
	InProgress string `json:"inProgress,omitempty"`
	// Failed is true when the object cannot become healthy.
	// +optional
	Failed string `json:"failed,omitempty"`
}

// CommonMetadata is set on every applied object.
type CommonMetadata struct {
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
}

// ValuesReference references a ConfigMap or Secret with Helm values, or a file of a source.
type ValuesReference struct {
	// Kind of the referent.
	// +kubebuilder:validation:Enum=Secret;ConfigMap;GitRepository;OCIRepository;Bucket;ExternalArtifact
	// +required
	Kind string `json:"kind"`
	// Name of the referent.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
	// Namespace of a source. Defaults to the namespace of the referencing object, which ConfigMaps and Secrets are
	// always in.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Path of the file in the artifact of a source.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Path string `json:"path,omitempty"`
	// ValuesKey is the key of a ConfigMap or Secret with the values. Defaults to values.yaml.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern="^[\\-._a-zA-Z0-9]+$"
	// +optional
	ValuesKey string `json:"valuesKey,omitempty"`
	// TargetPath at which the value of the key or file is merged, in the syntax of Helm's --set. If unset, it holds a
	// YAML document that is merged at the root.
	// +kubebuilder:validation:MaxLength=250
	// +kubebuilder:validation:Pattern="^([a-zA-Z0-9_\\-.\\\\\\/]|\\[[0-9]{1,5}\\])+$"
	// +optional
	TargetPath string `json:"targetPath,omitempty"`
	// Literal sets the value at the target path as one string, as --set-literal does.
	// +optional
	Literal bool `json:"literal,omitempty"`
	// Optional ignores the reference if the object, the key or the file does not exist. Other errors are not ignored.
	// +optional
	Optional bool `json:"optional,omitempty"`
}

// IsFile reports whether the values are a file of a source.
func (r ValuesReference) IsFile() bool { return r.Kind != "ConfigMap" && r.Kind != "Secret" }

// GetValuesKey returns the key with the values.
func (r ValuesReference) GetValuesKey() string {
	if r.ValuesKey == "" {
		return "values.yaml"
	}
	return r.ValuesKey
}
