package meta

// DependencyReference references an object of the same kind that must be ready first.
type DependencyReference struct {
	NamespacedName `json:",inline"`
	// ReadyExpr is a CEL expression that is true when the dependency is ready. Its variables are self (the
	// dependent object) and dep (the dependency).
	// +optional
	ReadyExpr string `json:"readyExpr,omitempty"`
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
