package review

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/sluice-gitops/sluice/internal/cluster/risk"
	"github.com/sluice-gitops/sluice/internal/githost"
	"github.com/sluice-gitops/sluice/internal/guard"
)

// gitHost is a git server with the parts of Gitea's API that the service uses, as https://docs.gitea.com/api describes
// them.
type gitHost struct {
	t      testing.TB
	URL    string // of the repository
	work   string // clone with which changes are pushed
	remote string

	mu       sync.Mutex
	pulls    map[int]*hostPull
	comments map[int][]hostComment
	statuses map[string][]hostStatus
	requests int
	updated  chan struct{} // gets a value after each write
}

type hostPull struct {
	Number int    `json:"number"`
	Title  string `json:"title"`
	User   struct {
		Login string `json:"login"`
	} `json:"user"`
	Head hostSide `json:"head"`
	Base hostSide `json:"base"`
}

type hostSide struct {
	Ref  string            `json:"ref"`
	SHA  string            `json:"sha"`
	Repo map[string]string `json:"repo"`
}

type hostComment struct {
	ID   int    `json:"id"`
	Body string `json:"body"`
}

type hostStatus struct {
	Status      string `json:"status"`
	State       string `json:"state"`
	Context     string `json:"context"`
	Description string `json:"description"`
	TargetURL   string `json:"target_url"`
}

func newGitHost(t testing.TB) *gitHost {
	t.Helper()
	root := t.TempDir()
	h := &gitHost{t: t, remote: filepath.Join(root, "org", "fleet.git"), work: filepath.Join(root, "work"),
		pulls: map[int]*hostPull{}, comments: map[int][]hostComment{}, statuses: map[string][]hostStatus{},
		updated: make(chan struct{}, 1000)}
	h.command("", "init", "-q", "--bare", "-b", "main", h.remote)
	h.command("", "init", "-q", "-b", "main", h.work)
	path, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	backend := &cgi.Handler{Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"),
		Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1"}}
	mux := http.NewServeMux()
	mux.Handle("/org/", backend)
	api := "/api/v1/repos/org/fleet/"
	mux.HandleFunc("GET "+api+"pulls", h.list)
	mux.HandleFunc("GET "+api+"pulls/{n}", h.get)
	mux.HandleFunc("GET "+api+"issues/{n}/comments", h.listComments)
	mux.HandleFunc("POST "+api+"issues/{n}/comments", h.write)
	mux.HandleFunc("PATCH "+api+"issues/comments/{id}", h.write)
	mux.HandleFunc("GET "+api+"commits/{sha}/statuses", h.listStatuses)
	mux.HandleFunc("GET "+api+"commits/{sha}/status", h.listStatuses)
	mux.HandleFunc("POST "+api+"statuses/{sha}", h.write)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		h.requests++
		h.mu.Unlock()
		if strings.HasPrefix(r.URL.Path, "/api/") && r.Header.Get("Authorization") != "token "+hostToken {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	h.URL = server.URL + "/org/fleet"
	return h
}

const hostToken = "tok-3n-of-the-host"

func (h *gitHost) command(dir string, args ...string) string {
	h.t.Helper()
	if dir != "" {
		args = append([]string{"-C", dir, "-c", "user.name=me", "-c", "user.email=me@example.com"}, args...)
	}
	out, err := exec.Command("git", args...).CombinedOutput()
	if err != nil {
		h.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// commit commits files to a branch that begins at main, pushes it, and returns the commit. Empty files are removed.
func (h *gitHost) commit(branch string, files map[string]string) string {
	h.t.Helper()
	if branch == "main" {
		h.command(h.work, "checkout", "-q", "-B", "main")
	} else if exec.Command("git", "-C", h.work, "checkout", "-q", branch).Run() != nil {
		h.command(h.work, "checkout", "-q", "-b", branch, "main")
	}
	for name, content := range files {
		path := filepath.Join(h.work, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			h.t.Fatal(err)
		}
		if content == "" {
			_ = os.Remove(path)
		} else if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			h.t.Fatal(err)
		}
	}
	h.command(h.work, "add", "-A")
	h.command(h.work, "commit", "-qm", "change", "--allow-empty")
	h.command(h.work, "push", "-q", "-f", h.remote, branch)
	commit := h.command(h.work, "rev-parse", branch)
	if branch == "main" {
		return commit
	}
	h.command(h.work, "checkout", "-q", "main")
	return commit
}

// open opens a pull request, or moves it to the commit of its branch.
func (h *gitHost) open(number int, author, branch, title string) string {
	h.t.Helper()
	commit := h.command(h.remote, "rev-parse", branch)
	h.command(h.remote, "update-ref", fmt.Sprintf("refs/pull/%d/head", number), commit)
	p := &hostPull{Number: number, Title: title, Head: hostSide{Ref: branch, SHA: commit,
		Repo: map[string]string{"full_name": "org/fleet"}}, Base: hostSide{Ref: "main",
		Repo: map[string]string{"full_name": "org/fleet"}}}
	p.User.Login = author
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pulls[number] = p
	return commit
}

func (h *gitHost) close(number int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.pulls, number)
}

func answerJSON(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) }

func (h *gitHost) list(w http.ResponseWriter, _ *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := []*hostPull{}
	for _, p := range h.pulls {
		all = append(all, p)
	}
	answerJSON(w, all)
}

func (h *gitHost) get(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, _ := strconv.Atoi(r.PathValue("n"))
	if h.pulls[n] == nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	answerJSON(w, h.pulls[n])
}

func (h *gitHost) listComments(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, _ := strconv.Atoi(r.PathValue("n"))
	answerJSON(w, append([]hostComment{}, h.comments[n]...))
}

func (h *gitHost) listStatuses(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := append([]hostStatus{}, h.statuses[r.PathValue("sha")]...)
	if strings.HasSuffix(r.URL.Path, "/status") {
		answerJSON(w, map[string]any{"statuses": all})
		return
	}
	answerJSON(w, all)
}

// write handles the requests that change something.
func (h *gitHost) write(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer func() { h.updated <- struct{}{} }()
	if sha := r.PathValue("sha"); sha != "" {
		var s hostStatus
		_ = json.NewDecoder(r.Body).Decode(&s)
		s.Status = s.State
		h.statuses[sha] = append([]hostStatus{s}, h.statuses[sha]...)
		return
	}
	var body hostComment
	_ = json.NewDecoder(r.Body).Decode(&body)
	if n, err := strconv.Atoi(r.PathValue("n")); err == nil {
		body.ID = 100*n + len(h.comments[n])
		h.comments[n] = append(h.comments[n], body)
		answerJSON(w, body)
		return
	}
	id, _ := strconv.Atoi(r.PathValue("id"))
	h.comments[id/100][id%100].Body = body.Body
	answerJSON(w, body)
}

// status returns the newest status of a commit.
func (h *gitHost) status(commit string) hostStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	if all := h.statuses[commit]; len(all) > 0 {
		return all[0]
	}
	return hostStatus{}
}

// comment returns the only comment on a pull request.
func (h *gitHost) comment(number int) string {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.comments[number]) != 1 {
		h.t.Fatalf("pull request %d has %d comments", number, len(h.comments[number]))
	}
	return h.comments[number][0].Body
}

const webhookSecret = "secret-of-the-webhook"

// service returns a service for the repository of a host, without a cluster.
func (h *gitHost) service(change func(*Repository)) *Service {
	h.t.Helper()
	dir := h.t.TempDir()
	for name, content := range map[string]string{"token": hostToken, "webhook": webhookSecret} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			h.t.Fatal(err)
		}
	}
	r := &Repository{Name: "fleet", URL: h.URL, Type: githost.Gitea, TokenFile: "token", WebhookSecretFile: "webhook",
		Authors: []string{"mona"}, FailOn: "high"}
	if change != nil {
		change(r)
	}
	c := &Config{Repositories: []*Repository{r}}
	if err := c.complete(dir, risk.None); err != nil {
		h.t.Fatal(err)
	}
	c.Interval.Duration = time.Hour // webhooks only
	s, err := New(Options{Config: c, Dir: filepath.Join(dir, "mirrors"), PageURL: "https://sluice.example.com",
		Log: logr.Discard(), Transport: http.DefaultTransport})
	if err != nil {
		h.t.Fatal(err)
	}
	return s
}

// start runs a service until the test ends, and returns the server of its webhooks.
func (h *gitHost) start(s *Service) *httptest.Server {
	h.t.Helper()
	var running guard.WaitGroup
	ctx := h.t.Context()
	running.Go("service", func() { _ = s.Run(ctx) })
	h.t.Cleanup(running.Wait)
	hooks := httptest.NewServer(s.HTTPServer().Handler)
	h.t.Cleanup(hooks.Close)
	return hooks
}

// await waits for a condition, which is checked after writes to the host.
func (h *gitHost) await(what string, reached func() bool) time.Duration {
	h.t.Helper()
	began, late := time.Now(), time.After(5*time.Minute)
	for !reached() {
		select {
		case <-h.updated:
		case <-time.After(50 * time.Millisecond):
		case <-late:
			h.t.Fatalf("waited too long for %s", what)
		}
	}
	return time.Since(began)
}
