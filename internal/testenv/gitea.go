package testenv

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Gitea is a git server with the API of Gitea to open pull requests, as https://docs.gitea.com/api describes it.
type Gitea struct {
	*Git
	Host string // http://host:port of both

	mu    sync.Mutex
	pulls []map[string]string
}

// NewGitea starts a server.
func NewGitea(tb testing.TB) *Gitea {
	tb.Helper()
	h := &Gitea{Git: NewGit(tb)}
	server, err := url.Parse(h.URL)
	if err != nil {
		tb.Fatal(err)
	}
	git := httputil.NewSingleHostReverseProxy(server)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !strings.HasPrefix(r.URL.Path, "/api/"):
			git.ServeHTTP(w, r)
		case r.Method == http.MethodGet:
			_, _ = io.WriteString(w, "[]")
		default:
			var pull map[string]string
			_ = json.NewDecoder(r.Body).Decode(&pull)
			h.mu.Lock()
			defer h.mu.Unlock()
			h.pulls = append(h.pulls, pull)
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"number": 7, "html_url": "http://host/o/r/pulls/7"}`)
		}
	}))
	tb.Cleanup(front.Close)
	h.Host = front.URL
	return h
}

// Pulls returns the pull requests that were opened, with the fields of the API.
func (h *Gitea) Pulls() []map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.pulls)
}
