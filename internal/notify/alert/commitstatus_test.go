package alert_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-gitops/sluice/api/meta"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// gitHost is a git host that records the statuses of commits.
type gitHost struct {
	*httptest.Server
	mu    sync.Mutex
	green map[string]int // statuses 'success' by commit
}

func newGitHost(t *testing.T) *gitHost {
	t.Helper()
	h := &gitHost{green: map[string]int{}}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			fmt.Fprint(w, "{}")
			return
		}
		var status struct{ State string }
		if err := json.NewDecoder(r.Body).Decode(&status); err != nil {
			t.Error(err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if strings.Contains(r.URL.Path, "/statuses/") && status.State == "success" {
			h.green[path.Base(r.URL.Path)]++
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, "{}")
	}))
	t.Cleanup(h.Close)
	return h
}

// isGreen waits until a commit has a status 'success'.
func (h *gitHost) isGreen(t *testing.T, commit string) {
	t.Helper()
	testenv.Eventually(t, "commit "+commit+" is green", func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.green[commit] == 0 {
			return errors.New("it has no status 'success'")
		}
		return nil
	})
}

// changes returns how many events say that a Kustomization applied changes: those that are for more than the status of
// a commit, which generic providers get as well, as from Flux.
func (in *inbox) changes(name string) (n int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, e := range in.events {
		if e.InvolvedObject.Kind == "Kustomization" && e.InvolvedObject.Name == name &&
			e.Reason == meta.ReconciliationSucceededReason && e.Metadata[event.CommitStatus] == "" {
			n++
		}
	}
	return n
}

// A commit that changes nothing that a Kustomization applies gets its commit status, and causes no other notification.
func TestCommitThatChangesNothingGetsItsStatus(t *testing.T) {
	t.Parallel()
	in, host := newInbox(t), newGitHost(t)
	s := sharedHarness(t)
	s.Secret("token", map[string]string{"token": "t0ken"})
	s.provider("host", host.URL+"/org/repo", func(p *notificationv1.ProviderSpec) {
		p.Type, p.SecretRef = notificationv1.GiteaProvider, &meta.LocalObjectReference{Name: "token"}
	})
	s.provider("team", in.URL)
	for _, name := range []string{"host", "team"} {
		s.alert(name, name)
		s.known(providerNamed(name), alertNamed(name))
	}
	first := s.Git.Commit("app", map[string]string{"app/config.yaml": system.ConfigMap("green", "x")})
	s.GitRepository("app")
	s.Kustomization("app", "app", "./app")
	s.Ready("app", first)
	host.isGreen(t, first)
	in.received(t, "app", meta.ReconciliationSucceededReason)

	second := s.Git.Commit("app", map[string]string{"README.md": "x"})
	s.RequestFetch("app")
	s.Ready("app", second)
	host.isGreen(t, second)

	third := s.Git.Commit("app", map[string]string{"app/config.yaml": system.ConfigMap("green", "y")})
	s.RequestFetch("app")
	s.Ready("app", third)
	host.isGreen(t, third)
	testenv.Eventually(t, "the last change is reported", func() error {
		if in.changes("app") < 2 {
			return errNotYet{"Kustomization", "app", meta.ReconciliationSucceededReason}
		}
		return nil
	})
	if n := in.changes("app"); n != 2 {
		t.Errorf("the provider that sets no commit status got %d events of changes, want 2", n)
	}
}
