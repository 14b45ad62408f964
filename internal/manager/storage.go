package manager

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
)

// ArtifactOptions are the flags of the artifact server, and of those who read from one.
type ArtifactOptions struct {
	TLSCertFile, TLSKeyFile string
	CheckAccess             bool
	Audience                string

	CAFile     string
	TokenFile  string
	TokenHosts []string
}

func (o *ArtifactOptions) bindFlags(f *pflag.FlagSet) {
	f.StringVar(&o.TLSCertFile, "storage-tls-cert-file", "",
		"certificate of the artifact server, read again when it changes; artifacts are served over HTTP without one")
	f.StringVar(&o.TLSKeyFile, "storage-tls-key-file", "", "private key of --storage-tls-cert-file")
	f.BoolVar(&o.CheckAccess, "storage-check-access", false,
		"serve an artifact only to ServiceAccounts that may get its source, by their token")
	f.StringVar(&o.Audience, "storage-audience", "",
		"audience that tokens for --storage-check-access must have (default: that of the API server)")
	f.StringVar(&o.CAFile, "artifact-ca-file", "",
		"authorities of the artifact servers that this process reads from, in PEM")
	f.StringVar(&o.TokenFile, "artifact-token-file", "/var/run/secrets/kubernetes.io/serviceaccount/token",
		"token for the servers of --artifact-token-hosts")
	f.StringSliceVar(&o.TokenHosts, "artifact-token-hosts", nil,
		"artifact servers that this process sends its token to, as host or host:port")
}

// access decides who may read; nil when everybody may.
func (o *ArtifactOptions) access(cfg *rest.Config) (artifact.Access, error) {
	if !o.CheckAccess {
		return nil, nil
	}
	return newReviews(cfg, o.Audience)
}

// secure serves HTTPS on a listener if there is a certificate.
func (o *ArtifactOptions) secure(mgr ctrlmanager.Manager, listener net.Listener) (net.Listener, error) {
	if o.TLSCertFile == "" {
		return listener, nil
	}
	certificate, err := certwatcher.New(o.TLSCertFile, o.TLSKeyFile)
	if err != nil {
		return nil, fmt.Errorf("--storage-tls-cert-file, --storage-tls-key-file: %w", err)
	}
	return tls.NewListener(listener, &tls.Config{
		GetCertificate: certificate.GetCertificate, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
	}), mgr.Add(certificate)
}

// storage is the artifact store with the listener that serves it.
type storage struct {
	store    *artifact.Store // nil where no sources are run
	listener net.Listener
	fetcher  *artifact.Fetcher
}

func newStorage(o Options) (*storage, error) {
	fetcher, err := newFetcher(o.Artifacts)
	if err != nil || !o.runs(SourceController) {
		return &storage{fetcher: fetcher}, err
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
	if o.Artifacts.TLSCertFile != "" {
		options = append(options, artifact.WithTLS())
	}
	retention := artifact.Retention{TTL: o.RetentionTTL, Count: o.RetentionCount}
	store, err := artifact.OpenStore(filepath.Join(o.StoragePath, "artifacts"), advertised, retention, options...)
	if err != nil {
		return nil, fmt.Errorf("cannot open the artifact store in --storage-path %s: %w", o.StoragePath, err)
	}
	fetcher.Store = store
	return &storage{store, listener, fetcher}, nil
}

func newFetcher(o ArtifactOptions) (*artifact.Fetcher, error) {
	options := artifact.ClientOptions{Hosts: o.TokenHosts, Token: func() (string, error) {
		b, err := os.ReadFile(o.TokenFile) // it is renewed all the time
		return strings.TrimSpace(string(b)), err
	}}
	if o.CAFile != "" {
		ca, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--artifact-ca-file: %w", err)
		}
		options.CA = ca
	}
	c, err := artifact.NewClient(options)
	if err != nil {
		return nil, fmt.Errorf("--artifact-ca-file %s: %w", o.CAFile, err)
	}
	return &artifact.Fetcher{Client: c}, nil
}

// serveArtifacts adds the artifact server to the manager, and what looks after the store once. It serves
// whether or not this replica leads.
func (p *process) serveArtifacts(ctx context.Context) error {
	if p.storage.store == nil {
		return nil
	}
	access, err := p.Artifacts.access(p.mgr.GetConfig())
	if err != nil {
		return err
	}
	server := &artifact.Server{Store: p.storage.store, Access: access, Events: artifact.NewEvents(time.Now())}
	if err := announceAll(ctx, p.mgr.GetCache(), server.Events); err != nil {
		return err
	}
	listener, err := p.Artifacts.secure(p.mgr, p.storage.listener)
	if err != nil {
		return err
	}
	if err := p.mgr.Add(&ctrlmanager.Server{Name: "artifacts", Listener: listener,
		Server: artifact.NewServer(server)}); err != nil {
		return err
	}
	return p.mgr.Add(&caretaker{p.storage.store, p.mgr.GetAPIReader(), p.Options})
}

// caretaker looks after the store once, when the process starts.
type caretaker struct {
	store   *artifact.Store
	reader  client.Reader
	options Options
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica has a store of its own.
func (c *caretaker) NeedLeaderElection() bool { return false }

// Start removes what belongs to nobody and what is damaged. Nothing waits for it, and the process goes on
// when it fails.
func (c *caretaker) Start(ctx context.Context) error {
	logger := log.FromContext(ctx).WithName("artifacts")
	for _, kind := range []string{
		sourcev1.GitRepositoryKind, sourcev1.OCIRepositoryKind, sourcev1.BucketKind, sourcev1.HelmRepositoryKind,
		sourcev1.HelmChartKind, sourcev1.ExternalArtifactKind,
	} {
		removed, err := c.collect(ctx, kind)
		if err != nil && ctx.Err() == nil {
			logger.Info("artifacts of objects that are gone may be left: they are collected at the next start", "kind",
				kind, "reason", err.Error())
		}
		for _, dir := range removed {
			logger.Info("removed the artifacts of an object that is gone", "path", dir)
		}
	}
	for _, file := range c.store.CheckAll(ctx) {
		logger.Info("removed a damaged artifact, its source writes it again", "path", file)
	}
	return nil
}

// collect asks for the objects that there are, whatever the labels that this process watches.
func (c *caretaker) collect(ctx context.Context, kind string) ([]string, error) {
	namespace := c.options.RuntimeNamespace
	if c.options.WatchAllNamespaces {
		namespace = ""
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(sourcev1.GroupVersion.WithKind(kind + "List"))
	if err := c.reader.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	var live []artifact.Key
	for _, o := range list.Items {
		live = append(live, artifact.Key{Kind: kind, Namespace: o.Namespace, Name: o.Name})
	}
	return c.store.CollectOrphans(kind, namespace, live)
}
