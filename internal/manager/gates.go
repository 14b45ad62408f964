package manager

import (
	"context"
	"errors"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/gate"
	"github.com/sluice-gitops/sluice/internal/image/automate"
	"github.com/sluice-gitops/sluice/internal/kustomization"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source"
)

// gated is a kind that gates hold.
type gated struct {
	schema.GroupKind
	list client.ObjectList
}

// gatedKinds lists the kinds that gates hold, of the controllers that run.
func (p *process) gatedKinds() []gated {
	var kinds []gated
	if p.runs(SourceController) {
		kinds = append(kinds,
			gated{source.GitRepositoryGroupKind, &sourcev1.GitRepositoryList{}},
			gated{source.OCIRepositoryGroupKind, &sourcev1.OCIRepositoryList{}},
			gated{source.HelmRepositoryGroupKind, &sourcev1.HelmRepositoryList{}},
			gated{source.HelmChartGroupKind, &sourcev1.HelmChartList{}},
			gated{source.BucketGroupKind, &sourcev1.BucketList{}},
			gated{source.ArtifactGeneratorGroupKind, &extensionsv1beta1.ArtifactGeneratorList{}},
		)
	}
	if p.runs(KustomizeController) {
		kinds = append(kinds, gated{kustomization.KustomizationGroupKind, &kustomizev1.KustomizationList{}})
	}
	if p.runs(ImageAutomationController) {
		kinds = append(kinds, gated{automate.GroupKind, &imagev1.ImageUpdateAutomationList{}})
	}
	return kinds
}

// keepBook makes the book of gates, which the cache keeps, and lets the kernel ask it.
func (p *process) keepBook(ctx context.Context) error {
	cache := p.mgr.GetCache()
	p.book = &gate.Book{
		Edges: p.kernel.Edges, Clock: p.clock(), NoCrossNamespaceRefs: p.NoCrossNamespaceRefs,
		Namespace: gate.NamespaceLabels(p.mgr.GetAPIReader()),
		Wake:      wakeGated(ctx, cache, p.kernel.Edges, p.gatedKinds()),
	}
	p.kernel.Gates = p.book
	err := p.book.Observe(ctx, cache)
	if p.WatchAllNamespaces { // else the one namespace is read when a gate asks
		err = errors.Join(err, p.book.ObserveNamespaces(ctx, cache))
	}
	return err
}

// runGates opens and closes gates.
func (p *process) runGates(ctx context.Context) error {
	if err := gate.ObserveApprovals(ctx, p.mgr.GetCache(), p.kernel.Edges); err != nil {
		return err
	}
	checks := &gate.Checks{Clock: p.clock(), Edges: p.kernel.Edges, Prober: &gate.Probes{
		Config: p.mgr.GetConfig(), Mapper: p.mgr.GetRESTMapper(), Secrets: p.mgr.GetAPIReader(),
		NoCrossNamespaceRefs: p.NoCrossNamespaceRefs,
		Egress:               p.forTenants(),
	}}
	return reconcile.Register(p.mgr, p.kernel, reconcile.Kind[*gatingv1.Gate]{
		GroupKind:  gate.GroupKind,
		New:        func() *gatingv1.Gate { return &gatingv1.Gate{} },
		Concurrent: p.Concurrent,
		Step: &gate.Gate{
			Client: p.mgr.GetClient(), Edges: p.kernel.Edges, Clock: p.clock(), Checks: checks, Waiting: p.book.Waiting,
			Vouch: &gate.Voucher{Client: p.mgr.GetClient(), Reader: p.mgr.GetAPIReader(), Clock: p.clock()},
		},
	})
}

// wakeGated queues the objects that are selected, by one list of each kind from the cache.
func wakeGated(ctx context.Context, cache client.Reader, e *reconcile.Edges,
	kinds []gated) func(func(reconcile.Ref, reconcile.Gated) bool) {
	return func(selected func(reconcile.Ref, reconcile.Gated) bool) {
		for _, kind := range kinds {
			list := kind.list.DeepCopyObject().(client.ObjectList)
			if cache.List(ctx, list, client.UnsafeDisableDeepCopy) != nil {
				return // the process ends
			}
			_ = apimeta.EachListItem(list, func(o runtime.Object) error {
				if obj, ok := o.(reconcile.Gated); ok {
					if ref := reconcile.RefTo(kind.GroupKind, obj.GetNamespace(), obj.GetName()); selected(ref, obj) {
						e.Enqueue(ref)
					}
				}
				return nil
			})
		}
	}
}
