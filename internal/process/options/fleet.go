package options

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"

	"github.com/spf13/pflag"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/fleet/client"
)

// ReportOptions are the flags of the report to a hub.
type ReportOptions struct {
	To        string // URL of the hub; without it, nothing is reported
	As        string // name of the cluster
	Labels    map[string]string
	CAFile    string
	TokenFile string
	Audience  string
	UI        bool // users of the hub reach the web UI
}

func (o *ReportOptions) bindFlags(f *pflag.FlagSet) {
	f.StringVar(&o.To, "report-to", "",
		"URL of a hub that gets a summary of this cluster once a minute and after changes; see docs/fleet.md")
	f.StringVar(&o.As, "report-as", "", "name of this cluster at --report-to")
	f.StringToStringVar(&o.Labels, "report-labels", nil,
		"labels of this cluster at --report-to, such as region=eu,stage=production; those that the hub has take "+
			"precedence")
	f.BoolVar(&o.UI, "report-ui", true,
		"let users of --report-to reach the web UI of this cluster, with their own login, if --ui-addr is set")
	f.StringVar(&o.CAFile, "report-ca-file", "",
		"PEM file of the certificate authorities of --report-to (default: those of the system)")
	f.StringVar(&o.TokenFile, "report-token-file", "/var/run/secrets/sluice-hub/token",
		"file with the token for --report-to; if it does not exist, a token of the service account of this process is "+
			"requested")
	f.StringVar(&o.Audience, "report-audience", "",
		"audience of the token that is requested (default: the URL of --report-to)")
}

// IsEnabled reports whether the process reports to a hub.
func (o *ReportOptions) IsEnabled() bool { return o.To != "" }

func (o *ReportOptions) check() error {
	if !o.IsEnabled() {
		if o.As != "" || len(o.Labels) > 0 || o.CAFile != "" {
			return errors.New("--report-as and other flags of the report need --report-to, the URL of a hub")
		}
		return nil
	}
	if _, err := client.New(client.Options{URL: o.To}); err != nil {
		return fmt.Errorf("--report-to: %w", err)
	}
	if o.As == "" {
		return errors.New("--report-to needs --report-as, the name of this cluster at the hub")
	}
	if err := fleet.CheckName(o.As); err != nil {
		return fmt.Errorf("--report-as: %w", err)
	}
	if err := fleet.CheckLabels(o.Labels); err != nil {
		return fmt.Errorf("--report-labels: %w", err)
	}
	if o.CAFile != "" {
		if _, err := os.Stat(o.CAFile); err != nil {
			return fmt.Errorf("--report-ca-file: %w", err)
		}
	}
	return nil
}

// GetAudience returns the audience of the tokens that are requested for the hub.
func (o *ReportOptions) GetAudience() string { return cmp.Or(o.Audience, origin(o.To)) }

// origin returns the scheme and host of a URL.
func origin(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// HubOptions are the flags of `sluice hub`.
type HubOptions struct {
	Addr                    string
	ExternalURL             string
	Audience                string
	TLSCertFile, TLSKeyFile string
	Namespace               string // of the Secrets that register clusters
	LoginHosts              []string
	Peers                   string
	LoginOptions            // to the pages

	StoragePath string
	Backend     artifact.S3Options

	MetricsAddr string
	MetricsAuth bool
	HealthAddr  string
	LogLevel    string
	LogEncoding string
}

// BindFlags registers the flags with their defaults.
func (o *HubOptions) BindFlags(f *pflag.FlagSet) {
	f.StringVar(&o.Addr, "addr", ":9443", "address that clusters report to, and that readers ask")
	f.StringVar(&o.ExternalURL, "external-url", "",
		"URL by which clusters reach --addr, such as https://hub.example.com; it is the audience of their tokens")
	f.StringVar(&o.Audience, "audience", "", "audience of the tokens of clusters (default: --external-url)")
	f.StringVar(&o.TLSCertFile, "tls-cert-file", "",
		"certificate of the hub, reloaded when it changes; without one, a proxy must provide HTTPS")
	f.StringVar(&o.TLSKeyFile, "tls-key-file", "", "private key of --tls-cert-file")
	f.StringSliceVar(&o.LoginHosts, "login-hosts", nil,
		"hosts of OIDC providers by which people may log in to the web UI of clusters, such as idp.example.com")
	f.StringVar(&o.Peers, "peers", "",
		"DNS name of all replicas, that of a headless Service: a cluster has a stream to one of them, to which the "+
			"others send the requests for it")
	o.LoginOptions.bindFlags(f)
	f.StringVar(&o.StoragePath, "storage-path", "",
		"directory that keeps summaries for a restart of one replica (default: they are in memory, and come again)")
	bindBackend(f, &o.Backend)
	f.StringVar(&o.MetricsAddr, "metrics-addr", ":8080", "address of the metrics endpoint; 0 disables it")
	f.BoolVar(&o.MetricsAuth, "metrics-authentication", false,
		"require a token of the cluster for the metrics, of a user who may get the path /metrics (nonResourceURLs)")
	f.StringVar(&o.HealthAddr, "health-addr", ":9440", "address of the health endpoint; 0 disables it")
	f.StringVar(&o.LogLevel, "log-level", "info", "trace, debug, info or error")
	f.StringVar(&o.LogEncoding, "log-encoding", "json", "json or console")
}

// Validate reports flags with invalid values, by their names.
func (o *HubOptions) Validate() error {
	if _, _, err := net.SplitHostPort(o.Addr); err != nil {
		return fmt.Errorf("--addr is %q: set an address to listen on, such as :9443", o.Addr)
	}
	if o.ExternalURL == "" {
		return errors.New("--external-url is not set: it is the URL by which clusters reach the hub, and the " +
			"audience of their tokens")
	}
	if _, err := o.External(); err != nil {
		return fmt.Errorf("--external-url: %w", err)
	}
	if (o.TLSCertFile == "") != (o.TLSKeyFile == "") {
		return errors.New("--tls-cert-file and --tls-key-file: set both or none")
	}
	if o.Backend != (artifact.S3Options{}) {
		if o.Backend.Endpoint == "" || o.Backend.Bucket == "" {
			return errors.New("--storage-backend-s3-endpoint and --storage-backend-s3-bucket: set both")
		}
		if o.StoragePath != "" {
			return errors.New("--storage-path and --storage-backend-s3-*: set one of them")
		}
	}
	return o.LoginOptions.Check()
}

// External returns the address by which browsers reach the pages: its scheme and host.
func (o *HubOptions) External() (*url.URL, error) { return externalURL(o.ExternalURL) }

// Certificate returns the certificate of the hub, which is optional.
func (o *HubOptions) Certificate() Certificate {
	return Certificate{Flags: "--tls-cert-file, --tls-key-file", CertFile: o.TLSCertFile, KeyFile: o.TLSKeyFile}
}

// GetAudience returns the audience of the tokens of clusters.
func (o *HubOptions) GetAudience() string { return cmp.Or(o.Audience, origin(o.ExternalURL)) }
