package manager

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/artifact/accessreview"
	"github.com/sluice-gitops/sluice/internal/credentials/login"
	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/fleet/hub"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/network/listen"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/process/logging"
	"github.com/sluice-gitops/sluice/internal/process/metrics"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/process/storage"
	"github.com/sluice-gitops/sluice/web"
)

// gcPercent is how much a hub allocates until the next garbage collection, in percent of what it keeps. It allocates
// little and keeps a stream of each cluster, so a collection costs it less than garbage.
const gcPercent = 10

// RunHub runs a hub until ctx ends.
func RunHub(ctx context.Context, cfg *rest.Config, o options.HubOptions) error {
	if err := o.Validate(); err != nil {
		return err
	}
	if err := logging.Set(o.LogLevel, o.LogEncoding); err != nil {
		return err
	}
	guard.Libraries()
	guard.LimitMemory()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	health, err := kubeclient.NewHealth(o.HealthAddr)
	if err != nil {
		return err
	}
	defer health.Close()
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent, cfg.WarningHandler = "sluice-hub", rest.NoWarnings{}
	h, err := newHub(o)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if err := addStreams(ctx, h, o); err != nil {
		return err
	}
	server := &hub.Server{Hub: h, Pages: web.Pages(), TokenLogin: o.TokenLogin}
	if server.Login, err = hubLogin(ctx, cfg, o); err != nil {
		return fmt.Errorf("cannot serve the pages of the hub: %w", err)
	}
	if server.Access, err = hub.NewAccess(cfg, o.GetAudience()); err != nil {
		return err
	}
	if err := metrics.Register(guard.Metrics(), hub.Metrics(h)); err != nil {
		return err
	}
	services := guard.NewGroup("serving the hub")
	run := func(f func(context.Context) error) {
		services.Go(func() error {
			defer stop() // the process ends
			return f(ctx)
		})
	}
	if err := serveHubMetrics(cfg, o, run); err != nil {
		return err
	}
	if err := watchClusters(ctx, cfg, o.Namespace, h.Registry); err != nil {
		return err
	}
	run(h.Start)
	if h.Store != nil {
		_ = h.Store.Load(ctx, h) // it is logged, and tried again while the hub runs
		run(func(ctx context.Context) error { return h.Store.Run(ctx, h) })
	}
	// Not before: what clusters send meanwhile would be answered at once, all of it.
	listener, err := listenHub(ctx, o)
	if err != nil {
		return err
	}
	health.Set("controllers", "")
	run(func(ctx context.Context) error { return server.Serve(ctx, listener) })
	guard.AfterDone(ctx, "stopping the hub", func() { health.Set("controllers", "the hub is stopping") })
	return services.Wait()
}

// hubLogin returns the logins to the pages.
func hubLogin(ctx context.Context, cfg *rest.Config, o options.HubOptions) (*login.Sessions, error) {
	external, err := o.External()
	if err != nil {
		return nil, err
	}
	key, err := hubSessionKey(ctx, cfg, o)
	if err != nil {
		return nil, err
	}
	return login.New(login.Options{Site: "sluice-hub", About: "the hub", ExternalURL: external, Key: key,
		TTL: o.Session, OIDC: o.OIDC(), KeepToken: true, Log: log.Log.WithName("hub"), Now: time.Now})
}

// hubSessionKey returns the secret that protects sessions.
func hubSessionKey(ctx context.Context, cfg *rest.Config, o options.HubOptions) ([]byte, error) {
	if o.SessionKeyFile != "" {
		return sessionKeyFile(o.SessionKeyFile)
	}
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		return nil, err
	}
	return kubeclient.HubSessionKey(ctx, c, o.Namespace)
}

// newHub returns a hub with its storage.
func newHub(o options.HubOptions) (*hub.Hub, error) {
	h := &hub.Hub{Log: log.Log.WithName("hub"), Now: time.Now, Epoch: rand.Text(), Registry: &hub.Registry{
		Audience: o.GetAudience(), Egress: &egress.Policy{RefuseLinkLocal: true}, Now: time.Now}}
	var backend artifact.Backend
	var err error
	switch {
	case o.StoragePath != "":
		if backend, err = hub.OpenDirectory(o.StoragePath); err != nil {
			return nil, fmt.Errorf("--storage-path: %w", err)
		}
	case o.Backend != (artifact.S3Options{}):
		if backend, err = artifact.NewS3Backend(o.Backend, nil); err != nil {
			return nil, fmt.Errorf("--storage-backend-s3-endpoint %s, --storage-backend-s3-bucket %s: %w",
				o.Backend.Endpoint, o.Backend.Bucket, err)
		}
	default:
		h.Log.Info("summaries are kept in memory only; after a restart, the clusters send them again within a minute")
		return h, nil
	}
	h.Store = hub.NewStore(backend, strings.ToLower(rand.Text()[:8]), h.Log, time.Now)
	return h, nil
}

// listenHub listens on the address of the hub.
func listenHub(ctx context.Context, o options.HubOptions) (net.Listener, error) {
	l, err := listen.TCP(o.Addr)
	if err != nil {
		return nil, fmt.Errorf("cannot serve on --addr %s: %w", o.Addr, err)
	}
	return storage.TLS(func(r manager.Runnable) error {
		guard.Go("reading a certificate", func() {
			if err := r.Start(ctx); err != nil {
				log.Log.Error(err, "the certificate of the hub is not reloaded")
			}
		})
		return nil
	}, l, o.Certificate())
}

// serveHubMetrics serves the metrics.
func serveHubMetrics(cfg *rest.Config, o options.HubOptions, run func(func(context.Context) error)) error {
	if options.IsDisabled(o.MetricsAddr) {
		return nil
	}
	var authorize func(http.Handler) http.Handler
	if o.MetricsAuth {
		reviewer, err := accessreview.New(cfg, "")
		if err != nil {
			return err
		}
		authorize = reviewer.Paths
	}
	l, err := listen.TCP(o.MetricsAddr)
	if err != nil {
		return fmt.Errorf("cannot serve metrics on --metrics-addr %s: %w", o.MetricsAddr, err)
	}
	server := metrics.NewServer(authorize)
	run(func(ctx context.Context) error {
		defer guard.AfterDone(ctx, "stopping metrics", func() { _ = server.Close() })()
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	return nil
}

// watchClusters registers the clusters of all Secrets, and follows their changes.
func watchClusters(ctx context.Context, cfg *rest.Config, namespace string, registry *hub.Registry) error {
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(clients, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = fleet.ClusterLabel }))
	informer := factory.Core().V1().Secrets().Informer()
	set := func(o any) {
		if s, ok := o.(*corev1.Secret); ok {
			registry.Set(s)
		}
	}
	registration, err := informer.AddEventHandler(guard.EventHandler("registering a cluster",
		cache.ResourceEventHandlerFuncs{AddFunc: set, UpdateFunc: func(_, o any) { set(o) }, DeleteFunc: func(o any) {
			if s, ok := o.(*corev1.Secret); ok {
				registry.Delete(s.Name)
			}
		}}))
	if err != nil {
		return err
	}
	guard.Go("watching the Secrets of clusters", func() { informer.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) && ctx.Err() == nil {
		return fmt.Errorf("cannot list the Secrets of clusters in namespace %s", namespace)
	}
	return nil
}
