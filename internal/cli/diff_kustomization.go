package cli

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/decrypt"
	"github.com/sluice-gitops/sluice/internal/kustomization/spec"
)

func (a *app) diffKustomization() *cobra.Command {
	d := &diffing{app: a}
	c := a.ofKustomization(&cobra.Command{
		Short: "Show what would change in the cluster if local files were applied",
		Long: `Build local files as the controller would build the Kustomization's source, and show what would change in the cluster.

The cluster tells by a dry-run; nothing is changed. Values of Secrets are never shown, and what SOPS encrypted is taken to be as it
is in the cluster. The exit code is 0 if nothing would change, 1 if something would, and 2 if that cannot be told.`,
		Example: `  sluice diff kustomization app --path ./deploy
  sluice diff kustomization app --path ./deploy --kustomization-file ./clusters/app.yaml
  sluice diff kustomization apps --path ./clusters/prod --recursive --local-sources GitRepository/flux-system/shared=../shared`,
	}, d.run)
	d.bind(c.Flags())
	c.Flags().BoolVar(&d.ignoreNotFound, "ignore-not-found", false,
		"take a Kustomization that is not in the cluster as one that has applied nothing")
	c.Flags().BoolVar(&d.progress, "progress-bar", true, "show on a terminal what is being compared")
	return c
}

// diffing is one comparison of local files with the cluster.
type diffing struct {
	*app
	localBuild
	ignoreNotFound, progress bool

	cluster *apply.Cluster
	named   types.NamespacedName // the Kustomization to begin with
	changes int                  // that were shown
}

func (d *diffing) run(ctx context.Context, key types.NamespacedName) error {
	d.named = key
	b, err := d.open(d.app)
	if err != nil {
		return err
	}
	cfg, err := d.config()
	if err != nil {
		return err
	}
	if d.cluster, err = apply.NewCluster(cfg, apply.ClusterOptions{}); err != nil {
		return err
	}
	defer d.cluster.Close()
	err = b.each(ctx, key, func(one *builtKustomization) error { return d.compare(ctx, b.cluster, one) })
	d.clear()
	if err != nil {
		return err
	}
	if d.changes > 0 {
		return differ("%d objects would change", d.changes)
	}
	d.done("nothing would change")
	return nil
}

// compare shows what applying one Kustomization would change.
func (d *diffing) compare(ctx context.Context, c client.Client, built *builtKustomization) error {
	obj := built.kustomization
	key := client.ObjectKeyFromObject(obj)
	if obj.Spec.KubeConfig != nil && key != d.named {
		d.say(yellow, "►", "Kustomization '%s' is left out: it applies to another cluster", key)
		return nil
	}
	if obj.Spec.KubeConfig != nil {
		return fmt.Errorf("Kustomization '%s' applies to another cluster, which cannot be compared with", key)
	}
	if d.progress {
		d.live("comparing Kustomization '%s'", key)
	}
	live := &kustomizev1.Kustomization{}
	if err := c.Get(ctx, key, live); apierrors.IsNotFound(err) {
		if !d.ignoreNotFound {
			return fmt.Errorf("Kustomization '%s' is not in the cluster. --ignore-not-found compares it all the same", key)
		}
	} else if err != nil {
		return explain(fmt.Sprintf("cannot get Kustomization '%s'", key), err)
	}
	req := apply.Request{Owner: ownerOf(obj), Objects: built.Objects, Origin: built.Origin, Force: obj.Spec.Force}
	var err error
	if req.Ignore, err = spec.Ignored(obj); err != nil {
		return err
	}
	if obj.Spec.Prune {
		req.Previous = spec.Inventory(live.Status.Inventory)
	}
	if obj.Spec.Decryption != nil {
		if err := d.unmask(ctx, built.Objects); err != nil {
			return err
		}
	}
	planned, err := d.cluster.Diff(ctx, req)
	if err != nil {
		return fmt.Errorf("Kustomization '%s': %w", key, err)
	}
	for _, p := range planned {
		d.show(p)
	}
	return nil
}

// show prints what would become of an object, if anything.
func (d *diffing) show(p apply.Change) {
	mark, colour := "", ""
	switch p.Action {
	case apply.Created:
		mark, colour = "+", green
	case apply.Configured:
		mark, colour = "~", yellow
	case apply.Deleted:
		mark, colour = "-", red
	default:
		return
	}
	d.clear()
	d.changes++
	fmt.Fprintln(d.out, d.out.paint(colour, fmt.Sprintf("%s %s %s", mark, p.Ref, p.Action)))
	for _, line := range strings.Split(p.Diff, "\n") {
		if line != "" {
			fmt.Fprintln(d.out, d.out.paint(lineColours[line[0]], "    "+line))
		}
	}
}

// lineColours by how a line of a diff begins.
var lineColours = map[byte]string{'+': green, '-': red, '~': yellow}

// unmask puts what the cluster has in place of what SOPS encrypted, as only the controller can decrypt it.
func (d *diffing) unmask(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		if !masked(o.Object) {
			continue
		}
		gvk := o.GroupVersionKind()
		mapping, err := d.cluster.Mapper().RESTMapping(schema.GroupKind{Group: gvk.Group, Kind: gvk.Kind}, gvk.Version)
		if err != nil {
			continue // its definition is still to come
		}
		namespace := o.GetNamespace()
		if mapping.Scope.Name() == "namespace" && namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		live, err := d.cluster.Dynamic().Resource(mapping.Resource).Namespace(namespace).
			Get(ctx, o.GetName(), metav1.GetOptions{})
		if client.IgnoreNotFound(err) != nil {
			return explain(fmt.Sprintf("cannot get %s '%s/%s'", o.GetKind(), namespace, o.GetName()), err)
		}
		if err != nil {
			continue
		}
		if plain, ok := o.Object["stringData"].(map[string]any); ok && o.GetKind() == "Secret" {
			decodeInto(live.Object, plain)
		}
		o.Object, _ = revealed(o.Object, live.Object).(map[string]any)
	}
	return nil
}

// decodeInto gives a live Secret, which has none, a stringData with the keys that another one has.
func decodeInto(live map[string]any, keys map[string]any) {
	data, _ := live["data"].(map[string]any)
	plain := map[string]any{}
	for k := range keys {
		text, _ := data[k].(string)
		if b, err := base64.StdEncoding.DecodeString(text); err == nil && text != "" {
			plain[k] = string(b)
		}
	}
	live["stringData"] = plain
}

// masked tells whether something in a value is not shown.
func masked(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, item := range v {
			if masked(item) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, masked)
	case string:
		if strings.Contains(v, decrypt.Redacted) {
			return true
		}
		b, err := base64.StdEncoding.DecodeString(v)
		return err == nil && strings.Contains(string(b), decrypt.Redacted)
	}
	return false
}

// revealed is a value with what a live one has in place of what is masked.
func revealed(v, live any) any {
	switch v := v.(type) {
	case map[string]any:
		l, _ := live.(map[string]any)
		for key := range v {
			v[key] = revealed(v[key], l[key])
		}
		return v
	case []any:
		l, _ := live.([]any)
		for i := range min(len(v), len(l)) {
			v[i] = revealed(v[i], l[i])
		}
		return v
	}
	if text, ok := live.(string); ok && masked(v) {
		return text
	}
	return v
}
