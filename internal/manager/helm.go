package manager

import (
	"errors"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source"
)

// helm starts the controllers of Helm repositories and charts.
func (r *sources) helm() error {
	charts := &source.HelmCharts{
		Connector: r.out.Connector, Objects: r.mgr.GetClient(), Registries: r.registries, Store: r.storage.store,
		Limits: r.HelmLimits,
	}
	repositories := reconcile.Register(r.mgr, r.kernel, reconcile.Kind[*sourcev1.HelmRepository]{
		GroupKind:    source.HelmRepositoryGroupKind,
		New:          func() *sourcev1.HelmRepository { return &sourcev1.HelmRepository{} },
		Concurrent:   r.Concurrent,
		GateBehavior: reconcile.BlocksSource,
		Step:         source.NewHelmRepository(r.storage.store, charts),
	})
	return errors.Join(r.mgr.Add(collected{indexMetrics{&charts.Indexes}}), repositories,
		keep(r, source.HelmChartGroupKind, func() *sourcev1.HelmChart { return &sourcev1.HelmChart{} },
			&source.HelmChart{
				Objects:    r.mgr.GetClient(),
				Secrets:    r.out.Secrets,
				Charts:     charts,
				Signatures: r.signatures,
				Store:      r.storage.store,
				Artifacts:  r.storage.fetcher,
				Clock:      r.clock(),
			}))
}
