package migrate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Sync is an object that deploys Flux, and would do so again after the migration.
type Sync struct {
	Ref
	Deployments []string `json:"deployments,omitempty"` // of Flux that it deploys
	Suspended   bool     `json:"suspended"`
	Path        string   `json:"path,omitempty"` // of a Kustomization, in its source
}

const operatorDisabled = "fluxcd.controlplane.io/reconcile"

// syncs returns the Kustomizations and HelmReleases whose inventory has Deployments of Flux that move.
func (e *Engine) syncs(controllers []Controller, objects []Object) (found []Sync) {
	for _, o := range objects {
		if o.Kind != "Kustomization" && o.Kind != "HelmRelease" {
			continue
		}
		s := Sync{Ref: o.Ref, Suspended: o.Suspended}
		s.Path, _, _ = unstructured.NestedString(o.live.Object, "spec", "path")
		for _, c := range controllers {
			if c.Moves && (inInventory(o.live, e.Namespace, c.Deployment) || isRelease(o.live, c)) {
				s.Deployments = append(s.Deployments, c.Deployment)
			}
		}
		if len(s.Deployments) > 0 {
			found = append(found, s)
		}
	}
	return found
}

func inInventory(u *unstructured.Unstructured, namespace, deployment string) bool {
	entries, _, _ := unstructured.NestedSlice(u.Object, "status", "inventory", "entries")
	id := namespace + "_" + deployment + "_apps_Deployment"
	return slices.ContainsFunc(entries, func(raw any) bool {
		entry, ok := raw.(map[string]any)
		return ok && entry["id"] == id
	})
}

// isRelease reports whether a HelmRelease released a Deployment, by the annotations that Helm sets.
func isRelease(u *unstructured.Unstructured, c Controller) bool {
	return u.GetKind() == "HelmRelease" && c.live.Labels["helm.toolkit.fluxcd.io/name"] == u.GetName() &&
		c.live.Labels["helm.toolkit.fluxcd.io/namespace"] == u.GetNamespace()
}

// checkSyncs returns what must be done about objects and programs that would deploy Flux again.
func (e *Engine) checkSyncs(ctx context.Context, p *Plan) error {
	for _, s := range p.Syncs {
		if s.Suspended || e.isSharded() {
			continue
		}
		if e.SuspendSync {
			p.warn("%s is suspended by the migration. Commit manifests without Flux before you resume it", s.Ref)
			continue
		}
		p.block("%s deploys Flux (%s) from git and would start it again. Suspend it, or let the migration suspend it "+
			"with --suspend-sync; then commit the files of --export in place of Flux's (in '%s') and resume it", s.Ref,
			strings.Join(s.Deployments, ", "), s.Path)
	}
	for _, c := range p.Controllers {
		if release := c.live.Annotations["meta.helm.sh/release-name"]; c.Moves && release != "" {
			p.warn("Deployment '%s' is of the Helm release '%s'. Do not upgrade or uninstall that "+
				"release: helm upgrade "+
				"starts Flux again, and helm uninstall deletes the CustomResourceDefinitions that "+
				"the chart installed, "+
				"with all objects", c.Deployment, release)
		}
	}
	return e.checkOperator(ctx, p)
}

// leftToOperator returns the names of the definitions that an operator of Flux uses which goes on running.
func (e *Engine) leftToOperator(ctx context.Context) (names []string, err error) {
	list := &appsv1.DeploymentList{}
	if err := e.Client.List(ctx, list, client.MatchingLabels{"app.kubernetes.io/name": fluxOperator}); err != nil {
		return nil, fmt.Errorf("cannot list the Deployments of Flux Operator: %w", err)
	}
	if !slices.ContainsFunc(list.Items, func(d appsv1.Deployment) bool { return replicas(&d) > 0 }) {
		return nil, nil
	}
	for _, u := range e.Definitions {
		if parseDefinition(u).group != operatorGroup {
			continue
		}
		live, err := e.getIfExists(ctx, refOf(u))
		if err != nil {
			return nil, err
		}
		if live != nil {
			names = append(names, u.GetName())
		}
	}
	return names, nil
}

// checkOperator looks for the operator of Flux, whose FluxInstance deploys the controllers, and adds what its settings
// are with Sluice.
func (e *Engine) checkOperator(ctx context.Context, p *Plan) error {
	definition, err := e.getIfExists(ctx, definitionRef("fluxinstances.fluxcd.controlplane.io"))
	if err != nil || definition == nil || e.isSharded() {
		return err
	}
	d := parseDefinition(definition)
	gvk := schema.GroupVersionKind{Group: d.group, Version: d.StorageVersion, Kind: d.kind}
	stops := slices.ContainsFunc(p.Controllers, func(c Controller) bool { return c.Moves && c.Name == fluxOperator })
	return list(ctx, e.Client, gvk, func(u *unstructured.Unstructured) error {
		p.IsInstance = true
		settings, warnings := p.Starts.readInstance(u)
		p.Settings, p.Warnings = append(p.Settings, settings...), append(p.Warnings, warnings...)
		if stops {
			p.warn("%s stays in the cluster, and Flux Operator does not run. Do not delete it: Flux Operator would "+
				"uninstall Flux with its definitions", refOf(u))
			return nil
		}
		if u.GetAnnotations()[operatorDisabled] != "disabled" {
			p.block("%s deploys Flux and would start it again. Run: kubectl -n %s annotate fluxinstance %s "+
				"%s=disabled", refOf(u), u.GetNamespace(), u.GetName(), operatorDisabled)
		}
		return nil
	})
}

// suspend sets spec.suspend of an object.
func (e *Engine) suspend(ctx context.Context, ref Ref, suspended bool) error {
	if err := e.patch(ctx, ref, fmt.Appendf(nil, `{"spec":{"suspend":%t}}`, suspended)); err != nil {
		return fmt.Errorf("cannot set spec.suspend of %s: %w", ref, err)
	}
	return nil
}
