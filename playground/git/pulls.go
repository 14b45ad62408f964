package git

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// pulls imitates the part of Gitea's API that is about pull requests. A pull request is a reference refs/pull/N/head
// that the branch main does not contain; its title and author are those of its last commit, and its labels the trailers
// "Label" of it. Comments are in memory and in the file pull-N.md of the repository, statuses in memory and in the file
// status-COMMIT.
type pulls struct {
	root            string
	webhook, secret string // URL that is called after pushes, and the key of its signature

	mu       sync.Mutex
	comments map[string][]pullComment // by directory and number
	statuses map[string][]pullStatus  // by directory and commit, the newest first
}

type pullComment struct {
	ID   int    `json:"id"`
	Body string `json:"body"`
}

type pullStatus struct {
	Status      string `json:"status"`
	State       string `json:"state"`
	Context     string `json:"context"`
	Description string `json:"description"`
	TargetURL   string `json:"target_url"`
}

type pullSide struct {
	Ref  string            `json:"ref"`
	SHA  string            `json:"sha"`
	Repo map[string]string `json:"repo"`
}

type pullLabel struct {
	Name string `json:"name"`
}

type pull struct {
	Number int               `json:"number"`
	Title  string            `json:"title"`
	User   map[string]string `json:"user"`
	Labels []pullLabel       `json:"labels"`
	Head   pullSide          `json:"head"`
	Base   pullSide          `json:"base"`
}

const (
	apiPath     = "/api/v1/repos/"
	hookTimeout = 10 * time.Second
	maxBody     = 1 << 20
)

// handler returns the handler of the API.
func (p *pulls) handler() http.Handler {
	p.comments, p.statuses = map[string][]pullComment{}, map[string][]pullStatus{}
	mux := http.NewServeMux()
	for pattern, serve := range map[string]func(dir string, r *http.Request) any{
		"GET pulls":                  func(dir string, r *http.Request) any { return p.open(r.Context(), dir, r) },
		"GET pulls/{n}":              p.one,
		"GET issues/{n}/comments":    p.list,
		"POST issues/{n}/comments":   p.comment,
		"PATCH issues/comments/{id}": p.comment,
		"GET commits/{sha}/status":   p.combined,
		"POST statuses/{sha}":        p.status,
	} {
		method, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(method+" "+apiPath+"{owner}/{name}/"+path, func(w http.ResponseWriter, r *http.Request) {
			dir, err := repository(p.root, r.PathValue("owner")+"/"+r.PathValue("name"))
			if err != nil {
				http.Error(w, err.Error(), http.StatusNotFound)
				return
			}
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			p.mu.Lock()
			defer p.mu.Unlock()
			answer := serve(dir, r)
			if answer == nil {
				http.NotFound(w, r)
				return
			}
			_ = json.NewEncoder(w).Encode(answer) // the client may have closed the connection
		})
	}
	return mux
}

// query returns what git prints about a repository; empty if it fails.
func query(ctx context.Context, dir string, args ...string) string {
	all := append([]string{"-c", "safe.directory=*", "-C", dir}, args...)
	out, err := exec.CommandContext(ctx, "git", all...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// open returns the open pull requests.
func (p *pulls) open(ctx context.Context, dir string, r *http.Request) []pull {
	out := []pull{}
	refs := query(ctx, dir, "for-each-ref", "--no-merged=main", "--format=%(refname) %(objectname)", "refs/pull")
	for _, line := range strings.Split(refs, "\n") {
		ref, commit, ok := strings.Cut(line, " ")
		n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(ref, "refs/pull/"), "/head"))
		if !ok || err != nil {
			continue
		}
		const format = "--format=%an%n%s%n%(trailers:key=Label,valueonly)"
		lines := append(strings.Split(query(ctx, dir, "log", "-1", format, commit), "\n"), "")
		labels := []pullLabel{}
		for _, name := range strings.Fields(strings.Join(lines[2:], "\n")) {
			labels = append(labels, pullLabel{name})
		}
		repo := map[string]string{"full_name": r.PathValue("owner") + "/" + r.PathValue("name")}
		out = append(out, pull{Number: n, Title: lines[1], User: map[string]string{"login": lines[0]}, Labels: labels,
			Head: pullSide{Ref: fmt.Sprintf("pull-%d", n), SHA: commit, Repo: repo},
			Base: pullSide{Ref: "main", SHA: query(ctx, dir, "rev-parse", "main"), Repo: repo}})
	}
	return out
}

func (p *pulls) one(dir string, r *http.Request) any {
	for _, one := range p.open(r.Context(), dir, r) {
		if strconv.Itoa(one.Number) == r.PathValue("n") {
			return one
		}
	}
	return nil
}

func (p *pulls) list(dir string, r *http.Request) any {
	return append([]pullComment{}, p.comments[dir+"#"+r.PathValue("n")]...)
}

// idStep separates the IDs of comments of different pull requests.
const idStep = 1000

// comment writes a new comment, or changes one.
func (p *pulls) comment(dir string, r *http.Request) any {
	var c pullComment
	if json.NewDecoder(r.Body).Decode(&c) != nil {
		return nil
	}
	number := r.PathValue("n")
	if number == "" {
		c.ID, _ = strconv.Atoi(r.PathValue("id")) // 0 is found nowhere
		number = strconv.Itoa(c.ID / idStep)
	}
	key := dir + "#" + number
	n, err := strconv.Atoi(number)
	if err != nil || c.ID == 0 && len(p.comments[key]) == idStep {
		return nil
	}
	if c.ID == 0 {
		c.ID = n*idStep + len(p.comments[key])
		p.comments[key] = append(p.comments[key], c)
	} else if at := c.ID % idStep; at < len(p.comments[key]) {
		p.comments[key][at] = c
	} else {
		return nil
	}
	var all []string
	for _, c := range p.comments[key] {
		all = append(all, c.Body)
	}
	_ = os.WriteFile(filepath.Join(dir, "pull-"+strconv.Itoa(n)+".md"), []byte(strings.Join(all, "\n")+"\n"), 0o644)
	return c
}

func (p *pulls) combined(dir string, r *http.Request) any {
	return map[string]any{"statuses": append([]pullStatus{}, p.statuses[dir+"@"+r.PathValue("sha")]...)}
}

func (p *pulls) status(dir string, r *http.Request) any {
	var s pullStatus
	commit := query(r.Context(), dir, "rev-parse", "--verify", "-q", r.PathValue("sha")+"^{commit}")
	if json.NewDecoder(r.Body).Decode(&s) != nil || commit == "" {
		return nil
	}
	s.Status = s.State
	key := dir + "@" + commit
	p.statuses[key] = append([]pullStatus{s}, p.statuses[key]...)
	_ = os.WriteFile(filepath.Join(dir, "status-"+commit), []byte(s.State+": "+s.Description+"\n"), 0o644)
	return s
}

// pushed sends a webhook as Gitea signs it. Who pushed does not wait for it.
func (p *pulls) pushed() {
	if p.webhook == "" {
		return
	}
	body := []byte(`{"action":"synchronized"}`)
	mac := hmac.New(sha256.New, []byte(p.secret))
	mac.Write(body)
	ctx, cancel := context.WithTimeout(context.Background(), hookTimeout)
	go func() {
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.webhook, bytes.NewReader(body))
		if err != nil {
			return
		}
		r.Header.Set("X-Gitea-Event", "pull_request")
		r.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
		if answer, err := http.DefaultClient.Do(r); err == nil {
			_ = answer.Body.Close()
		}
	}()
}
