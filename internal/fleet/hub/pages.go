package hub

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/web"
)

const (
	// cookie has the token of a user who reads the pages.
	cookie = "sluice-hub"
	// maxCookie is the bytes of a token that fits into a cookie.
	maxCookie = 3500
	maxLogin  = 8 << 10 // bytes of a request
)

// Refuse returns the error of an [Access] that refuses a request: with a status of [net/http], a text for people, and
// what to do.
func Refuse(status int, text, hint string) error { return refuse(status, hint, "%s", text) }

// site serves the front end to browsers, and lets them read with the token of a login. Pages of clusters are below
// /clusters/NAME; what they show comes through the stream of the cluster, with a login there.
type site struct {
	server *Server
	next   http.Handler // of the API
}

// withPages returns a handler that serves the pages as well as the API.
func (s *Server) withPages(api http.Handler) http.Handler {
	p := &site{server: s, next: api}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /login/token", p.logIn)
	mux.HandleFunc("POST /logout", p.logOut)
	mux.HandleFunc("/fleet/", p.api)
	mux.Handle("/healthz", api)
	mux.Handle("/", web.Handler(s.Pages, "hub"))
	return http.NewCrossOriginProtection().Handler(mux)
}

// api serves the API. Reads of a browser have the token of its login.
func (p *site) api(w http.ResponseWriter, r *http.Request) {
	name, isCluster := strings.CutPrefix(r.URL.Path, fleet.ClustersPath+"/")
	isRead := r.URL.Path == fleet.ClustersPath || isCluster && !strings.Contains(name, "/")
	if isRead && r.Method == http.MethodGet {
		for _, name := range []string{"__Host-" + cookie, cookie} {
			if c, err := r.Cookie(name); err == nil && r.Header.Get("Authorization") == "" {
				r = r.Clone(r.Context())
				r.Header.Set("Authorization", "Bearer "+c.Value)
			}
		}
	}
	p.next.ServeHTTP(w, r)
}

// logIn sets the cookie of a user who may list clusters.
func (p *site) logIn(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	var body struct {
		Token string `json:"token"`
	}
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxLogin)).Decode(&body)
	switch {
	case err != nil:
		err = refuse(http.StatusBadRequest, "Send JSON with a token", "the body cannot be read")
	case len(body.Token) > maxCookie || strings.ContainsFunc(body.Token, isNoToken):
		err = refuse(http.StatusBadRequest, "Create one with kubectl create token", "this is not a token")
	default:
		err = p.server.Access.MayRead(r.Context(), body.Token, "")
	}
	if err != nil {
		var refused *refusal
		if errors.As(err, &refused) { // the form shows one text
			refused.body.Error += ". " + refused.body.Hint
		}
		p.server.fail(w, r, err)
		return
	}
	http.SetCookie(w, p.cookie(r, body.Token, 0))
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte("{}"))
}

// isNoToken reports whether a letter is in no token.
func isNoToken(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-_.~+/=", c)
}

func (p *site) logOut(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, p.cookie(r, "", -1))
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte("{}"))
}

// cookie returns the cookie of a login. Without HTTPS, as with port-forward, it cannot be a secure one.
func (p *site) cookie(r *http.Request, token string, age int) *http.Cookie {
	isSecure := r.TLS != nil || p.server.IsSecure
	c := &http.Cookie{Name: cookie, Value: token, Path: "/", MaxAge: age, HttpOnly: true, Secure: isSecure,
		SameSite: http.SameSiteStrictMode}
	if isSecure {
		c.Name = "__Host-" + cookie
	}
	return c
}
