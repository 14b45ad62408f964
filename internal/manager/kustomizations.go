package manager

import (
	"context"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/internal/build/remotebase"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/kustomization"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/source/access"
	"github.com/sluice-gitops/sluice/internal/source/git"
)

func (p *process) addKustomizations(ctx context.Context) error {
	clusters := &rollout.Clusters{Config: p.mgr.GetConfig(), Edges: p.kernel.Edges, Remote: p.remoteClusters(),
		Claims: p.claims, Dependencies: p.dependencies,
		Apply: p.ApplyOptions()}
	p.closers = append(p.closers, clusters.Close)
	o := kustomization.Options{
		NoCrossNamespaceRefs: p.RefusesCrossNamespaceRefs(), DefaultServiceAccount: p.DefaultAccount,
		NoFailFast: p.WaitsForFailed(), AdditiveReadyExpr: p.AdditiveReadyExpr(), Decryption: p.decryption(),
		StrictSubstitutions: p.StrictSubstitutionsEnabled(), StrictFields: p.StrictFields, Resync: p.Resync,
	}
	if !p.NoRemoteBases {
		bases := &access.Bases{Mirrors: git.NewMirrors(filepath.Join(p.StoragePath, "remote-bases")),
			Egress: p.remotes.Egress}
		bases.Mirrors.Budget = p.storage.Budget
		guard.Memory().OnPressure(bases.Mirrors.DropCache)
		if err := bases.Mirrors.Collect(func(string) bool { return false }); err != nil {
			return err
		}
		o.FetchManifest, o.FetchBase = remotebase.NewFetcher(p.transport), bases.Fetch
	}
	controller := &kustomization.Controller{
		Client: p.mgr.GetClient(), Cache: p.mgr.GetCache(), Live: p.mgr.GetAPIReader(),
		Artifacts: p.storage.Fetcher, Applied: p.storage.Applied, Promotable: p.storage.Promotable,
		Clusters: clusters, Removal: p.removal(), Events: p.kernel.Events, Clock: p.GetClock(), Options: o,
	}
	if err := controller.ObserveDependencies(ctx, p.mgr.GetCache()); err != nil {
		return err
	}
	return register(p, kustomization.GroupKind, reconcile.HoldsSync, controller)
}

func (p *process) removal() rollout.Removal {
	return rollout.Removal{Reader: p.mgr.GetAPIReader(), Namespace: p.RuntimeNamespace}
}

func (p *process) remoteClusters() *rollout.RemoteClusters {
	transports := rollout.NewTransports(p.remotes.Egress, nil)
	transports.QPS, transports.Burst, transports.Wrap = p.KubeAPIQPS, p.KubeAPIBurst, p.fence.Wrap
	return &rollout.RemoteClusters{
		Reader: p.mgr.GetAPIReader(), Identities: p.remotes.Identities, Token: p.accounts.RequestToken,
		Self:           p.accounts.Self,
		DefaultAccount: p.KubeConfigAccount, AllowExec: p.KubeConfigExec, AllowInsecureTLS: p.KubeConfigTLS,
		Transports: transports,
	}
}

func (p *process) decryption() access.Decryption {
	return access.Decryption{
		Reader:         p.mgr.GetAPIReader(),
		Transport:      p.transport,
		Identities:     p.remotes.Identities,
		IgnoreMAC:      p.SOPSIgnoreMAC,
		DefaultAccount: p.DecryptionAccount,
		AgeSecret:      types.NamespacedName{Namespace: p.RuntimeNamespace, Name: p.SOPSAgeSecret},
		VaultConfigMap: types.NamespacedName{Namespace: p.RuntimeNamespace, Name: p.SOPSVaultConfigMap},
		VaultAddress:   os.Getenv("VAULT_ADDR"),
		VaultToken:     os.Getenv("VAULT_TOKEN"),
	}
}
