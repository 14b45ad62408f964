package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ShardLabel is the label that assigns objects to a shard, and ShardKey its value for the objects that Sluice
// reconciles
// while Flux keeps other namespaces.
const (
	ShardLabel = "sharding.fluxcd.io/key"
	ShardKey   = "sluice"
)

// servicePrefix is that of our Services while Flux keeps the Services with the known names.
const servicePrefix = "sluice-"

// serviceControllers are the controllers behind the Services of an installation.
var serviceControllers = map[string]string{
	sourceController: sourceController, imageReflectorController: imageReflectorController,
	notificationController: notificationController, "webhook-receiver": notificationController,
}

// isSharded reports whether Sluice takes over namespaces, not controllers.
func (e *Engine) isSharded() bool { return len(e.Scope.Namespaces) > 0 }

// host returns the name of a Service in DNS.
func (e *Engine) host(service string) string {
	return service + "." + e.Namespace + ".svc." + e.ClusterDomain + "."
}

// scopeArgs returns flags that keep our controllers to the scope.
func (e *Engine) scopeArgs(s Settings) (args []string) {
	if e.isSharded() {
		return []string{
			"--" + selectorFlag + "=" + ShardLabel + "=" + ShardKey,
			"--" + advAddrFlag + "=" + e.host(servicePrefix+sourceController),
		}
	}
	if e.Scope.IsComplete() {
		return nil
	}
	if !slices.Contains(s.Controllers, notificationController) {
		return []string{"--" + eventsFlag + "=http://" + e.host(notificationController) + "/"}
	}
	return []string{"--insecure-events-unauthenticated"} // the other controllers of Flux send no token
}

// manifests returns the objects that run our controllers in the scope. Services of controllers that Flux keeps are left
// out, or have another name if both run the same controllers.
func (e *Engine) manifests(s Settings) ([]*unstructured.Unstructured, error) {
	all, err := e.Manifests(s)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, u := range all {
		controller, isService := serviceControllers[u.GetName()]
		if u.GetKind() == "Service" && isService {
			if !e.isSharded() && !slices.Contains(s.Controllers, controller) {
				continue
			}
			if e.isSharded() {
				u.SetName(servicePrefix + u.GetName())
			}
		}
		objects = append(objects, u)
	}
	return objects, nil
}

// checkShards returns what keeps two controllers from reconciling the same object: the Deployments of Flux must not
// select the label of our shard, and objects must not refer to objects that stay with Flux.
func (e *Engine) checkShards(controllers []Controller, objects []Object) (blockers []string) {
	if !e.isSharded() {
		return nil
	}
	ours := labels.Set{ShardLabel: ShardKey}
	for _, c := range controllers {
		if !c.Moves {
			continue // Flux Operator keeps its objects
		}
		text, _ := c.flag(selectorFlag)
		selector, err := labels.Parse(text)
		if err == nil && !selector.Matches(ours) {
			continue
		}
		blockers = append(blockers,
			fmt.Sprintf("Deployment '%s/%s' would reconcile the objects of the namespaces as well. "+
				"Add the argument --%s=!%s to its container, where the manifests of Flux are declared, "+
				"and run the command "+
				"again", e.Namespace, c.Deployment, selectorFlag, ShardLabel))
	}
	moving := map[Ref]bool{}
	for _, o := range objects {
		if o.Moves {
			moving[o.key()] = true
		}
	}
	for _, o := range objects {
		key, sharded := o.live.GetLabels()[ShardLabel]
		if o.Moves && sharded && key != ShardKey {
			blockers = append(blockers,
				fmt.Sprintf("%s belongs to the shard '%s' by its label %s. Remove the label, or "+
					"leave its namespace out", o.Ref, key, ShardLabel))
		}
		for _, ref := range references(o.live) {
			if o.Moves == moving[ref] || !exists(objects, ref) {
				continue
			}
			blockers = append(blockers,
				fmt.Sprintf("%s refers to %s, and only one of them is in the namespaces that move. "+
					"Move both", o.Ref, ref))
		}
		if o.Moves && o.Kind == "HelmRelease" && chartLabel(o.live) != ShardKey {
			if chart, found, _ := unstructured.NestedMap(o.live.Object, "spec", "chart"); found && chart != nil {
				blockers = append(blockers, fmt.Sprintf("%s does not label its HelmChart for the shard. Set "+
					"spec.chart.metadata.labels to {%s: %s} where it is declared", o.Ref, ShardLabel, ShardKey))
			}
		}
	}
	return blockers
}

func chartLabel(u *unstructured.Unstructured) string {
	set, _, _ := unstructured.NestedStringMap(u.Object, "spec", "chart", "metadata", "labels")
	return set[ShardLabel]
}

// key returns a reference that does not depend on the version.
func (r Ref) key() Ref { return Ref{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name} }

func exists(objects []Object, ref Ref) bool {
	return slices.ContainsFunc(objects, func(o Object) bool { return o.key() == ref })
}

// references returns the objects of Flux that an object refers to, without group and version.
func references(u *unstructured.Unstructured) (refs []Ref) {
	add := func(raw any, kind string) {
		m, ok := raw.(map[string]any)
		if !ok {
			return
		}
		r := Ref{Kind: kind, Namespace: u.GetNamespace()}
		r.Name, _ = m["name"].(string)
		if k, ok := m["kind"].(string); ok {
			r.Kind = k
		}
		if n, ok := m["namespace"].(string); ok && n != "" {
			r.Namespace = n
		}
		if r.Name != "" && r.Name != "*" && r.Kind != "" {
			refs = append(refs, r)
		}
	}
	field := func(path ...string) any {
		v, _, _ := unstructured.NestedFieldNoCopy(u.Object, append([]string{"spec"}, path...)...)
		return v
	}
	each := func(raw any, kind string) {
		items, _ := raw.([]any)
		for _, item := range items {
			add(item, kind)
		}
	}
	add(field("sourceRef"), "")
	add(field("chartRef"), "")
	add(field("chart", "spec", "sourceRef"), "")
	add(field("imageRepositoryRef"), "ImageRepository")
	add(field("providerRef"), "Provider")
	each(field("dependsOn"), u.GetKind())
	each(field("eventSources"), "")
	each(field("resources"), "")
	each(field("sources"), "")
	return refs
}

// label assigns the objects of the namespaces to our shard, so that Flux does not see them any longer.
func (e *Engine) label(ctx context.Context, refs []Ref, value any) error {
	for _, ref := range refs {
		labels := map[string]any{ShardLabel: value}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
		if err != nil {
			return err
		}
		if err := e.patch(ctx, ref, patch); err != nil {
			return fmt.Errorf("cannot label %s: %w", ref, err)
		}
	}
	return nil
}

// patch applies a JSON merge patch. An object that does not exist is left out.
func (e *Engine) patch(ctx context.Context, ref Ref, patch []byte) error {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(ref.gvk())
	u.SetNamespace(ref.Namespace)
	u.SetName(ref.Name)
	err := e.Client.Patch(ctx, u, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// checkScope returns usage problems of the scope.
func (e *Engine) checkScope(controllers []Controller) (blockers []string) {
	var running []string
	for _, c := range controllers {
		running = append(running, c.Ours())
	}
	for _, name := range e.Scope.Controllers {
		if !slices.Contains(running, name) {
			slices.Sort(running)
			blockers = append(blockers, fmt.Sprintf("Flux does not run '%s' in namespace '%s'. Choose from %s", name,
				e.Namespace, strings.Join(slices.Compact(running), ", ")))
		}
	}
	if e.isSharded() && len(e.Scope.Controllers) > 0 {
		blockers = append(blockers, "controllers and namespaces cannot be chosen together: choose one of them")
	}
	return blockers
}
