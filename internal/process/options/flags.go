package options

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/notify/delivery"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/helm"
)

// defaultEventsAddr differs from the documented :9090, which is the artifact server's when one process runs all
// controllers.
const defaultEventsAddr = ":9293"

// BindFlags registers the flags with their defaults.
func (o *Options) BindFlags(f *pflag.FlagSet) {
	f.StringSliceVar(&o.Controllers, "controllers", AllControllers, "controllers to run in this process")
	o.bindStorage(f)
	o.Artifacts.bindFlags(f)
	bindBackend(f, &o.Backend)
	o.bindEndpoints(f)
	o.bindScope(f)
	o.bindReconciling(f)
	o.bindRemotes(f)
	o.bindAccounts(f)
	o.bindKustomizations(f)
	o.UI.bindFlags(f)
	o.Report.bindFlags(f)
	o.bindProcess(f)
	bindIgnored(f)
}

func (o *Options) bindStorage(f *pflag.FlagSet) {
	f.StringVar(&o.StoragePath, "storage-path", "/data", "directory for artifacts and git mirrors")
	f.Int64Var(&o.StorageLimit, "storage-limit", 0,
		"maximum total size of the files in --storage-path, in bytes; a namespace may use as much as it leaves free "+
			"(default: nine tenths of its disk)")
	f.StringVar(&o.StorageAddr, "storage-addr", ":9090", "address of the artifact server")
	f.StringVar(&o.StorageAdvAddr, "storage-adv-addr", "",
		"host:port in the URLs of artifacts (default: --storage-addr)")
	f.DurationVar(&o.RetentionTTL, "artifact-retention-ttl", time.Minute, "how long superseded artifacts are kept")
	f.IntVar(&o.RetentionCount, "artifact-retention-records", 2, "how many artifacts of a source are kept")
	f.Int64Var(&o.HelmLimits.Index, "helm-index-max-size", helm.DefaultLimits.Index,
		"maximum size of a Helm repository's index, in bytes")
	f.Int64Var(&o.HelmLimits.Chart, "helm-chart-max-size", helm.DefaultLimits.Chart,
		"maximum size of a packaged Helm chart, in bytes")
	f.Int64Var(&o.HelmLimits.File, "helm-chart-file-max-size", helm.DefaultLimits.File,
		"maximum size of a file in a Helm chart, in bytes")
}

func (o *Options) bindEndpoints(f *pflag.FlagSet) {
	f.StringVar(&o.MetricsAddr, "metrics-addr", ":8080", "address of the metrics endpoint; 0 disables it")
	f.BoolVar(&o.MetricsAuth, "metrics-authentication", false,
		"require a token of the cluster for the metrics, of a user who may get the path /metrics (nonResourceURLs)")
	f.StringVar(&o.HealthAddr, "health-addr", ":9440", "address of the health endpoint; 0 disables it")
	f.StringVar(&o.PprofAddr, "pprof-addr", "0",
		"address of Go's profiler, such as 127.0.0.1:6060; 0 disables it. Whoever reaches it can read parts of the "+
			"memory")
	f.StringVar(&o.ReceiverAddr, "receiverAddr", ":9292", "address of the webhooks of Receivers; 0 disables it")
	f.StringVar(&o.ImagesAddr, "images-addr", ":9091",
		"address of the image tag API, which uses the certificate and access checks of the artifact server; "+
			"0 disables it")
	f.StringVar(&o.EventsAddr, "events-addr", defaultEventsAddr,
		"address that accepts events of other controllers; 0 disables it. Without notification-controller: URL to "+
			"post events to")
	f.BoolVar(&o.OpenEvents, "insecure-events-unauthenticated", false,
		"accept events on --events-addr from everyone who reaches it, for programs that send no token")
	f.IntVar(&o.EventsQuota, "events-quota", delivery.DefaultQuota,
		"maximum events per second that one sender may post to --events-addr; 0 for no limit")
	f.DurationVar(&o.RateLimit, "rate-limit-interval", delivery.DefaultRateLimit,
		"how long repeated events of an object are suppressed; 0 suppresses none")
}

func (o *Options) bindScope(f *pflag.FlagSet) {
	f.BoolVar(&o.WatchAllNamespaces, "watch-all-namespaces", true,
		"watch all namespaces, otherwise only --runtime-namespace")
	f.StringVar(&o.RuntimeNamespace, "runtime-namespace", "flux-system",
		"namespace that the controllers run in ($RUNTIME_NAMESPACE)")
	f.StringVar(&o.WatchLabelSelector, "watch-label-selector", "", "reconcile only objects with these labels")
	f.StringVar(&o.ConfigsSelector, "watch-configs-label-selector", "reconcile.fluxcd.io/watch=Enabled",
		"labels of the ConfigMaps and Secrets whose changes reconcile dependent objects at once")
	f.BoolVar(&o.NoCrossNamespaceRefs, "no-cross-namespace-refs", false, "refuse references to other namespaces")
}

func (o *Options) bindReconciling(f *pflag.FlagSet) {
	f.IntVar(&o.Concurrent, "concurrent", 10, "number of concurrent reconciles per kind")
	f.Float32Var(&o.KubeAPIQPS, "kube-api-qps", -1,
		"maximum requests per second to the Kubernetes API; -1 for no limit, the API server then applies its own "+
			"priority and fairness")
	f.IntVar(&o.KubeAPIBurst, "kube-api-burst", 300, "maximum burst of requests above --kube-api-qps")
	f.DurationVar(&o.Retry.Min, "min-retry-delay", reconcile.DefaultRetry.Min, "delay of the first retry")
	f.DurationVar(&o.Retry.Max, "max-retry-delay", reconcile.DefaultRetry.Max, "maximum delay between retries")
	f.IntVar(&o.JitterPercentage, "interval-jitter-percentage", 5, "percentage of random jitter added to intervals")
	f.DurationVar(&o.Resync, "resync", 6*time.Hour, "interval of a full dry-run of objects that did not change")
}

func (o *Options) bindRemotes(f *pflag.FlagSet) {
	f.IntVar(&o.RequestsPerHost, "requests-per-host", egress.DefaultPerHost,
		"maximum requests in flight to one host of sources; at most three quarters of --concurrent are used, and one "+
			"namespace has three quarters of that")
	f.BoolVar(&o.AllowLinkLocal, "allow-link-local", false,
		"allow sources at link-local addresses, where clouds serve the metadata of machines")
	f.BoolVar(&o.AllowLoopback, "allow-loopback-checks", false,
		"allow sources, key services, gate checks and notifications at loopback addresses in a cluster, such as a "+
			"sidecar")
	f.StringSliceVar(&o.ClosedNetworks, "closed-networks", nil,
		"networks that objects cannot name hosts in, such as those of the pods and Services of a cluster with "+
			"tenants: 10.244.0.0/16,10.96.0.0/12")
	f.IntVar(&o.TokenCacheSize, "token-cache-max-size", 10_000,
		"maximum number of cached workload identity credentials, per type; 0 disables the cache")
	f.StringSliceVar(&o.SSHHostKeys, "ssh-hostkey-algos", nil,
		"allowed SSH host key algorithms, preferred first (default: all secure ones)")
	f.StringSliceVar(&o.SSHKeyExchanges, "ssh-kex-algos", nil,
		"allowed SSH key exchange algorithms, preferred first (default: all secure ones)")
}

func (o *Options) bindAccounts(f *pflag.FlagSet) {
	f.StringVar(&o.DefaultAccount, "default-service-account", "",
		"service account to apply as, for Kustomizations and HelmReleases that name none")
	f.StringVar(&o.IdentityAccount, "default-identity-service-account", "",
		"service account for cloud logins of sources, images and Providers that name none (default: "+
			"--default-service-account if neither kustomize-controller nor helm-controller runs)")
	f.StringVar(&o.DecryptionAccount, "default-decryption-service-account", "",
		"service account to decrypt as, for Kustomizations that name none")
	f.StringVar(&o.KubeConfigAccount, "default-kubeconfig-service-account", "",
		"service account for cluster logins by a ConfigMap of spec.kubeConfig that names none")
	f.BoolVar(&o.KubeConfigExec, "insecure-kubeconfig-exec", false,
		"allow kubeconfigs of spec.kubeConfig to run programs in the controller's container")
	f.BoolVar(&o.KubeConfigTLS, "insecure-kubeconfig-tls", false,
		"allow kubeconfigs of spec.kubeConfig to skip verification of the server's certificate")
}

func (o *Options) bindKustomizations(f *pflag.FlagSet) {
	f.IntVar(&o.ConcurrentSSA, "concurrent-ssa", apply.DefaultConcurrency,
		"number of objects of a Kustomization that are applied concurrently")
	f.BoolVar(&o.NoRemoteBases, "no-remote-bases", true,
		"refuse kustomizations that refer to manifests or git repositories by URL")
	f.StringVar(&o.SOPSAgeSecret, "sops-age-secret", "",
		"Secret in --runtime-namespace with age keys, for Kustomizations without keys")
	f.StringVar(&o.SOPSVaultConfigMap, "sops-vault-configmap", "",
		"ConfigMap in --runtime-namespace that lists the Vault servers that service accounts may log in to")
	f.BoolVar(&o.SOPSIgnoreMAC, "insecure-sops-ignore-mac", false,
		"decrypt files whose unencrypted parts were changed after encryption by SOPS")
	f.BoolVar(&o.StrictSubstitutions, "strict-substitutions", true,
		"fail if a variable of spec.postBuild is not set and has no default")
	f.BoolVar(&o.StrictFields, "strict-fields", false,
		"refuse built-in kinds with unknown fields; otherwise the fields are left out with a warning")
	f.StringSliceVar(&o.CustomStage, "custom-apply-stage-kinds", nil,
		"kinds, as GROUP/KIND, to apply after definitions, namespaces and classes and before all others, such as "+
			"rbac.authorization.k8s.io/Role")
	f.StringSliceVar(&o.OverrideManagers, "override-manager", nil,
		"field managers, besides kubectl, whose changes to applied objects are reverted")
}

func (o *Options) bindProcess(f *pflag.FlagSet) {
	f.StringToStringVar(&o.FeatureGates, "feature-gates", nil,
		"name=true|false, separated by commas; see docs/flags.md")
	f.StringVar(&o.LogLevel, "log-level", "info", "trace, debug, info or error")
	f.StringVar(&o.LogEncoding, "log-encoding", "json", "json or console")
	f.StringVar(&o.Traces.Endpoint, "otlp-endpoint", "",
		"URL of an OpenTelemetry collector that takes traces of changes, such as http://collector:4318 "+
			"($OTEL_EXPORTER_OTLP_ENDPOINT)")
	f.StringVar(&o.Traces.URL, "trace-url", "",
		"URL of a trace for people, with {traceID}, for links in events and in the web UI")
	f.BoolVar(&o.LeaderElection, "enable-leader-election", false, "run controllers only on the elected leader")
	f.BoolVar(&o.AutoShards, "auto-shards", false,
		"replicas share all objects instead of electing a leader; needs a storage backend")
	f.DurationVar(&o.LeaseDuration, "leader-election-lease-duration", 35*time.Second,
		"how long a lease is valid without renewal")
	f.DurationVar(&o.RenewDeadline, "leader-election-renew-deadline", 30*time.Second,
		"how long the leader retries to renew its lease")
	f.DurationVar(&o.RetryPeriod, "leader-election-retry-period", 5*time.Second,
		"interval of renewals of the lease")
	f.BoolVar(&o.LeaderReleaseOnStop, "leader-election-release-on-cancel", true,
		"release the lease when the process stops")
}
