package hub

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"strings"

	"github.com/sluice-gitops/sluice/internal/fleet"
)

const (
	// cookie has the token of a user who reads the pages.
	cookie = "sluice-hub"
	// maxCookie is the bytes of a token that fits into a cookie.
	maxCookie = 3500
	maxLogin  = 8 << 10 // bytes of a request
)

// pagesPolicy lets pages load from and connect to their own origin only.
const pagesPolicy = "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; " +
	"form-action 'self'; frame-ancestors 'none'"

// marker is the place in the front end that names its server.
const marker = `name="sluice-server" content=""`

// Refuse returns the error of an [Access] that refuses a request: with a status of [net/http], a text for people, and
// what to do.
func Refuse(status int, text, hint string) error { return refuse(status, hint, "%s", text) }

// site serves the front end to browsers, and lets them read with the token of a login. Pages of clusters are below
// /clusters/NAME; what they show comes through the stream of the cluster, with a login there.
type site struct {
	server *Server
	files  fs.FS
	index  []byte
	next   http.Handler // of the API
}

// withPages returns a handler that serves the pages as well as the API.
func (s *Server) withPages(api http.Handler) http.Handler {
	index, err := fs.ReadFile(s.Pages, "index.html")
	if err != nil || !bytes.Contains(index, []byte(marker)) {
		panic("the front end has no page that can be one of a hub") // it is embedded
	}
	index = bytes.Replace(index, []byte(marker), []byte(`name="sluice-server" content="hub"`), 1)
	p := &site{server: s, files: s.Pages, index: index, next: api}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /login/token", p.logIn)
	mux.HandleFunc("POST /logout", p.logOut)
	mux.HandleFunc("/fleet/", p.api)
	mux.Handle("/healthz", api)
	mux.HandleFunc("/", p.page)
	return http.NewCrossOriginProtection().Handler(mux)
}

// page serves a file, or for other paths the first page, whose script reads the path.
func (p *site) page(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "pages are read", http.StatusMethodNotAllowed)
		return
	}
	h.Set("Content-Security-Policy", pagesPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	name := strings.TrimPrefix(r.URL.Path, "/")
	if info, err := fs.Stat(p.files, name); name == "index.html" || err != nil || info.IsDir() {
		h.Set("Cache-Control", "no-cache")
		h.Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(p.index) // the client is gone
		return
	}
	if strings.HasPrefix(name, "assets/") { // their names contain a hash of their content
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	http.ServeFileFS(w, r, p.files, name)
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
