package githost

import (
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// TestOpenRequest creates a change request, finds it unchanged, and updates it, on each host.
func TestOpenRequest(t *testing.T) {
	t.Parallel()
	for _, c := range loadCases(t, "change-requests.yaml") {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			host := newClient(t, startScript(t, c.Login, c.Exchanges...), c.Kind, c.Address, "token", "s3cret")
			for _, body := range []string{"to 1.0", "to 1.0", "to 1.1"} {
				r := Request{Head: "update/app", Base: "main", Title: "Update app", Body: body}
				if c.Labels {
					r.Labels = []string{"images"}
				}
				got, err := host.OpenRequest(testContext(t), r)
				if err != nil || got != c.URL {
					t.Fatalf("%s: got %q, %v; want %q", body, got, err, c.URL)
				}
			}
		})
	}
}

// TestConcurrentRequestUpdate checks that a conflict is not terminal, so that the update is retried.
func TestConcurrentRequestUpdate(t *testing.T) {
	t.Parallel()
	const repository = "git.example.com/rest/api/latest/projects/PRJ/repos/r/pull-requests"
	host := newClient(t, startScript(t, "Bearer s3cret",
		exchange{
			Request: "GET " + repository + "?at=refs%2Fheads%2Fupdate%2Fapp&direction=OUTGOING&limit=100&state=OPEN",
			Response: raw(`{"values": [{"id": 42, "version": 3, "title": "Update app", "description": "to 1.0",
				"reviewers": [{"user": {"name": "jane"}}],
				"toRef": {"id": "refs/heads/main", "repository": {"slug": "r", "project": {"key": "PRJ"}}}}]}`),
		},
		exchange{
			Request: "PUT " + repository + "/42",
			Body:    raw(`{"version":3,"title":"t","description":"","reviewers":[{"user":{"name":"jane"}}]}`),
			Status:  409, Response: raw(`{"errors":[{"message":"out of date"}]}`),
		},
	), BitbucketServer, "https://git.example.com/scm/PRJ/r.git", "token", "s3cret")
	_, err := host.OpenRequest(testContext(t), Request{Head: "update/app", Base: "main", Title: "t"})
	if f := fault.As(err); f == nil || f.Terminal || !strings.Contains(err.Error(), "changed concurrently") {
		t.Errorf("got %v, want a fault about a concurrent change that is not terminal", err)
	}
}

func TestInvalidRequests(t *testing.T) {
	t.Parallel()
	host := newClient(t, startScript(t, ""), Bitbucket, "https://bitbucket.org/o/r", "token", "s3cret")
	for _, r := range []Request{{Head: "a", Base: "b"}, {Head: "a", Base: "a", Title: "t"}, {Base: "b", Title: "t"},
		{Head: "a", Base: "b", Title: "t", Labels: []string{"l"}}} {
		_, err := host.OpenRequest(testContext(t), r)
		_ = expectTerminal(t, err)
	}
}
