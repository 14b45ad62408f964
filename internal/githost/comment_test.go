package githost

import (
	"net/http"
	"strings"
	"testing"
)

// TestComments creates a comment, finds it unchanged, and updates it.
func TestComments(t *testing.T) {
	t.Parallel()
	marker := "<!-- " + digest("comment", "the key") + " -->"
	text := func(body string) string { return `{"body":"` + marker + `\n` + body + `"}` }
	found := func(body string) string {
		return `[{"id":1,"body":"comment of a user that quotes\n` + marker + `"},{"id":7,"body":"` + marker + `\n` +
			body + `"}]`
	}
	for name, c := range map[string]struct {
		kind           Kind
		address, login string
		list           string
		post, change   string
	}{
		"GitHub": {kind: GitHub, address: "https://github.com/o/r", login: "Bearer s3cret",
			list:   "GET api.github.com/repos/o/r/issues/42/comments?page=1&per_page=100",
			post:   "POST api.github.com/repos/o/r/issues/42/comments",
			change: "PATCH api.github.com/repos/o/r/issues/comments/7"},
		"GitLab": {kind: GitLab, address: "https://gitlab.com/g/s/r", login: "Bearer s3cret",
			list:   "GET gitlab.com/api/v4/projects/g%2Fs%2Fr/merge_requests/42/notes?page=1&per_page=100",
			post:   "POST gitlab.com/api/v4/projects/g%2Fs%2Fr/merge_requests/42/notes",
			change: "PUT gitlab.com/api/v4/projects/g%2Fs%2Fr/merge_requests/42/notes/7"},
		"Gitea": {kind: Gitea, address: "https://gitea.example.com/o/r", login: "token s3cret",
			list:   "GET gitea.example.com/api/v1/repos/o/r/issues/42/comments",
			post:   "POST gitea.example.com/api/v1/repos/o/r/issues/42/comments",
			change: "PATCH gitea.example.com/api/v1/repos/o/r/issues/comments/7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := newClient(t, startScript(t, c.login,
				exchange{Request: c.list, Response: raw(`[]`)},
				exchange{Request: c.post, Body: raw(text("first")), Status: 201, Response: raw(`{"id":7}`)},
				exchange{Request: c.list, Response: raw(found("first"))},
				exchange{Request: c.list, Response: raw(found("first"))},
				exchange{Request: c.change, Body: raw(text("second")), Response: raw(`{"id":7}`)},
			), c.kind, c.address, "token", "s3cret")
			for _, body := range []string{"first", "first", "second"} {
				if err := host.Comment(testContext(t), Comment{Request: 42, Key: "the key", Body: body}); err != nil {
					t.Fatal(err)
				}
			}
			_ = expectTerminal(t, host.Comment(testContext(t), Comment{Request: -1, Key: "k", Body: "b"}))
			_ = expectTerminal(t, host.Comment(testContext(t), Comment{Request: 1, Body: "b"}))
		})
	}
}

// TestCommentsOfOthers checks the same for the hosts whose API has another shape, of which two render no HTML.
func TestCommentsOfOthers(t *testing.T) {
	t.Parallel()
	html, link := "<!-- "+digest("comment", "the key")+" -->\\n", "[//]: # ("+digest("comment", "the key")+")\\n\\n"
	for name, c := range map[string]struct {
		kind           Kind
		address, login string
		list           string
		found          string // the response with our comment
		exchanges      []exchange
	}{
		"Bitbucket": {kind: Bitbucket, address: "https://bitbucket.org/w/r", login: "Bearer s3cret",
			list: "GET api.bitbucket.org/2.0/repositories/w/r/pullrequests/42/comments?page=1&pagelen=100",
			found: `{"values":[{"id":1,"content":{"raw":"other"}},{"id":6,"deleted":true,"content":{"raw":"` + link +
				`first"}},{"id":7,"content":{"raw":"` + link + `first"}}]}`,
			exchanges: []exchange{
				{Request: "POST api.bitbucket.org/2.0/repositories/w/r/pullrequests/42/comments",
					Body: raw(`{"content":{"raw":"` + link + `first"}}`)},
				{Request: "PUT api.bitbucket.org/2.0/repositories/w/r/pullrequests/42/comments/7",
					Body: raw(`{"content":{"raw":"` + link + `second"}}`)}}},
		"Bitbucket Server": {kind: BitbucketServer, address: "https://git.example.com/scm/p/r.git",
			login: "Bearer s3cret",
			list: "GET git.example.com/rest/api/latest/projects/p/repos/r/pull-requests/42/activities?limit=100&" +
				"start=0",
			found: `{"isLastPage":true,"values":[{"action":"OPENED"},{"action":"COMMENTED","comment":{"id":7,` +
				`"version":3,"text":"` + link + `first"}}]}`,
			exchanges: []exchange{
				{Request: "POST git.example.com/rest/api/latest/projects/p/repos/r/pull-requests/42/comments",
					Body: raw(`{"text":"` + link + `first"}`)},
				{Request: "GET git.example.com/rest/api/latest/projects/p/repos/r/pull-requests/42/comments/7",
					Response: raw(`{"id":7,"version":4,"text":"x"}`)},
				{Request: "PUT git.example.com/rest/api/latest/projects/p/repos/r/pull-requests/42/comments/7",
					Body: raw(`{"text":"` + link + `second","version":4}`)}}},
		"Azure DevOps": {kind: AzureDevOps, address: "https://dev.azure.com/o/p/_git/r", login: "Basic OnMzY3JldA==",
			list: "GET dev.azure.com/o/p/_apis/git/repositories/r/pullRequests/42/threads?api-version=7.1",
			found: `{"value":[{"id":1,"comments":[]},{"id":2,"comments":[{"id":1,"isDeleted":true,"content":"` + html +
				`first"}]},{"id":7,"comments":[{"id":1,"content":"` + html + `first"}]}]}`,
			exchanges: []exchange{
				{Request: "POST dev.azure.com/o/p/_apis/git/repositories/r/pullRequests/42/threads?api-version=7.1",
					Body: raw(`{"status":"closed","comments":[{"content":"` + html + `first","commentType":"text"}]}`)},
				{Request: "PATCH dev.azure.com/o/p/_apis/git/repositories/r/pullRequests/42/threads/7/comments/1?" +
					"api-version=7.1", Body: raw(`{"content":"` + html + `second"}`)}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			script := []exchange{{Request: c.list, Response: raw(`{"isLastPage":true}`)}, c.exchanges[0],
				{Request: c.list, Response: raw(c.found)}, {Request: c.list, Response: raw(c.found)}}
			host := newClient(t, startScript(t, c.login, append(script, c.exchanges[1:]...)...), c.kind, c.address,
				"token", "s3cret")
			for _, body := range []string{"first", "first", "second"} {
				if err := host.Comment(testContext(t), Comment{Request: 42, Key: "the key", Body: body}); err != nil {
					t.Fatal(err)
				}
			}
			if host.RendersHTML() != (c.kind == AzureDevOps) {
				t.Error("HTML")
			}
		})
	}
}

// TestLongComment checks that comments are truncated to the limit of the host.
func TestLongComment(t *testing.T) {
	t.Parallel()
	host := newClient(t, startServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = w.Write([]byte("[]"))
			return
		}
		if r.ContentLength > 65536+200 || r.ContentLength < 65000 {
			t.Errorf("the comment has %d bytes", r.ContentLength)
		}
	}), GitHub, "https://github.com/o/r", "token", "s3cret")
	if err := host.Comment(testContext(t), Comment{Request: 42, Key: "k",
		Body: strings.Repeat("x", 1<<20)}); err != nil {
		t.Error(err)
	}
}

func TestDispatch(t *testing.T) {
	t.Parallel()
	host := newClient(t, startScript(t, "Bearer s3cret", exchange{Request: "POST api.github.com/repos/o/r/dispatches",
		Body:   raw(`{"event_type":"Kustomization/apps.flux-system","client_payload":{"severity":"info"}}`),
		Status: 204}),
		GitHub, "https://github.com/o/r", "token", "s3cret")
	if err := host.Dispatch(testContext(t), "Kustomization/apps.flux-system",
		map[string]string{"severity": "info"}); err != nil {
		t.Error(err)
	}
	_ = expectTerminal(t, newClient(t, startScript(t, ""), Gitea, "https://gitea.example.com/o/r", "token", "s3cret").
		Dispatch(testContext(t), "type", nil))
}
