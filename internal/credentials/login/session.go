package login

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Purposes of cookies. Names of cookies have them after that of the site, and sealed content is bound to them.
const (
	sessionCookie = "session"
	loginCookie   = "login"
	tokenCookie   = "token"
)

const (
	minKey    = 32   // bytes
	maxCookie = 3800 // bytes; browsers keep 4096 with name and attributes
	loginTTL  = 10 * time.Minute
)

// Session is the content of the cookie of a person who is logged in.
type Session struct {
	User   string   `json:"u,omitempty"`
	Groups []string `json:"g,omitempty"`
	// Token is that of a ServiceAccount, instead of user and groups. It is reviewed again, so a session ends with it.
	Token string `json:"t,omitempty"`
	CSRF  string `json:"c"`
	Ends  int64  `json:"e"` // Unix time
}

// sealer encrypts and authenticates cookies.
type sealer struct{ aead cipher.AEAD }

func newSealer(secret []byte) (*sealer, error) {
	if len(secret) < minKey {
		return nil, fmt.Errorf("the key of sessions has %d bytes, at least %d are needed", len(secret), minKey)
	}
	key, err := hkdf.Key(sha256.New, secret, nil, "cookies of the web UI", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return &sealer{aead: aead}, err
}

var errCookieTooLarge = errors.New("the login is too large for a cookie")

// seal returns the value of a cookie. The purpose is not secret, but the value is valid for it only.
func (s *sealer) seal(purpose string, content any) (string, error) {
	raw, err := json.Marshal(content)
	if err != nil {
		return "", err
	}
	value := base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, raw, []byte(purpose)))
	if len(value) > maxCookie {
		return "", errCookieTooLarge
	}
	return value, nil
}

var errForged = errors.New("the cookie was not made by this server, or with another key")

// open reads the value of a cookie.
func (s *sealer) open(purpose, value string, into any) error {
	if len(value) > maxCookie {
		return errForged
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(value)
	if err != nil {
		return errForged
	}
	raw, err := s.aead.Open(nil, nil, sealed, []byte(purpose))
	if err != nil {
		return errForged
	}
	return json.Unmarshal(raw, into)
}

// idToken is the content of the cookie with the ID token of a person.
type idToken struct {
	User  string `json:"u"`
	Token string `json:"t"`
	Ends  int64  `json:"e"` // Unix time
}

// cookieName returns the name that a cookie has in the browser. Browsers accept the prefix only from this host, and by
// https.
func (s *Sessions) cookieName(purpose string) string {
	if s.ExternalURL.Scheme == "https" {
		return "__Host-" + s.Site + "-" + purpose
	}
	return s.Site + "-" + purpose
}

// ErrNoSession is the error of a request without a session.
var ErrNoSession = errors.New("log in to see this page")

// Get returns the session of a request. The error may be shown.
func (s *Sessions) Get(r *http.Request) (*Session, error) {
	c, err := r.Cookie(s.cookieName(sessionCookie))
	if err != nil {
		return nil, ErrNoSession
	}
	who := &Session{}
	if err := s.seal.open(sessionCookie, c.Value, who); err != nil || who.CSRF == "" ||
		who.User == "" && who.Token == "" {
		return nil, errors.New("your session is not valid: log in again")
	}
	if !s.Now().Before(time.Unix(who.Ends, 0)) {
		return nil, errors.New("your session has ended: log in again")
	}
	if who.Token == "" && (s.provider == nil || CheckName(who.User) != nil) {
		return nil, ErrNoSession // the flags have changed since
	}
	return who, nil
}

// Begin starts a session, and writes the audit line of the login.
func (s *Sessions) Begin(w http.ResponseWriter, who Session, user string) error {
	who.CSRF, who.Ends = rand.Text(), s.Now().Add(s.TTL).Unix()
	if err := s.set(w, sessionCookie, who, s.TTL); err != nil {
		return err
	}
	s.Log.Info("login to "+s.About, "user", user, "groups", who.Groups)
	return nil
}

// End ends the session of a browser.
func (s *Sessions) End(w http.ResponseWriter) {
	s.clear(w, sessionCookie)
	if s.KeepToken {
		s.clear(w, tokenCookie)
	}
}

// keepToken lets the browser keep the ID token, sealed, for as long as it is valid.
func (s *Sessions) keepToken(w http.ResponseWriter, who *Identity, raw string) {
	if !s.KeepToken {
		return
	}
	content := idToken{User: who.User, Token: raw, Ends: who.ends.Unix()}
	if err := s.set(w, tokenCookie, content, min(who.ends.Sub(s.Now()), s.TTL)); err != nil {
		s.clear(w, tokenCookie)
		s.Log.Info("the ID token is too large for a cookie: the user logs in at each cluster", "user", who.User,
			"bytes", len(raw))
	}
}

// IDToken returns the ID token of the person who has a session; empty if it has ended, or is not kept.
func (s *Sessions) IDToken(r *http.Request) string {
	who, err := s.Get(r)
	if err != nil {
		return ""
	}
	c, err := r.Cookie(s.cookieName(tokenCookie))
	if err != nil {
		return ""
	}
	var kept idToken
	if s.seal.open(tokenCookie, c.Value, &kept) != nil || kept.User != who.User ||
		!s.Now().Before(time.Unix(kept.Ends, 0)) {
		return ""
	}
	return kept.Token
}

// set sets a cookie. Only the cookie that survives the way through the login provider is sent with requests that
// another site began.
func (s *Sessions) set(w http.ResponseWriter, purpose string, content any, ttl time.Duration) error {
	value, err := s.seal.seal(purpose, content)
	if err != nil {
		return err
	}
	c := s.cookie(purpose)
	c.Value, c.MaxAge = value, int(ttl.Seconds())
	http.SetCookie(w, c)
	return nil
}

// clear removes a cookie.
func (s *Sessions) clear(w http.ResponseWriter, purpose string) {
	c := s.cookie(purpose)
	c.MaxAge = -1
	http.SetCookie(w, c)
}

func (s *Sessions) cookie(purpose string) *http.Cookie {
	c := &http.Cookie{Name: s.cookieName(purpose), Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: s.ExternalURL.Scheme == "https"}
	if purpose == loginCookie {
		c.SameSite = http.SameSiteLaxMode
	}
	return c
}
