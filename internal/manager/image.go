package manager

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/image/reflector"
	"github.com/sluice-gitops/sluice/internal/image/store"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source"
)

// runImages reconciles ImageRepositories and ImagePolicies, and serves what they found.
func runImages(ctx context.Context, mgr ctrlmanager.Manager, k *reconcile.Kernel, out *wayOut, cfg *rest.Config, o Options) error {
	tags, err := store.Open(filepath.Join(o.StoragePath, "images"))
	if err != nil {
		return fmt.Errorf("cannot keep tags in --storage-path %s: %w", o.StoragePath, err)
	}
	repositories := &reflector.Repositories{
		Registries: &source.Registries{Secrets: source.Secrets{Reader: mgr.GetAPIReader()}, Egress: out.policy, Identities: out.identities},
		Store:      tags, Objects: mgr.GetClient(), Edges: k.Edges, Clock: k.Clock,
	}
	policies := &reflector.Policies{
		Objects: mgr.GetClient(), Namespaces: mgr.GetAPIReader(), Repositories: repositories, Views: &reflector.Views{Store: tags},
		NoCrossNamespaceRefs: o.NoCrossNamespaceRef || !o.WatchAllNamespaces,
	}
	return errors.Join(
		reflector.IndexPolicies(ctx, mgr.GetFieldIndexer()),
		reconcile.Observe(ctx, k.Edges, mgr.GetCache(), reflector.RepositoryGroupKind, &imagev1.ImageRepository{}, reflector.RepositoryMoved),
		reconcile.Register(mgr, k, reconcile.Kind[*imagev1.ImageRepository]{
			GroupKind:  reflector.RepositoryGroupKind,
			New:        func() *imagev1.ImageRepository { return &imagev1.ImageRepository{} },
			Concurrent: o.Concurrent,
			Sort:       reconcile.Source,
			Step:       repositories,
		}),
		reconcile.Register(mgr, k, reconcile.Kind[*imagev1.ImagePolicy]{
			GroupKind:  reflector.PolicyGroupKind,
			New:        func() *imagev1.ImagePolicy { return &imagev1.ImagePolicy{} },
			Concurrent: o.Concurrent,
			Step:       policies,
		}),
		mgr.Add(&tagCollector{tags, mgr.GetAPIReader(), o}),
		serveImages(mgr, policies, cfg, o),
	)
}

// serveImages serves tags over HTTP, whether or not this replica leads.
func serveImages(mgr ctrlmanager.Manager, p *reflector.Policies, cfg *rest.Config, o Options) error {
	if o.ImagesAddr == "" || o.ImagesAddr == "0" {
		return nil
	}
	access, err := o.Artifacts.access(cfg)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.ImagesAddr)
	if err != nil {
		return fmt.Errorf("cannot serve tags on --images-addr %s: %w", o.ImagesAddr, err)
	}
	if listener, err = o.Artifacts.secure(mgr, listener); err != nil {
		return err
	}
	server := &reflector.Server{Objects: mgr.GetClient(), Workloads: mgr.GetAPIReader(), Policies: p, Access: access}
	return mgr.Add(&ctrlmanager.Server{Name: "images", Listener: listener, Server: reflector.NewServer(server)})
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
		_, err = c.store.Collect(func(key store.Key) bool { return live[key] || namespace != "" && key.Namespace != namespace })
	}
	if err != nil && ctx.Err() == nil {
		logger.Info("tags of repositories that are gone may be left: they are collected at the next start", "reason", err.Error())
	}
	return nil
}
