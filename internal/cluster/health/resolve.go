package health

import (
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Target is an object whose health is watched.
type Target struct{ Group, Version, Kind, Namespace, Name string }

// String returns Kind/namespace/name, or Kind/name without a namespace.
func (t Target) String() string {
	if t.Namespace == "" {
		return t.Kind + "/" + t.Name
	}
	return t.Kind + "/" + t.Namespace + "/" + t.Name
}

func (t Target) groupKind() schema.GroupKind { return schema.GroupKind{Group: t.Group, Kind: t.Kind} }

func (t Target) groupVersion() string {
	return schema.GroupVersion{Group: t.Group, Version: t.Version}.String()
}

// wellKnown are kinds that a reference may name without an apiVersion, as references of v1beta1 do.
var wellKnown = map[string]schema.GroupVersion{
	"Deployment": {Group: "apps", Version: "v1"}, "StatefulSet": {Group: "apps", Version: "v1"},
	"DaemonSet": {Group: "apps", Version: "v1"}, "ReplicaSet": {Group: "apps", Version: "v1"},
	"Job": {Group: "batch", Version: "v1"}, "CronJob": {Group: "batch", Version: "v1"},
	"Pod": {Version: "v1"}, "Service": {Version: "v1"}, "ConfigMap": {Version: "v1"}, "Secret": {Version: "v1"},
	"Namespace": {Version: "v1"}, "PersistentVolumeClaim": {Version: "v1"}, "ServiceAccount": {Version: "v1"},
	"Ingress":                  {Group: "networking.k8s.io", Version: "v1"},
	"CustomResourceDefinition": {Group: "apiextensions.k8s.io", Version: "v1"},
	"HorizontalPodAutoscaler":  {Group: "autoscaling", Version: "v2"},
	"PodDisruptionBudget":      {Group: "policy", Version: "v1"},
	"HelmRelease":              {Group: "helm.toolkit.fluxcd.io", Version: "v2"},
	"Kustomization":            {Group: "kustomize.toolkit.fluxcd.io", Version: "v1"},
	"GitRepository":            {Group: "source.toolkit.fluxcd.io", Version: "v1"},
	"ResourceSet":              {Group: "fluxcd.controlplane.io", Version: "v1"},
}

// Resolve returns the target of a reference. The apiVersion of well-known kinds may be empty.
func Resolve(apiVersion, kind, namespace, name string) (Target, error) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return Target{}, fault.New(meta.HealthCheckFailedReason, "health check of %s %s: apiVersion %q is invalid",
			kind, name, apiVersion).
			WithHint("Use group/version, such as apps/v1").Final()
	}
	if apiVersion == "" {
		known, ok := wellKnown[kind]
		if !ok {
			return Target{}, fault.New(meta.HealthCheckFailedReason,
				"health check of %s %s has no apiVersion, and %s is not a well-known kind", kind, name, kind).
				WithHint("Add the apiVersion to the entry of spec.healthChecks").Final()
		}
		gv = known
	}
	return Target{Group: gv.Group, Version: gv.Version, Kind: kind, Namespace: namespace, Name: name}, nil
}

// Resolve is [Resolve] with the cluster's discovery. It also finds kinds that are not well known, the version that the
// cluster prefers if the reference has none, and the scope. A kind without an apiVersion that several groups
// serve is an error.
func (w *Watcher) Resolve(apiVersion, kind, namespace, name string) (Target, error) {
	t, err := Resolve(apiVersion, kind, namespace, name)
	if err != nil && (apiVersion != "" || wellKnown[kind] != schema.GroupVersion{}) {
		return t, err
	}
	if err != nil {
		gk, ambiguous := w.find(kind)
		switch {
		case ambiguous != nil:
			return t, fault.New(meta.HealthCheckFailedReason,
				"health check of %s %s has no apiVersion, and several groups serve such a kind: %s",
				kind, name, strings.Join(ambiguous, ", ")).
				WithHint("Add the apiVersion to the entry of spec.healthChecks").Final()
		case gk.Empty():
			return t, err
		}
		t = Target{Group: gk.Group, Version: "", Kind: kind, Namespace: namespace, Name: name}
	}
	versions := []string{t.Version}
	if apiVersion == "" {
		versions = nil // the version that the cluster prefers
	}
	if m, err := w.mapper.RESTMapping(t.groupKind(), versions...); err == nil {
		t.Version = m.GroupVersionKind.Version
		if m.Scope.Name() != apimeta.RESTScopeNameNamespace {
			t.Namespace = ""
		}
	}
	return t, nil
}

// find returns the only group that serves a kind, or the names of the groups if there are several.
func (w *Watcher) find(kind string) (found schema.GroupKind, ambiguous []string) {
	byName := schema.GroupVersionResource{Resource: strings.ToLower(kind)}
	kinds, err := w.mapper.KindsFor(byName)
	if err != nil {
		w.mapper.Reset() // the kind may be newer than the cached discovery
		if kinds, err = w.mapper.KindsFor(byName); err != nil {
			return found, nil
		}
	}
	for _, gvk := range kinds {
		if gvk.Kind == kind && !slices.Contains(ambiguous, gvk.Group) {
			found = gvk.GroupKind()
			ambiguous = append(ambiguous, gvk.Group)
		}
	}
	if len(ambiguous) <= 1 {
		return found, nil
	}
	slices.Sort(ambiguous)
	if ambiguous[0] == "" {
		ambiguous[0] = "v1" // the core group has no name
	}
	return found, ambiguous
}
