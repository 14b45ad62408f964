package incluster

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestLoginLeadsToOwnPathsOnly(t *testing.T) {
	s := newSite(t)
	s.provider.SetUser("alice", map[string]any{})
	for next, want := range map[string]string{"/gates?q=a": "/gates", "https://evil.example/x": "/",
		"//evil.example": "/", `/\evil.example`: "/"} {
		if r := s.browser().oidc("alice", next); r.status != http.StatusOK || r.url.Path != want ||
			r.url.Host != s.login.ExternalURL.Host {
			t.Errorf("%s leads to %s (%d)", next, r.url, r.status)
		}
	}
}

func TestLoginOfAnotherBrowserIsRefused(t *testing.T) {
	s := newSite(t)
	s.provider.SetUser("alice", map[string]any{})
	victim, attacker := s.browser(), s.browser()
	// The attacker stops before the callback, and makes the victim open it.
	var callback string
	attacker.http.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if r.URL.Path == callbackPath {
			callback = r.URL.String()
			return http.ErrUseLastResponse
		}
		return nil
	}
	attacker.oidc("alice", "/")
	if callback == "" {
		t.Fatal("the provider did not lead back")
	}
	if r := victim.get(callback); r.status != http.StatusBadRequest || victim.cookie(sessionCookie) != nil {
		t.Errorf("the login of another browser: %d %s", r.status, r.body)
	}
	// Also while the victim has an attempt of its own.
	victim.get(oidcPath)
	if r := victim.get(callback); r.status != http.StatusBadRequest || victim.cookie(sessionCookie) != nil {
		t.Errorf("the login of another browser during an attempt: %d %s", r.status, r.body)
	}
	s.advance(10 * time.Minute)
	if r := attacker.get(callback); r.status != http.StatusBadRequest || attacker.cookie(sessionCookie) != nil {
		t.Errorf("an attempt that expired: %d %s", r.status, r.body)
	}
}

func TestCallbackWithErrorOrForgedCode(t *testing.T) {
	s := newSite(t)
	for query, want := range map[string]int{
		"error=access_denied&error_description=<script>alert(1)</script>": http.StatusForbidden,
		"code=guess":                        http.StatusBadGateway,
		"code=" + strings.Repeat("x", 4097): http.StatusBadRequest,
		"":                                  http.StatusBadGateway,
	} {
		b := s.browser()
		state := b.attempt()
		r := b.get(callbackPath + "?state=" + state + "&" + query)
		if r.status != want || b.cookie(sessionCookie) != nil || strings.Contains(r.body, "<script>") ||
			!strings.Contains(r.body, "<h1>Login failed</h1>") {
			t.Errorf("%.60s: %d %s", query, r.status, r.body)
		}
		if r := b.get(callbackPath + "?state=" + state + "&code=x"); r.status != http.StatusBadRequest {
			t.Errorf("the attempt can be used again: %d", r.status)
		}
	}
}

func TestProviderThatIsAway(t *testing.T) {
	s := newSite(t)
	s.stopClock()
	s.provider.Break(true)
	s.provider.SetUser("alice", map[string]any{})
	b := s.browser()
	if r := b.get(oidcPath); r.status != http.StatusServiceUnavailable ||
		!strings.Contains(r.body, "cannot be reached") || strings.Contains(r.body, s.provider.URL) {
		t.Errorf("a provider that is away: %d %s", r.status, r.body)
	}
	s.provider.Break(false)
	if r := b.get(oidcPath); r.status != http.StatusServiceUnavailable {
		t.Errorf("each request asks the provider again: %d", r.status)
	}
	s.advance(5 * time.Second)
	if r := b.oidc("alice", "/"); r.status != http.StatusOK || r.url.Path != "/" {
		t.Errorf("after the outage: %d %s", r.status, r.body)
	}
	s.provider.Break(true)
	b.me() // a session needs no provider
}

func TestClaimsThatAreRefused(t *testing.T) {
	s := newSite(t)
	many := make([]string, 100)
	for n := range many {
		many[n] = fmt.Sprintf("%0*d", 100, n)
	}
	for text, claims := range map[string]map[string]any{
		"contains something that is not text": {"groups": []any{"a", 7}},
		"is neither text nor a list":          {"groups": map[string]any{"a": 1}},
		"at most 100 are accepted":            {"groups": append(many, "one more")},
		"too many for a session":              {"groups": many},
		"system:masters&#39; has a name that": {"groups": []any{"dev", "system:masters"}},
		"of more than 256 bytes":              {"groups": strings.Repeat("x", 257)},
	} {
		s.provider.SetUser("alice", claims)
		b := s.browser()
		if r := b.oidc("alice", "/"); r.status != http.StatusForbidden || b.cookie(sessionCookie) != nil ||
			!strings.Contains(r.body, text) {
			t.Errorf("%s: %d %s", text, r.status, r.body)
		}
	}
	s.provider.SetUser("system:admin", map[string]any{})
	if r := s.browser().oidc("system:admin", "/"); r.status != http.StatusForbidden {
		t.Errorf("a reserved user: %d %s", r.status, r.body)
	}
}
