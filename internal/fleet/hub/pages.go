package hub

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/sluice-gitops/sluice/internal/credentials/login"
	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/network/listen"
	"github.com/sluice-gitops/sluice/web"
)

const (
	maxKept  = 2500    // bytes of a token, so that a session fits into a cookie
	maxLogin = 8 << 10 // bytes of a request
)

// Refuse returns the error of an [Access] that refuses a request: with a status of [net/http], a text for people, and
// what to do.
func Refuse(status int, text, hint string) error { return refuse(status, hint, "%s", text) }

// site serves the front end to browsers, and lets them read with the token of a login. Pages of clusters are below
// /clusters/NAME; what they show comes through the stream of the cluster, with a login there.
type site struct {
	server *Server
}

// withPages returns a handler that serves the pages as well as the API.
func (s *Server) withPages(api http.Handler) http.Handler {
	p := &site{server: s}
	mux := http.NewServeMux()
	s.Login.Routes(mux)
	mux.HandleFunc("GET /api/v1/login", p.methods)
	mux.HandleFunc("POST /login/token", p.logIn)
	mux.HandleFunc("POST /logout", p.logOut)
	mux.Handle("/fleet/", api)
	mux.Handle("/healthz", api)
	mux.Handle("/", web.Handler(s.Pages, "hub"))
	return http.NewCrossOriginProtection().Handler(mux)
}

// visitor returns who reads: who has the bearer token of the request, or else who has the session of its browser.
func (s *Server) visitor(r *http.Request) Visitor {
	if token := cmp.Or(listen.Bearer(r.Header), r.Header.Get(fleet.TokenHeader)); token != "" || s.Login == nil {
		return Visitor{Token: token}
	}
	who, err := s.Login.Get(r)
	if err != nil {
		return Visitor{}
	}
	return Visitor{Token: who.Token, User: who.User, Groups: who.Groups}
}

// addIDToken logs in who is logged in at the hub at a cluster, by the ID token of the session.
func (s *Server) addIDToken(r *http.Request) {
	if s.Login == nil || r.Header.Get("Authorization") != "" {
		return
	}
	if token := s.Login.IDToken(r); token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
}

// methods answers how people may log in to the hub, or with the parameter cluster also to that cluster.
func (p *site) methods(w http.ResponseWriter, r *http.Request) {
	hasOIDC, hasToken := p.server.Login.OIDC != nil, p.server.TokenLogin
	if name := r.FormValue("cluster"); name != "" {
		m := p.server.Hub.Registry.member(name)
		hasOIDC, hasToken = hasOIDC && m != nil && m.hasSSO, false
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]bool{"oidc": hasOIDC, "token": hasToken}) // the client is gone
}

// logIn starts a session of who has a token and may list clusters.
func (p *site) logIn(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if err := p.byToken(w, r); err != nil {
		var refused *refusal
		if errors.As(err, &refused) { // the form shows one text
			refused.body.Error += ". " + refused.body.Hint
		}
		p.server.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte("{}"))
}

func (p *site) byToken(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Token string `json:"token"`
	}
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxLogin)).Decode(&body)
	switch {
	case !p.server.TokenLogin:
		return refuse(http.StatusForbidden, "Log in with your organization", "this hub takes no tokens")
	case err != nil:
		return refuse(http.StatusBadRequest, "Send JSON with a token", "the body cannot be read")
	case len(body.Token) > maxKept || strings.ContainsFunc(body.Token, isNoToken):
		return refuse(http.StatusBadRequest, "Create one with kubectl create token", "this is not a token")
	}
	if err := p.server.Access.MayRead(r.Context(), Visitor{Token: body.Token}, ""); err != nil {
		return err
	}
	return p.server.Login.Begin(w, login.Session{Token: body.Token}, "the owner of a token")
}

// isNoToken reports whether a letter is in no token.
func isNoToken(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-_.~+/=", c)
}

func (p *site) logOut(w http.ResponseWriter, _ *http.Request) {
	p.server.Login.End(w)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte("{}"))
}
