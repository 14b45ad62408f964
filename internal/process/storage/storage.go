// Package storage opens what a process keeps in --storage-path, and locks the directory.
package storage

import (
	"fmt"
	"net"
	"net/http"
	"path/filepath"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/network/listen"
	"github.com/sluice-gitops/sluice/internal/process/options"
)

// Storage is the artifact store and the listener of its server.
type Storage struct {
	Store    *artifact.Store // nil without source-controller
	Listener net.Listener
	Fetcher  *artifact.Fetcher
	Budget   *artifact.Budget // of --storage-path
	Applied  *artifact.AppliedStore

	Promotable *artifact.PromotableStore
}

// Open opens the artifact store, and listens on the address of its server. Wrap returns the transport to the bucket.
func Open(o options.Options, wrap func(http.RoundTripper) http.RoundTripper) (*Storage, error) {
	servers, external, err := o.Artifacts.Clients(o.TenantEgress())
	if err != nil {
		return nil, err
	}
	fetcher := &artifact.Fetcher{Client: servers, External: external, WithoutLinks: !o.FollowsSymlinks()}
	guard.Memory().OnPressure(fetcher.DropTrees)
	budget := artifact.NewBudget(o.StoragePath, o.StorageLimit)
	budget.Unshared = o.RuntimeNamespace
	applied := artifact.NewAppliedStore(filepath.Join(o.StoragePath, "applied"), fetcher)
	promotable := artifact.NewPromotableStore(filepath.Join(o.StoragePath, "promotable"), fetcher)
	if !o.Runs(options.SourceController) {
		return &Storage{Fetcher: fetcher, Budget: budget, Applied: applied, Promotable: promotable}, nil
	}
	storeOptions, err := o.StoreOptions(wrap)
	if err != nil {
		return nil, err
	}
	listener, err := listen.TCP(o.StorageAddr)
	if err != nil {
		return nil, fmt.Errorf("cannot serve artifacts on --storage-addr %s: %w. Choose another address with that "+
			"flag; port 0 takes a free one", o.StorageAddr, err)
	}
	advertised := o.StorageAdvAddr
	if advertised == "" {
		advertised = listener.Addr().String()
	}
	if !o.FollowsSymlinks() {
		storeOptions = append(storeOptions, artifact.WithoutLinks())
	}
	fetcher.Store, err = artifact.OpenStore(filepath.Join(o.StoragePath, "artifacts"), advertised,
		artifact.Retention{TTL: o.RetentionTTL, Count: o.RetentionCount},
		append(storeOptions, artifact.WithBudget(budget))...)
	if err != nil {
		return nil, fmt.Errorf("cannot open the artifact store in --storage-path %s: %w", o.StoragePath, err)
	}
	return &Storage{Store: fetcher.Store, Listener: listener, Fetcher: fetcher, Budget: budget,
		Applied: applied, Promotable: promotable}, nil
}
