package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/kustomization/spec"
)

const helmGroup = "helm.toolkit.fluxcd.io"

func (a *app) trace() *cobra.Command {
	var kind, version string
	c := &cobra.Command{
		Use:   "trace KIND NAME...",
		Short: "Show where an object comes from: what applied it, from which source, revision and commit",
		Long: `Show where an object comes from: what applied it, from which source, revision and commit.

An object that others made of what was applied, as a Pod of a Deployment, leads to it by its owners.`,
		Example: `  sluice trace deployment app -n apps
  sluice trace pod/app-5d8c7b9f4-xk2lp -n apps
  sluice trace app --kind Deployment --api-version apps/v1 -n apps`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("name an object, such as deployment/app. See %s --help", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
			defer cancel()
			names, err := resourceNames(kind, version, args)
			if err != nil {
				return err
			}
			return a.traceAll(ctx, names)
		},
	}
	c.ValidArgsFunction = cobra.NoFileCompletions
	c.Flags().StringVar(&kind, "kind", "", "kind of the object, where the arguments are only its name")
	c.Flags().StringVar(&version, "api-version", "", "API version of --kind, such as apps/v1")
	return c
}

// resourceNames gives arguments the form that kubectl takes them in: a kind and names, or kind/name.
func resourceNames(kind, version string, args []string) ([]string, error) {
	if kind == "" && version != "" {
		return nil, usagef("--kind is missing")
	}
	if kind == "" {
		if len(args) == 1 && !strings.Contains(args[0], "/") {
			return nil, usagef("say the kind of %q, as in deployment/%s", args[0], args[0])
		}
		return args, nil
	}
	if version != "" {
		gv, err := schema.ParseGroupVersion(version)
		if err != nil {
			return nil, usagef("--api-version %q: write it as GROUP/VERSION", version)
		}
		kind += "." + gv.Version + "." + gv.Group
	}
	return append([]string{kind}, args...), nil
}

func (a *app) traceAll(ctx context.Context, names []string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	found, err := resource.NewBuilder(a.flags).Unstructured().ContinueOnError().NamespaceParam(a.namespace()).
		DefaultNamespace().
		ResourceTypeOrNameArgs(false, names...).Flatten().Do().Infos()
	if err != nil {
		return explain("cannot get "+strings.Join(names, " "), err)
	}
	var failures []error
	for i, info := range found {
		if i > 0 {
			fmt.Fprintln(a.out)
		}
		t := &tracing{app: a, cluster: c, seen: map[string]bool{}}
		failures = append(failures, t.object(ctx, info.Object.(*unstructured.Unstructured)))
	}
	return errors.Join(failures...)
}

// tracing is the way of one object back to where it comes from.
type tracing struct {
	*app
	cluster client.Client
	begun   bool            // a section was shown
	seen    map[string]bool // managers and sources that were shown
}

// fact is a line of a section.
type fact struct{ name, value string }

// section prints what is known of one object; facts without a value are left out.
func (t *tracing) section(what string, facts ...fact) {
	if t.begun {
		fmt.Fprintln(t.out, "---")
	}
	t.begun = true
	facts = slices.DeleteFunc(append([]fact{{"Object", what}}, facts...), func(f fact) bool { return f.value == "" })
	width := 0
	for _, f := range facts {
		width = max(width, len(f.name))
	}
	for _, f := range facts {
		fmt.Fprintf(t.out, "%-*s %s\n", width+1, f.name+":", oneLine(f.value))
	}
}

func named(o client.Object, kind string) string {
	return apply.Ref{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()}.String()
}

// maxOwners bounds how many owners are followed: a Pod has three above it, rarely more.
const maxOwners = 10

func (t *tracing) object(ctx context.Context, o *unstructured.Unstructured) error {
	what := named(o, o.GetKind())
	var owners []string
	top := o
	for range maxOwners {
		owner := metav1.GetControllerOf(top)
		if managerOf(top) != nil || owner == nil {
			break
		}
		above := &unstructured.Unstructured{}
		above.SetAPIVersion(owner.APIVersion)
		above.SetKind(owner.Kind)
		if err := t.cluster.Get(ctx, client.ObjectKey{Namespace: o.GetNamespace(), Name: owner.Name},
			above); err != nil {
			return explain("cannot get the owner of "+named(top, top.GetKind()), err)
		}
		owners, top = append(owners, named(above, above.GetKind())), above
	}
	by := managerOf(top)
	if by == nil {
		return fmt.Errorf("%s is managed by no Kustomization and no HelmRelease", what)
	}
	t.section(what, fact{"Owned by", strings.Join(owners, ", ")}, fact{"Managed by", by.String()})
	gvk := top.GroupVersionKind()
	return t.manager(ctx, *by, apply.Ref{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind,
		Namespace: top.GetNamespace(), Name: top.GetName()})
}

// managerOf reads from an object's labels what applied it; nil if nothing did.
func managerOf(o client.Object) *apply.Ref {
	for _, m := range []apply.Ref{
		{Group: kustomizev1.GroupVersion.Group, Version: "v1", Kind: kustomizev1.KustomizationKind},
		{Group: helmGroup, Version: "v2", Kind: "HelmRelease"},
	} {
		m.Name, m.Namespace = o.GetLabels()[m.Group+"/name"], o.GetLabels()[m.Group+"/namespace"]
		if m.Name != "" {
			return &m
		}
	}
	return nil
}

// manager shows what applied an object, where that got it from, and what applied that in turn.
func (t *tracing) manager(ctx context.Context, by, object apply.Ref) error {
	if t.seen[by.String()] {
		return nil // it applies itself
	}
	t.seen[by.String()] = true
	if by.Group == helmGroup {
		return t.helmRelease(ctx, by)
	}
	found, err := fetch(ctx, t.cluster, byTitle(by.Kind), types.NamespacedName{Namespace: by.Namespace, Name: by.Name})
	if err != nil {
		return err
	}
	ks := found.(*kustomizev1.Kustomization)
	note := ""
	if !spec.Inventory(ks.Status.Inventory).Has(object.Entry()) {
		note = "its inventory does not name " + object.String() + ": the label is from before, or copied"
	}
	t.section(by.String(), fact{"Path", ks.Spec.Path}, fact{"Revision", ks.Status.LastAppliedRevision},
		fact{"Origin revision", ks.Status.LastAppliedOriginRevision}, status(ks.Status.Conditions), fact{"Note", note})
	ref := byTitle(by.Kind).source(ks)
	if err := t.source(ctx, ref.Kind, types.NamespacedName{Namespace: cmp.Or(ref.Namespace, ks.Namespace),
		Name: ref.Name}); err != nil {
		return err
	}
	return t.above(ctx, ks, by)
}

// above goes on with what applied the manager itself.
func (t *tracing) above(ctx context.Context, o client.Object, ref apply.Ref) error {
	by := managerOf(o)
	if by == nil {
		return nil
	}
	return t.manager(ctx, *by, ref)
}

func (t *tracing) helmRelease(ctx context.Context, by apply.Ref) error {
	hr := &unstructured.Unstructured{}
	hr.SetGroupVersionKind(schema.GroupVersionKind{Group: by.Group, Version: by.Version, Kind: by.Kind})
	if err := t.cluster.Get(ctx, client.ObjectKey{Namespace: by.Namespace, Name: by.Name}, hr); err != nil {
		return explain("cannot get "+by.String(), err)
	}
	text := func(fields ...string) string {
		s, _, _ := unstructured.NestedString(hr.Object, fields...)
		return s
	}
	t.section(by.String(), fact{"Revision", text("status", "lastAttemptedRevision")}, status(conditions(hr)))
	kind, name := text("spec", "chartRef", "kind"), text("spec", "chartRef", "name")
	namespace := cmp.Or(text("spec", "chartRef", "namespace"), by.Namespace)
	if kind == "" {
		kind = "HelmChart"
		namespace, name, _ = strings.Cut(text("status", "helmChart"), "/")
	}
	if name != "" {
		if err := t.source(ctx, kind, types.NamespacedName{Namespace: namespace, Name: name}); err != nil {
			return err
		}
	}
	return t.above(ctx, hr, by)
}

// status is what Ready says, and since when.
func status(conditions []metav1.Condition) fact {
	i := slices.IndexFunc(conditions, func(c metav1.Condition) bool { return c.Type == "Ready" })
	if i < 0 {
		return fact{"Status", "not reconciled yet"}
	}
	c := conditions[i]
	ready := map[metav1.ConditionStatus]string{metav1.ConditionTrue: "Ready", metav1.ConditionFalse: "not Ready",
		metav1.ConditionUnknown: "under way"}[c.Status]
	return fact{"Status", fmt.Sprintf("%s since %s: %s", ready, c.LastTransitionTime.UTC().
		Format("2006-01-02 15:04:05"), c.Message)}
}
