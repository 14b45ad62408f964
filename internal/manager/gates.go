package manager

import (
	"context"
	"errors"
	"os"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/egress"
	"github.com/sluice-gitops/sluice/internal/gate"
	"github.com/sluice-gitops/sluice/internal/image/automate"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source"
	"github.com/sluice-gitops/sluice/internal/sync"
)

// gated is a kind that gates hold.
type gated struct {
	schema.GroupKind
	list client.ObjectList
}

// gatedKinds lists the kinds that gates hold, of the controllers that run.
func gatedKinds(o Options) []gated {
	var kinds []gated
	if o.runs(SourceController) {
		kinds = append(kinds,
			gated{source.GitRepositoryGroupKind, &sourcev1.GitRepositoryList{}},
			gated{source.OCIRepositoryGroupKind, &sourcev1.OCIRepositoryList{}},
			gated{source.HelmRepositoryGroupKind, &sourcev1.HelmRepositoryList{}},
			gated{source.HelmChartGroupKind, &sourcev1.HelmChartList{}},
			gated{source.BucketGroupKind, &sourcev1.BucketList{}},
			gated{source.ArtifactGeneratorGroupKind, &extensionsv1beta1.ArtifactGeneratorList{}},
		)
	}
	if o.runs(KustomizeController) {
		kinds = append(kinds, gated{sync.KustomizationGroupKind, &kustomizev1.KustomizationList{}})
	}
	if o.runs(ImageAutomationController) {
		kinds = append(kinds, gated{automate.GroupKind, &imagev1.ImageUpdateAutomationList{}})
	}
	return kinds
}

// newBook returns the book of gates, kept by the cache.
func newBook(ctx context.Context, mgr ctrlmanager.Manager, k *reconcile.Kernel, o Options) (*gate.Book, error) {
	b := &gate.Book{
		Edges: k.Edges, Clock: k.Clock, NoCrossNamespaceRefs: o.NoCrossNamespaceRef,
		Namespace: gate.NamespaceLabels(mgr.GetAPIReader()),
		Wake:      wakeGated(ctx, mgr.GetCache(), k.Edges, gatedKinds(o)),
	}
	err := b.Observe(ctx, mgr.GetCache())
	if o.WatchAllNamespaces { // else the one namespace is read when a gate asks
		err = errors.Join(err, b.ObserveNamespaces(ctx, mgr.GetCache()))
	}
	return b, err
}

// runGates opens and closes gates.
func runGates(ctx context.Context, mgr ctrlmanager.Manager, k *reconcile.Kernel, book *gate.Book, o Options) error {
	if err := gate.ObserveApprovals(ctx, mgr.GetCache(), k.Edges); err != nil {
		return err
	}
	checks := &gate.Checks{Clock: o.clock(), Edges: k.Edges, Prober: &gate.Probes{
		Config: mgr.GetConfig(), Mapper: mgr.GetRESTMapper(), Secrets: mgr.GetAPIReader(), NoCrossNamespaceRefs: o.NoCrossNamespaceRef,
		Egress: o.forTenants(),
	}}
	return reconcile.Register(mgr, k, reconcile.Kind[*gatingv1.Gate]{
		GroupKind:  gate.GroupKind,
		New:        func() *gatingv1.Gate { return &gatingv1.Gate{} },
		Concurrent: o.Concurrent,
		Step: &gate.Gate{
			Client: mgr.GetClient(), Edges: k.Edges, Clock: o.clock(), Checks: checks, Waiting: book.Waiting,
			Vouch: &gate.Voucher{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Clock: o.clock()},
		},
	})
}

// forTenants is the way out to addresses that tenants choose, and that are none of a source.
func (o *Options) forTenants() *egress.Policy {
	_, inCluster := os.LookupEnv("KUBERNETES_SERVICE_HOST")
	return &egress.Policy{PerHost: o.requestsPerHost(), RefuseLinkLocal: true, RefuseLoopback: inCluster && !o.AllowLoopback}
}

// wakeGated queues the objects that are selected, by one list of each kind from the cache.
func wakeGated(ctx context.Context, cache client.Reader, e *reconcile.Edges, kinds []gated) func(func(reconcile.Ref, reconcile.Gated) bool) {
	return func(selected func(reconcile.Ref, reconcile.Gated) bool) {
		for _, kind := range kinds {
			list := kind.list.DeepCopyObject().(client.ObjectList)
			if cache.List(ctx, list, client.UnsafeDisableDeepCopy) != nil {
				return // the process ends
			}
			_ = apimeta.EachListItem(list, func(o runtime.Object) error {
				if obj, ok := o.(reconcile.Gated); ok {
					if ref := reconcile.RefTo(kind.GroupKind, obj.GetNamespace(), obj.GetName()); selected(ref, obj) {
						e.Wake(ref)
					}
				}
				return nil
			})
		}
	}
}
