package githost

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestSetStatus sets a status twice on each host. The second call finds it and does not set it again.
func TestSetStatus(t *testing.T) {
	t.Parallel()
	for _, c := range loadCases(t, "statuses.yaml") {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			exchanges := append(c.Exchanges, exchange{Request: c.Exchanges[0].Request, Response: c.Unchanged})
			var secret []string
			for key, value := range c.Secret {
				secret = append(secret, key, value)
			}
			host := newClient(t, startScript(t, c.Login, exchanges...), c.Kind, c.Address, secret...)
			for range 2 {
				err := host.SetStatus(testContext(t), Status{Commit: commit, State: Success,
					Context: "kustomization/apps/1a2b", Description: "Applied revision:\nmain@sha1:0123"})
				if err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestStatesAndLimits checks the state names and the maximum length of the description of each host.
func TestStatesAndLimits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind             Kind
		address          string
		pending, failure string
		limit            int
	}{
		"GitHub": {kind: GitHub, address: "https://github.com/o/r",
			pending: "pending", failure: "failure", limit: 140},
		"GitLab": {kind: GitLab, address: "https://gitlab.com/o/r",
			pending: "pending", failure: "failed", limit: 255},
		"Gitea": {kind: Gitea, address: "https://gitea.example.com/o/r",
			pending: "pending", failure: "failure", limit: 255},
		"Bitbucket": {kind: Bitbucket, address: "https://bitbucket.org/o/r",
			pending: "INPROGRESS", failure: "FAILED", limit: 255},
		"Bitbucket Server": {kind: BitbucketServer, address: "https://git.example.com/scm/o/r.git",
			pending: "INPROGRESS", failure: "FAILED", limit: 255},
		"Azure DevOps": {kind: AzureDevOps, address: "https://dev.azure.com/o/p/_git/r",
			pending: "pending", failure: "failed", limit: 1024},
	} {
		for state, want := range map[State]string{Pending: c.pending, Failure: c.failure} {
			var body map[string]any
			host := newClient(t, startServer(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
						t.Error(err)
					}
					w.WriteHeader(http.StatusCreated)
					return
				}
				w.WriteHeader(http.StatusOK)
				if c.kind == GitLab {
					_, _ = io.WriteString(w, "[]")
				} else {
					_, _ = io.WriteString(w, "{}")
				}
			}), c.kind, c.address, "token", "s3cret")
			err := host.SetStatus(testContext(t),
				Status{Commit: commit, State: state, Context: strings.Repeat("c", 300),
					Description: strings.Repeat("ä", 2000), URL: "https://ci.example.com"})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			description, _ := body["description"].(string)
			if body["state"] != want || utf8.RuneCountInString(description) != c.limit ||
				!strings.HasSuffix(description, "ä…") {
				t.Errorf("%s: got state %v and %d characters, want %s and %d", name, body["state"],
					utf8.RuneCountInString(description), want, c.limit)
			}
		}
	}
}

// TestGitLabPendingTwice checks that a rejected change from pending to pending is not an error.
func TestGitLabPendingTwice(t *testing.T) {
	t.Parallel()
	exchanges := []exchange{
		{Request: "GET gitlab.com/api/v4/projects/o%2Fr/repository/commits/" + commit +
			"/statuses?name=c&order_by=id&per_page=1&sort=desc",
			Response: raw(`[{"status":"pending","name":"c","description":"old"}]`)},
		{Request: "POST gitlab.com/api/v4/projects/o%2Fr/statuses/" + commit,
			Body:   raw(`{"state":"pending","name":"c","description":"new","target_url":"https://ci.example.com"}`),
			Status: 400, Response: raw(`{"message":"Cannot transition status via :enqueue from :pending ` +
				`(Reason(s): Status cannot transition via \"enqueue\")"}`)},
	}
	s := Status{Commit: commit, State: Pending, Context: "c", Description: "new", URL: "https://ci.example.com"}
	if err := newClient(t, startScript(t, "Bearer s3cret", exchanges...), GitLab, "https://gitlab.com/o/r", "token",
		"s3cret").
		SetStatus(testContext(t), s); err != nil {
		t.Error(err)
	}
	exchanges[1].Response = raw(`{"message":"ref is invalid"}`)
	err := newClient(t, startScript(t, "Bearer s3cret", exchanges...), GitLab, "https://gitlab.com/o/r", "token",
		"s3cret").
		SetStatus(testContext(t), s)
	if f := expectTerminal(t, err); !strings.Contains(f.Error(), "ref is invalid") {
		t.Error(err)
	}
}

// TestStatusOnSecondPage checks that all pages of statuses are read.
func TestStatusOnSecondPage(t *testing.T) {
	t.Parallel()
	path := "GET api.github.com/repos/o/r/commits/" + commit + "/status?"
	host := newClient(t, startScript(t, "Bearer s3cret",
		exchange{Request: path + "page=1&per_page=100", Response: raw(`{"statuses":[{"context":"a"}]}`),
			Header: map[string]string{"Link": `<https://api.github.com/x>; rel="next"`}},
		exchange{Request: path + "page=2&per_page=100", Response: raw(`{"statuses": [{"context": "c",
			"state": "failure", "description": "d", "target_url": "https://ci.example.com"}]}`)},
	), GitHub, "https://github.com/o/r", "token", "s3cret")
	if err := host.SetStatus(testContext(t), Status{Commit: commit, State: Failure, Context: "c", Description: "d",
		URL: "https://ci.example.com"}); err != nil {
		t.Error(err)
	}
}

func TestInvalidStatuses(t *testing.T) {
	t.Parallel()
	host := newClient(t, startScript(t, ""), GitHub, "https://github.com/o/r", "token", "s3cret")
	for _, s := range []Status{{Commit: "main", Context: "c"}, {Commit: commit},
		{Commit: commit, Context: "c", State: 7}, {Commit: commit + "/../..", Context: "c"}} {
		_ = expectTerminal(t, host.SetStatus(testContext(t), s))
	}
}
