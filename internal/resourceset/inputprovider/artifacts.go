package inputprovider

import (
	"cmp"
	"context"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// artifactsOf is the edge to all ExternalArtifacts of a namespace.
func artifactsOf(namespace string) reconcile.Ref {
	return reconcile.RefTo(schema.GroupKind{Group: sourcev1.GroupVersion.Group, Kind: sourcev1.ExternalArtifactKind},
		namespace, "*")
}

// ObserveArtifacts enqueues providers when an ExternalArtifact in a namespace of their selectors changes.
func ObserveArtifacts(ctx context.Context, e *reconcile.Edges, c cache.Cache) error {
	return reconcile.ObserveAs(ctx, e, c, &sourcev1.ExternalArtifact{},
		func(o *sourcev1.ExternalArtifact) reconcile.Ref { return artifactsOf(o.Namespace) },
		func(before, after *sourcev1.ExternalArtifact) bool {
			return !maps.Equal(before.Labels, after.Labels) ||
				revisionOfArtifact(before) != revisionOfArtifact(after) ||
				!meta.Equal(before.Status.ExportedInputs, after.Status.ExportedInputs) ||
				before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero()
		})
}

func revisionOfArtifact(o *sourcev1.ExternalArtifact) string {
	if o.Status.Artifact == nil {
		return ""
	}
	return o.Status.Artifact.Revision
}

// artifacts exports ExternalArtifacts by namespace and name.
func (p *provider) artifacts(ctx context.Context) ([]controlplanev1.InputSet, error) {
	from, err := p.artifactReader()
	if err != nil {
		return nil, err
	}
	found := map[types.NamespacedName]*sourcev1.ExternalArtifact{}
	for i, s := range p.obj.Spec.Selectors {
		if err := p.selectArtifacts(ctx, from, i, s, found); err != nil {
			return nil, err
		}
	}
	keys := slices.SortedFunc(maps.Keys(found), func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	var sets []controlplanev1.InputSet
	for _, key := range keys {
		sets = append(sets, artifactSet(found[key]))
	}
	return sets, nil
}

// artifactSet returns the input set of an ExternalArtifact: its labels, and the inputs that its generator exports,
// below the names that the type defines.
func artifactSet(o *sourcev1.ExternalArtifact) controlplanev1.InputSet {
	set := controlplanev1.InputSet{}
	maps.Copy(set, o.Status.ExportedInputs)
	v := inputs{}
	for key, value := range o.Labels {
		v[key] = value
	}
	v[idKey], v["name"], v["namespace"] = checksum(o.Namespace+"/"+o.Name), o.Name, o.Namespace
	if revision := revisionOfArtifact(o); revision != "" {
		v["revision"] = revision
	}
	maps.Copy(set, v.set())
	return set
}

// artifactReader returns the client that lists ExternalArtifacts: that of the service account, if there is one.
func (p *provider) artifactReader() (client.Reader, error) {
	account := types.NamespacedName{Namespace: p.obj.Namespace, Name: p.obj.Spec.ServiceAccountName}
	if account.Name == "" && p.obj.Namespace != p.ControllerNamespace {
		account.Name = p.DefaultServiceAccount
	}
	if account.Name == "" {
		return p.Objects, nil
	}
	c, err := p.Impersonate(account)
	if err != nil {
		return nil, failed("cannot impersonate ServiceAccount '%s'", account).Because(err)
	}
	return c, nil
}

// selectArtifacts adds the ExternalArtifacts that a selector finds. Objects that are being deleted are left out.
func (p *provider) selectArtifacts(ctx context.Context, from client.Reader, i int, s controlplanev1.ArtifactSelector,
	found map[types.NamespacedName]*sourcev1.ExternalArtifact) error {
	namespace := cmp.Or(s.Namespace, p.obj.Namespace)
	if namespace != p.obj.Namespace && p.NoCrossNamespaceRefs {
		return fault.New(meta.AccessDeniedReason, "spec.selectors[%d] names the namespace '%s', and references to "+
			"other namespaces are not allowed", i, namespace).
			WithHint("Remove the field, or start Sluice without --no-cross-namespace-refs").Final()
	}
	selector, err := metav1.LabelSelectorAsSelector(&s.LabelSelector)
	if err != nil {
		return invalidSpec("spec.selectors[%d] is not valid", i).Because(err)
	}
	var list sourcev1.ExternalArtifactList
	if s.Name != "" {
		var one sourcev1.ExternalArtifact
		err = from.Get(ctx, types.NamespacedName{Namespace: namespace, Name: s.Name}, &one)
		if apierrors.IsNotFound(err) {
			return nil
		}
		list.Items = append(list.Items, one)
	} else {
		err = from.List(ctx, &list, client.InNamespace(namespace),
			client.MatchingLabelsSelector{Selector: selector})
	}
	if apierrors.IsForbidden(err) {
		return fault.New(meta.AccessDeniedReason,
			"the service account may not read ExternalArtifacts in namespace '%s'", namespace).Because(err).
			WithHint("Grant it get and list on externalartifacts there")
	}
	if err != nil {
		return failed("cannot read the ExternalArtifacts of spec.selectors[%d]", i).Because(err)
	}
	for _, o := range list.Items {
		if o.DeletionTimestamp.IsZero() {
			found[client.ObjectKeyFromObject(&o)] = &o
		}
	}
	return nil
}
