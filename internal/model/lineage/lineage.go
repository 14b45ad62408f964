// Package lineage follows objects in both directions: from an object to what applied it and to its sources (Trace), and
// from an object to what it made (Tree). It reads the cluster and never prints.
package lineage

import (
	"cmp"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
)

// IsToolkitGroup reports whether an API group is one of the toolkit's or that of ResourceSets, whose objects can make
// other objects.
func IsToolkitGroup(group string) bool {
	return strings.HasSuffix(group, ".fluxcd.io") || group == controlplanev1.GroupVersion.Group
}

// Sources returns references to what an object is built from. References without a namespace are to the namespace of
// the object.
func Sources(o client.Object) []meta.ObjectReference {
	switch o := o.(type) {
	case *kustomizev1.Kustomization:
		r := o.Spec.SourceRef
		return []meta.ObjectReference{{APIVersion: r.APIVersion, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}}
	case *helmv2.HelmRelease:
		return chartSource(o)
	case *sourcev1.HelmChart:
		r := o.Spec.SourceRef
		return []meta.ObjectReference{{APIVersion: r.APIVersion, Kind: r.Kind, Name: r.Name}}
	case *imagev1.ImageUpdateAutomation:
		r := o.Spec.SourceRef
		return []meta.ObjectReference{{APIVersion: r.APIVersion, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}}
	case *sourcev1.ExternalArtifact:
		if o.Spec.SourceRef != nil {
			return []meta.ObjectReference{*o.Spec.SourceRef}
		}
	case *extensionsv1beta1.ArtifactGenerator:
		var refs []meta.ObjectReference
		for _, s := range o.Spec.Sources {
			refs = append(refs, meta.ObjectReference{Kind: s.Kind, Namespace: s.Namespace, Name: s.Name})
		}
		return refs
	}
	return nil
}

// Dependencies returns references to what an object depends on, with kind and namespace.
func Dependencies(o client.Object) (refs []meta.ObjectReference) {
	var kind string
	var on []meta.DependencyReference
	switch o := o.(type) {
	case *kustomizev1.Kustomization:
		kind, on = kustomizev1.KustomizationKind, o.Spec.DependsOn
	case *helmv2.HelmRelease:
		kind, on = helmv2.HelmReleaseKind, o.Spec.DependsOn
	case *controlplanev1.ResourceSet:
		kind, on = controlplanev1.ResourceSetKind, o.Spec.DependsOn
	}
	for _, d := range on {
		refs = append(refs, meta.ObjectReference{APIVersion: d.APIVersion, Kind: cmp.Or(d.Kind, kind),
			Namespace: cmp.Or(d.Namespace, o.GetNamespace()), Name: d.Name})
	}
	return refs
}

// chartSource returns the source of the chart of a HelmRelease: the one that it references, or the one that its
// controller created for it.
func chartSource(o *helmv2.HelmRelease) []meta.ObjectReference {
	if r := o.Spec.ChartRef; r != nil {
		return []meta.ObjectReference{{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}}
	}
	parts := strings.Split(o.Status.HelmChart, "/")
	switch len(parts) {
	case 2:
		return []meta.ObjectReference{{Kind: sourcev1.HelmChartKind, Namespace: parts[0], Name: parts[1]}}
	case 3:
		return []meta.ObjectReference{{Kind: parts[0], Namespace: parts[1], Name: parts[2]}}
	}
	return nil
}

// newObject returns an empty object of a kind that can be part of a lineage, or nil.
func newObject(kind string) client.Object {
	switch kind {
	case sourcev1.HelmRepositoryKind:
		return &sourcev1.HelmRepository{}
	case extensionsv1beta1.ArtifactGeneratorKind:
		return &extensionsv1beta1.ArtifactGenerator{}
	}
	if s := sourcev1.NewSource(kind); s != nil {
		return s
	}
	return nil // as an object: s is a Source
}

// managers are the kinds that apply objects and label them with their own name.
var managers = []apply.Ref{
	{Group: kustomizev1.GroupVersion.Group, Version: kustomizev1.GroupVersion.Version,
		Kind: kustomizev1.KustomizationKind},
	{Group: helmv2.GroupVersion.Group, Version: helmv2.GroupVersion.Version, Kind: helmv2.HelmReleaseKind},
	{Group: controlplanev1.GroupVersion.Group, Version: controlplanev1.GroupVersion.Version,
		Kind: controlplanev1.ResourceSetKind},
}

// ManagerOf returns what applied an object, as its labels name it, or nil.
func ManagerOf(o client.Object) *apply.Ref {
	for _, m := range managers {
		prefix := apply.Owner{Group: m.Group}.LabelPrefix()
		m.Name, m.Namespace = o.GetLabels()[prefix+"/name"], o.GetLabels()[prefix+"/namespace"]
		if m.Name != "" {
			return &m
		}
	}
	return nil
}

// nameOf returns an object as Kind/namespace/name.
func nameOf(o client.Object, kind string) string {
	return apply.Ref{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()}.String()
}

// cannotGet returns the error for an object that could not be read.
func cannotGet(what string, err error) error { return fmt.Errorf("cannot get %s: %w", what, err) }

// ThisCluster names the cluster of the controllers in lists of clusters.
const ThisCluster = "this cluster"

// Cluster returns the name of the cluster that an object deploys to: that of its credentials.
func Cluster(o client.Object) string {
	var ref *meta.KubeConfigReference
	switch o := o.(type) {
	case *kustomizev1.Kustomization:
		ref = o.Spec.KubeConfig
	case *helmv2.HelmRelease:
		ref = o.Spec.KubeConfig
	}
	switch {
	case ref != nil && ref.SecretRef != nil && ref.SecretRef.Key != "":
		return o.GetNamespace() + "/" + ref.SecretRef.Name + "/" + ref.SecretRef.Key
	case ref != nil && ref.SecretRef != nil:
		return o.GetNamespace() + "/" + ref.SecretRef.Name
	case ref != nil && ref.ConfigMapRef != nil:
		return o.GetNamespace() + "/" + ref.ConfigMapRef.Name
	}
	return ThisCluster
}
