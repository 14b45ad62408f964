package git

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPulls opens a pull request by a push, comments on it, and merges it.
func TestPulls(t *testing.T) {
	root := t.TempDir()
	bare := filepath.Join(root, "acme", "fleet.git")
	work := filepath.Join(t.TempDir(), "work")
	git := func(args ...string) {
		t.Helper()
		all := append([]string{"-c", "user.name=mona", "-c", "user.email=m@example.com"}, args...)
		cmd := exec.Command("git", all...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	hooks := make(chan string, 10)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		hooks <- r.Header.Get("X-Hub-Signature-256")
	}))
	t.Cleanup(hook.Close)
	s, err := Start(Options{Root: root, Addr: "127.0.0.1:0", Webhook: hook.URL, WebhookSecret: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	git("init", "-q", "--bare", "-b", "main", bare)
	git("init", "-q", "-b", "main", work)
	push := func(message, to string) {
		t.Helper()
		git("-C", work, "commit", "-q", "--allow-empty", "-m", message)
		git("-C", work, "push", "-q", s.URL+"/acme/fleet", "HEAD:"+to)
		if signature := <-hooks; !strings.HasPrefix(signature, "sha256=") {
			t.Errorf("signature %q", signature)
		}
	}
	call := func(method, path, body string, into any) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, s.URL+"/api/v1/repos/acme/fleet/"+path,
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = answer.Body.Close() }()
		if into != nil {
			if err := json.NewDecoder(answer.Body).Decode(into); err != nil {
				t.Fatal(err)
			}
		}
		return answer.StatusCode
	}
	push("one", "main")
	push("Change it\n\nLabel: preview", "refs/pull/7/head")
	var open []pull
	call(http.MethodGet, "pulls", "", &open)
	if len(open) != 1 || open[0].Number != 7 || open[0].Title != "Change it" || open[0].User["login"] != "mona" ||
		!slices.Equal(open[0].Labels, []pullLabel{{"preview"}}) {
		t.Fatalf("got %+v", open)
	}
	var written pullComment
	call(http.MethodPost, "issues/7/comments", `{"body":"first"}`, &written)
	if got := call(http.MethodPatch, "issues/comments/7000", `{"body":"second"}`, &written); got != http.StatusOK {
		t.Errorf("status %d", got)
	}
	if content, err := os.ReadFile(filepath.Join(bare, "pull-7.md")); err != nil || string(content) != "second\n" {
		t.Errorf("got %q, %v", content, err)
	}
	if got := call(http.MethodPatch, "issues/comments/9000", `{"body":"x"}`, nil); got != http.StatusNotFound {
		t.Errorf("status %d", got)
	}
	call(http.MethodPost, "statuses/"+open[0].Head.SHA, `{"state":"success","context":"c","description":"d"}`, nil)
	var combined struct{ Statuses []pullStatus }
	call(http.MethodGet, "commits/"+open[0].Head.SHA+"/status", "", &combined)
	if len(combined.Statuses) != 1 || combined.Statuses[0].Status != "success" {
		t.Errorf("got %+v", combined)
	}
	git("-C", work, "push", "-q", s.URL+"/acme/fleet", "HEAD:main")
	call(http.MethodGet, "pulls", "", &open)
	if len(open) != 0 || call(http.MethodGet, "pulls/7", "", nil) != http.StatusNotFound {
		t.Errorf("the merged one is open: %+v", open)
	}
}
