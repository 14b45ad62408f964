package login

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/transport"
)

// TestNamesArriveAsTheyAre has names of login providers. Each is refused, or arrives unchanged at the API server when
// it is impersonated, over HTTP/1.1, whose headers do not keep spaces at their ends.
func TestNamesArriveAsTheyAre(t *testing.T) {
	var got http.Header
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
	t.Cleanup(server.Close)
	refused := 0
	for _, name := range []string{"alice", "alice ", " alice", "alice\t", "\talice", "alice\u00a0", "alice\u2003",
		"\u3000alice",
		"alice\r\nImpersonate-Group: system:masters", "al ice", "al\u200bice", "alice\u200b", "al\u00adice",
		"\ufeffalice",
		"al\u202eice", "ålice", "愛麗絲", "alice@example.com", "a:b/c#d", "alice\x00", "alice\xff",
		"system:admin ", " system:admin",
		"al\u00a0ice", "", " "} {
		if err := CheckName(name); err != nil {
			refused++
			continue
		}
		wrapped := transport.NewImpersonatingRoundTripper(transport.ImpersonationConfig{UserName: name,
			Groups: []string{name}}, http.DefaultTransport)
		client := &http.Client{Transport: wrapped}
		resp, err := client.Get(server.URL)
		if err != nil {
			t.Errorf("%q is accepted, and cannot be sent: %v", name, err)
			continue
		}
		_ = resp.Body.Close()
		user, group := got.Get(transport.ImpersonateUserHeader), got.Get(transport.ImpersonateGroupHeader)
		if user != name || group != name {
			t.Errorf("%q arrives as user %q and group %q", name, user, group)
		}
	}
	if refused != 20 {
		t.Errorf("%d names are refused", refused)
	}
}
