package apply

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// successors maps versions of built-in kinds that Kubernetes no longer serves to the versions that replaced them. They
// contain only kinds whose manifests mean the same in both versions, or for which upgrade converts them
// (https://kubernetes.io/docs/reference/using-api/deprecation-guide/).
var successors = map[schema.GroupVersionKind]schema.GroupVersion{
	{Group: "autoscaling", Version: "v2beta1", Kind: "HorizontalPodAutoscaler"}: {Group: "autoscaling",
		Version: "v2"},
	{Group: "autoscaling", Version: "v2beta2", Kind: "HorizontalPodAutoscaler"}: {Group: "autoscaling",
		Version: "v2"},
	{Group: "policy", Version: "v1beta1", Kind: "PodDisruptionBudget"}: {Group: "policy",
		Version: "v1"},
	{Group: "batch", Version: "v1beta1", Kind: "CronJob"}: {Group: "batch",
		Version: "v1"},
	{Group: "apps", Version: "v1beta2", Kind: "Deployment"}: {Group: "apps",
		Version: "v1"},
	{Group: "apps", Version: "v1beta2", Kind: "StatefulSet"}: {Group: "apps",
		Version: "v1"},
	{Group: "apps", Version: "v1beta2", Kind: "DaemonSet"}: {Group: "apps",
		Version: "v1"},
	{Group: "rbac.authorization.k8s.io", Version: "v1beta1",
		Kind: "Role"}: {Group: "rbac.authorization.k8s.io", Version: "v1"},
	{Group: "rbac.authorization.k8s.io", Version: "v1beta1",
		Kind: "RoleBinding"}: {Group: "rbac.authorization.k8s.io", Version: "v1"},
	{Group: "rbac.authorization.k8s.io", Version: "v1beta1",
		Kind: "ClusterRole"}: {Group: "rbac.authorization.k8s.io", Version: "v1"},
	{Group: "rbac.authorization.k8s.io", Version: "v1beta1",
		Kind: "ClusterRoleBinding"}: {Group: "rbac.authorization.k8s.io", Version: "v1"},
	{Group: "scheduling.k8s.io", Version: "v1beta1", Kind: "PriorityClass"}: {Group: "scheduling.k8s.io",
		Version: "v1"},
	{Group: "storage.k8s.io", Version: "v1beta1", Kind: "StorageClass"}: {Group: "storage.k8s.io",
		Version: "v1"},
	{Group: "coordination.k8s.io", Version: "v1beta1", Kind: "Lease"}: {Group: "coordination.k8s.io",
		Version: "v1"},
}

// upgrade returns the object in the version that replaced its version; nil if there is none.
func upgrade(o *unstructured.Unstructured) *unstructured.Unstructured {
	gvk := o.GroupVersionKind()
	to, ok := successors[gvk]
	if !ok {
		return nil
	}
	o = o.DeepCopy()
	o.SetGroupVersionKind(to.WithKind(gvk.Kind))
	if gvk.Group == "autoscaling" && gvk.Version == "v2beta1" {
		if !upgradeMetrics(o) {
			return nil
		}
	}
	return o
}

// upgradeMetrics converts the targets of resource metrics to autoscaling/v2. It reports false for other metrics.
func upgradeMetrics(o *unstructured.Unstructured) bool {
	metrics, _, err := unstructured.NestedSlice(o.Object, "spec", "metrics")
	if err != nil {
		return false
	}
	for _, m := range metrics {
		metric, ok := m.(map[string]any)
		if !ok || metric["type"] != "Resource" {
			return false
		}
		r, ok := metric["resource"].(map[string]any)
		if !ok {
			return false
		}
		if v, ok := r["targetAverageUtilization"]; ok {
			r["target"] = map[string]any{"type": "Utilization", "averageUtilization": v}
		} else if v, ok := r["targetAverageValue"]; ok {
			r["target"] = map[string]any{"type": "AverageValue", "averageValue": v}
		}
		delete(r, "targetAverageUtilization")
		delete(r, "targetAverageValue")
	}
	if metrics == nil {
		return true
	}
	return unstructured.SetNestedSlice(o.Object, metrics, "spec", "metrics") == nil
}
