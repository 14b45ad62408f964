// Package health tells when objects are healthy, by kstatus over watches. It never polls, writes nothing, and knows no
// controller.
package health

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// Target is an object whose health is asked for.
type Target struct{ Group, Version, Kind, Namespace, Name string }

// String gives it as people say it: Kind/namespace/name.
func (t Target) String() string {
	if t.Namespace == "" {
		return t.Kind + "/" + t.Name
	}
	return fmt.Sprintf("%s/%s/%s", t.Kind, t.Namespace, t.Name)
}

// wellKnown are kinds that references may name without a version, as those of v1beta1 do.
var wellKnown = map[string]schema.GroupVersion{
	"Deployment": {Group: "apps", Version: "v1"}, "StatefulSet": {Group: "apps", Version: "v1"},
	"DaemonSet": {Group: "apps", Version: "v1"}, "ReplicaSet": {Group: "apps", Version: "v1"},
	"Job": {Group: "batch", Version: "v1"}, "CronJob": {Group: "batch", Version: "v1"},
	"Pod": {Version: "v1"}, "Service": {Version: "v1"}, "ConfigMap": {Version: "v1"}, "Secret": {Version: "v1"},
	"Namespace": {Version: "v1"}, "PersistentVolumeClaim": {Version: "v1"}, "ServiceAccount": {Version: "v1"},
	"Ingress":                  {Group: "networking.k8s.io", Version: "v1"},
	"CustomResourceDefinition": {Group: "apiextensions.k8s.io", Version: "v1"},
	"HelmRelease":              {Group: "helm.toolkit.fluxcd.io", Version: "v2"},
	"Kustomization":            {Group: "kustomize.toolkit.fluxcd.io", Version: "v1"},
	"GitRepository":            {Group: "source.toolkit.fluxcd.io", Version: "v1"},
}

// Resolve makes a target of a reference whose apiVersion may be left out.
func Resolve(apiVersion, kind, namespace, name string) (Target, error) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return Target{}, fault.New(meta.HealthCheckFailedReason, "health check of %s %s: apiVersion %q cannot be read", kind, name, apiVersion).Final()
	}
	if apiVersion == "" {
		known, ok := wellKnown[kind]
		if !ok {
			return Target{}, fault.New(meta.HealthCheckFailedReason, "health check of %s %s names no apiVersion, and %s is not a kind known without", kind, name, kind).
				WithHint("Add the apiVersion to the entry of spec.healthChecks").Final()
		}
		gv = known
	}
	return Target{gv.Group, gv.Version, kind, namespace, name}, nil
}
