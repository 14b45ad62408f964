package provider

import (
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/http/httpguts"

	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// expectQuietFault fails if an error is not a terminal fault or contains the input.
func expectQuietFault(t *testing.T, err error, input string) {
	t.Helper()
	f := fault.As(err)
	if f == nil || !f.Terminal {
		t.Fatalf("got %v, want a terminal fault", err)
	}
	if len(input) > 12 && strings.Contains(f.What, input) { // the hint shows the format
		t.Fatalf("the fault contains the input %q: %v", input, f)
	}
}

func FuzzDSN(f *testing.F) {
	for _, s := range []string{"https://key@o1.ingest.sentry.io/123", "http://key:secret@host:9000/below/a/1",
		"https://host/1", "https://@host/1", "https://k@h/%2e%2e", "https://k@h/../x", "k"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := parseDSN(s)
		if err != nil {
			expectQuietFault(t, err, s)
			return
		}
		u, err := url.Parse(d.endpoint)
		if err != nil || u.User != nil || !strings.HasSuffix(u.Path, "/envelope/") ||
			!httpguts.ValidHeaderFieldValue(d.key) || strings.ContainsAny(d.key, ", ") {
			t.Fatalf("%q is parsed as %+v (%v)", s, d, err)
		}
	})
}

func FuzzConnection(f *testing.F) {
	for _, s := range []string{connectionString, "Endpoint=sb://h/;SharedAccessSignature=SharedAccessSignature " +
		"sr=a&sig=b&se=1&skn=c", "endpoint=sb://;sharedaccesskey==;",
		"Endpoint=sb://a:b@h;SharedAccessKeyName=x;SharedAccessKey=y", ";;;=", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := parseConnection(s)
		if err != nil {
			expectQuietFault(t, err, s)
			return
		}
		p, err := New(Options{Type: "azureeventhub", Address: s, Channel: "hub"})
		if err != nil {
			expectQuietFault(t, err, s)
			return
		}
		if hub := p.(redacting).Provider.(*eventHub); hub.to.Scheme != "https" || hub.to.Host != c.host ||
			hub.to.User != nil || strings.Count(strings.Trim(hub.to.Path, "/"), "/") != 1 {
			t.Fatalf("%q is sent to %s", s, hub.to)
		}
	})
}

func FuzzGoogleCredentials(f *testing.F) {
	for _, s := range []string{`{"type":"service_account"}`,
		`{"type":"authorized_user","client_id":"a","refresh_token":"b"}`,
		`{"type":"external_account","credential_source":{"file":"/etc/passwd"}}`, `{"type":7}`, `[]`, ``} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := (Options{Secret: map[string][]byte{"token": b}, Transport: redirectTo("http://127.0.0.1:1")}).
			google(pubSubScope); err != nil {
			expectQuietFault(t, err, string(b))
		}
	})
}

func FuzzServers(f *testing.F) {
	for _, s := range []string{"nats://a:b@host:4222", "tls://host", "host", "a,b,c", "ws://host", "nats://[::1]:4222",
		"::", "nats://host/path", ",", strings.Repeat("a,", 20)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		servers, hosts, err := parseServers(s)
		if err != nil {
			expectQuietFault(t, err, s)
			return
		}
		if len(servers) == 0 || len(servers) > natsServers || strings.Contains(hosts, "@") {
			t.Fatalf("%q is parsed as servers %q, hosts %q", s, servers, hosts)
		}
		for _, server := range servers {
			if u, err := url.Parse(server); err != nil || u.Port() == "" || u.Scheme != "nats" && u.Scheme != "tls" {
				t.Fatalf("%q is parsed as %q (%v)", s, server, err)
			}
		}
	})
}

func FuzzCreds(f *testing.F) {
	const seed = "SUAMK2FG4MI6UE3ACF3FK3OIQBCEIEZV7NSWFFEW63UXMRLFM2XLAXK4GY"
	for _, s := range []string{
		"-----BEGIN NATS USER JWT-----\na.b.c\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n" +
			seed + "\n------END USER NKEY SEED------\n",
		"a.b.c", seed, "", "-----\n\n-----",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		token, key, err := parseCreds(b)
		if err != nil {
			expectQuietFault(t, err, string(b))
			return
		}
		if strings.ContainsAny(token, " \r\n") || key == nil {
			t.Fatalf("%q is parsed as token %q", b, token)
		}
	})
}

func FuzzAttributes(f *testing.F) {
	for _, s := range []string{"a: b", "a: {b: c}", "- a", "a: 1", "a: b\na: c", "&a [*a]", ""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := attributesOf(b)
		if err != nil {
			expectQuietFault(t, err, string(b))
		} else if len(all) > maxAttributes {
			t.Fatalf("got %d attributes", len(all))
		}
	})
}
