package options

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

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
	LoginOptions
}

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
	o.LoginOptions.bindFlags(f)
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
	return o.checkSession()
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
