package manager

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/image/reflector"
	"github.com/sluice-gitops/sluice/internal/image/store"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// runImages reconciles ImageRepositories and ImagePolicies, serves what they found, and makes those that
// workloads call for.
func (p *process) runImages(ctx context.Context) error {
	tags, err := store.Open(filepath.Join(p.StoragePath, "images"))
	if err != nil {
		return fmt.Errorf("cannot keep tags in --storage-path %s: %w", p.StoragePath, err)
	}
	repositories := &reflector.Repositories{
		Registries: p.registries, Store: tags, Objects: p.mgr.GetClient(), Edges: p.kernel.Edges, Clock: p.clock(),
	}
	policies := &reflector.Policies{
		Objects: p.mgr.GetClient(), Namespaces: p.mgr.GetAPIReader(), Repositories: repositories,
		Views:                &reflector.Views{Store: tags},
		NoCrossNamespaceRefs: p.noCrossNamespaceRefs(),
	}
	return errors.Join(
		reflector.IndexPolicies(ctx, p.mgr.GetFieldIndexer()),
		reconcile.Observe(ctx, p.kernel.Edges, p.mgr.GetCache(), reflector.RepositoryGroupKind,
			&imagev1.ImageRepository{}, reflector.RepositoryMoved),
		reconcile.Register(p.mgr, p.kernel, reconcile.Kind[*imagev1.ImageRepository]{
			GroupKind:    reflector.RepositoryGroupKind,
			New:          func() *imagev1.ImageRepository { return &imagev1.ImageRepository{} },
			Concurrent:   p.Concurrent,
			GateBehavior: reconcile.BlocksSource,
			Step:         repositories,
		}),
		reconcile.Register(p.mgr, p.kernel, reconcile.Kind[*imagev1.ImagePolicy]{
			GroupKind:  reflector.PolicyGroupKind,
			New:        func() *imagev1.ImagePolicy { return &imagev1.ImagePolicy{} },
			Concurrent: p.Concurrent,
			Step:       policies,
		}),
		p.mgr.Add(&tagCollector{tags, p.mgr.GetAPIReader(), p.Options}),
		p.serveImages(policies),
		p.runDiscovery(),
	)
}

// serveImages serves tags over HTTP, whether or not this replica leads.
func (p *process) serveImages(policies *reflector.Policies) error {
	if p.ImagesAddr == "" || p.ImagesAddr == "0" {
		return nil
	}
	access, err := p.Artifacts.access(p.mgr.GetConfig())
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", p.ImagesAddr)
	if err != nil {
		return fmt.Errorf("cannot serve tags on --images-addr %s: %w", p.ImagesAddr, err)
	}
	if listener, err = p.Artifacts.secure(p.mgr, listener); err != nil {
		return err
	}
	server := &reflector.Server{Objects: p.mgr.GetClient(), Workloads: p.mgr.GetAPIReader(), Policies: policies,
		Access: access}
	return p.mgr.Add(&ctrlmanager.Server{Name: "images", Listener: listener, Server: reflector.NewServer(server)})
}

// tagCollector removes the tags of repositories that are gone, once, when the process starts.
type tagCollector struct {
	store   *store.Store
	reader  client.Reader
	options Options
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica has a store of its own.
func (c *tagCollector) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable. Nothing waits for it, and the process goes on when it fails.
func (c *tagCollector) Start(ctx context.Context) error {
	logger := log.FromContext(ctx).WithName("images")
	namespace := ""
	if !c.options.WatchAllNamespaces {
		namespace = c.options.RuntimeNamespace
	}
	var list imagev1.ImageRepositoryList
	err := c.reader.List(ctx, &list, client.InNamespace(namespace))
	if err == nil {
		live := map[store.Key]bool{}
		for _, r := range list.Items {
			live[store.Key{Namespace: r.Namespace, Name: r.Name}] = true
		}
		_, err = c.store.Collect(func(key store.Key) bool {
			return live[key] ||
				namespace != "" && key.Namespace != namespace
		})
	}
	if err != nil && ctx.Err() == nil {
		logger.Info("tags of repositories that are gone may be left: they are collected at the next start", "reason",
			err.Error())
	}
	return nil
}
