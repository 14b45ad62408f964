package incluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
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
	for _, next := range []string{"", "gates", "///evil", "/%2f/evil", "/\tevil", "/ a", "javascript:alert(1)",
		"/login/oidc", "http:/evil", "/a\\b", "/" + strings.Repeat("a", maxReturn)} {
		if got := ownPath(next); got != "/" && !strings.HasPrefix(got, "/%2f") {
			t.Errorf("%q leads to %q", next, got)
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
	s.advance(loginTTL)
	if r := attacker.get(callback); r.status != http.StatusBadRequest || attacker.cookie(sessionCookie) != nil {
		t.Errorf("an attempt that expired: %d %s", r.status, r.body)
	}
}

func TestCallbackWithErrorOrForgedCode(t *testing.T) {
	s := newSite(t)
	for query, want := range map[string]int{
		"error=access_denied&error_description=<script>alert(1)</script>": http.StatusForbidden,
		"code=guess": http.StatusBadGateway,
		"code=" + strings.Repeat("x", maxParameter+1): http.StatusBadRequest,
		"": http.StatusBadGateway,
	} {
		b := s.browser()
		b.get(oidcPath)
		var a attempt
		if err := s.login.seal.open(loginCookie, b.cookie(loginCookie).Value, &a); err != nil {
			t.Fatal(err)
		}
		r := b.get(callbackPath + "?state=" + a.State + "&" + query)
		if r.status != want || b.cookie(sessionCookie) != nil || strings.Contains(r.body, "<script>") ||
			!strings.Contains(r.body, "<h1>Login failed</h1>") {
			t.Errorf("%.60s: %d %s", query, r.status, r.body)
		}
		if r := b.get(callbackPath + "?state=" + a.State + "&code=x"); r.status != http.StatusBadRequest {
			t.Errorf("the attempt can be used again: %d", r.status)
		}
	}
}

func TestProviderThatIsAway(t *testing.T) {
	s := newSite(t)
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
	s.advance(providerRetry)
	if r := b.oidc("alice", "/"); r.status != http.StatusOK || r.url.Path != "/" {
		t.Errorf("after the outage: %d %s", r.status, r.body)
	}
	s.provider.Break(true)
	b.me() // a session needs no provider
}

func TestClaimsThatAreRefused(t *testing.T) {
	s := newSite(t)
	many := make([]string, maxGroups)
	for n := range many {
		many[n] = fmt.Sprintf("%0*d", 100, n)
	}
	for text, claims := range map[string]map[string]any{
		"contains something that is not text": {"groups": []any{"a", 7}},
		"is neither text nor a list":          {"groups": map[string]any{"a": 1}},
		"at most 100 are accepted":            {"groups": append(many, "one more")},
		"too many for a session":              {"groups": many},
		"system:masters&#39; has a name that": {"groups": []any{"dev", "system:masters"}},
		"of more than 256 bytes":              {"groups": strings.Repeat("x", maxName+1)},
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

func TestNamesFollowTheAPIServer(t *testing.T) {
	for name, test := range map[string]struct {
		oidc OIDC
		user string
	}{
		"issuer":    {oidc: OIDC{UsernameClaim: "sub"}, user: "https://i#1"},
		"no prefix": {oidc: OIDC{UsernameClaim: "sub", UsernamePrefix: "-"}, user: "1"},
		"prefix":    {oidc: OIDC{UsernameClaim: "sub", UsernamePrefix: "oidc:"}, user: "oidc:1"},
		"email":     {oidc: OIDC{UsernameClaim: "email"}, user: "a@b"},
		"missing":   {oidc: OIDC{UsernameClaim: "name"}, user: ""},
	} {
		test.oidc.Issuer, test.oidc.GroupsClaim, test.oidc.GroupsPrefix = "https://i", "groups", "g:"
		claims := map[string]json.RawMessage{"sub": []byte(`"1"`), "email": []byte(`"a@b"`), "groups": []byte(`"dev"`)}
		who, err := test.oidc.identity(claims)
		if test.user == "" {
			if err == nil {
				t.Errorf("%s: a missing claim is accepted", name)
			}
			continue
		}
		if err != nil || who.User != test.user || len(who.Groups) != 1 || who.Groups[0] != "g:dev" {
			t.Errorf("%s: %+v, %v", name, who, err)
		}
		claims["email_verified"] = []byte("false")
		if _, err := test.oidc.identity(claims); (err != nil) != (name == "email") {
			t.Errorf("%s: an address that is not verified: %v", name, err)
		}
	}
}

func FuzzIdentity(f *testing.F) {
	for _, raw := range []string{`"a"`, `["a","system:masters"]`, `[[1]]`, `7`, `null`, `" system:x"`} {
		f.Add(`"alice"`, raw, "")
	}
	f.Fuzz(func(t *testing.T, user, groups, prefix string) {
		o := &OIDC{UsernameClaim: "sub", UsernamePrefix: "-", GroupsClaim: "groups", GroupsPrefix: prefix}
		who, err := o.identity(map[string]json.RawMessage{"sub": []byte(user), "groups": []byte(groups)})
		if err != nil {
			return
		}
		if len(who.Groups) > maxGroups {
			t.Fatalf("%d groups", len(who.Groups))
		}
		for _, name := range append(who.Groups, who.User) {
			if isSystem(strings.TrimSpace(name)) || name == "" || len(name) > maxName {
				t.Fatalf("%q is accepted", name)
			}
		}
	})
}

func FuzzOwnPath(f *testing.F) {
	for _, next := range []string{"/a", "//b", "/\\b", "https://b", "/a?b=//c", "/%2e%2e//b", "/./b"} {
		f.Add(next)
	}
	base, _ := url.Parse("https://sluice.example.com/login/callback")
	f.Fuzz(func(t *testing.T, next string) {
		got, err := base.Parse(ownPath(next))
		if err != nil || got.Host != base.Host || got.Scheme != "https" {
			t.Fatalf("%q leads to %v (%v)", next, got, err)
		}
	})
}
