// Package manager is the composition root: flags to options, options to running controllers. Wiring only.
package manager

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap/zapcore"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/api/notification/v1beta3"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/build"
)

// shutdownGrace is how long passes under way get when the process is told to stop.
const shutdownGrace = 20 * time.Second

// Scheme knows all kinds that the controllers read and write.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(sourcev1.AddToScheme(s))
	utilruntime.Must(extensionsv1beta1.AddToScheme(s))
	utilruntime.Must(gatingv1.AddToScheme(s))
	utilruntime.Must(imagev1.AddToScheme(s))
	utilruntime.Must(imagev1alpha1.AddToScheme(s))
	utilruntime.Must(kustomizev1.AddToScheme(s))
	utilruntime.Must(notificationv1.AddToScheme(s))
	utilruntime.Must(v1beta3.AddToScheme(s))
	return s
}

// Run runs the chosen controllers until ctx ends.
func Run(ctx context.Context, cfg *rest.Config, o Options) error {
	if err := o.validate(); err != nil {
		return err
	}
	if err := setLogger(o); err != nil {
		return err
	}
	speak, err := build.Quiet()
	if err != nil {
		return err
	}
	defer speak()
	p, err := newProcess(ctx, cfg, o)
	if err != nil {
		return err
	}
	defer p.end()
	if err := p.runControllers(ctx); err != nil {
		return err
	}
	return p.mgr.Start(ctx)
}

func newManager(cfg *rest.Config, o Options) (ctrlmanager.Manager, error) {
	options := ctrlmanager.Options{
		Scheme:                        Scheme(),
		Metrics:                       server.Options{BindAddress: o.MetricsAddr},
		HealthProbeBindAddress:        o.HealthAddr,
		LeaderElection:                o.LeaderElection,
		LeaderElectionID:              "sluice-leader-election",
		LeaderElectionNamespace:       o.RuntimeNamespace,
		LeaderElectionReleaseOnCancel: o.LeaderReleaseOnStop,
		LeaseDuration:                 &o.LeaseDuration,
		RenewDeadline:                 &o.RenewDeadline,
		RetryPeriod:                   &o.RetryPeriod,
		GracefulShutdownTimeout:       ptr.To(shutdownGrace),
		Controller:                    ctrlconfig.Controller{SkipNameValidation: ptr.To(true)},
	}
	if !o.WatchAllNamespaces {
		options.Cache.DefaultNamespaces = map[string]cache.Config{o.RuntimeNamespace: {}}
	}
	ours, err := labels.Parse(o.WatchLabelSelector)
	if err != nil {
		return nil, fmt.Errorf("--watch-label-selector %q: %w", o.WatchLabelSelector, err)
	}
	configs, err := labels.Parse(o.ConfigsSelector)
	if err != nil {
		return nil, fmt.Errorf("--watch-configs-label-selector %q: %w", o.ConfigsSelector, err)
	}
	options.Cache.ByObject = map[client.Object]cache.ByObject{
		configMetadata("ConfigMap"): {Label: configs},
		configMetadata("Secret"):    {Label: configs},
	}
	for _, obj := range []client.Object{
		&sourcev1.GitRepository{}, &sourcev1.OCIRepository{}, &sourcev1.HelmRepository{}, &sourcev1.HelmChart{},
		&sourcev1.Bucket{}, &sourcev1.ExternalArtifact{}, &extensionsv1beta1.ArtifactGenerator{},
		&kustomizev1.Kustomization{},
		&notificationv1.Receiver{}, &v1beta3.Alert{}, &v1beta3.Provider{},
		&imagev1.ImageRepository{}, &imagev1.ImagePolicy{}, &imagev1.ImageUpdateAutomation{},
		&imagev1alpha1.ImageUpdateJob{},
	} {
		options.Cache.ByObject[obj] = cache.ByObject{Label: ours}
	}
	// Who wrote a gate's annotations is told by its managed fields.
	options.Cache.ByObject[&gatingv1.Gate{}] = cache.ByObject{Transform: func(o any) (any, error) { return o, nil }}
	options.Cache.DefaultTransform = cache.TransformStripManagedFields()
	mgr, err := ctrlmanager.New(cfg, options)
	if err != nil {
		return nil, err
	}
	if err := mgr.AddHealthzCheck("alive", healthz.Ping); err != nil {
		return nil, err
	}
	return mgr, mgr.AddReadyzCheck("ready", healthz.Ping)
}

func configMetadata(kind string) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return m
}

func setLogger(o Options) error {
	levels := map[string]zapcore.Level{"trace": -2, "debug": zapcore.DebugLevel, "info": zapcore.InfoLevel,
		"error": zapcore.ErrorLevel}
	level, ok := levels[o.LogLevel]
	if !ok {
		return fmt.Errorf("--log-level %q: choose trace, debug, info or error", o.LogLevel)
	}
	options := zap.Options{Level: level, TimeEncoder: zapcore.ISO8601TimeEncoder, StacktraceLevel: zapcore.DPanicLevel}
	switch o.LogEncoding {
	case "json":
	case "console":
		options.Development = true
	default:
		return fmt.Errorf("--log-encoding %q: choose json or console", o.LogEncoding)
	}
	log.SetLogger(zap.New(zap.UseFlagOptions(&options)))
	klog.SetLogger(log.Log.WithName("client")) // what client-go has to say
	return nil
}
