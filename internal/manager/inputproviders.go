package manager

import (
	"context"
	"errors"

	"k8s.io/client-go/metadata"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	inputsv1 "github.com/sluice-gitops/sluice/api/inputs/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/cluster/kubewatch"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/resourceset/inputprovider"
)

// addInputProviders adds the controllers of the providers of inputs for ResourceSets. LeftTo returns which other
// controller reconciles those of Flux Operator, if there is one.
func (p *process) addInputProviders(ctx context.Context, leftTo func(context.Context) string) error {
	objects, err := metadata.NewForConfigAndClient(p.mgr.GetConfig(), p.mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	clusters := inputprovider.NewClusters(&inputprovider.Clusters{Live: p.mgr.GetAPIReader(),
		Mapper: p.mgr.GetRESTMapper(), Edges: p.kernel.Edges, Clock: p.GetClock(), Config: p.remoteClusters().Config},
		kubewatch.Metadata(objects))
	p.closers = append(p.closers, clusters.Close)
	return errors.Join(
		inputprovider.ObserveArtifacts(ctx, p.kernel.Edges, p.mgr.GetCache()),
		registerKind(p, reconcile.Kind[*controlplanev1.ResourceSetInputProvider]{
			GroupKind: inputprovider.GroupKind, GateBehavior: reconcile.Ungated,
			Finalizer: controlplanev1.Finalizer, NoFinalizer: true, LeftTo: leftTo,
			DisabledReason: controlplanev1.ReconciliationDisabledReason, Info: inputprovider.Info,
			Step: &inputprovider.Providers{
				Registries: p.registries, GitHubApps: p.git.GitHubApps, Objects: p.mgr.GetClient(),
				Impersonate: p.impersonate, DefaultServiceAccount: p.DefaultAccount,
				ControllerNamespace: p.RuntimeNamespace, NoCrossNamespaceRefs: p.RefusesCrossNamespaceRefs(),
				Clock: p.GetClock(),
			}}),
		registerKind(p, reconcile.Kind[*inputsv1.ClusterInputProvider]{
			GroupKind: inputprovider.ClusterGroupKind, GateBehavior: reconcile.Ungated, Step: clusters}),
	)
}
