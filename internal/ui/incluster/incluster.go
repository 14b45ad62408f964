// Package incluster is the login of the web UI in a cluster: by OIDC, or by the token of a ServiceAccount. Every read
// and write is made as the user who logged in, so that Kubernetes decides what is seen and done. It keeps no state.
package incluster

import (
	"encoding/json"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/sluice-gitops/sluice/internal/artifact/accessreview"
	"github.com/sluice-gitops/sluice/internal/credentials/login"
	"github.com/sluice-gitops/sluice/internal/network/listen"
	"github.com/sluice-gitops/sluice/internal/ui"
)

// Options configure a [Login].
type Options struct {
	Config *rest.Config // of an account that may impersonate users and groups, and create reviews
	Scheme *runtime.Scheme
	Mapper apimeta.RESTMapper

	TokenLogin bool // people may log in with the token of a ServiceAccount
	// ByHub accepts tokens as [Login.Bearer] does, of people who are logged in at a hub.
	ByHub bool
	login.Options
}

// Login lets people in by sessions. It implements [ui.Login].
type Login struct {
	Options
	sessions *login.Sessions
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
	l.Site, l.About = "sluice", "the UI"
	if l.sessions, err = login.New(l.Options.Options); err != nil {
		return nil, err
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
	l.sessions.Routes(mux)
	if l.TokenLogin {
		mux.HandleFunc("POST /login/token", l.byToken)
	}
	mux.HandleFunc("POST /logout", l.logout)
}

// methods answers how people may log in.
func (l *Login) methods(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]bool{"oidc": l.OIDC != nil, "token": l.TokenLogin})
}

// User implements [ui.Login]. A session takes precedence over a token of the hub.
func (l *Login) User(r *http.Request) (*ui.User, error) {
	s, err := l.sessions.Get(r)
	if token := listen.Bearer(r.Header); err != nil && l.ByHub && token != "" {
		return l.byHub(r.Context(), token)
	}
	if err != nil {
		return nil, err
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
	s, err := l.sessions.Get(r)
	if err == nil && !ui.CheckCSRF(s.CSRF, r) {
		answer(w, http.StatusForbidden, failure{Error: "this page is of another session. Load it again."})
		return
	}
	l.sessions.End(w)
	answer(w, http.StatusOK, map[string]string{"done": "logout"})
}

// failure is the answer to a request that failed, as of the API.
type failure struct {
	Error string `json:"error"`
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client is gone if this fails
}

var _ ui.Login = (*Login)(nil)
