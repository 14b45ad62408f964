package review

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	rootOf = `apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: %[1]s, namespace: flux-system}
spec: {interval: 1h, path: ./%[2]s, prune: true, targetNamespace: shop, sourceRef: {kind: GitRepository, name: fleet}}
`
	configOf = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: app\ndata: {at: \"%s\"}\n"
	claim    = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\n"
	secretOf = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {password: %s}\n"
)

// fleet are the files of a repository that declares what applies it.
func fleet() map[string]string {
	return map[string]string{"clusters/root.yaml": fmt.Sprintf(rootOf, "root", "clusters"),
		"clusters/web.yaml": fmt.Sprintf(rootOf, "web", "web"), "web/app.yaml": fmt.Sprintf(configOf, "1"),
		"web/claim.yaml": claim, "web/secret.yaml": fmt.Sprintf(secretOf, "hunter2")}
}

// push sends a webhook, signed with a secret, and returns the status of the answer.
func push(t *testing.T, address, secret string) int {
	t.Helper()
	body := `{"action":"synchronized","number":1}`
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+HookPath+"fleet",
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Gitea-Event", "pull_request")
	r.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

// TestReviewFollowsPullRequest reviews a pull request from its webhook to the comment: it is opened, gets another
// commit, and is merged.
func TestReviewFollowsPullRequest(t *testing.T) {
	t.Parallel()
	h := newGitHost(t)
	h.commit("main", fleet())
	s := h.service(nil)
	hooks := h.start(s)

	h.commit("change", map[string]string{"web/app.yaml": fmt.Sprintf(configOf, "2")})
	first := h.open(1, "mona", "change", "Change the app")
	if got := push(t, hooks.URL, "not the secret at all"); got != http.StatusUnauthorized {
		t.Fatalf("a webhook with another secret: status %d", got)
	}
	if got := push(t, hooks.URL, webhookSecret); got != http.StatusOK {
		t.Fatalf("webhook: status %d", got)
	}
	h.await("the review", func() bool { return h.status(first).State == "success" })
	if got := h.status(first); got.Context != "sluice/review" || got.TargetURL !=
		"https://sluice.example.com/reviews/fleet/1" || got.Description != "1 configured, risk low." {
		t.Errorf("status %+v", got)
	}
	h.await("the comment", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.comments[1]) > 0 })
	for _, text := range []string{"data.at: \"1\" → \"2\"", "`shop`", "Kustomization/shop/web",
		"(https://sluice.example.com/reviews/fleet/1)"} {
		if !strings.Contains(h.comment(1), text) {
			t.Errorf("the comment has no %q:\n%s", text, h.comment(1))
		}
	}

	h.commit("change", map[string]string{"web/claim.yaml": "", "web/secret.yaml": fmt.Sprintf(secretOf, "hunter3")})
	second := h.open(1, "mona", "change", "Change the app")
	push(t, hooks.URL, webhookSecret)
	took := h.await("the second review", func() bool { return h.status(second).State == "failure" })
	t.Logf("from the webhook to the status: %s", took)
	h.await("the comment", func() bool { return strings.Contains(h.comment(1), "data may be lost") })
	detail, found, err := s.Detail("fleet", 1)
	if err != nil || !found {
		t.Fatal(found, err)
	}
	var d Detail
	if err := json.Unmarshal(detail, &d); err != nil {
		t.Fatal(err)
	}
	if d.Commit != second || d.Passes || d.Risk.String() != "high" || d.Sandboxed || d.State != Done ||
		!strings.HasSuffix(d.Places["ConfigMap/app"], "/src/commit/"+second+"/web/app.yaml#L2") {
		t.Errorf("got %+v, %v", d.Summary, d.Places)
	}
	for _, text := range []string{string(detail), h.comment(1)} {
		if strings.Contains(text, "hunter") || strings.Contains(text, hostToken) {
			t.Errorf("a secret is shown:\n%s", text)
		}
	}

	h.close(1)
	push(t, hooks.URL, webhookSecret)
	h.await("the end of the review", func() bool { return len(s.List()) == 0 })
	if _, found, _ := s.Detail("fleet", 1); found || s.details != 0 {
		t.Errorf("the review of a merged pull request is kept: %t, %d bytes", found, s.details)
	}
}

// codeOf finds code in Markdown.
var codeOf = regexp.MustCompile("(?s)\n```.*?\n```\n|`[^`\n]*`")

// TestReviewOfHostilePullRequest has a stranger whose names and files try to break the comment, and to change what
// judges the pull request.
func TestReviewOfHostilePullRequest(t *testing.T) {
	h := newGitHost(t)
	h.commit("main", fleet())
	t.Setenv("SOPS_AGE_KEY", "AGE-SECRET-KEY-1QQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQ")
	const branch = "a`b|<img-src=x>](evil.example)@everyone"
	h.commit(branch, map[string]string{
		"web/claim.yaml": "",
		"web/app.yaml": fmt.Sprintf(configOf, "```\\n</details><script>alert(1)</script>"+
			strings.Repeat("x", 100_000)),
		".sluice/risk.yaml": "disable: [stateful-deletion]\n",
		"review.yaml":       "repositories: []\n",
		"web/pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, " +
			"image: \"127.0.0.1:1/x:1\"}]}\n",
	})
	commit := h.open(2, "stranger", branch, "<script>alert(1)</script> @everyone "+strings.Repeat("long ", 1000))
	all, err := h.service(nil).Once(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	got := all[0]
	if got.State != Done || !got.Sandboxed || !got.Offline || got.Passes || got.Risk.String() != "high" {
		t.Errorf("got %+v", got)
	}
	if len(got.Title) > maxText+10 {
		t.Errorf("the title has %d bytes", len(got.Title))
	}
	if h.status(commit).State != "failure" {
		t.Errorf("status %+v", h.status(commit))
	}
	text := h.comment(2)
	outside := codeOf.ReplaceAllString(text, "") // nothing in code is rendered
	for _, bad := range []string{"<script>", "evil.example", "@everyone", "<img"} {
		if strings.Contains(outside, bad) {
			t.Errorf("the comment has %q:\n%.3000s", bad, text)
		}
	}
	if len(text) > maxComment+100 || !strings.Contains(text, "not in the list of allowed authors") ||
		!strings.Contains(text, "data may be lost") || !strings.Contains(text, "by the rules before the change") {
		t.Errorf("%d bytes:\n%.3000s", len(text), text)
	}
}

// TestWebhookFlood sends many webhooks: they cause few looks at the host.
func TestWebhookFlood(t *testing.T) {
	t.Parallel()
	h := newGitHost(t)
	h.commit("main", fleet())
	began := time.Now()
	hooks := h.start(h.service(nil))
	for range 500 {
		if got := push(t, hooks.URL, webhookSecret); got != http.StatusOK && got != http.StatusServiceUnavailable {
			t.Fatalf("status %d", got)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	const ofLook = 20 // requests, at most
	if most := ofLook * (2 + int(time.Since(began)/lookPeriod)); h.requests > most {
		t.Errorf("500 webhooks cause %d requests, want at most %d", h.requests, most)
	}
}

// TestMeasureReviews measures open pull requests over 1,000 Kustomizations, with SLUICE_MEASURE=200: the memory of the
// process, and the time from a webhook to the status of a new commit while the others are kept.
func TestMeasureReviews(t *testing.T) {
	pulls, err := strconv.Atoi(os.Getenv("SLUICE_MEASURE"))
	if err != nil {
		t.Skip("takes minutes; set SLUICE_MEASURE to the number of pull requests")
	}
	const kustomizations, groups = 1000, 25
	h := newGitHost(t)
	files := map[string]string{"clusters/root/root.yaml": fmt.Sprintf(rootOf, "root", "clusters/root")}
	for n := range groups {
		group := fmt.Sprintf("group%d", n)
		files["clusters/root/"+group+".yaml"] = fmt.Sprintf(rootOf, group, "clusters/"+group)
	}
	for n := range kustomizations {
		name := fmt.Sprintf("app%d", n)
		files[fmt.Sprintf("clusters/group%d/%s.yaml", n%groups, name)] = fmt.Sprintf(rootOf, name, "apps/"+name)
		files["apps/"+name+"/app.yaml"] = fmt.Sprintf(configOf, "1")
		files["apps/"+name+"/claim.yaml"] = claim
	}
	h.commit("main", files)
	for n := range pulls {
		branch := fmt.Sprintf("change%d", n)
		h.commit(branch, map[string]string{fmt.Sprintf("apps/app%d/app.yaml", n): fmt.Sprintf(configOf, "2")})
		h.open(n+1, "mona", branch, "Change")
	}
	debug.FreeOSMemory()
	s := h.service(nil)
	began := time.Now()
	hooks := h.start(s)
	for done := 0; done < pulls; time.Sleep(100 * time.Millisecond) {
		done = 0
		for _, one := range s.List() {
			if one.State == Done {
				done++
			}
		}
		if time.Since(began) > 30*time.Minute {
			t.Fatalf("%d of %d are reviewed", done, pulls)
		}
	}
	t.Logf("%d pull requests over %d Kustomizations: %s, details %d bytes\n%s", pulls, kustomizations,
		time.Since(began), s.details, memoryOfProcess(t))
	time.Sleep(lookPeriod)
	h.commit("change7", map[string]string{"apps/app7/app.yaml": fmt.Sprintf(configOf, "3")})
	commit := h.open(8, "mona", "change7", "Change")
	push(t, hooks.URL, webhookSecret)
	t.Logf("from the webhook to the status: %s", h.await("the review", func() bool {
		return h.status(commit).State == "success"
	}))
}

// memoryOfProcess returns the lines of the kernel about resident memory.
func memoryOfProcess(t *testing.T) string {
	content, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(regexp.MustCompile(`Vm(HWM|RSS):.*`).FindAllString(string(content), -1), "\n")
}
