package manager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"k8s.io/apimachinery/pkg/types"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/kustomization"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// runKustomizations reconciles Kustomizations.
func (p *process) runKustomizations(ctx context.Context) error {
	clusters := &kustomization.Clusters{Config: p.mgr.GetConfig(), Edges: p.kernel.Edges, Remote: p.remote(),
		Apply: p.apply()}
	p.ends = append(p.ends, clusters.Close)
	if err := kustomization.ObserveDependencies(ctx, p.kernel.Edges, p.mgr.GetCache()); err != nil {
		return err
	}
	return reconcile.Register(p.mgr, p.kernel, reconcile.Kind[*kustomizev1.Kustomization]{
		GroupKind:    kustomization.KustomizationGroupKind,
		New:          func() *kustomizev1.Kustomization { return &kustomizev1.Kustomization{} },
		Concurrent:   p.Concurrent,
		GateBehavior: reconcile.HoldsSync,
		Step: &kustomization.Kustomization{
			Client:    p.mgr.GetClient(),
			Configs:   p.mgr.GetAPIReader(),
			Artifacts: p.storage.fetcher,
			Clusters:  clusters,
			Events:    p.kernel.Events,
			Clock:     p.clock(),
			Options: kustomization.Options{
				NoCrossNamespaceRefs:  p.noCrossNamespaceRefs(),
				DefaultServiceAccount: p.DefaultAccount,
				PatientHealth:         p.gate("DisableFailFastBehavior"),
				AdditiveReadyExpr:     p.gate("AdditiveCELDependencyCheck"),
				Decryption:            p.decryption(),
				FetchBase:             p.fetchBase(p.out.transport),
				StrictSubstitutions:   p.strictSubstitutions(),
				Resync:                p.Resync,
			},
		},
	})
}

// remote is how other clusters are reached.
func (p *process) remote() *kustomization.Remote {
	reach := kustomization.NewReach(p.out.Egress.Dialer())
	reach.QPS, reach.Burst = p.KubeAPIQPS, p.KubeAPIBurst
	return &kustomization.Remote{
		Reader: p.mgr.GetAPIReader(), Identities: p.out.Identities, Token: accountTokens(p.mgr.GetClient()),
		Self:           self(p.mgr.GetClient()),
		DefaultAccount: p.KubeConfigAccount, AllowExec: p.KubeConfigExec, AllowInsecureTLS: p.KubeConfigTLS,
		Reach: reach,
	}
}

// apply are the options by which clusters are applied to.
func (o *Options) apply() apply.ClusterOptions {
	kinds, _ := apply.ParseKinds(o.CustomStage) // validated before
	return apply.ClusterOptions{Concurrency: o.ConcurrentSSA, Clock: o.clock(), Contention: o.Contention, CustomStage: kinds,
		OverrideManagers: o.OverrideManagers}
}

// decryption is what the controller brings to the decryption of all.
func (p *process) decryption() kustomization.Decryption {
	return kustomization.Decryption{
		Transport:      p.out.transport,
		Identities:     p.out.Identities,
		IgnoreMAC:      p.SOPSIgnoreMAC,
		DefaultAccount: p.DecryptionAccount,
		AgeSecret:      types.NamespacedName{Namespace: p.RuntimeNamespace, Name: p.SOPSAgeSecret},
		VaultConfigMap: types.NamespacedName{Namespace: p.RuntimeNamespace, Name: p.SOPSVaultConfigMap},
		VaultAddress:   os.Getenv("VAULT_ADDR"),
		VaultToken:     os.Getenv("VAULT_TOKEN"),
	}
}

// strictSubstitutions is what the feature gate says, or else the flag.
func (o *Options) strictSubstitutions() bool {
	if o.FeatureGates[strictGate] != "" {
		return o.gate(strictGate)
	}
	return o.StrictSubstitutions
}

// maxBase bounds a manifest that a kustomization names by its URL.
const maxBase = 10 << 20

// fetchBase returns what fetches remote bases, or nil where they are refused.
func (o *Options) fetchBase(transport http.RoundTripper) func(ctx context.Context, url string) ([]byte, error) {
	if o.NoRemoteBases {
		return nil
	}
	return func(ctx context.Context, url string) ([]byte, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return nil, errors.New("the URL cannot be read")
		}
		resp, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			return nil, errors.Unwrap(err) // without the URL
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("the server answered with %s", resp.Status)
		}
		b, err := io.ReadAll(io.LimitReader(resp.Body, maxBase+1))
		if len(b) > maxBase {
			return nil, fmt.Errorf("it is larger than %d MiB", maxBase>>20)
		}
		return b, err
	}
}
