// Package options holds the flags of `sluice controller`: their defaults, their validation, and the values that
// follow from several of them.
package options

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/notify/delivery"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/helm"
	"github.com/sluice-gitops/sluice/internal/tracing"
)

// Values of --controllers.
const (
	SourceController          = "source-controller"
	KustomizeController       = "kustomize-controller"
	HelmController            = "helm-controller"
	GatingController          = "gating-controller"
	NotificationController    = "notification-controller"
	ImageReflectorController  = "image-reflector-controller"
	ImageAutomationController = "image-automation-controller"
	ResourceSetController     = "resourceset-controller"
)

// AllControllers is the default of --controllers.
var AllControllers = []string{SourceController, KustomizeController, HelmController, GatingController,
	NotificationController, ImageReflectorController, ImageAutomationController, ResourceSetController}

// Options are the flags of `sluice controller`, and a few settings for tests that have no flag.
type Options struct {
	Controllers []string

	StoragePath    string
	StorageLimit   int64 // bytes; 0 is derived from the disk
	StorageAddr    string
	StorageAdvAddr string
	RetentionTTL   time.Duration
	RetentionCount int
	HelmLimits     helm.Limits
	Artifacts      ArtifactOptions
	Backend        artifact.S3Options

	// Addresses to listen on. "" and "0" disable the endpoint.
	MetricsAddr  string
	MetricsAuth  bool // who reads metrics needs a token of the cluster
	HealthAddr   string
	PprofAddr    string
	ReceiverAddr string
	ImagesAddr   string
	EventsAddr   string // or a URL to post events to, see [Options.ForwardsEvents]
	RateLimit    time.Duration
	OpenEvents   bool // accept posted events without authentication
	EventsQuota  int  // per second and sender; 0 for no limit

	WatchAllNamespaces   bool
	RuntimeNamespace     string
	WatchLabelSelector   string
	ConfigsSelector      string
	Concurrent           int
	RequestsPerHost      int
	AllowLinkLocal       bool
	AllowLoopback        bool
	ClosedNetworks       []string
	KubeAPIQPS           float32
	KubeAPIBurst         int
	Retry                reconcile.Retry
	JitterPercentage     int
	Resync               time.Duration
	NoCrossNamespaceRefs bool
	DefaultAccount       string
	IdentityAccount      string
	NoRemoteBases        bool
	DecryptionAccount    string
	SOPSAgeSecret        string
	SOPSVaultConfigMap   string
	SOPSIgnoreMAC        bool
	KubeConfigExec       bool
	KubeConfigTLS        bool
	KubeConfigAccount    string
	StrictSubstitutions  bool
	StrictFields         bool
	ConcurrentSSA        int
	CustomStage          []string
	OverrideManagers     []string
	FeatureGates         map[string]string
	TokenCacheSize       int
	SSHHostKeys          []string
	SSHKeyExchanges      []string

	UI     UIOptions
	Report ReportOptions

	LogLevel    string
	LogEncoding string
	Traces      tracing.Options

	LeaderElection      bool
	LeaseDuration       time.Duration
	RenewDeadline       time.Duration
	RetryPeriod         time.Duration
	LeaderReleaseOnStop bool
	AutoShards          bool // replicas share all objects, without a leader

	// Settings without a flag. The zero value is the default.
	Version        string // of the program, which the web UI shows
	Contention     apply.ContentionOptions
	EgressTimeouts egress.Timeouts
	Clock          clock.WithDelayedExecution // use [Options.GetClock]
	GracePeriod    time.Duration              // how long running passes may take to end; the default is that of users
}

// GetClock returns the clock, which is the real one unless a test set another.
func (o *Options) GetClock() clock.WithDelayedExecution {
	if o.Clock == nil {
		return clock.RealClock{}
	}
	return o.Clock
}

// Runs reports whether a controller is enabled in this process.
func (o *Options) Runs(controller string) bool { return slices.Contains(o.Controllers, controller) }

// RefusesCrossNamespaceRefs reports whether references to other namespaces are refused. They also are when the
// process watches one namespace only, since it could not read the other one.
func (o *Options) RefusesCrossNamespaceRefs() bool {
	return o.NoCrossNamespaceRefs || !o.WatchAllNamespaces
}

// Namespace returns the one namespace that the process watches, or "" for all.
func (o *Options) Namespace() string {
	if o.WatchAllNamespaces {
		return ""
	}
	return o.RuntimeNamespace
}

// IdentityServiceAccount returns the default service account for logins to clouds. A process without
// kustomize-controller and helm-controller uses --default-service-account for them, like other controllers of these
// APIs.
func (o *Options) IdentityServiceAccount() string {
	if o.IdentityAccount == "" && !o.Runs(KustomizeController) && !o.Runs(HelmController) {
		return o.DefaultAccount
	}
	return o.IdentityAccount
}

// TokenCacheLimit returns the capacity of the cache of credentials as auth.Identities expects it: -1 disables it.
func (o *Options) TokenCacheLimit() int {
	if o.TokenCacheSize < 1 {
		return -1
	}
	return o.TokenCacheSize
}

// HostLimit returns the maximum of requests in flight to one host. It is at most three quarters of --concurrent, so
// that a host that hangs cannot occupy all workers.
func (o *Options) HostLimit() int {
	return max(1, min(cmp.Or(o.RequestsPerHost, egress.DefaultPerHost), o.Concurrent*3/4))
}

// TenantEgress returns the policy for requests to addresses that tenants choose, other than those of sources. In a
// cluster, loopback addresses are those of the controllers; elsewhere, the user runs the servers there.
func (o *Options) TenantEgress() *egress.Policy {
	_, inCluster := os.LookupEnv("KUBERNETES_SERVICE_HOST")
	return &egress.Policy{PerHost: o.HostLimit(), RefuseLinkLocal: true, RefuseLoopback: inCluster && !o.AllowLoopback,
		HidePrivate: inCluster, Closed: closedNetworks(o.ClosedNetworks)}
}

// closedNetworks parses networks that are valid.
func closedNetworks(texts []string) (out []netip.Prefix) {
	for _, text := range texts {
		if n, err := netip.ParsePrefix(text); err == nil {
			out = append(out, n)
		}
	}
	return out
}

// SourceEgress returns the policy for requests to the hosts of sources.
func (o *Options) SourceEgress() *egress.Policy {
	p := o.TenantEgress()
	p.RefuseLinkLocal, p.Timeouts = !o.AllowLinkLocal, o.EgressTimeouts
	return p
}

// ApplyOptions returns the options of the clusters that are applied to. The options must be valid.
func (o *Options) ApplyOptions() apply.ClusterOptions {
	kinds, _ := apply.ParseKinds(o.CustomStage)
	return apply.ClusterOptions{
		Concurrency: o.ConcurrentSSA, Clock: o.GetClock(), Contention: o.Contention, CustomStage: kinds,
		OverrideManagers: o.OverrideManagers,
	}
}

// DeliveryOptions returns the options of notification delivery that do not depend on the destination of events.
func (o *Options) DeliveryOptions() delivery.Options {
	return delivery.Options{Dir: filepath.Join(o.StoragePath, "events"), Clock: o.GetClock(),
		RateLimit: cmp.Or(o.RateLimit, -1)}
}

// ForwardsEvents reports whether --events-addr is the URL of another process, to which this one posts its events.
func (o *Options) ForwardsEvents() bool {
	u, err := url.Parse(o.EventsAddr)
	return !o.Runs(NotificationController) && err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https")
}

// UsesLeases reports whether this process writes to clusters only while it has a lease: that of the leader, or its own
// among the replicas that share all objects.
func (o *Options) UsesLeases() bool { return o.LeaderElection || o.AutoShards }

// IsDisabled reports whether an address flag disables its endpoint.
func IsDisabled(address string) bool { return address == "" || address == "0" }

// LeaseName returns the name of the Lease of the leader election. Processes that run different controllers do not
// exclude each other, and neither do those of different shards.
func (o *Options) LeaseName() string {
	name := "sluice-" + strings.Join(slices.Sorted(slices.Values(o.Controllers)), "-")
	if slices.Equal(o.Controllers, AllControllers) {
		name = "sluice-leader-election"
	}
	if o.WatchLabelSelector != "" { // each shard has a leader
		name += fmt.Sprintf("-%x", sha256.Sum256([]byte(o.WatchLabelSelector)))[:1+8]
	}
	return name
}
