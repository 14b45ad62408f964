package incluster

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Names of cookies. They also bind the sealed content to its purpose.
const (
	sessionCookie = "sluice-session"
	loginCookie   = "sluice-login"
)

const (
	minKey    = 32   // bytes
	maxCookie = 3800 // bytes; browsers keep 4096 with name and attributes
	loginTTL  = 10 * time.Minute
)

// session is the content of the cookie of a person who is logged in.
type session struct {
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

// cookieName returns the name that a cookie has in the browser. Browsers accept the prefix only from this host, and by
// https.
func (l *Login) cookieName(purpose string) string {
	if l.ExternalURL.Scheme == "https" {
		return "__Host-" + purpose
	}
	return purpose
}

// session returns the session of a request.
func (l *Login) session(r *http.Request) (*session, error) {
	c, err := r.Cookie(l.cookieName(sessionCookie))
	if err != nil {
		return nil, errNoSession
	}
	s := &session{}
	if err := l.seal.open(sessionCookie, c.Value, s); err != nil || s.CSRF == "" || s.User == "" && s.Token == "" {
		return nil, errors.New("your session is not valid: log in again")
	}
	if !l.Now().Before(time.Unix(s.Ends, 0)) {
		return nil, errors.New("your session has ended: log in again")
	}
	return s, nil
}

// set sets a cookie. Only the cookie that survives the way through the login provider is sent with requests that
// another site began.
func (l *Login) set(w http.ResponseWriter, purpose string, content any, ttl time.Duration) error {
	value, err := l.seal.seal(purpose, content)
	if err != nil {
		return err
	}
	c := l.cookie(purpose)
	c.Value, c.MaxAge = value, int(ttl.Seconds())
	http.SetCookie(w, c)
	return nil
}

// clear removes a cookie.
func (l *Login) clear(w http.ResponseWriter, purpose string) {
	c := l.cookie(purpose)
	c.MaxAge = -1
	http.SetCookie(w, c)
}

func (l *Login) cookie(purpose string) *http.Cookie {
	c := &http.Cookie{Name: l.cookieName(purpose), Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: l.ExternalURL.Scheme == "https"}
	if purpose == loginCookie {
		c.SameSite = http.SameSiteLaxMode
	}
	return c
}
