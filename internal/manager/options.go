package manager

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/egress"
	"github.com/sluice-gitops/sluice/internal/notify/delivery"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/helm"
)

// Controllers that can be chosen with --controllers, by the names that operators know.
const (
	SourceController          = "source-controller"
	KustomizeController       = "kustomize-controller"
	GatingController          = "gating-controller"
	NotificationController    = "notification-controller"
	ImageReflectorController  = "image-reflector-controller"
	ImageAutomationController = "image-automation-controller"
)

// AllControllers is the default: one process runs them all.
var AllControllers = []string{SourceController, KustomizeController, GatingController, NotificationController,
	ImageReflectorController, ImageAutomationController}

// Options are the flags of `sluice controller`.
type Options struct {
	Controllers []string

	StoragePath    string
	StorageAddr    string
	StorageAdvAddr string
	RetentionTTL   time.Duration
	RetentionCount int
	HelmLimits     helm.Limits
	Artifacts      ArtifactOptions
	Backend        artifact.S3Options

	MetricsAddr  string
	HealthAddr   string
	ReceiverAddr string // none when empty
	ImagesAddr   string // none when empty
	EventsAddr   string // none when empty
	RateLimit    time.Duration

	WatchAllNamespaces   bool
	RuntimeNamespace     string
	WatchLabelSelector   string
	ConfigsSelector      string
	Concurrent           int
	RequestsPerHost      int
	AllowLinkLocal       bool
	AllowLoopback        bool
	KubeAPIQPS           float32
	KubeAPIBurst         int
	Retry                reconcile.Retry
	JitterPercentage     int
	Resync               time.Duration
	Contention           apply.ContentionOptions // no flag: the defaults
	EgressTimeouts       egress.Timeouts         // no flag: the defaults
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
	ConcurrentSSA        int
	CustomStage          []string
	OverrideManagers     []string
	FeatureGates         map[string]string
	TokenCacheSize       int
	SSHHostKeys          []string
	SSHKeyExchanges      []string

	LogLevel    string
	LogEncoding string

	Clock clock.WithDelayedExecution // that of the machine when nil; no flag sets it

	LeaderElection      bool
	LeaseDuration       time.Duration
	RenewDeadline       time.Duration
	RetryPeriod         time.Duration
	LeaderReleaseOnStop bool
}

func (o *Options) clock() clock.WithDelayedExecution {
	if o.Clock == nil {
		return clock.RealClock{}
	}
	return o.Clock
}

// BindFlags registers the flags with their defaults.
func (o *Options) BindFlags(f *pflag.FlagSet) {
	f.StringSliceVar(&o.Controllers, "controllers", AllControllers, "controllers to run in this process")
	f.StringVar(&o.StoragePath, "storage-path", "/data", "directory for artifacts and git mirrors")
	f.StringVar(&o.StorageAddr, "storage-addr", ":9090", "address that the artifact server listens on")
	f.StringVar(&o.StorageAdvAddr, "storage-adv-addr", "",
		"host:port under which artifacts are advertised (default: the address listened on)")
	f.DurationVar(&o.RetentionTTL, "artifact-retention-ttl", time.Minute, "how long superseded artifacts are kept")
	f.IntVar(&o.RetentionCount, "artifact-retention-records", 2, "how many artifacts of a source are kept")
	f.Int64Var(&o.HelmLimits.Index, "helm-index-max-size", helm.DefaultLimits.Index,
		"bytes that the index of a Helm repository may have")
	f.Int64Var(&o.HelmLimits.Chart, "helm-chart-max-size", helm.DefaultLimits.Chart,
		"bytes that a packaged Helm chart may have")
	f.Int64Var(&o.HelmLimits.File, "helm-chart-file-max-size", helm.DefaultLimits.File,
		"bytes that a file of a Helm chart may have")
	bindBackendFlags(f, &o.Backend)
	f.StringVar(&o.MetricsAddr, "metrics-addr", ":8080", "address of the metrics endpoint; 0 turns it off")
	f.StringVar(&o.HealthAddr, "health-addr", ":9440", "address of the health endpoint; 0 turns it off")
	f.StringVar(&o.ReceiverAddr, "receiverAddr", ":9292",
		"address that webhooks of Receivers are taken at; 0 turns it off")
	f.StringVar(&o.ImagesAddr, "images-addr", ":9091",
		"address that tags of images are served at, with the certificate and the access of the artifact server; 0 "+
			"turns it off")
	f.StringVar(&o.EventsAddr, "events-addr", defaultEventsAddr,
		"address that others post events to, 0 turns it off; where notification-controller does not run, the URL "+
			"that this process posts its events to")
	f.DurationVar(&o.RateLimit, "rate-limit-interval", delivery.DefaultRateLimit,
		"for how long the same event of an object is not told again; 0 always tells")
	f.BoolVar(&o.WatchAllNamespaces, "watch-all-namespaces", true,
		"watch all namespaces, else only --runtime-namespace")
	f.StringVar(&o.RuntimeNamespace, "runtime-namespace", "flux-system",
		"namespace that the controllers run in ($RUNTIME_NAMESPACE)")
	f.StringVar(&o.WatchLabelSelector, "watch-label-selector", "", "watch only objects with these labels")
	f.StringVar(&o.ConfigsSelector, "watch-configs-label-selector", "reconcile.fluxcd.io/watch=Enabled",
		"ConfigMaps and Secrets whose change reconciles the objects that refer to them at once")
	f.IntVar(&o.Concurrent, "concurrent", 10, "reconciles at once, per kind")
	f.IntVar(&o.ConcurrentSSA, "concurrent-ssa", apply.DefaultConcurrency,
		"objects of a Kustomization that are applied at once")
	f.IntVar(&o.RequestsPerHost, "requests-per-host", egress.DefaultPerHost,
		"requests that a host of sources has in flight at once, three quarters of --concurrent at most")
	f.BoolVar(&o.AllowLinkLocal, "allow-link-local", false,
		"let sources lead to link-local addresses, where clouds keep the metadata of their machines")
	f.BoolVar(&o.AllowLoopback, "allow-loopback-checks", false,
		"let checks of gates and notifications lead to loopback addresses in a cluster, as those of a sidecar; "+
			"link-local ones are refused always")
	f.Float32Var(&o.KubeAPIQPS, "kube-api-qps", -1,
		"requests per second to the Kubernetes API; -1 leaves it to the API server, which shares itself out fairly")
	f.IntVar(&o.KubeAPIBurst, "kube-api-burst", 300, "requests to the Kubernetes API in a burst, with --kube-api-qps")
	f.DurationVar(&o.Retry.Min, "min-retry-delay", reconcile.DefaultRetry.Min, "first wait after a failure")
	f.DurationVar(&o.Retry.Max, "max-retry-delay", reconcile.DefaultRetry.Max, "longest wait after failures in a row")
	f.IntVar(&o.JitterPercentage, "interval-jitter-percentage", 5, "percentage by which intervals are spread")
	f.DurationVar(&o.Resync, "resync", 6*time.Hour, "how often every object is dry-run again although nothing moved")
	f.BoolVar(&o.NoCrossNamespaceRefs, "no-cross-namespace-refs", false, "refuse references into other namespaces")
	f.StringVar(&o.DefaultAccount, "default-service-account", "",
		"service account that Kustomizations without one apply as")
	f.StringVar(&o.IdentityAccount, "default-identity-service-account", "",
		"service account by whose identity sources, images and Providers without one log in to clouds (default: "+
			"--default-service-account where kustomize-controller does not run)")
	f.BoolVar(&o.NoRemoteBases, "no-remote-bases", true,
		"refuse kustomizations that name manifests by https:// URLs; those of git are refused in any case")
	f.StringVar(&o.DecryptionAccount, "default-decryption-service-account", "",
		"service account that Kustomizations without one decrypt as")
	f.StringVar(&o.SOPSAgeSecret, "sops-age-secret", "",
		"Secret in --runtime-namespace with keys of age, for Kustomizations that bring none")
	f.StringVar(&o.SOPSVaultConfigMap, "sops-vault-configmap", "",
		"ConfigMap in --runtime-namespace with the Vault servers that service accounts may log in to")
	f.BoolVar(&o.SOPSIgnoreMAC, "insecure-sops-ignore-mac", false,
		"decrypt files whose plain parts were changed after SOPS encrypted them")
	f.BoolVar(&o.KubeConfigExec, "insecure-kubeconfig-exec", false,
		"let kubeconfigs of spec.kubeConfig run programs, as the controller")
	f.BoolVar(&o.KubeConfigTLS, "insecure-kubeconfig-tls", false,
		"let kubeconfigs of spec.kubeConfig skip the check of the server's certificate")
	f.StringVar(&o.KubeConfigAccount, "default-kubeconfig-service-account", "",
		"service account that ConfigMaps of spec.kubeConfig without one log in to clusters as")
	f.BoolVar(&o.StrictSubstitutions, "strict-substitutions", false,
		"fail when a variable of spec.postBuild is not set and has no default")
	f.StringSliceVar(&o.CustomStage, "custom-apply-stage-kinds", nil,
		"kinds, as <group>/<Kind>, that are applied after definitions, namespaces and classes, and before all "+
			"others, such as rbac.authorization.k8s.io/Role")
	f.StringSliceVar(&o.OverrideManagers, "override-manager", nil,
		"field managers whose changes of applied objects are undone, besides kubectl's")
	f.StringToStringVar(&o.FeatureGates, "feature-gates", nil,
		"name=true|false, separated by commas; docs/flags.md lists them")
	f.IntVar(&o.TokenCacheSize, "token-cache-max-size", 10_000,
		"credentials of workload identity that are kept, of each kind; 0 keeps none")
	f.StringSliceVar(&o.SSHHostKeys, "ssh-hostkey-algos", nil,
		"algorithms of host keys that SSH may use, the preferred ones first (default: all that are sound)")
	f.StringSliceVar(&o.SSHKeyExchanges, "ssh-kex-algos", nil,
		"key exchanges that SSH may use, the preferred ones first (default: all that are sound)")
	f.StringVar(&o.LogLevel, "log-level", "info", "trace, debug, info or error")
	f.StringVar(&o.LogEncoding, "log-encoding", "json", "json or console")
	f.BoolVar(&o.LeaderElection, "enable-leader-election", false, "run only as the elected leader")
	f.DurationVar(&o.LeaseDuration, "leader-election-lease-duration", 35*time.Second,
		"how long a lease is held without renewal")
	f.DurationVar(&o.RenewDeadline, "leader-election-renew-deadline", 30*time.Second,
		"how long the leader tries to renew")
	f.DurationVar(&o.RetryPeriod, "leader-election-retry-period", 5*time.Second, "wait between tries for the lease")
	f.BoolVar(&o.LeaderReleaseOnStop, "leader-election-release-on-cancel", true, "give up the lease on a clean stop")
	o.Artifacts.bindFlags(f)
	o.bindAccepted(f)
}

// validate says what is wrong with the options before anything is started.
func (o *Options) validate() error {
	for _, c := range o.Controllers {
		if !slices.Contains(AllControllers, c) {
			return fmt.Errorf("unknown controller %q in --controllers: choose from %s", c,
				strings.Join(AllControllers, ", "))
		}
	}
	if len(o.Controllers) == 0 {
		return fmt.Errorf("--controllers names none: choose from %s", strings.Join(AllControllers, ", "))
	}
	if o.JitterPercentage < 0 || o.JitterPercentage > 100 {
		return fmt.Errorf("--interval-jitter-percentage is %d: choose 0 to 100", o.JitterPercentage)
	}
	if err := errors.Join(o.checkGates(), o.checkSSH(), o.checkEvents()); err != nil {
		return err
	}
	if (o.Artifacts.TLSCertFile == "") != (o.Artifacts.TLSKeyFile == "") {
		return fmt.Errorf("--storage-tls-cert-file and --storage-tls-key-file go together: set both or none")
	}
	if o.Concurrent < 1 {
		return fmt.Errorf("--concurrent is %d: choose 1 or more", o.Concurrent)
	}
	if o.ConcurrentSSA < 0 {
		return fmt.Errorf("--concurrent-ssa is %d: choose 1 or more", o.ConcurrentSSA)
	}
	if _, err := apply.ParseKinds(o.CustomStage); err != nil {
		return fmt.Errorf("--custom-apply-stage-kinds: %w", err)
	}
	return nil
}

func (o *Options) runs(controller string) bool { return slices.Contains(o.Controllers, controller) }

// noCrossNamespaceRefs tells whether references into other namespaces are refused: where they are not seen,
// they lead nowhere.
func (o *Options) noCrossNamespaceRefs() bool { return o.NoCrossNamespaceRefs || !o.WatchAllNamespaces }
