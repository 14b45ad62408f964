// Package login lets people in who use a browser: by OIDC, and with sessions for people who proved who they are by
// other means. It keeps no state: a session is a sealed cookie.
package login

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-logr/logr"
)

// Options configure [Sessions].
type Options struct {
	Site        string        // what the names of its cookies start with, such as sluice
	About       string        // the site, in lines of the log: "the UI"
	ExternalURL *url.URL      // by which browsers reach the site, with the path before those of the login
	Key         []byte        // secret that all replicas share
	TTL         time.Duration // of a session
	OIDC        *OIDC         // nil: people cannot log in by OIDC
	KeepToken   bool          // the browser keeps ID tokens, for [Sessions.IDToken]

	Log logr.Logger // audit lines and errors
	Now func() time.Time
}

// Sessions are the sessions of a site. They are safe for concurrent use.
type Sessions struct {
	Options
	seal     *sealer
	provider *provider // nil without OIDC
}

// New returns the sessions of a site. The error names what is wrong with the options.
func New(o Options) (*Sessions, error) {
	s := &Sessions{Options: o}
	var err error
	if s.seal, err = newSealer(o.Key); err != nil {
		return nil, err
	}
	if o.OIDC != nil {
		s.provider, err = newProvider(o.OIDC, o.ExternalURL, o.Now)
	}
	return s, err
}

// Paths of the login by OIDC.
const (
	OIDCPath     = "/login/oidc"
	CallbackPath = "/login/callback"
)

// Routes adds the paths of the login by OIDC, if there is one.
func (s *Sessions) Routes(mux *http.ServeMux) {
	if s.provider != nil {
		mux.HandleFunc("GET "+OIDCPath, s.startOIDC)
		mux.HandleFunc("GET "+CallbackPath, s.finishOIDC)
	}
}

// maxReturn bounds the address that a login leads back to, in bytes.
const maxReturn = 1000

// ownPath returns the address to show after a login: the given one if it is a path of this site, else the first page.
func ownPath(next string) string {
	u, err := url.Parse(next)
	if err != nil || len(next) > maxReturn || u.IsAbs() || u.Host != "" || u.User != nil || u.Opaque != "" ||
		!strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") || strings.ContainsFunc(next, isUnsafe) ||
		strings.HasPrefix(u.Path, "//") || strings.HasPrefix(u.Path, "/login") {
		return "/"
	}
	return next
}

// isUnsafe reports characters that browsers treat as "/" or remove.
func isUnsafe(r rune) bool { return r == '\\' || r <= ' ' || r == 0x7f }
