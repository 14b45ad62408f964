package manager

import (
	"context"
	"errors"
	"time"

	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sluice-gitops/sluice/internal/accessreview"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source"
	"github.com/sluice-gitops/sluice/internal/storage"
)

// addArtifactServer adds the artifact server and the cleanup of its store. Every replica serves artifacts.
func (p *process) addArtifactServer(ctx context.Context) error {
	if p.storage.Store == nil {
		return nil
	}
	access, err := p.artifactAccess()
	if err != nil {
		return err
	}
	server := &artifact.Server{Store: p.storage.Store, Access: access, Events: artifact.NewEvents(time.Now()),
		Incomplete: func() bool { return !p.sharesArtifacts() && !p.leads() }}
	if err := source.Announce(ctx, p.mgr.GetCache(), server.Events); err != nil {
		return err
	}
	listener, err := storage.TLS(p.mgr, p.storage.Listener, p.Artifacts.Certificate())
	if err != nil {
		return err
	}
	p.serveHTTP("artifacts", listener, artifact.NewServer(server))
	cleanup := &source.Cleanup{Store: p.storage.Store, Reader: p.mgr.GetAPIReader(), Namespace: p.Namespace(),
		Clock: p.GetClock()}
	return errors.Join(p.mgr.Add(guard.Runnable("removing artifacts", reconcile.OnEveryReplica(cleanup.Run))),
		p.mgr.Add(guard.Runnable("removing shared artifacts", ctrlmanager.RunnableFunc(cleanup.RunShared))))
}

// artifactAccess returns what authorizes reads of artifacts and tags, or nil if they are public.
func (p *process) artifactAccess() (artifact.Access, error) {
	if !p.Artifacts.CheckAccess {
		return nil, nil
	}
	return accessreview.New(p.mgr.GetConfig(), p.Artifacts.Audience)
}
