package review

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/sluice-gitops/sluice/internal/githost"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/network/listen"
	"github.com/sluice-gitops/sluice/internal/receiver/hook"
)

// HookPath begins the paths of webhooks; the name of the repository follows.
const HookPath = "/hook/"

const (
	maxHooks    = 16 // requests at a time, for all repositories
	hookTimeout = 30 * time.Second
)

// hookTypes are the methods by which hosts sign their webhooks, as types of Receivers.
var hookTypes = map[githost.Kind]string{githost.GitHub: "github", githost.Gitea: "github", githost.GitLab: "gitlab",
	githost.Bitbucket: "bitbucket", githost.BitbucketServer: "bitbucket"}

// HTTPServer returns the server of webhooks.
func (s *Service) HTTPServer() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+HookPath+"{name}", s.receive)
	server := listen.Server(guard.Handler("webhook of a review", mux))
	server.ReadTimeout, server.WriteTimeout = hookTimeout, 2*hookTimeout
	return server
}

// receive handles a webhook. What it says is not believed: it only causes a look at the pull requests.
func (s *Service) receive(w http.ResponseWriter, r *http.Request) {
	select {
	case s.hooks <- struct{}{}:
		defer func() { <-s.hooks }()
	default:
		w.Header().Set("Retry-After", "5")
		http.Error(w, "too many webhooks at a time", http.StatusServiceUnavailable)
		return
	}
	watched := s.repositories[r.PathValue("name")]
	if watched == nil || watched.config.webhookSecret == "" {
		http.Error(w, "no repository of this name has a webhook", http.StatusNotFound)
		return
	}
	if err := verify(r.Context(), watched.config, w, r); err != nil {
		refusal := &hook.Refusal{Status: http.StatusBadRequest, Why: "the request cannot be read"}
		errors.As(err, &refusal)
		http.Error(w, refusal.Why, refusal.Status)
		return
	}
	watched.wake()
	fmt.Fprintln(w, "ok")
}

// verify checks that the host of a repository sent a webhook.
func verify(ctx context.Context, c *Repository, w http.ResponseWriter, r *http.Request) error {
	if c.Type == githost.AzureDevOps { // signs nothing
		_, password, _ := r.BasicAuth()
		if subtle.ConstantTimeCompare([]byte(password), []byte(c.webhookSecret)) != 1 {
			return &hook.Refusal{Status: http.StatusUnauthorized, Why: "the password is not the secret of the webhook"}
		}
		return nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, hook.MaxBody))
	if err != nil {
		return err
	}
	_, err = (&hook.Checker{}).Verify(ctx, hook.Trust{Type: hookTypes[c.Type], Token: c.webhookSecret},
		hook.Request{Header: r.Header, Body: body})
	return err
}
