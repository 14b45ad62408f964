package githost

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"
)

// statuses are, by host, the requests that say a success of which nothing was said before.
var statuses = map[string]struct {
	kind      Kind
	address   string
	secret    []string
	login     string
	exchanges []exchange
	same      string // the first answer once the status was said
}{
	"GitHub": {GitHub, "https://github.com/org/repo", []string{"token", "s3cret"}, "Bearer s3cret", []exchange{
		{request: "GET api.github.com/repos/org/repo/commits/" + commit + "/status?page=1&per_page=100",
			answer: `{"statuses":[{"context":"other","state":"success"}]}`},
		{request: "POST api.github.com/repos/org/repo/statuses/" + commit,
			body: `{"state":"success","context":"kustomization/apps/1a2b","description":"Applied revision: main@sha1:0123"}`, status: 201, answer: `{}`},
	}, `{"statuses":[{"context":"Kustomization/apps/1a2b","state":"success","description":"Applied revision: main@sha1:0123","target_url":null}]}`},
	"GitHub Enterprise Server": {GitHub, "https://git.example.com/org/repo.git", []string{"token", "s3cret"},
		"Bearer s3cret", []exchange{
			{request: "GET git.example.com/api/v3/repos/org/repo/commits/" + commit + "/status?page=1&per_page=100",
				answer: `{"statuses":[]}`},
			{request: "POST git.example.com/api/v3/repos/org/repo/statuses/" + commit,
				body: `{"state":"success","context":"kustomization/apps/1a2b","description":"Applied revision: main@sha1:0123"}`, status: 201, answer: `{}`},
		}, `{"statuses":[{"context":"kustomization/apps/1a2b","state":"success","description":"Applied revision: main@sha1:0123"}]}`},
	"GitHub with data residency": {GitHub, "https://org.ghe.com/org/repo", []string{"token", "s3cret"}, "Bearer s3cret",
		[]exchange{
			{request: "GET api.org.ghe.com/repos/org/repo/commits/" + commit + "/status?page=1&per_page=100",
				answer: `{"statuses":[]}`},
			{request: "POST api.org.ghe.com/repos/org/repo/statuses/" + commit,
				body: `{"state":"success","context":"kustomization/apps/1a2b","description":"Applied revision: main@sha1:0123"}`, status: 201, answer: `{}`},
		}, `{"statuses":[{"context":"kustomization/apps/1a2b","state":"success","description":"Applied revision: main@sha1:0123"}]}`},
	"GitLab": {GitLab, "git@gitlab.com:group/sub/repo.git", []string{"token", "s3cret"}, "Bearer s3cret", []exchange{
		{request: "GET gitlab.com/api/v4/projects/group%2Fsub%2Frepo/repository/commits/" + commit +
			"/statuses?name=kustomization%2Fapps%2F1a2b&order_by=id&per_page=1&sort=desc", answer: `[]`},
		{request: "POST gitlab.com/api/v4/projects/group%2Fsub%2Frepo/statuses/" + commit,
			body: `{"state":"success","name":"kustomization/apps/1a2b","description":"Applied revision: main@sha1:0123"}`, status: 201, answer: `{}`},
	}, `[{"status":"success","name":"kustomization/apps/1a2b","description":"Applied revision: main@sha1:0123","target_url":null}]`},
	"GitLab by ID": {GitLab, "https://git.example.com:8443/1234", []string{"token", "s3cret"}, "Bearer s3cret",
		[]exchange{
			{request: "GET git.example.com:8443/api/v4/projects/1234/repository/commits/" + commit +
				"/statuses?name=kustomization%2Fapps%2F1a2b&order_by=id&per_page=1&sort=desc", answer: `[]`},
			{request: "POST git.example.com:8443/api/v4/projects/1234/statuses/" + commit,
				body: `{"state":"success","name":"kustomization/apps/1a2b","description":"Applied revision: main@sha1:0123"}`, status: 201, answer: `{}`},
		}, `[{"status":"success","name":"kustomization/apps/1a2b","description":"Applied revision: main@sha1:0123"}]`},
	"Gitea below a path": {Gitea, "https://example.com/gitea/org/repo", []string{"token", "s3cret"}, "token s3cret",
		[]exchange{
			{request: "GET example.com/gitea/api/v1/repos/org/repo/commits/" + commit + "/status?limit=100&page=1",
				answer: `{"statuses":[]}`},
			{request: "POST example.com/gitea/api/v1/repos/org/repo/statuses/" + commit,
				body: `{"state":"success","context":"kustomization/apps/1a2b","description":"Applied revision: main@sha1:0123"}`, status: 201, answer: `{}`},
		}, `{"statuses":[{"status":"success","context":"kustomization/apps/1a2b","description":"Applied revision: main@sha1:0123","target_url":""}]}`},
	"Bitbucket with an app password": {Bitbucket, "https://bitbucket.org/team/repo", []string{"token", "user:s3cret"},
		"Basic dXNlcjpzM2NyZXQ=", []exchange{
			{request: "GET api.bitbucket.org/2.0/repositories/team/repo/commit/" + commit + "/statuses/build/KEY",
				status: 404, answer: `{"type":"error","error":{"message":"none"}}`},
			{request: "POST api.bitbucket.org/2.0/repositories/team/repo/commit/" + commit + "/statuses/build",
				body: `{"state":"SUCCESSFUL","key":"KEY","name":"kustomization/apps/1a2b","description":"Applied revision: main@sha1:0123","url":"https://bitbucket.org/team/repo/commits/` + commit + `"}`, status: 201, answer: `{}`},
		}, `{"state":"SUCCESSFUL","description":"Applied revision: main@sha1:0123","url":"https://bitbucket.org/team/repo/commits/` + commit + `"}`},
	"Bitbucket with an access token": {Bitbucket, "git@bitbucket.org:team/repo.git", []string{"token", "s3cret"},
		"Bearer s3cret", []exchange{
			{request: "GET api.bitbucket.org/2.0/repositories/team/repo/commit/" + commit + "/statuses/build/KEY",
				status: 404, answer: `{}`},
			{request: "POST api.bitbucket.org/2.0/repositories/team/repo/commit/" + commit + "/statuses/build",
				body: `{"state":"SUCCESSFUL","key":"KEY","name":"kustomization/apps/1a2b","description":"Applied revision: main@sha1:0123","url":"https://bitbucket.org/team/repo/commits/` + commit + `"}`, status: 201, answer: `{}`},
		}, `{"state":"SUCCESSFUL","description":"Applied revision: main@sha1:0123","url":"https://bitbucket.org/team/repo/commits/` + commit + `"}`},
	"Bitbucket Server": {BitbucketServer, "https://git.example.com/ctx/scm/PRJ/repo.git", []string{"token", "s3cret"},
		"Bearer s3cret", []exchange{
			{request: "GET git.example.com/ctx/rest/api/latest/projects/PRJ/repos/repo/commits/" + commit +
				"/builds?key=KEY", status: 404, answer: `{}`},
			{request: "POST git.example.com/ctx/rest/api/latest/projects/PRJ/repos/repo/commits/" + commit + "/builds",
				body: `{"state":"SUCCESSFUL","key":"KEY","name":"kustomization/apps/1a2b","description":"Applied revision: main@sha1:0123","url":"https://git.example.com/ctx/projects/PRJ/repos/repo/commits/` + commit + `"}`, status: 204},
		}, `{"state":"SUCCESSFUL","description":"Applied revision: main@sha1:0123","url":"https://git.example.com/ctx/projects/PRJ/repos/repo/commits/` + commit + `"}`},
	"Bitbucket Server, of a user": {BitbucketServer, "https://git.example.com/scm/~jane/repo.git",
		[]string{"username", "jane", "password", "s3cret"}, "Basic amFuZTpzM2NyZXQ=", []exchange{
			{request: "GET git.example.com/rest/api/latest/projects/~jane/repos/repo/commits/" + commit +
				"/builds?key=KEY",
				status: 404, answer: `{}`},
			{request: "POST git.example.com/rest/api/latest/projects/~jane/repos/repo/commits/" + commit + "/builds",
				body: `{"state":"SUCCESSFUL","key":"KEY","name":"kustomization/apps/1a2b","description":"Applied revision: main@sha1:0123","url":"https://git.example.com/projects/~jane/repos/repo/commits/` + commit + `"}`, status: 204},
		}, `{"state":"SUCCESSFUL","description":"Applied revision: main@sha1:0123","url":"https://git.example.com/projects/~jane/repos/repo/commits/` + commit + `"}`},
	"Azure DevOps": {AzureDevOps, "https://org@dev.azure.com/org/my%20project/_git/repo", []string{"token", "s3cret"},
		"Basic OnMzY3JldA==", []exchange{
			{request: "GET dev.azure.com/org/my%20project/_apis/git/repositories/repo/commits/" + commit +
				"/statuses?api-version=7.1&latestOnly=true",
				answer: `{"count":1,"value":[{"state":"succeeded","context":{"genre":"other","name":"kustomization/apps/1a2b"}}]}`},
			{request: "POST dev.azure.com/org/my%20project/_apis/git/repositories/repo/commits/" + commit +
				"/statuses?api-version=7.1", body: `{"state":"succeeded","description":"Applied revision: main@sha1:0123","context":{"genre":"fluxcd","name":"kustomization/apps/1a2b"}}`, status: 201, answer: `{}`},
		}, `{"value":[{"state":"succeeded","description":"Applied revision: main@sha1:0123","context":{"genre":"fluxcd","name":"kustomization/apps/1a2b"}}]}`},
	"Azure DevOps at visualstudio.com": {AzureDevOps, "https://org.visualstudio.com/DefaultCollection/project/_git/repo", []string{"token", "s3cret"}, "Basic OnMzY3JldA==", []exchange{
		{request: "GET org.visualstudio.com/DefaultCollection/project/_apis/git/repositories/repo/commits/" + commit +
			"/statuses?api-version=7.1&latestOnly=true", answer: `{"value":[]}`},
		{request: "POST org.visualstudio.com/DefaultCollection/project/_apis/git/repositories/repo/commits/" + commit +
			"/statuses?api-version=7.1", body: `{"state":"succeeded","description":"Applied revision: main@sha1:0123","context":{"genre":"fluxcd","name":"kustomization/apps/1a2b"}}`, status: 201, answer: `{}`},
	}, `{"value":[{"state":"succeeded","description":"Applied revision: main@sha1:0123","context":{"genre":"fluxcd","name":"kustomization/apps/1a2b"}}]}`},
}

// TestStatuses says a status twice: the second time it is there already.
func TestStatuses(t *testing.T) {
	t.Parallel()
	for name, c := range statuses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := strings.NewReplacer("KEY", digest("kustomization/apps/1a2b"))
			var exchanges []exchange
			for _, e := range append(c.exchanges, exchange{request: c.exchanges[0].request, answer: c.same}) {
				e.request, e.body = key.Replace(e.request), key.Replace(e.body)
				exchanges = append(exchanges, e)
			}
			host := client(t, play(t, c.login, exchanges...), c.kind, c.address, c.secret...)
			for range 2 {
				err := host.SetStatus(within(t),
					Status{Commit: commit, State: Success, Context: "kustomization/apps/1a2b",
						Description: "Applied revision:\nmain@sha1:0123"})
				if err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestWordsAndLimits: each host has its own words for the states, and takes so many characters of a description.
func TestWordsAndLimits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind             Kind
		address          string
		pending, failure string
		limit            int
	}{
		"GitHub":           {GitHub, "https://github.com/o/r", "pending", "failure", 140},
		"GitLab":           {GitLab, "https://gitlab.com/o/r", "pending", "failed", 255},
		"Gitea":            {Gitea, "https://gitea.example.com/o/r", "pending", "failure", 255},
		"Bitbucket":        {Bitbucket, "https://bitbucket.org/o/r", "INPROGRESS", "FAILED", 255},
		"Bitbucket Server": {BitbucketServer, "https://git.example.com/scm/o/r.git", "INPROGRESS", "FAILED", 255},
		"Azure DevOps":     {AzureDevOps, "https://dev.azure.com/o/p/_git/r", "pending", "failed", 1024},
	} {
		for state, word := range map[State]string{Pending: c.pending, Failure: c.failure} {
			var said map[string]any
			host := client(t, answering(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					if err := json.NewDecoder(r.Body).Decode(&said); err != nil {
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
			err := host.SetStatus(within(t), Status{Commit: commit, State: state, Context: strings.Repeat("c", 300),
				Description: strings.Repeat("ä", 2000), URL: "https://ci.example.com"})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			description, _ := said["description"].(string)
			if said["state"] != word || utf8.RuneCountInString(description) != c.limit ||
				!strings.HasSuffix(description, "ä…") {
				t.Errorf("%s: said %v and %d characters, want %s and %d", name, said["state"],
					utf8.RuneCountInString(description), word, c.limit)
			}
		}
	}
}

// TestPendingTwiceAtGitLab: GitLab has no way from pending to pending, which is no failure of ours.
func TestPendingTwiceAtGitLab(t *testing.T) {
	t.Parallel()
	exchanges := []exchange{
		{request: "GET gitlab.com/api/v4/projects/o%2Fr/repository/commits/" + commit +
			"/statuses?name=c&order_by=id&per_page=1&sort=desc",
			answer: `[{"status":"pending","name":"c","description":"old"}]`},
		{request: "POST gitlab.com/api/v4/projects/o%2Fr/statuses/" + commit,
			body:   `{"state":"pending","name":"c","description":"new","target_url":"https://ci.example.com"}`,
			status: 400, answer: `{"message":"Cannot transition status via :enqueue from :pending (Reason(s): Status cannot transition via \"enqueue\")"}`},
	}
	s := Status{Commit: commit, State: Pending, Context: "c", Description: "new", URL: "https://ci.example.com"}
	if err := client(t, play(t, "Bearer s3cret", exchanges...), GitLab, "https://gitlab.com/o/r", "token", "s3cret").
		SetStatus(within(t), s); err != nil {
		t.Error(err)
	}
	exchanges[1].answer = `{"message":"ref is invalid"}`
	err := client(t, play(t, "Bearer s3cret", exchanges...), GitLab, "https://gitlab.com/o/r", "token", "s3cret").
		SetStatus(within(t), s)
	if f := terminal(t, err); !strings.Contains(f.Error(), "ref is invalid") {
		t.Error(err)
	}
}

// TestLatestOnALaterPage: a commit may have more statuses than a page.
func TestLatestOnALaterPage(t *testing.T) {
	t.Parallel()
	at := "GET api.github.com/repos/o/r/commits/" + commit + "/status?"
	host := client(t, play(t, "Bearer s3cret",
		exchange{request: at + "page=1&per_page=100", answer: `{"statuses":[{"context":"a"}]}`,
			header: map[string]string{"Link": `<https://api.github.com/x>; rel="next"`}},
		exchange{request: at + "page=2&per_page=100",
			answer: `{"statuses":[{"context":"c","state":"failure","description":"d","target_url":"https://ci.example.com"}]}`},
	), GitHub, "https://github.com/o/r", "token", "s3cret")
	if err := host.SetStatus(within(t), Status{Commit: commit, State: Failure, Context: "c", Description: "d",
		URL: "https://ci.example.com"}); err != nil {
		t.Error(err)
	}
}

func TestStatusesThatAreNone(t *testing.T) {
	t.Parallel()
	host := client(t, play(t, ""), GitHub, "https://github.com/o/r", "token", "s3cret")
	for _, s := range []Status{{Commit: "main", Context: "c"}, {Commit: commit},
		{Commit: commit, Context: "c", State: 7}, {Commit: commit + "/../..", Context: "c"}} {
		_ = terminal(t, host.SetStatus(within(t), s))
	}
}
