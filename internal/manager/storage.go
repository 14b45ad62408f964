package manager

import (
	"context"
	"errors"
	"time"

	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/artifact/accessreview"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/process/storage"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source"
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
	uploads, err := p.artifactUploads(ctx)
	if err != nil {
		return err
	}
	server := &artifact.Server{Store: p.storage.Store, Access: access, Events: artifact.NewEvents(time.Now()),
		Uploads: uploads, Incomplete: func() bool { return !p.sharesArtifacts() && !p.leads() }}
	if err := source.Announce(ctx, p.mgr.GetCache(), server.Events); err != nil {
		return err
	}
	listener, err := storage.TLS(p.mgr.Add, p.storage.Listener, p.Artifacts.Certificate())
	if err != nil {
		return err
	}
	p.serveHTTP("artifacts", listener, artifact.NewServer(server))
	cleanup := &source.Cleanup{Store: p.storage.Store, Reader: p.mgr.GetAPIReader(), Namespace: p.Namespace(),
		Clock: p.GetClock()}
	return errors.Join(p.mgr.Add(guard.Runnable("removing artifacts", reconcile.OnEveryReplica(cleanup.Run))),
		p.mgr.Add(guard.Runnable("removing shared artifacts", ctrlmanager.RunnableFunc(cleanup.RunShared))))
}

// artifactUploads returns what accepts the artifacts of programs. They need a token, also if artifacts are public.
func (p *process) artifactUploads(ctx context.Context) (*artifact.Uploads, error) {
	reviewer, err := accessreview.New(p.mgr.GetConfig(), p.Artifacts.Audience)
	if err != nil {
		return nil, err
	}
	uploads := &source.Uploads{Store: p.storage.Store, Client: p.mgr.GetClient(), Reader: p.mgr.GetAPIReader(),
		Events: p.kernel.Events}
	informer, err := p.mgr.GetCache().GetInformer(ctx, &sourcev1.ExternalArtifact{})
	if err != nil {
		return nil, err
	}
	_, err = informer.AddEventHandler(guard.EventHandler("removing uploaded artifacts", uploads.RemoveDeleted(ctx)))
	return &artifact.Uploads{MayPublish: reviewer.MayPublish, Publish: uploads.Publish,
		IsStandby: func() bool { return !p.leads() }}, err
}

// artifactAccess returns what authorizes reads of artifacts and tags, or nil if they are public.
func (p *process) artifactAccess() (artifact.Access, error) {
	if !p.Artifacts.CheckAccess {
		return nil, nil
	}
	return accessreview.New(p.mgr.GetConfig(), p.Artifacts.Audience)
}
