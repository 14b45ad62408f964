package promotion

import (
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
)

// Kind is how to read the objects of a kind.
type Kind struct {
	schema.GroupVersionResource
	schema.GroupKind
}

// KindOf returns how to read the objects of a kind, and whether it is known.
func KindOf(kind gatingv1.PromotingKind) (Kind, bool) {
	resources := map[string]schema.GroupVersionResource{
		kustomizev1.KustomizationKind: kustomizev1.GroupVersion.WithResource("kustomizations"),
		helmv2.HelmReleaseKind:        helmv2.GroupVersion.WithResource("helmreleases"),
		sourcev1.GitRepositoryKind:    sourcev1.GroupVersion.WithResource("gitrepositories"),
		sourcev1.OCIRepositoryKind:    sourcev1.GroupVersion.WithResource("ocirepositories"),
		sourcev1.HelmChartKind:        sourcev1.GroupVersion.WithResource("helmcharts"),
		sourcev1.BucketKind:           sourcev1.GroupVersion.WithResource("buckets"),
		sourcev1.ExternalArtifactKind: sourcev1.GroupVersion.WithResource("externalartifacts"),
	}
	r, ok := resources[string(kind)]
	return Kind{GroupVersionResource: r, GroupKind: schema.GroupKind{Group: r.Group, Kind: string(kind)}}, ok
}

// MemberOf returns an object as the member of a check.
func MemberOf(obj *unstructured.Unstructured) Member {
	ready, since := readiness(obj)
	m := Member{
		Name:     fmt.Sprintf("%s '%s/%s'", obj.GetKind(), obj.GetNamespace(), obj.GetName()),
		Identity: string(obj.GetUID()) + " " + strconv.FormatInt(obj.GetGeneration(), 10) + " " + since,
		Revision: text(obj, "status", "artifact", "revision"),
	}
	applied, attempted := text(obj, "status", "lastAppliedRevision"), text(obj, "status", "lastAttemptedRevision")
	switch obj.GetKind() {
	case kustomizev1.KustomizationKind:
		m.Revision = applied
		if ready != metav1.ConditionTrue && attempted != "" {
			m.Revision = attempted
		}
		if ready == metav1.ConditionTrue && attempted != "" && attempted != applied {
			m.Revision, ready = attempted, metav1.ConditionUnknown
		}
	case helmv2.HelmReleaseKind:
		m.Revision = attempted
	}
	suspended, _, _ := unstructured.NestedBool(obj.Object, "spec", "suspend")
	switch {
	case obj.GetDeletionTimestamp() != nil:
		m.Problem, m.Revision = "is being deleted", ""
	case suspended:
		m.Problem, m.Revision = "is suspended", ""
	case ready != metav1.ConditionTrue:
		m.Problem = "is not Ready"
	}
	return m
}

// readiness returns the status of Ready for the current generation, and since when it is that.
func readiness(obj *unstructured.Unstructured) (status metav1.ConditionStatus, since string) {
	observed, _, _ := unstructured.NestedInt64(obj.Object, "status", "observedGeneration")
	conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, c := range conditions {
		fields, ok := c.(map[string]any)
		if !ok || fields["type"] != "Ready" {
			continue
		}
		since, _, _ = unstructured.NestedString(fields, "lastTransitionTime")
		value, _, _ := unstructured.NestedString(fields, "status")
		generation, found, _ := unstructured.NestedInt64(fields, "observedGeneration")
		if observed != obj.GetGeneration() || found && generation != obj.GetGeneration() {
			return metav1.ConditionUnknown, since
		}
		return metav1.ConditionStatus(value), since
	}
	return metav1.ConditionUnknown, ""
}

func text(obj *unstructured.Unstructured, fields ...string) string {
	value, _, _ := unstructured.NestedString(obj.Object, fields...)
	return value
}
