package manager

import (
	"fmt"
	"net"
	"net/http"
	"path/filepath"

	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sluice-gitops/sluice/internal/artifact"
)

// storage is the artifact store with the listener that serves it.
type storage struct {
	store    *artifact.Store // nil where no sources are run
	listener net.Listener
	fetcher  *artifact.Fetcher
}

func newStorage(o Options) (*storage, error) {
	if !o.runs(SourceController) {
		return &storage{fetcher: &artifact.Fetcher{Client: http.DefaultClient}}, nil
	}
	listener, err := net.Listen("tcp", o.StorageAddr)
	if err != nil {
		return nil, fmt.Errorf("cannot serve artifacts on --storage-addr %s: %w", o.StorageAddr, err)
	}
	advertised := o.StorageAdvAddr
	if advertised == "" {
		advertised = listener.Addr().String()
	}
	options, err := backend(o.Backend)
	if err != nil {
		return nil, err
	}
	retention := artifact.Retention{TTL: o.RetentionTTL, Count: o.RetentionCount}
	store, err := artifact.OpenStore(filepath.Join(o.StoragePath, "artifacts"), advertised, retention, options...)
	if err != nil {
		return nil, fmt.Errorf("cannot open the artifact store in --storage-path %s: %w", o.StoragePath, err)
	}
	return &storage{store, listener, &artifact.Fetcher{Store: store, Client: http.DefaultClient}}, nil
}

// serve adds the artifact server to the manager. It serves whether or not this replica leads.
func (s *storage) serve(mgr ctrlmanager.Manager) error {
	if s.store == nil {
		return nil
	}
	return mgr.Add(&ctrlmanager.Server{Name: "artifacts", Listener: s.listener, Server: artifact.NewServer(&artifact.Server{Store: s.store})})
}
