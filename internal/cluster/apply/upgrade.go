package apply

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// successor is the version that replaced a version of some kinds.
type successor struct {
	version string
	kinds   []string
}

// successors maps versions of built-in kinds that Kubernetes no longer serves to those that replaced them. They contain
// only kinds whose manifests mean the same in both versions, or for which upgrade converts them
// (https://kubernetes.io/docs/reference/using-api/deprecation-guide/).
var successors = map[schema.GroupVersion]successor{
	{Group: "apps", Version: "v1beta2"}: {version: "v1",
		kinds: []string{"DaemonSet", "Deployment", "StatefulSet"}},
	{Group: "autoscaling", Version: "v2beta1"}:         {version: "v2", kinds: []string{"HorizontalPodAutoscaler"}},
	{Group: "autoscaling", Version: "v2beta2"}:         {version: "v2", kinds: []string{"HorizontalPodAutoscaler"}},
	{Group: "batch", Version: "v1beta1"}:               {version: "v1", kinds: []string{"CronJob"}},
	{Group: "coordination.k8s.io", Version: "v1beta1"}: {version: "v1", kinds: []string{"Lease"}},
	{Group: "policy", Version: "v1beta1"}:              {version: "v1", kinds: []string{"PodDisruptionBudget"}},
	{Group: "rbac.authorization.k8s.io", Version: "v1beta1"}: {version: "v1",
		kinds: []string{"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}},
	{Group: "scheduling.k8s.io", Version: "v1beta1"}: {version: "v1", kinds: []string{"PriorityClass"}},
	{Group: "storage.k8s.io", Version: "v1beta1"}:    {version: "v1", kinds: []string{"StorageClass"}},
}

// upgrade returns the object in the version that replaced its version; nil if there is none.
func upgrade(o *unstructured.Unstructured) *unstructured.Unstructured {
	gvk := o.GroupVersionKind()
	to := successors[gvk.GroupVersion()]
	if !slices.Contains(to.kinds, gvk.Kind) {
		return nil
	}
	o = o.DeepCopy()
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: gvk.Group, Version: to.version, Kind: gvk.Kind})
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
