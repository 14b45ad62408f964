package login

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
)

func TestOwnPath(t *testing.T) {
	for _, next := range []string{"", "gates", "///evil", "/%2f/evil", "/\tevil", "/ a", "javascript:alert(1)",
		"/login/oidc", "http:/evil", "/a\\b", "/" + strings.Repeat("a", maxReturn)} {
		if got := ownPath(next); got != "/" && !strings.HasPrefix(got, "/%2f") {
			t.Errorf("%q leads to %q", next, got)
		}
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
			if IsReserved(strings.TrimSpace(name)) || name == "" || len(name) > maxName {
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
