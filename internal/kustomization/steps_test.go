package kustomization_test

import (
	"testing"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/kustomization"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/source/access"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// steps runs the passes of Kustomizations.
type steps struct{ *system.Steps }

func newSteps(t *testing.T, configure ...func(*options.Options)) *steps {
	t.Helper()
	s := &steps{system.NewSteps(t, configure...)}
	o := s.Options()
	c := &kustomization.Controller{
		Client: s.Client, Cache: s.Client, Live: s.Client, Artifacts: s.Artifacts, Applied: s.Applied,
		Promotable: s.Promotable, Clusters: s.Clusters, Events: s, Clock: o.GetClock(),
		Removal: rollout.Removal{Reader: s.Client, Namespace: s.Namespace},
		Options: kustomization.Options{
			NoCrossNamespaceRefs: o.RefusesCrossNamespaceRefs(), DefaultServiceAccount: o.DefaultAccount,
			NoFailFast: o.WaitsForFailed(), AdditiveReadyExpr: o.AdditiveReadyExpr(),
			Decryption:          access.Decryption{Reader: s.Client},
			StrictSubstitutions: o.StrictSubstitutionsEnabled(), StrictFields: o.StrictFields, Resync: o.Resync,
		},
	}
	if err := c.ObserveDependencies(t.Context(), s.Informers()); err != nil {
		t.Fatal(err)
	}
	system.RunsPassesOf(s.Steps, reconcile.Kind[*kustomizev1.Kustomization]{GroupKind: kustomization.GroupKind,
		New: func() *kustomizev1.Kustomization { return &kustomizev1.Kustomization{} }, Step: c,
		GateBehavior: reconcile.HoldsSync})
	return s
}

// apply creates a Kustomization of a path in a GitRepository, and runs its first pass.
func (s *steps) apply(name, source, path string, change ...func(*kustomizev1.Kustomization)) {
	s.Helper()
	s.Kustomization(name, source, path, change...)
	s.Pass(name)
}
