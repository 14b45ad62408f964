// Package incluster is the login of the web UI in a cluster: by OIDC, or by the token of a ServiceAccount. Every read
// and write is made as the user who logged in, so that Kubernetes decides what is seen and done. It keeps no state: a
// session is a sealed cookie.
package incluster

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/sluice-gitops/sluice/internal/artifact/accessreview"
	"github.com/sluice-gitops/sluice/internal/ui"
)

// Options configure a [Login].
type Options struct {
	Config *rest.Config // of an account that may impersonate users and groups, and create reviews
	Scheme *runtime.Scheme
	Mapper apimeta.RESTMapper

	ExternalURL *url.URL      // by which browsers reach the UI: scheme and host
	SessionKey  []byte        // secret that all replicas share
	Session     time.Duration // how long a login lasts
	TokenLogin  bool          // people may log in with the token of a ServiceAccount
	OIDC        *OIDC         // nil: people cannot log in by OIDC

	Log logr.Logger // audit lines and errors
	Now func() time.Time
}

// Login lets people in by sessions. It implements [ui.Login].
type Login struct {
	Options
	seal     *sealer
	provider *provider              // nil without OIDC
	reviewer *accessreview.Reviewer // of users with a session
	logins   *accessreview.Reviewer // of tokens without one, which must not use up the requests of the former
	people   *people
}

// reviewQPS bounds the reviews for all users with a session together. A page of a user with rights in many namespaces
// needs many.
const reviewQPS = 200

// New returns a login. The error names what is wrong with the options.
func New(o Options) (*Login, error) {
	l := &Login{Options: o}
	var err error
	if l.seal, err = newSealer(o.SessionKey); err != nil {
		return nil, err
	}
	if o.OIDC != nil {
		if l.provider, err = newProvider(o.OIDC, o.ExternalURL, o.Now); err != nil {
			return nil, err
		}
	}
	if l.reviewer, err = accessreview.NewWithLimit(o.Config, "", reviewQPS); err != nil {
		return nil, err
	}
	if l.logins, err = accessreview.New(o.Config, ""); err != nil {
		return nil, err
	}
	l.people, err = newPeople(o, l.reviewer)
	return l, err
}

// Routes implements [ui.Login].
func (l *Login) Routes(mux *http.ServeMux) {
	mux.HandleFunc("GET /api/v1/login", l.methods)
	if l.provider != nil {
		mux.HandleFunc("GET "+oidcPath, l.startOIDC)
		mux.HandleFunc("GET "+callbackPath, l.finishOIDC)
	}
	if l.TokenLogin {
		mux.HandleFunc("POST /login/token", l.byToken)
	}
	mux.HandleFunc("POST /logout", l.logout)
}

// Paths of the login.
const (
	oidcPath     = "/login/oidc"
	callbackPath = "/login/callback"
)

// methods answers how people may log in.
func (l *Login) methods(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]bool{"oidc": l.provider != nil, "token": l.TokenLogin})
}

var errNoSession = errors.New("log in to see this page")

// User implements [ui.Login].
func (l *Login) User(r *http.Request) (*ui.User, error) {
	s, err := l.session(r)
	if err != nil {
		return nil, err
	}
	if s.Token == "" && (l.provider == nil || checkName(s.User) != nil) {
		return nil, errNoSession // the flags have changed since
	}
	who := &authenticationv1.UserInfo{Username: s.User, Groups: s.Groups}
	if s.Token != "" {
		if who, err = l.account(r.Context(), l.reviewer, s.Token); err != nil {
			return nil, err
		}
	}
	p, err := l.people.get(who)
	if err != nil {
		return nil, err
	}
	return &ui.User{Name: who.Username, Groups: who.Groups, CSRF: s.CSRF, CanLogOut: true, Client: p.client,
		Cluster: p.cluster, See: p.see}, nil
}

// logout ends the session of the browser.
func (l *Login) logout(w http.ResponseWriter, r *http.Request) {
	s, err := l.session(r)
	if err == nil && !ui.CheckCSRF(s.CSRF, r) {
		answer(w, http.StatusForbidden, failure{Error: "this page is of another session. Load it again."})
		return
	}
	l.clear(w, sessionCookie)
	answer(w, http.StatusOK, map[string]string{"done": "logout"})
}

// isSystem reports whether a name is reserved for parts of Kubernetes, such as the group system:masters.
func isSystem(name string) bool { return strings.HasPrefix(name, "system:") }

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
