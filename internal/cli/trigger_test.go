package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/receiver/hook"
)

// serveWebhook handles the requests of one Receiver as the controller does. If override returns a status
// other than 0, it is the response instead.
func serveWebhook(t *testing.T, trust hook.Trust, override func(try int, w http.ResponseWriter) int) string {
	t.Helper()
	token := trust.Token
	if trust.Type == "generic-oidc" {
		token = ""
	}
	path := hook.Path(token, "app", "apps")
	var checker hook.Checker
	tries := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tries++
		if override != nil {
			if status := override(tries, w); status != 0 {
				w.WriteHeader(status)
				return
			}
		}
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != path {
			http.Error(w, "not found", http.StatusNotFound)
			return
		}
		if trust.Type == "generic-oidc" {
			fmt.Fprintf(w, "token %s of %s\n", r.Header.Get("Authorization"), body)
			return
		}
		d, err := checker.Verify(r.Context(), trust, hook.Request{Header: r.Header, Body: body})
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(w, "ok: %s %s\n", d.Event, body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestTriggerSignsAsTheSenderDoes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "push.json")
	if err := os.WriteFile(file, []byte(`{"ref":"main"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ receiverType, flags, want string }{
		{receiverType: "generic", want: "ok: {}"},
		{
			receiverType: "generic-hmac",
			flags:        `--payload {"image":"app:1"}`,
			want:         `ok: {"image":"app:1"}`,
		},
		{receiverType: "github", flags: "--payload @" + file, want: `ok: push {"ref":"main"}`},
		{receiverType: "gitlab", flags: "--event Tag", want: "ok: Tag {}"},
		{receiverType: "bitbucket", want: "ok: repo:push {}"},
		{receiverType: "harbor", want: "ok: {}"},
		{
			receiverType: "nexus",
			flags:        `--payload {"action":"UPDATED"}`,
			want:         `ok: {"action":"UPDATED"}`,
		},
	} {
		t.Run(c.receiverType, func(t *testing.T) {
			host := serveWebhook(t, hook.Trust{Type: c.receiverType, Token: "s3cret"}, nil)
			line := strings.Fields("trigger receiver app -n apps --token - --retries 0 --type " + c.receiverType +
				" --url " +
				host + " " + c.flags)
			r := runWith(t.Context(), "s3cret\n", line...).wants(t, exitOK, c.want)
			if strings.Contains(r.out+r.err, "s3cret") {
				t.Errorf("the token is printed: %s", r.err)
			}
			runWith(t.Context(), "other\n", line...).wants(t, exitFailed, "has no such webhook")
		})
	}
}

func TestTriggerWithOIDCToken(t *testing.T) {
	host := serveWebhook(t, hook.Trust{Type: "generic-oidc"}, nil)
	line := []string{"trigger", "receiver", "app", "-n", "apps", "--type", "generic-oidc", "--url", host,
		"--retries", "0"}
	t.Run("given", func(t *testing.T) {
		run(t, append(line, "--oidc-token", "abc")...).wants(t, exitOK, "token Bearer abc of {}")
		t.Setenv(oidcTokenEnv, "def")
		run(t, line...).wants(t, exitOK, "token Bearer def of {}")
	})
	t.Run("requested", func(t *testing.T) {
		issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer job" || r.URL.Query().Get("audience") != "sluice" ||
				r.URL.Query().Get("api-version") != "2.0" {
				http.Error(w, "no", http.StatusForbidden)
				return
			}
			_, _ = io.WriteString(w, `{"value":"ghi"}`)
		}))
		defer issuer.Close()
		t.Setenv(oidcRequestURL, issuer.URL+"/token?api-version=2.0")
		t.Setenv(oidcRequestToken, "job")
		run(t, append(line, "--oidc-provider", "github", "--oidc-audience", "sluice")...).
			wants(t, exitOK, "token Bearer ghi of {}")
		run(t, append(line, "--oidc-provider", "forgejo")...).
			wants(t, exitFailed, "did not issue an OIDC token: status 403")
		t.Setenv(oidcRequestURL, "")
		run(t, append(line, "--oidc-provider", "github")...).wants(t, exitFailed, "id-token: write")
	})
	t.Run("missing", func(t *testing.T) {
		run(t, line...).wants(t, exitUsage, "--oidc-token is missing")
		run(t, append(line, "--token", "x")...).wants(t, exitUsage, "--token is not supported")
		run(t, append(line, "--oidc-token", "x", "--oidc-provider", "github")...).
			wants(t, exitUsage, "exclude each other")
		run(t, append(line, "--oidc-provider", "jenkins")...).wants(t, exitUsage, "choose from github, forgejo")
	})
}

func TestTriggerRetries(t *testing.T) {
	busy := func(status int) func(int, http.ResponseWriter) int {
		return func(try int, _ http.ResponseWriter) int {
			if try < 3 {
				return status
			}
			return 0
		}
	}
	line := "trigger receiver app -n apps --token s3cret --retry-delay 1ms --url "
	for _, status := range []int{408, 500, 503} {
		host := serveWebhook(t, hook.Trust{Type: "generic", Token: "s3cret"}, busy(status))
		run(t, strings.Fields(line+host)...).wants(t, exitOK, "retrying in 1ms", "was accepted")
	}
	host := serveWebhook(t, hook.Trust{Type: "generic", Token: "s3cret"},
		func(int, http.ResponseWriter) int { return 500 })
	run(t, strings.Fields(line+host+" --retries 1")...).wants(t, exitFailed, "status 500")
	host = serveWebhook(t, hook.Trust{Type: "generic", Token: "s3cret"}, func(try int, w http.ResponseWriter) int {
		w.Header().Set("Location", "https://example.com")
		return map[int]int{1: 302}[try]
	})
	run(t, strings.Fields(line+host)...).wants(t, exitFailed, "rejected the webhook with status 302")
	r := run(t, strings.Fields(line+"http://127.0.0.1:1 --retries 1")...).wants(t, exitFailed, "connection refused")
	if path, err := url.Parse(hook.Path("s3cret", "app", "apps")); err != nil || strings.Contains(r.err, path.Path) {
		t.Errorf("the path is printed: %s", r.err)
	}
}

func TestTriggerRejectsInvalidFlags(t *testing.T) {
	for line, want := range map[string]string{
		"--token x":                                "--url is missing",
		"--url https://h":                          "--token is missing",
		"--url h --token x":                        "https://HOST",
		"--url https://h --token x --payload {":    "not valid JSON",
		"--url https://h --token x --type gcr":     "can only be created by the original sender",
		"--url https://h --token x --type carrier": "can only be created by the original sender",
	} {
		run(t, strings.Fields("trigger receiver app "+line)...).wants(t, exitUsage, want)
	}
	run(t, strings.Fields("trigger receiver app --url https://h --token x --payload @/none")...).
		wants(t, exitFailed, "no such file")
}
