// Package kubeclient connects the process to its cluster: the scheme of all kinds, caches, leader election, and the
// endpoints for metrics and health.
package kubeclient

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	inputsv1 "github.com/sluice-gitops/sluice/api/inputs/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/process/options"
)

const (
	// shutdownGracePeriod is how long running passes may take to end when the process stops.
	shutdownGracePeriod = 20 * time.Second
	// definitionsTimeout is how long the cluster may take to serve our kinds, which are often installed together with
	// the controllers.
	definitionsTimeout = time.Minute
)

// Connect returns a manager for the cluster as soon as the cluster serves all our kinds. Its clients, and those of its
// configuration, write only while the fence is open. Health names the kinds that it waits for, and then the caches that
// are not filled yet.
func Connect(ctx context.Context, cfg *rest.Config, o options.Options, fence *Fence, health *Health,
) (mgr ctrlmanager.Manager, err error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = o.KubeAPIQPS, o.KubeAPIBurst
	cfg.UserAgent = "sluice"
	cfg.WarningHandler = rest.NoWarnings{} // they are for authors of manifests, not for our log

	waiting := &definitionsWait{health: health}
	_ = wait.PollUntilContextTimeout(ctx, time.Second, definitionsTimeout, true, func(context.Context) (bool, error) {
		if err = missingKinds(cfg); err == nil {
			waiting.end()
			mgr, err = newManager(cfg, o, fence, health)
		}
		if !apimeta.IsNoMatchError(err) {
			return true, nil
		}
		waiting.report(err)
		return false, nil
	}) // err is that of the last attempt
	switch {
	case apimeta.IsNoMatchError(err):
		return nil, notServed(err)
	case err != nil:
		return nil, fmt.Errorf("cannot connect to the cluster: %w", err)
	}
	return mgr, nil
}

func newManager(cfg *rest.Config, o options.Options, fence *Fence, health *Health) (ctrlmanager.Manager, error) {
	caches, err := cacheOptions(o)
	if err != nil {
		return nil, err
	}
	filling := &informers{}
	caches.NewInformer = filling.create
	health.check("caches", filling.waiting)
	leaders := &leaderRecorder{}
	lock, err := newLock(cfg, o, fence, leaders, filling)
	if err != nil {
		return nil, err
	}
	restores, err := newRestoreDetector(cfg)
	if err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(restores.Wrap)
	cfg.Wrap(fence.Wrap)
	mgr, err := ctrlmanager.New(cfg, ctrlmanager.Options{
		NewClient:                     newCurrentClient,
		Scheme:                        Scheme(),
		Logger:                        log.Log.V(1), // its messages are details of the start
		Cache:                         caches,
		Metrics:                       server.Options{BindAddress: "0"}, // package manager serves them
		HealthProbeBindAddress:        "0",                              // Health serves them
		LeaderElection:                o.LeaderElection && !o.AutoShards,
		LeaderElectionID:              o.LeaseName(), // for its metric
		LeaderElectionReleaseOnCancel: o.LeaderReleaseOnStop,
		LeaseDuration:                 &o.LeaseDuration,
		RenewDeadline:                 &o.RenewDeadline,
		RetryPeriod:                   ptr.To(min(o.RetryPeriod, electionInterval)),
		GracefulShutdownTimeout:       ptr.To(cmp.Or(o.GracePeriod, shutdownGracePeriod)),
		Controller:                    ctrlconfig.Controller{SkipNameValidation: ptr.To(true)},

		LeaderElectionResourceLockInterface: lock,
	})
	if err != nil {
		return nil, err
	}
	leaders.to.Store(&mgr)
	return mgr, mgr.Add(guard.Runnable("looking for a restore of etcd", restores))
}

// leaderRecorder records who leads, as events of the lease. The lock is made before the manager that it uses.
type leaderRecorder struct {
	to atomic.Pointer[ctrlmanager.Manager]
}

// Eventf implements [resourcelock.EventRecorder].
func (r *leaderRecorder) Eventf(obj runtime.Object, kind, reason, format string, args ...any) {
	if mgr := r.to.Load(); mgr != nil {
		(*mgr).GetEventRecorder("sluice").Eventf(obj, nil, kind, reason, reason, format, args...)
	}
}

func cacheOptions(o options.Options) (cache.Options, error) {
	configs, err := labels.Parse(o.ConfigsSelector)
	if err != nil {
		return cache.Options{}, fmt.Errorf("--watch-configs-label-selector %q: %w", o.ConfigsSelector, err)
	}
	c := cache.Options{DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			ConfigMetadata("ConfigMap"): {Label: configs},
			ConfigMetadata("Secret"):    {Label: configs},
			// Gates keep their managed fields, which record who set an annotation.
			&gatingv1.Gate{}: {Transform: func(o any) (any, error) { return o, nil }},
		}}
	if !o.WatchAllNamespaces {
		c.DefaultNamespaces = map[string]cache.Config{o.RuntimeNamespace: {}}
	}
	return c, nil
}

// ownKinds returns our kinds without those of gates.
func ownKinds() []client.Object {
	return []client.Object{
		&sourcev1.GitRepository{}, &sourcev1.OCIRepository{}, &sourcev1.HelmRepository{}, &sourcev1.HelmChart{},
		&sourcev1.Bucket{}, &sourcev1.ExternalArtifact{}, &extensionsv1beta1.ArtifactGenerator{},
		&kustomizev1.Kustomization{}, &helmv2.HelmRelease{}, &notificationv1.Receiver{}, &notificationv1.Alert{},
		&notificationv1.Provider{},
		&imagev1.ImageRepository{}, &imagev1.ImagePolicy{}, &imagev1.ImageUpdateAutomation{},
		&imagev1alpha1.ImageUpdateJob{}, &controlplanev1.ResourceSet{}, &controlplanev1.ResourceSetInputProvider{},
		&inputsv1.ClusterInputProvider{},
	}
}

// ConfigMetadata returns an object that selects the metadata cache of ConfigMaps or Secrets.
func ConfigMetadata(kind string) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return m
}
