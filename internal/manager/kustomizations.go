package manager

import (
	"context"
	"os"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/internal/build/remotebase"
	"github.com/sluice-gitops/sluice/internal/kustomization"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

func (p *process) addKustomizations(ctx context.Context) error {
	clusters := &kustomization.Clusters{Config: p.mgr.GetConfig(), Edges: p.kernel.Edges, Remote: p.remoteClusters(),
		Apply: p.ApplyOptions()}
	p.closers = append(p.closers, clusters.Close)
	if err := kustomization.ObserveDependencies(ctx, p.kernel.Edges, p.mgr.GetCache()); err != nil {
		return err
	}
	o := kustomization.Options{
		NoCrossNamespaceRefs:  p.RefusesCrossNamespaceRefs(),
		DefaultServiceAccount: p.DefaultAccount,
		PatientHealth:         p.WaitsForFailed(),
		AdditiveReadyExpr:     p.AdditiveReadyExpr(),
		Decryption:            p.decryption(),
		StrictSubstitutions:   p.StrictSubstitutionsEnabled(),
		Resync:                p.Resync,
	}
	if !p.NoRemoteBases {
		o.FetchBase = remotebase.NewFetcher(p.transport)
	}
	return register(p, kustomization.KustomizationGroupKind, reconcile.HoldsSync, &kustomization.Kustomization{
		Client:    p.mgr.GetClient(),
		Configs:   p.mgr.GetAPIReader(),
		Artifacts: p.storage.fetcher,
		Clusters:  clusters,
		Events:    p.kernel.Events,
		Clock:     p.GetClock(),
		Options:   o,
	})
}

func (p *process) remoteClusters() *kustomization.Remote {
	reach := kustomization.NewReach(p.remotes.Egress.Dialer())
	reach.QPS, reach.Burst = p.KubeAPIQPS, p.KubeAPIBurst
	return &kustomization.Remote{
		Reader: p.mgr.GetAPIReader(), Identities: p.remotes.Identities, Token: p.accounts.RequestToken,
		Self:           p.accounts.Self,
		DefaultAccount: p.KubeConfigAccount, AllowExec: p.KubeConfigExec, AllowInsecureTLS: p.KubeConfigTLS,
		Reach: reach,
	}
}

func (p *process) decryption() kustomization.Decryption {
	return kustomization.Decryption{
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
