package cli

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/sshkeys"
)

// gitHost is a git host with the parts of the APIs of GitHub and GitLab that a bootstrap uses. It has one repository,
// which the playground serves over SSH, and which it serves over HTTPS itself.
type gitHost struct {
	t          *testing.T
	git        *testenv.Git
	address    string // host and port
	caFile     string
	keyFile    string // private key of a person who may push over SSH
	authorized string // file with the keys that may log in over SSH
	public     []byte // of keyFile
	repository string // owner/name
	proxy      http.Handler

	mu         sync.Mutex
	created    bool
	token      string // of the person
	scopes     string // of the token if they do not suffice
	keys       []map[string]any
	tokens     []map[string]any
	issued     int
	beforePush func() // called once
}

// environment returns the variables with the token of the person.
func (h *gitHost) environment() environment {
	return environment{"GIT_PASSWORD": h.token, "GITLAB_TOKEN": h.token}
}

// newGitHost starts a host. It has the repository after a bootstrap created it.
func newGitHost(t *testing.T, repository, token string) *gitHost {
	t.Helper()
	dir := t.TempDir()
	private, public := sshkeys.New(t)
	h := &gitHost{t: t, repository: repository, token: token, public: public,
		keyFile: filepath.Join(dir, "id_ed25519"), authorized: filepath.Join(dir, "authorized"),
		caFile: filepath.Join(dir, "ca.crt")}
	h.write(h.keyFile, private)
	h.authorize()
	h.git = testenv.NewGit(t, "--ssh-addr", "127.0.0.1:0", "--ssh-host-key", filepath.Join(dir, "host"),
		"--ssh-authorized-keys", h.authorized)
	to, err := url.Parse(h.git.URL)
	if err != nil {
		t.Fatal(err)
	}
	h.proxy = testenv.FullDuplex(httputil.NewSingleHostReverseProxy(to))
	server := httptest.NewTLSServer(h)
	t.Cleanup(server.Close)
	h.address = server.Listener.Addr().String()
	h.write(h.caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	return h
}

func (h *gitHost) write(file string, content []byte) {
	if err := os.WriteFile(file, content, 0o600); err != nil {
		h.t.Error(err)
	}
}

// authorize lets the person and the deploy keys log in over SSH.
func (h *gitHost) authorize() {
	lines := string(h.public)
	for _, k := range h.keys {
		lines += fmt.Sprintln(k["key"])
	}
	h.write(h.authorized, []byte(lines))
}

// set changes the host while it serves.
func (h *gitHost) set(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

func (h *gitHost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if isAPI := strings.HasPrefix(r.URL.Path, "/api/"); isAPI {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.serveAPI(w, r)
		return
	}
	_, password, _ := r.BasicAuth()
	h.mu.Lock()
	accepted := password == h.token ||
		slices.ContainsFunc(h.tokens, func(k map[string]any) bool { return k["token"] == password })
	var before func()
	if accepted && r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/git-receive-pack") {
		before, h.beforePush = h.beforePush, nil
	}
	h.mu.Unlock()
	if !accepted {
		w.Header().Set("WWW-Authenticate", `Basic realm="host"`)
		http.Error(w, "wrong credentials", http.StatusUnauthorized)
		return
	}
	if before != nil {
		before()
	}
	h.proxy.ServeHTTP(w, r)
}

// serveAPI answers requests to the API.
func (h *gitHost) serveAPI(w http.ResponseWriter, r *http.Request) {
	at := strings.ToLower(strings.ReplaceAll(r.URL.EscapedPath(), "%2F", "/"))
	name := path.Base(at)
	creates := r.Method == http.MethodPost && (name == "projects" || name == "repos")
	switch {
	case r.Header.Get("Authorization") != "Bearer "+h.token:
		h.answer(w, http.StatusUnauthorized, map[string]any{"message": "Bad credentials"})
	case h.scopes != "":
		w.Header().Set("X-OAuth-Scopes", h.scopes)
		h.answer(w, http.StatusForbidden, map[string]any{"message": "insufficient_scope"})
	case name == "user":
		h.answer(w, http.StatusOK, map[string]any{"username": "me", "login": "me"})
	case strings.Contains(at, "/groups/"):
		h.answer(w, http.StatusOK, map[string]any{"id": 7})
	case strings.Contains(at, "/teams"):
		h.answer(w, http.StatusOK, []any{})
	case creates && !h.created:
		h.git.Init(h.repository)
		h.created = true
		h.answer(w, http.StatusCreated, h.project())
	case strings.HasSuffix(at, "/"+h.repository) && h.created:
		h.answer(w, http.StatusOK, h.project())
	case strings.Contains(at, "/"+h.repository+"/deploy_tokens"):
		h.list(w, r, &h.tokens)
	case strings.Contains(at, "/"+h.repository+"/deploy_keys"), strings.Contains(at, "/"+h.repository+"/keys"):
		h.list(w, r, &h.keys)
		h.authorize()
	default:
		h.answer(w, http.StatusNotFound, map[string]any{"message": "Not Found"})
	}
}

func (h *gitHost) project() map[string]any {
	clone, overSSH := "https://"+h.address+"/"+h.repository+".git", h.git.SSHURL+"/"+h.repository+".git"
	return map[string]any{"private": true, "visibility": "private", "clone_url": clone, "http_url_to_repo": clone,
		"ssh_url": overSSH, "ssh_url_to_repo": overSSH}
}

// list serves a list of keys or tokens.
func (h *gitHost) list(w http.ResponseWriter, r *http.Request, all *[]map[string]any) {
	switch r.Method {
	case http.MethodGet:
		var shown []map[string]any
		for _, k := range *all {
			k = maps.Clone(k)
			delete(k, "token") // a host shows it once
			shown = append(shown, k)
		}
		h.answer(w, http.StatusOK, shown)
	case http.MethodPost:
		var k map[string]any
		if err := json.NewDecoder(r.Body).Decode(&k); err != nil {
			h.t.Error(err)
		}
		h.issued++
		k["id"] = h.issued
		if k["key"] == nil {
			k["username"], k["token"] = fmt.Sprintf("deploy-token-%d", h.issued), fmt.Sprintf("t0ken-%d", h.issued)
		}
		*all = append(*all, k)
		h.answer(w, http.StatusCreated, k)
	case http.MethodDelete:
		*all = slices.DeleteFunc(*all, func(k map[string]any) bool {
			return fmt.Sprint(k["id"]) == path.Base(r.URL.Path)
		})
		w.WriteHeader(http.StatusNoContent)
	}
}

func (h *gitHost) answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		h.t.Error(err)
	}
}
