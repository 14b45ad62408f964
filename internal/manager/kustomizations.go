package manager

import (
	"context"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/internal/build/remotebase"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/kustomization"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/process/options"
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
	o := KustomizationOptions(p.Options)
	o.Decryption = p.decryption()
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

// KustomizationOptions returns what the flags say about Kustomizations. Tests that run passes themselves use it, too.
func KustomizationOptions(o options.Options) kustomization.Options {
	return kustomization.Options{
		NoCrossNamespaceRefs: o.RefusesCrossNamespaceRefs(), DefaultServiceAccount: o.DefaultAccount,
		NoFailFast: o.WaitsForFailed(), AdditiveReadyExpr: o.AdditiveReadyExpr(), Decryption: decryption(o),
		StrictSubstitutions: o.StrictSubstitutionsEnabled(), StrictFields: o.StrictFields, Resync: o.Resync,
	}
}

func (p *process) removal() rollout.Removal {
	return rollout.Removal{Reader: p.mgr.GetAPIReader(), Namespace: p.RuntimeNamespace}
}

func (p *process) remoteClusters() *rollout.RemoteClusters {
	r := RemoteClusters(p.Options, p.remotes.Egress)
	r.Reader, r.Identities = p.mgr.GetAPIReader(), p.remotes.Identities
	r.Token, r.Self = p.accounts.RequestToken, p.accounts.Self
	r.Transports.Wrap = p.fence.Wrap
	return r
}

// RemoteClusters returns what the flags say about clusters that objects name by a kubeconfig, without what reads
// credentials. Tests that run passes themselves use it, too.
func RemoteClusters(o options.Options, policy *egress.Policy) *rollout.RemoteClusters {
	transports := rollout.NewTransports(policy, nil)
	transports.QPS, transports.Burst = o.KubeAPIQPS, o.KubeAPIBurst
	return &rollout.RemoteClusters{
		DefaultAccount: o.KubeConfigAccount, AllowExec: o.KubeConfigExec, AllowInsecureTLS: o.KubeConfigTLS,
		Transports: transports,
	}
}

func (p *process) decryption() access.Decryption {
	d := decryption(p.Options)
	d.Reader, d.Transport, d.Identities = p.mgr.GetAPIReader(), p.transport, p.remotes.Identities
	return d
}

// decryption returns what the flags and the environment say about decryption.
func decryption(o options.Options) access.Decryption {
	return access.Decryption{
		IgnoreMAC:      o.SOPSIgnoreMAC,
		DefaultAccount: o.DecryptionAccount,
		AgeSecret:      types.NamespacedName{Namespace: o.RuntimeNamespace, Name: o.SOPSAgeSecret},
		VaultConfigMap: types.NamespacedName{Namespace: o.RuntimeNamespace, Name: o.SOPSVaultConfigMap},
		VaultAddress:   os.Getenv("VAULT_ADDR"),
		VaultToken:     os.Getenv("VAULT_TOKEN"),
	}
}
