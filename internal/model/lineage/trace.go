package lineage

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/text/fault"
	"github.com/sluice-gitops/sluice/internal/tracing"
)

// maxOwners bounds how many owner references are followed. A Pod has at most three owners above it, rarely more.
const maxOwners = 10

// Section describes one object of a trace.
type Section struct {
	Object string // Kind/namespace/name
	Facts  []Fact // without empty values
}

// Fact is one property of an object.
type Fact struct{ Name, Value string }

// Trace returns where an object comes from: the object, then what applied it, its sources, and what applied that in
// turn. On an error it returns the sections found so far.
func Trace(ctx context.Context, c client.Reader, o *unstructured.Unstructured) ([]Section, error) {
	t := &tracer{cluster: c, seen: map[string]bool{}}
	err := t.object(ctx, o)
	return t.sections, err
}

// tracer collects the sections of one trace.
type tracer struct {
	cluster  client.Reader
	sections []Section
	seen     map[string]bool // managers and sources in sections
}

func (t *tracer) add(object string, facts ...Fact) {
	facts = slices.DeleteFunc(facts, func(f Fact) bool { return f.Value == "" })
	t.sections = append(t.sections, Section{Object: object, Facts: facts})
}

// Managed returns the object itself if something applied it, or else the nearest of its owners that was applied. If
// nothing applied any of them, it returns the last owner.
func Managed(ctx context.Context, c client.Reader, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	owners, err := ownersOf(ctx, c, o)
	if len(owners) == 0 {
		return o, err
	}
	return owners[len(owners)-1], err
}

// ownersOf returns the owners of an object up to the first that was applied; none if the object itself was.
func ownersOf(ctx context.Context, c client.Reader, o *unstructured.Unstructured) ([]*unstructured.Unstructured,
	error) {
	var owners []*unstructured.Unstructured
	top := o
	for range maxOwners {
		owner := metav1.GetControllerOf(top)
		if ManagerOf(top) != nil || owner == nil {
			break
		}
		above := &unstructured.Unstructured{}
		above.SetAPIVersion(owner.APIVersion)
		above.SetKind(owner.Kind)
		key := client.ObjectKey{Namespace: o.GetNamespace(), Name: owner.Name}
		if err := c.Get(ctx, key, above); err != nil {
			return owners, cannotGet("the owner of "+nameOf(top, top.GetKind()), err)
		}
		owners, top = append(owners, above), above
	}
	return owners, nil
}

// object adds an object. If nothing applied the object itself, its owners are followed up to one that was applied.
func (t *tracer) object(ctx context.Context, o *unstructured.Unstructured) error {
	above, err := ownersOf(ctx, t.cluster, o)
	if err != nil {
		return err
	}
	var owners []string
	top := o
	for _, owner := range above {
		owners, top = append(owners, nameOf(owner, owner.GetKind())), owner
	}
	by := ManagerOf(top)
	if by == nil && IsToolkitGroup(top.GroupVersionKind().Group) {
		return t.itself(ctx, top) // created by a person: its sources are what is asked for
	}
	if by == nil {
		return fmt.Errorf("%s is not managed by a Kustomization, HelmRelease or ResourceSet", nameOf(o, o.GetKind()))
	}
	t.add(nameOf(o, o.GetKind()), Fact{"Owned by", strings.Join(owners, ", ")}, Fact{"Managed by", by.String()})
	gvk := top.GroupVersionKind()
	return t.manager(ctx, *by, apply.Ref{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind,
		Namespace: top.GetNamespace(), Name: top.GetName()})
}

// itself adds one of our objects that nothing applied, with its sources.
func (t *tracer) itself(ctx context.Context, o *unstructured.Unstructured) error {
	gvk := o.GroupVersionKind()
	ref := apply.Ref{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Namespace: o.GetNamespace(),
		Name: o.GetName()}
	switch {
	case slices.ContainsFunc(managers, func(m apply.Ref) bool { return m.Group == ref.Group && m.Kind == ref.Kind }):
		return t.manager(ctx, ref, apply.Ref{})
	case newObject(gvk.Kind) != nil:
		return t.source(ctx, gvk.Kind, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name})
	}
	return fmt.Errorf("%s is not managed by a Kustomization, HelmRelease or ResourceSet", ref)
}

// manager adds what applied an object, its sources, and what applied the manager in turn.
func (t *tracer) manager(ctx context.Context, by, object apply.Ref) error {
	if t.seen[by.String()] {
		return nil // it applies itself
	}
	t.seen[by.String()] = true
	if by.Group == helmv2.GroupVersion.Group {
		return t.helmRelease(ctx, by, object)
	}
	if by.Group == controlplanev1.GroupVersion.Group {
		return t.resourceSet(ctx, by, object)
	}
	return t.kustomization(ctx, by, object)
}

func (t *tracer) kustomization(ctx context.Context, by, object apply.Ref) error {
	ks := &kustomizev1.Kustomization{}
	if err := t.cluster.Get(ctx, types.NamespacedName{Namespace: by.Namespace, Name: by.Name}, ks); err != nil {
		return cannotGet(by.String(), err)
	}
	note := unlisted(rollout.Inventory(ks.Status.Inventory), object)
	t.add(by.String(), Fact{"Path", ks.Spec.Path}, Fact{"Revision", ks.Status.LastAppliedRevision},
		Fact{"Origin revision", ks.Status.LastAppliedOriginRevision}, status(ks.Status.Conditions), Fact{"Note", note})
	if err := t.sources(ctx, ks); err != nil {
		return err
	}
	return t.above(ctx, ks, by)
}

// unlisted returns a note if an inventory does not list an object whose label names its owner.
func unlisted(inventory apply.Inventory, object apply.Ref) string {
	if object == (apply.Ref{}) || inventory.Has(object.Entry()) {
		return ""
	}
	return "its inventory does not list " + object.String() + ": the label is outdated or was copied"
}

func (t *tracer) resourceSet(ctx context.Context, by, object apply.Ref) error {
	set := &controlplanev1.ResourceSet{}
	if err := t.cluster.Get(ctx, client.ObjectKey{Namespace: by.Namespace, Name: by.Name}, set); err != nil {
		return cannotGet(by.String(), err)
	}
	var from []string
	for _, p := range set.Spec.InputsFrom {
		ref := apply.Ref{Kind: cmp.Or(p.Kind, controlplanev1.ResourceSetInputProviderKind), Namespace: by.Namespace,
			Name: p.Name}
		if p.Selector != nil {
			ref.Name = metav1.FormatLabelSelector(p.Selector)
		}
		from = append(from, ref.String())
	}
	t.add(by.String(), Fact{"Inputs from", strings.Join(from, ", ")}, Fact{"Revision", set.Status.LastAppliedRevision},
		status(set.Status.Conditions), Fact{"Note", unlisted(rollout.Inventory(set.Status.Inventory), object)})
	return t.above(ctx, set, by)
}

// above adds what applied the manager itself.
func (t *tracer) above(ctx context.Context, o client.Object, ref apply.Ref) error {
	by := ManagerOf(o)
	if by == nil {
		return nil
	}
	return t.manager(ctx, *by, ref)
}

func (t *tracer) helmRelease(ctx context.Context, by, object apply.Ref) error {
	hr := &helmv2.HelmRelease{}
	if err := t.cluster.Get(ctx, client.ObjectKey{Namespace: by.Namespace, Name: by.Name}, hr); err != nil {
		return cannotGet(by.String(), err)
	}
	note := ""
	if hr.Status.Inventory != nil {
		note = unlisted(rollout.Inventory(hr.Status.Inventory), object)
	}
	revision := hr.Status.LastAttemptedRevision
	release := ""
	if len(hr.Status.History) > 0 {
		last := hr.Status.History[0]
		revision = last.ChartVersion
		release = fmt.Sprintf("%s/%s, version %d", last.Namespace, last.Name, last.Version)
	}
	t.add(by.String(), Fact{"Release", release}, Fact{"Revision", revision}, status(hr.Status.Conditions),
		Fact{"Note", note})
	if err := t.sources(ctx, hr); err != nil {
		return err
	}
	return t.above(ctx, hr, by)
}

// sources adds what an object is built from.
func (t *tracer) sources(ctx context.Context, o client.Object) error {
	for _, ref := range Sources(o) {
		key := types.NamespacedName{Namespace: cmp.Or(ref.Namespace, o.GetNamespace()), Name: ref.Name}
		if err := t.source(ctx, ref.Kind, key); err != nil {
			return err
		}
	}
	return nil
}

// source adds a source and its own sources.
func (t *tracer) source(ctx context.Context, kind string, key types.NamespacedName) error {
	what := apply.Ref{Kind: kind, Namespace: key.Namespace, Name: key.Name}.String()
	obj := newObject(kind)
	if obj == nil || t.seen[what] {
		return nil
	}
	t.seen[what] = true
	if err := t.cluster.Get(ctx, key, obj); err != nil {
		return cannotGet(what, err)
	}
	facts := location(obj)
	if s, ok := obj.(sourcev1.Source); ok && s.GetArtifact() != nil {
		a := s.GetArtifact()
		facts = append(facts,
			Fact{"Revision", a.Revision},
			Fact{"Trace", tracing.ID(a.Metadata[meta.TraceKey])},
			Fact{"Commit author", a.Metadata[meta.CommitAuthorKey]},
			Fact{"Commit message", a.Metadata[meta.CommitSubjectKey]},
			Fact{"Origin revision", a.OriginRevision()},
			Fact{"Origin source", a.Metadata[meta.OriginURLKey]},
		)
	}
	if s, ok := obj.(interface{ CommonStatus() *meta.Status }); ok {
		facts = append(facts, status(s.CommonStatus().Conditions))
	}
	t.add(what, facts...)
	return t.sources(ctx, obj)
}

// URL returns where a source is fetched from, without credentials, or "".
func URL(obj client.Object) string {
	for _, f := range location(obj) {
		if f.Name == "URL" {
			return f.Value
		}
	}
	return ""
}

// location returns where a source is fetched from, and which part of it.
func location(obj client.Object) []Fact {
	switch s := obj.(type) {
	case *sourcev1.GitRepository:
		ref := cmp.Or(s.Spec.Reference, &sourcev1.GitRepositoryRef{})
		return []Fact{{Name: "URL", Value: fault.RedactURL(s.Spec.URL)}, {Name: "Branch", Value: ref.Branch},
			{Name: "Tag", Value: cmp.Or(ref.Tag, ref.SemVer)}, {Name: "Reference", Value: ref.Name}}
	case *sourcev1.OCIRepository:
		ref := cmp.Or(s.Spec.Reference, &sourcev1.OCIRepositoryRef{})
		return []Fact{{Name: "URL", Value: s.Spec.URL}, {Name: "Tag", Value: cmp.Or(ref.Tag, ref.SemVer)}}
	case *sourcev1.HelmRepository:
		return []Fact{{Name: "URL", Value: fault.RedactURL(s.Spec.URL)}}
	case *sourcev1.HelmChart:
		return []Fact{{Name: "Chart", Value: s.Spec.Chart}, {Name: "Version", Value: s.Spec.Version}}
	case *sourcev1.Bucket:
		return []Fact{{Name: "URL", Value: fmt.Sprintf("%s/%s", s.Spec.Endpoint, s.Spec.BucketName)}}
	}
	return nil
}

// status summarizes the Ready condition.
func status(conditions []metav1.Condition) Fact {
	c := apimeta.FindStatusCondition(conditions, "Ready")
	if c == nil {
		return Fact{"Status", "not reconciled yet"}
	}
	ready := map[metav1.ConditionStatus]string{metav1.ConditionTrue: "Ready", metav1.ConditionFalse: "not Ready",
		metav1.ConditionUnknown: "in progress"}[c.Status]
	return Fact{"Status", fmt.Sprintf("%s since %s: %s", ready, c.LastTransitionTime.UTC().
		Format("2006-01-02 15:04:05"), c.Message)}
}
