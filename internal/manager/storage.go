package manager

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sluice-gitops/sluice/internal/accessreview"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/options"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source"
)

// storage is the artifact store and the listener of its server.
type storage struct {
	store    *artifact.Store // nil without source-controller
	listener net.Listener
	fetcher  *artifact.Fetcher
}

func newStorage(o options.Options) (*storage, error) {
	artifacts, err := o.Artifacts.Client()
	if err != nil {
		return nil, err
	}
	fetcher := &artifact.Fetcher{Client: artifacts}
	if !o.Runs(options.SourceController) {
		return &storage{fetcher: fetcher}, nil
	}
	storeOptions, err := o.StoreOptions()
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", o.StorageAddr)
	if err != nil {
		return nil, fmt.Errorf("cannot serve artifacts on --storage-addr %s: %w", o.StorageAddr, err)
	}
	advertised := o.StorageAdvAddr
	if advertised == "" {
		advertised = listener.Addr().String()
	}
	fetcher.Store, err = artifact.OpenStore(filepath.Join(o.StoragePath, "artifacts"), advertised,
		artifact.Retention{TTL: o.RetentionTTL, Count: o.RetentionCount}, storeOptions...)
	if err != nil {
		return nil, fmt.Errorf("cannot open the artifact store in --storage-path %s: %w", o.StoragePath, err)
	}
	return &storage{store: fetcher.Store, listener: listener, fetcher: fetcher}, nil
}

// addArtifactServer adds the artifact server and the cleanup of its store. Every replica serves artifacts.
func (p *process) addArtifactServer(ctx context.Context) error {
	if p.storage.store == nil {
		return nil
	}
	access, err := p.artifactAccess()
	if err != nil {
		return err
	}
	server := &artifact.Server{Store: p.storage.store, Access: access, Events: artifact.NewEvents(time.Now())}
	if err := source.Announce(ctx, p.mgr.GetCache(), server.Events); err != nil {
		return err
	}
	listener, err := p.withTLS(p.storage.listener)
	if err != nil {
		return err
	}
	if err := p.mgr.Add(&ctrlmanager.Server{Name: "artifacts", Listener: listener,
		Server: artifact.NewServer(server)}); err != nil {
		return err
	}
	cleanup := &source.Cleanup{Store: p.storage.store, Reader: p.mgr.GetAPIReader(), Namespace: p.Namespace()}
	return p.mgr.Add(guard.Runnable("removing artifacts", reconcile.OnEveryReplica(cleanup.Run)))
}

// artifactAccess returns what authorizes reads of artifacts and tags, or nil if they are public.
func (p *process) artifactAccess() (artifact.Access, error) {
	if !p.Artifacts.CheckAccess {
		return nil, nil
	}
	return accessreview.New(p.mgr.GetConfig(), p.Artifacts.Audience)
}

// withTLS returns a listener for HTTPS if there is a certificate, else the given one.
func (p *process) withTLS(listener net.Listener) (net.Listener, error) {
	if p.Artifacts.TLSCertFile == "" {
		return listener, nil
	}
	certificate, err := certwatcher.New(p.Artifacts.TLSCertFile, p.Artifacts.TLSKeyFile)
	if err != nil {
		return nil, fmt.Errorf("--storage-tls-cert-file, --storage-tls-key-file: %w", err)
	}
	return tls.NewListener(listener, &tls.Config{
		GetCertificate: certificate.GetCertificate, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
	}), p.mgr.Add(guard.Runnable("reading a certificate", certificate))
}
