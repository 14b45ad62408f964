package options

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// UIOptions are the flags of the web UI and of the MCP server in the cluster, which have their logins in common.
type UIOptions struct {
	MCPAddr        string // "" and "0" disable the MCP server
	MCPExternalURL string
	MCPAllowWrite  bool

	ReviewAddr   string // "" and "0" disable reviews
	ReviewConfig string

	Addr                    string // "" and "0" disable the UI
	ExternalURL             string
	TLSCertFile, TLSKeyFile string
	SessionKeyFile          string
	Session                 time.Duration
	TokenLogin              bool

	Issuer           string
	ClientID         string
	ClientSecretFile string
	CAFile           string
	Scopes           []string
	UsernameClaim    string
	UsernamePrefix   string
	GroupsClaim      string
	GroupsPrefix     string
}

const (
	minSession = time.Minute
	maxSession = 24 * time.Hour
)

func (o *UIOptions) bindFlags(f *pflag.FlagSet) {
	f.StringVar(&o.MCPAddr, "mcp-addr", "",
		"address of the MCP server for agents, which log in as --ui-token-login and --ui-oidc-issuer allow; empty or "+
			"0 disables it")
	f.StringVar(&o.MCPExternalURL, "mcp-external-url", "",
		"URL by which agents reach --mcp-addr, such as https://mcp.example.com; requests for other hosts are refused")
	f.BoolVar(&o.MCPAllowWrite, "mcp-allow-write", false,
		"let agents reconcile, suspend and resume objects in the name of their user")
	f.StringVar(&o.ReviewAddr, "review-addr", "",
		"address that receives webhooks of the repositories in --review-config, whose open pull requests are reviewed "+
			"and shown in the web UI; empty or 0 disables reviews")
	f.StringVar(&o.ReviewConfig, "review-config", "",
		"file with the repositories whose pull requests are reviewed; see docs/review.md")
	f.StringVar(&o.Addr, "ui-addr", "", "address of the web UI; empty or 0 disables it")
	f.StringVar(&o.ExternalURL, "ui-external-url", "",
		"URL by which browsers reach --ui-addr, such as https://sluice.example.com; requests for other hosts are "+
			"refused")
	f.StringVar(&o.TLSCertFile, "ui-tls-cert-file", "",
		"certificate of the web UI and the MCP server, reloaded when it changes; without one, a proxy must provide "+
			"HTTPS")
	f.StringVar(&o.TLSKeyFile, "ui-tls-key-file", "", "private key of --ui-tls-cert-file")
	f.StringVar(&o.SessionKeyFile, "ui-session-key-file", "",
		"file with a secret of at least 32 bytes that protects sessions, the same for all replicas (default: Secret "+
			"sluice-ui-session of --runtime-namespace, which is created)")
	f.DurationVar(&o.Session, "ui-session-duration", 8*time.Hour, "how long a login to the web UI lasts, at most 24h")
	f.BoolVar(&o.TokenLogin, "ui-token-login", true,
		"let people log in to the web UI, and agents to the MCP server, with the token of a ServiceAccount")
	f.StringVar(&o.Issuer, "ui-oidc-issuer", "", "URL of the OIDC provider by which people log in to the web UI")
	f.StringVar(&o.ClientID, "ui-oidc-client-id", "", "ID of the web UI at --ui-oidc-issuer")
	f.StringVar(&o.ClientSecretFile, "ui-oidc-client-secret-file", "",
		"file with the secret of --ui-oidc-client-id, read at each login; empty for a public client")
	f.StringVar(&o.CAFile, "ui-oidc-ca-file", "",
		"PEM file of the certificate authorities of --ui-oidc-issuer (default: those of the system)")
	f.StringSliceVar(&o.Scopes, "ui-oidc-scopes", []string{"profile", "email"},
		"scopes to request from --ui-oidc-issuer, besides openid")
	f.StringVar(&o.UsernameClaim, "ui-oidc-username-claim", "sub",
		"claim of the ID token with the user name, as --oidc-username-claim of kube-apiserver")
	f.StringVar(&o.UsernamePrefix, "ui-oidc-username-prefix", "",
		"prefix of user names, as --oidc-username-prefix of kube-apiserver: by default the issuer and # unless the "+
			"claim is email; - for none")
	f.StringVar(&o.GroupsClaim, "ui-oidc-groups-claim", "groups",
		"claim of the ID token with the groups, as --oidc-groups-claim of kube-apiserver")
	f.StringVar(&o.GroupsPrefix, "ui-oidc-groups-prefix", "",
		"prefix of groups, as --oidc-groups-prefix of kube-apiserver")
}

// IsEnabled reports whether the web UI is served.
func (o *UIOptions) IsEnabled() bool { return !IsDisabled(o.Addr) }

// ServesMCP reports whether the MCP server is served.
func (o *UIOptions) ServesMCP() bool { return !IsDisabled(o.MCPAddr) }

// ReviewsChanges reports whether pull requests are reviewed.
func (o *UIOptions) ReviewsChanges() bool { return !IsDisabled(o.ReviewAddr) }

func (o *UIOptions) checkReviews() error {
	if !o.ReviewsChanges() {
		if o.ReviewConfig != "" {
			return errors.New("--review-config needs --review-addr, the address that receives webhooks, such as :9097")
		}
		return nil
	}
	if _, _, err := net.SplitHostPort(o.ReviewAddr); err != nil {
		return fmt.Errorf("--review-addr is %q: set an address to listen on, such as :9097", o.ReviewAddr)
	}
	if o.ReviewConfig == "" {
		return errors.New("--review-addr needs --review-config, a file with the repositories to review")
	}
	return nil
}

// Certificate returns the certificate of the web UI and the MCP server, which is optional.
func (o *UIOptions) Certificate() Certificate {
	return Certificate{Flags: "--ui-tls-cert-file, --ui-tls-key-file", CertFile: o.TLSCertFile, KeyFile: o.TLSKeyFile}
}

// Check rejects combinations that cannot work or are not safe.
func (o *UIOptions) Check() error {
	if err := o.checkReviews(); err != nil {
		return err
	}
	if !o.ServesMCP() && (o.MCPExternalURL != "" || o.MCPAllowWrite) {
		return errors.New("--mcp-addr is not set, but other flags of the MCP server are: set an address to listen " +
			"on, such as --mcp-addr=:9096")
	}
	hasLogin := o.ServesMCP() && o.ExternalURL == "" && o.SessionKeyFile == ""
	if !o.IsEnabled() && !hasLogin {
		if o.Issuer != "" || o.ExternalURL != "" || o.TLSCertFile != "" || o.SessionKeyFile != "" {
			return errors.New("--ui-addr is not set, but other flags of the web UI are: set an address to listen on, " +
				"such as --ui-addr=:9095")
		}
		return nil
	}
	var serving error
	if o.IsEnabled() {
		serving = o.checkServing()
	}
	return errors.Join(serving, o.checkMCP(), o.checkLogin())
}

func (o *UIOptions) checkMCP() error {
	if !o.ServesMCP() {
		return nil
	}
	if _, _, err := net.SplitHostPort(o.MCPAddr); err != nil {
		return fmt.Errorf("--mcp-addr is %q: set an address to listen on, such as :9096", o.MCPAddr)
	}
	if o.MCPExternalURL == "" {
		return errors.New("--mcp-addr needs --mcp-external-url, the URL by which agents reach it")
	}
	if _, err := o.MCPExternal(); err != nil {
		return fmt.Errorf("--mcp-external-url: %w", err)
	}
	return o.checkCertificate()
}

func (o *UIOptions) checkCertificate() error {
	if (o.TLSCertFile == "") != (o.TLSKeyFile == "") {
		return errors.New("--ui-tls-cert-file and --ui-tls-key-file: set both or none")
	}
	return nil
}

func (o *UIOptions) checkServing() error {
	if _, _, err := net.SplitHostPort(o.Addr); err != nil {
		return fmt.Errorf("--ui-addr is %q: set an address to listen on, such as :9095", o.Addr)
	}
	if o.ExternalURL == "" {
		return errors.New("--ui-addr needs --ui-external-url, the URL by which browsers reach it")
	}
	if _, err := o.External(); err != nil {
		return fmt.Errorf("--ui-external-url: %w", err)
	}
	if err := o.checkCertificate(); err != nil {
		return err
	}
	if o.Session < minSession || o.Session > maxSession {
		return fmt.Errorf("--ui-session-duration is %s: choose %s to %s", o.Session, minSession, maxSession)
	}
	return nil
}

func (o *UIOptions) checkLogin() error {
	switch {
	case o.Issuer == "" && !o.TokenLogin:
		return errors.New("the web UI and the MCP server have no way to log in: set --ui-oidc-issuer, or " +
			"--ui-token-login")
	case (o.Issuer == "") != (o.ClientID == ""):
		return errors.New("--ui-oidc-issuer and --ui-oidc-client-id: set both or none")
	case o.Issuer == "" && (o.ClientSecretFile != "" || o.CAFile != ""):
		return errors.New("--ui-oidc-client-secret-file and --ui-oidc-ca-file need --ui-oidc-issuer")
	case o.Issuer == "":
		return nil
	case o.UsernameClaim == "" || o.GroupsClaim == "":
		return errors.New("--ui-oidc-username-claim and --ui-oidc-groups-claim must not be empty")
	case strings.HasPrefix(o.UsernamePrefix, "system:") || strings.HasPrefix(o.GroupsPrefix, "system:"):
		return errors.New("--ui-oidc-username-prefix and --ui-oidc-groups-prefix must not start with 'system:', " +
			"which Kubernetes reserves")
	}
	u, err := url.Parse(o.Issuer)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" ||
		u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())) {
		return fmt.Errorf("--ui-oidc-issuer is %q: set a URL that starts with https://", u.Redacted())
	}
	return nil
}

// External returns the address by which browsers reach the UI: its scheme and host.
func (o *UIOptions) External() (*url.URL, error) { return externalURL(o.ExternalURL) }

// MCPExternal returns the address by which agents reach the MCP server: its scheme and host.
func (o *UIOptions) MCPExternal() (*url.URL, error) { return externalURL(o.MCPExternalURL) }

func externalURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%q is not a URL", text)
	case u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("%q must be a scheme and a host only, such as https://sluice.example.com", text)
	case u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(strings.ToLower(u.Hostname()))):
		return nil, fmt.Errorf("%q must start with https://: only loopback addresses may use http://", text)
	}
	return &url.URL{Scheme: u.Scheme, Host: strings.ToLower(u.Host)}, nil
}

// isLoopback reports whether a host is this machine.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
