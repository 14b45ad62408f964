package cli

import (
	"cmp"
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// source shows a source and the ones that it is made of.
func (t *tracing) source(ctx context.Context, kind string, key types.NamespacedName) error {
	k := byTitle(kind)
	what := apply.Ref{Kind: kind, Namespace: key.Namespace, Name: key.Name}.String()
	if k == nil || t.seen[what] {
		return nil
	}
	t.seen[what] = true
	obj, err := fetch(ctx, t.cluster, k, key)
	if err != nil {
		return err
	}
	var facts []fact
	if s, ok := obj.(sourcev1.Source); ok && s.GetArtifact() != nil {
		a := s.GetArtifact()
		facts = []fact{
			{"Revision", a.Revision},
			{"Commit author", a.Metadata[meta.CommitAuthorKey]},
			{"Commit message", a.Metadata[meta.CommitSubjectKey]},
			{"Origin revision", a.OriginRevision()},
			{"Origin source", a.Metadata[meta.OriginURLKey]},
		}
	}
	t.section(what, append(append(location(obj), facts...), status(obj.CommonStatus().Conditions))...)
	for _, ref := range sourcesOf(k, obj) {
		if err := t.source(ctx, ref.Kind, types.NamespacedName{Namespace: cmp.Or(ref.Namespace, key.Namespace),
			Name: ref.Name}); err != nil {
			return err
		}
	}
	return nil
}

// sourcesOf lists what an object is made of.
func sourcesOf(k *kind, obj reconcile.Object) []meta.ObjectReference {
	if g, ok := obj.(*extensionsv1beta1.ArtifactGenerator); ok {
		var refs []meta.ObjectReference
		for _, s := range g.Spec.Sources {
			refs = append(refs, meta.ObjectReference{Kind: s.Kind, Namespace: s.Namespace, Name: s.Name})
		}
		return refs
	}
	if k.source == nil {
		return nil
	}
	return []meta.ObjectReference{k.source(obj)}
}

// location tells where a source is fetched from, and what of it.
func location(obj reconcile.Object) []fact {
	switch s := obj.(type) {
	case *sourcev1.GitRepository:
		ref := cmp.Or(s.Spec.Reference, &sourcev1.GitRepositoryRef{})
		return []fact{{"URL", fault.RedactURL(s.Spec.URL)}, {"Branch", ref.Branch},
			{"Tag", cmp.Or(ref.Tag, ref.SemVer)}, {"Reference", ref.Name}}
	case *sourcev1.OCIRepository:
		ref := cmp.Or(s.Spec.Reference, &sourcev1.OCIRepositoryRef{})
		return []fact{{"URL", s.Spec.URL}, {"Tag", cmp.Or(ref.Tag, ref.SemVer)}}
	case *sourcev1.HelmRepository:
		return []fact{{"URL", fault.RedactURL(s.Spec.URL)}}
	case *sourcev1.HelmChart:
		return []fact{{"Chart", s.Spec.Chart}, {"Version", s.Spec.Version}}
	case *sourcev1.Bucket:
		return []fact{{"URL", fmt.Sprintf("%s/%s", s.Spec.Endpoint, s.Spec.BucketName)}}
	}
	return nil
}

// conditions reads the conditions of an object of any kind.
func conditions(o *unstructured.Unstructured) []metav1.Condition {
	var read struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &read) != nil {
		return nil
	}
	return read.Status.Conditions
}
