package options

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-gitops/sluice/internal/credentials/login"
)

// LoginOptions are the flags of logins to the web UI, to the MCP server, and to the pages of a hub.
type LoginOptions struct {
	SessionKeyFile string
	Session        time.Duration
	TokenLogin     bool

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

func (o *LoginOptions) bindFlags(f *pflag.FlagSet) {
	f.StringVar(&o.SessionKeyFile, "ui-session-key-file", "",
		"file with a secret of at least 32 bytes that protects sessions, the same for all replicas (default: Secret "+
			"sluice-ui-session of --runtime-namespace, which is created, and sluice-hub-session of a hub)")
	f.DurationVar(&o.Session, "ui-session-duration", 8*time.Hour, "how long a login of people lasts, at most 24h")
	f.BoolVar(&o.TokenLogin, "ui-token-login", true,
		"let people log in to the pages, and agents to the MCP server, with the token of a ServiceAccount")
	f.StringVar(&o.Issuer, "ui-oidc-issuer", "", "URL of the OIDC provider by which people log in")
	f.StringVar(&o.ClientID, "ui-oidc-client-id", "", "ID of this server at --ui-oidc-issuer")
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

// OIDC returns the login provider, nil if there is none.
func (o *LoginOptions) OIDC() *login.OIDC {
	if o.Issuer == "" {
		return nil
	}
	return &login.OIDC{Issuer: o.Issuer, ClientID: o.ClientID, ClientSecretFile: o.ClientSecretFile, CAFile: o.CAFile,
		Scopes: o.Scopes, UsernameClaim: o.UsernameClaim, UsernamePrefix: o.UsernamePrefix, GroupsClaim: o.GroupsClaim,
		GroupsPrefix: o.GroupsPrefix}
}

func (o *LoginOptions) checkSession() error {
	if o.Session < minSession || o.Session > maxSession {
		return fmt.Errorf("--ui-session-duration is %s: choose %s to %s", o.Session, minSession, maxSession)
	}
	return nil
}

// Check rejects combinations that cannot work or are not safe.
func (o *LoginOptions) Check() error { return errors.Join(o.checkSession(), o.checkLogin()) }

func (o *LoginOptions) checkLogin() error {
	switch {
	case o.Issuer == "" && !o.TokenLogin:
		return errors.New("people and agents have no way to log in: set --ui-oidc-issuer, or --ui-token-login")
	case (o.Issuer == "") != (o.ClientID == ""):
		return errors.New("--ui-oidc-issuer and --ui-oidc-client-id: set both or none")
	case o.Issuer == "" && (o.ClientSecretFile != "" || o.CAFile != ""):
		return errors.New("--ui-oidc-client-secret-file and --ui-oidc-ca-file need --ui-oidc-issuer")
	case o.Issuer == "":
		return nil
	case o.UsernameClaim == "" || o.GroupsClaim == "":
		return errors.New("--ui-oidc-username-claim and --ui-oidc-groups-claim must not be empty")
	case login.IsReserved(o.UsernamePrefix) || login.IsReserved(o.GroupsPrefix):
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
