package manager

import (
	"context"
	"errors"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/internal/inputprovider"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// addInputProviders adds the controller of the providers of inputs for ResourceSets. LeftTo returns which other
// controller reconciles them, if there is one.
func (p *process) addInputProviders(ctx context.Context, leftTo func(context.Context) string) error {
	return errors.Join(
		inputprovider.ObserveArtifacts(ctx, p.kernel.Edges, p.mgr.GetCache()),
		registerKind(p, reconcile.Kind[*controlplanev1.ResourceSetInputProvider]{
			GroupKind: inputprovider.GroupKind, GateBehavior: reconcile.Ungated,
			Finalizer: controlplanev1.Finalizer, NoFinalizer: true, LeftTo: leftTo,
			Step: &inputprovider.Providers{
				Registries: p.registries, GitHubApps: p.git.GitHubApps, Objects: p.mgr.GetClient(),
				Impersonate: p.impersonate, DefaultServiceAccount: p.DefaultAccount,
				ControllerNamespace: p.RuntimeNamespace, NoCrossNamespaceRefs: p.RefusesCrossNamespaceRefs(),
				Clock: p.GetClock(),
			}}),
	)
}
