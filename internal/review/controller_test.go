package review_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/review"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// TestControllersReview starts the controllers with --review-addr: they look at the pull requests of the configured
// repository, and again after a webhook that has its secret.
func TestControllersReview(t *testing.T) {
	t.Parallel()
	var looks atomic.Int32
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/merge_requests") {
			looks.Add(1)
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(host.Close)
	dir, addr := t.TempDir(), testenv.FreeAddress(t)
	for name, content := range map[string]string{"token": "tok-3n", "secret": "a-secret-of-the-webhook",
		"review.yaml": fmt.Sprintf("repositories: [{name: fleet, url: '%s/org/fleet', type: gitlab, "+
			"tokenFile: token, webhookSecretFile: secret}]\n", host.URL)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	system.New(t, func(o *options.Options) {
		o.UI = options.UIOptions{ReviewAddr: addr, ReviewConfig: filepath.Join(dir, "review.yaml")}
	})
	testenv.Eventually(t, "a look at the pull requests", func() error {
		if looks.Load() == 0 {
			return errors.New("the host was not asked")
		}
		return nil
	})
	hook := func(secret string) (int, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+review.HookPath+"fleet",
			strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Gitlab-Event", "Merge Request Hook")
		r.Header.Set("X-Gitlab-Token", secret)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, err
		}
		return answer.StatusCode, answer.Body.Close()
	}
	testenv.Eventually(t, "the server of the webhooks", func() error {
		got, err := hook("another secret of a webhook")
		if err == nil && got != http.StatusUnauthorized {
			t.Errorf("a webhook with another secret: status %d", got)
		}
		return err
	})
	before := looks.Load()
	if got, err := hook("a-secret-of-the-webhook"); err != nil || got != http.StatusOK {
		t.Errorf("a webhook: status %d, %v", got, err)
	}
	testenv.Eventually(t, "a look after the webhook", func() error {
		if looks.Load() == before {
			return errors.New("the host was not asked again")
		}
		return nil
	})
}
