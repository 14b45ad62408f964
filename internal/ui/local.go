package ui

import (
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"net/http"
)

const (
	localCookie = "sluice-ui"
	tokenParam  = "token"
)

// LocalLogin lets in who knows a random token: the person who started the command, whose browser gets it with the first
// address. Other users of the machine do not know it.
type LocalLogin struct {
	user  *User
	token string
}

// NewLocalLogin returns a login for one user.
func NewLocalLogin(u *User) *LocalLogin {
	own := *u
	own.CSRF = rand.Text()
	return &LocalLogin{user: &own, token: rand.Text()}
}

// Path returns the first address to open, which contains the token.
func (l *LocalLogin) Path() string { return "/login?" + tokenParam + "=" + l.token }

// Routes implements [Login].
func (l *LocalLogin) Routes(mux *http.ServeMux) {
	mux.HandleFunc("GET /login", func(w http.ResponseWriter, r *http.Request) {
		if !l.is(r.URL.Query().Get(tokenParam)) {
			// A page, as a person opened the address.
			http.Error(w, "The token in this address is not valid: "+errNoToken.Error()+".", http.StatusForbidden)
			return
		}
		http.SetCookie(w, &http.Cookie{Name: localCookie, Value: l.token, Path: "/", HttpOnly: true,
			SameSite: http.SameSiteStrictMode})
		w.Header().Set("Cache-Control", "no-store")
		// Not a redirect: browsers do not send a strict cookie after one that another site began.
		w.Header().Set("Refresh", "0; url=/")
	})
}

var errNoToken = errors.New("open the address that sluice ui printed: it contains the token of this session")

// User implements [Login].
func (l *LocalLogin) User(r *http.Request) (*User, error) {
	c, err := r.Cookie(localCookie)
	if err != nil || !l.is(c.Value) {
		return nil, errNoToken
	}
	return l.user, nil
}

func (l *LocalLogin) is(token string) bool {
	return subtle.ConstantTimeCompare([]byte(token), []byte(l.token)) == 1
}
